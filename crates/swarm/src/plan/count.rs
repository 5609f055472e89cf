//! How many stripes a broadcast has.

/// Bytes of the blocks that relays pass on as they come, where links are slow enough for it to matter.
const BLOCK: u64 = 16 << 10;
/// What a link carries in the time that a block takes through a relay: 1 ms at 1 Gbit/s.
const HOP: u64 = 128 << 10;
/// What a link carries in the time that it takes to open one connection more: 0.5 ms of a core at 1 Gbit/s.
const OPEN: u64 = 64 << 10;
/// Beyond so many, nothing is won.
const MOST: u16 = 16;

/// The number of stripes for `bytes` in pieces of `piece` bytes to so many receivers that relay; 1 to 16.
///
/// In units of bytes that a link carries, a broadcast over k stripes takes about
///
/// `ceil(M / k) * k * piece + depth(k) * (k * BLOCK + HOP) + k * OPEN`
///
/// for M pieces: the stripe with most pieces has the M/k-th part, rounded up, and its relays send each k
/// times; at each hop a block waits until it has gone to k children; and each member has k parents and as many
/// children. Of small data the number that makes this least is best: about 4, and fewer than there are pieces.
/// Where the other terms are next to nothing, more stripes are better, since each lost or slow relay then matters
/// less: the answer is the largest number that costs at most 1/128 of the data more than the best, if there is one
/// that divides the receivers, or all but one, evenly: then no relay has children in two stripes, of which one
/// would wait for the other.
#[must_use]
pub fn stripes_for(receivers: u32, bytes: u64, piece: u32) -> u16 {
    let piece = u64::from(piece).min(bytes).max(1);
    let pieces = bytes.div_ceil(piece).max(1);
    let cost = |k: u64| {
        let data = u128::from(pieces.div_ceil(k)) * u128::from(k * piece);
        data + u128::from(u64::from(depth(receivers, k)) * (k * BLOCK + HOP) + k * OPEN)
    };
    // A chain is as long as the list of hosts.
    let choice = u64::from(receivers.clamp(1, 2))..=u64::from(receivers.clamp(1, MOST.into()));
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
        assert_eq!(stripes_for(15, 10_000_000, 32 << 10), 3);
        assert_eq!(stripes_for(15, 1_000_000, 16 << 10), 4);
        assert_eq!(stripes_for(16, 10_000 * MIB, small), 16);
        assert_eq!(stripes_for(1000, 10_000 * MIB, 4 << 20), 10);
        assert_eq!(stripes_for(64, 10 * MIB, 32 << 10), 4);
        assert_eq!(stripes_for(64, 50 * MIB, 128 << 10), 8);
        // One piece: it goes down one tree, whose degree is the number of stripes.
        assert_eq!(stripes_for(1000, 16 << 10, small), 4);
        assert_eq!(stripes_for(u32::MAX, u64::MAX, 1), 15);
        // No chain, though three hosts would hardly notice.
        assert_eq!(stripes_for(3, 1_000_000, 16 << 10), 3);
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
