//! How many stripes a broadcast has.

/// Bytes of the blocks that relays pass on as they come, where links are slow enough for it to matter.
const BLOCK: u64 = 16 << 10;
/// What a link carries in the time that a block takes through a relay: 0.5 ms at 1 Gbit/s.
const HOP: u64 = 64 << 10;
/// Beyond so many, nothing is won.
const MOST: u16 = 16;

/// The number of stripes for `bytes` in pieces of `piece` bytes to so many receivers that relay; 1 to 16.
///
/// In units of bytes that a link carries, a broadcast over k stripes takes about
///
/// `ceil(M / k) * k * piece + depth(k) * (k * BLOCK + HOP)`
///
/// for M pieces: the stripe with most pieces has the M/k-th part, rounded up, and its relays send each k
/// times; at each hop a block waits until it has gone to k children. Of small data the number that makes
/// this least is best: about 4, and fewer than there are pieces. Where the second term is next to nothing,
/// more stripes are better, since each lost or slow relay then matters less: the answer is the largest
/// number that costs at most 1/128 of the data more than the best, if there is one that divides the
/// receivers, or all but one, evenly: then no relay has children in two stripes, of which one would wait for
/// the other. As many as there are receivers means that each piece goes to one relay, which gives it to all
/// others: nothing is as shallow, so that is the answer for few receivers as soon as each gets a piece. In
/// simulations of 16 nodes it beats every other number from 1 MB on, whatever the formula says.
#[must_use]
pub fn stripes_for(receivers: u32, bytes: u64, piece: u32) -> u16 {
    let piece = u64::from(piece).min(bytes).max(1);
    let pieces = bytes.div_ceil(piece).max(1);
    if receivers > 1 && receivers <= u32::from(MOST) && pieces >= u64::from(receivers) {
        return receivers as u16;
    }
    let cost = |k: u64| {
        let data = u128::from(pieces.div_ceil(k)) * u128::from(k * piece);
        data + u128::from(u64::from(depth(receivers, k)) * (k * BLOCK + HOP))
    };
    let choice = 1..=u64::from(MOST).min(u64::from(receivers.max(1)));
    let best = choice.clone().map(cost).min().unwrap_or_default();
    let good = |&k: &u64| cost(k) <= best + u128::from(bytes / 128);
    let even = |&k: &u64| {
        k > 2 && (u64::from(receivers) % k == 0 || u64::from(receivers).saturating_sub(1) % k == 0)
    };
    let few = choice.rev().filter(good);
    few.clone().find(even).or(few.max()).unwrap_or(1) as u16
}

/// Hops from the source to the last of so many receivers, with k stripes on a flat network.
fn depth(receivers: u32, k: u64) -> u32 {
    let relays = u64::from(receivers).div_ceil(k);
    let (mut depth, mut reached, mut level) = (1 + u32::from(receivers > 1), 1, 1);
    if k == 1 {
        return receivers;
    }
    while reached < relays {
        level *= k;
        reached += level;
        depth += 1;
    }
    depth
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_data_has_few_and_large_data_many() {
        const MIB: u64 = 1 << 20;
        let small = 256 << 10;
        assert_eq!(stripes_for(0, 0, 0), 1);
        assert_eq!(stripes_for(1, 10 * MIB, small), 1);
        assert_eq!(stripes_for(8, 10_000 * MIB, small), 8);
        assert_eq!(stripes_for(15, 10_000_000, 64 << 10), 15);
        assert_eq!(stripes_for(15, 1_000_000, 64 << 10), 15);
        assert_eq!(stripes_for(16, 10_000 * MIB, small), 16);
        assert_eq!(stripes_for(1000, 10_000 * MIB, 4 << 20), 10);
        assert_eq!(stripes_for(64, 10 * MIB, small), 8);
        assert_eq!(stripes_for(64, 50 * MIB, small), 8);
        // One piece: it goes down one tree, whose degree is the number of stripes.
        assert_eq!(stripes_for(1000, 16 << 10, small), 4);
        assert_eq!(stripes_for(u32::MAX, u64::MAX, 1), 15);
    }

    #[test]
    fn depths_are_those_of_the_plan() {
        for (receivers, k) in [(1, 1), (5, 1), (15, 15), (64, 8), (999, 16), (9999, 4)] {
            let plan = super::super::Plan::new(&super::super::Epoch::flat(receivers + 1, k, 1));
            let depths = (0..k).flat_map(|s| plan.as_ref().map(|p| p.depths(s)).unwrap_or_default());
            assert_eq!(depths.flatten().max(), Some(depth(receivers, u64::from(k))), "{receivers} {k}");
        }
    }
}
