//! How many stripes a broadcast has.

use std::collections::BTreeMap;

use super::epoch::Member;

/// Bytes of the blocks that relays pass on as they come, where links are slow enough for it to matter.
const BLOCK: u64 = 16 << 10;
/// Bytes that a link carries in the time that a block takes through a relay: 1 ms at 1 Gbit/s.
const HOP: u64 = 128 << 10;
/// Bytes that a link carries in the time to open one more connection: 0.5 ms of a core at 1 Gbit/s.
const OPEN: u64 = 64 << 10;
/// Beyond this many, nothing is won.
const MOST: u16 = 18;
/// Bytes per second of the thinnest flow of a stripe, where there are more than two. Linux cuts a flow into
/// units of the data sent in 1/1024 s at 6/5 of its rate, two full segments (1448 bytes each) at least; this
/// is where a unit is five, at 49 Mbit/s.
///
/// Thinner flows share links unevenly, most where small round trips do not make the units larger (`tcp_tso_rtt_log`
/// is 0, or Linux is older than 5.18). A stripe that the source's uplink favours fills the queues of its relays, which
/// then take the receivers' links from the relays of the others. In the lab, with 13 receivers at 40 Mbit/s or 8 at
/// 100 and flows of 10 to 25 Mbit/s, some stripes got twice the data of others, and their relays 1.4 copies to send. With
/// flows of 50 Mbit/s they did not, nor where there were two stripes.
const THIN: u64 = 5 * 1448 * 1024 * 5 / 6;

/// The number of stripes for `bytes` in pieces of `piece` bytes to these members, of whom the first is the
/// source. `rate`: bytes per second that a member's link carries each way, 0 if unknown.
///
/// In units of bytes that a link carries, a broadcast over k stripes takes about
///
/// `ceil(M / k) * k * piece + depth(k) * (k * BLOCK + HOP) + k * OPEN`
///
/// for M pieces: the stripe with most pieces has the M/k-th part, rounded up, and its relays send each k
/// times; at each hop a block waits until it has gone to k children; and each member has k parents and as many
/// children. Of small data the number that makes this least is best: about 4, and fewer than there are pieces.
/// Where the other terms are next to nothing, more stripes are better, since each lost or slow relay then matters
/// less: the answer costs at most 1/128 of the data more than the best, goes up at the places of as many receivers
/// as can be (`is_even`), and is the largest of such numbers.
///
/// A member's k children share its link, and so do its k parents. Where links are slow, there are no more stripes
/// than leave each flow thick enough ([`THIN`]), or two.
#[must_use]
pub fn stripes_for(members: &[Member], bytes: u64, piece: u32, rate: u64) -> u16 {
    let mut places = BTreeMap::new();
    for member in members.iter().skip(1).filter(|m| m.part.is_fed()) {
        *places.entry(member.place).or_default() += 1;
    }
    count(&places.into_values().collect::<Vec<u32>>(), bytes, piece, rate)
}

/// The same for this many receivers at each place.
fn count(places: &[u32], bytes: u64, piece: u32, rate: u64) -> u16 {
    let piece = u64::from(piece).min(bytes).max(1);
    let pieces = bytes.div_ceil(piece).max(1);
    let receivers: u32 = places.iter().sum();
    let cost = |k: u64| {
        let data = u128::from(pieces.div_ceil(k)) * u128::from(k * piece);
        data + u128::from(u64::from(depth(receivers, k)) * (k * BLOCK + HOP) + k * OPEN)
    };
    // A chain is as long as the list of hosts.
    let least = u64::from(receivers.clamp(1, 2));
    let thick = if rate == 0 { u64::MAX } else { rate / THIN };
    let choice = least..=u64::from(receivers.clamp(1, MOST.into())).min(thick).max(least);
    let best = choice.clone().map(cost).min().unwrap_or_default();
    let good = |&k: &u64| cost(k) <= best + u128::from(bytes / 128);
    let even = |k: u64| places.iter().filter(|&&n| k > 2 && is_even(u64::from(n), k)).sum::<u32>();
    let chosen = choice.clone().filter(good).max_by_key(|&k| (even(k), k)).unwrap_or(1);
    // Where none goes up, one that does is worth more than it costs: relays with uneven work lose a tenth.
    let dear = |&k: &u64| even(k) > 0 && cost(k) <= best + u128::from(bytes / 32);
    let other = if even(chosen) == 0 { choice.filter(dear).min_by_key(|&k| cost(k)) } else { None };
    other.unwrap_or(chosen) as u16
}

/// Whether work divides evenly at a place of n: in k stripes as many of them feed, or each in as many
/// stripes, except perhaps one that helps all. Connections share a link equally, whatever they carry: a
/// connection that has to carry more stripes than those beside it is late, while the others finish early, in
/// bursts.
fn is_even(n: u64, k: u64) -> bool {
    [n, n.saturating_sub(1)].iter().any(|&m| m.is_multiple_of(k) || k.is_multiple_of(m))
}

/// Hops from the source to the last of this many receivers, with k stripes on a flat network.
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
        let ample = |places: &[u32], bytes, piece| count(places, bytes, piece, 0);
        const MIB: u64 = 1 << 20;
        let small = 256 << 10;
        assert_eq!(ample(&[], 0, 0), 1);
        assert_eq!(ample(&[1], 10 * MIB, small), 1);
        assert_eq!(ample(&[8], 10_000 * MIB, small), 8);
        assert_eq!(ample(&[15], 10_000_000, 32 << 10), 3);
        assert_eq!(ample(&[15], 1_000_000, 16 << 10), 4);
        assert_eq!(ample(&[16], 10_000 * MIB, small), 16);
        assert_eq!(ample(&[1000], 10_000 * MIB, 4 << 20), 10);
        assert_eq!(ample(&[64], 10 * MIB, 32 << 10), 4);
        assert_eq!(ample(&[64], 50 * MIB, 128 << 10), 8);
        // One piece: it goes down one tree, whose degree is the number of stripes.
        assert_eq!(ample(&[1000], 16 << 10, small), 4);
        assert_eq!(ample(&[u32::MAX], u64::MAX, 1), 17);
        // No chain, though three hosts would hardly notice.
        assert_eq!(ample(&[3], 1_000_000, 16 << 10), 3);
        assert_eq!(ample(&[15], 10 * MIB, 32 << 10), 3);
        // Places of 4, of 8 and of 18, at one of which the source is; and the paper's.
        assert_eq!(ample(&[3, 4, 4, 4], 10_000 * MIB, small), 15);
        assert_eq!(ample(&[7, 8, 8, 8], 10_000 * MIB, small), 14);
        assert_eq!(ample(&[17, 18, 18, 18], 10_000 * MIB, small), 17);
        assert_eq!(ample(&[7, 6, 2], 50 * MIB, 128 << 10), 3);
        assert_eq!(ample(&[31, 25, 7], 50 * MIB, 128 << 10), 3);
    }

    #[test]
    fn slow_links_have_few() {
        const MIB: u64 = 1 << 20;
        const MBIT: u64 = 1_000_000 / 8;
        let of = |receivers: u32, rate| count(&[receivers], 32 * MIB, 64 << 10, rate);
        let large = |receivers: u32, rate| count(&[receivers], 10_000 * MIB, 256 << 10, rate);
        assert_eq!([20, 40, 100].map(|rate| of(13, rate * MBIT)), [2; 3]);
        assert_eq!([150, 200, 1000, 0].map(|rate| of(13, rate * MBIT)), [3, 4, 4, 4]);
        assert_eq!([1, 40, 100, 200, 1000].map(|rate| large(13, rate * MBIT)), [2, 2, 2, 4, 13]);
        assert_eq!([40, 100, 1000, 10_000].map(|rate| large(1000, rate * MBIT)), [2, 2, 10, 10]);
        assert_eq!((large(1, MBIT), large(2, MBIT), large(3, MBIT), large(0, 1)), (1, 2, 2, 1));
        // However many there are: each child gets at least the thinnest flow, or half of the link.
        for (rate, receivers) in (1..400).flat_map(|rate| [5, 13, 64, 1000].map(|n| (rate * MBIT, n))) {
            let stripes = u64::from(large(receivers, rate));
            assert!(stripes == 2 || rate / stripes >= THIN, "{receivers} at {rate}: {stripes}");
            assert!(stripes <= u64::from(large(receivers, 0)).max(2), "{receivers} at {rate}: {stripes}");
        }
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
