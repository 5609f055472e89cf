//! Which hosts keep copies of a cache: each holder decides for itself, from facts that all know, so that all
//! decide alike.

use std::time::Duration;

use tidecast_hash::sha256;
use tidecast_identity::NodeId;
use tokio::time::Instant;

/// The order of holders: those that keep a copy first.
pub(crate) fn rank(held: &[u8; 32], node: NodeId) -> [u8; 32] {
    sha256(&[held.as_slice(), &node.0].concat())
}

/// Whether this is so since `at` at least for `wait`.
pub(crate) fn lasts(since: &mut Option<Instant>, is: bool, wait: Duration) -> bool {
    if !is {
        *since = None;
        return false;
    }
    since.get_or_insert_with(Instant::now).elapsed() >= wait
}

/// The action of this host for a cache that it holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Judged {
    /// Hosts that have all of it, this one included; those that keep a copy first.
    pub(crate) complete: Vec<NodeId>,
    /// Copies that are missing, for this host to see to; 0 where another one does.
    pub(crate) missing: usize,
    /// There are enough without this host's.
    pub(crate) surplus: bool,
}

/// `holders` are other hosts that hold it, and whether all of it. The origin sees to copies while it lives and holds the cache,
/// else the first by rank.
pub(crate) fn judge(
    held: &[u8; 32],
    me: NodeId,
    origin: Option<NodeId>,
    holders: &[(NodeId, bool)],
    wanted: usize,
) -> Judged {
    let others = || holders.iter().filter(|(node, _)| *node != me);
    let mut complete: Vec<NodeId> = others().filter(|(_, all)| *all).map(|(node, _)| *node).collect();
    complete.push(me);
    complete.sort_by_key(|node| (Some(*node) != origin, rank(held, *node)));
    let missing = wanted.saturating_sub(others().count() + 1);
    let acts = complete.first() == Some(&me);
    let place = complete.iter().position(|node| *node == me).unwrap_or(0);
    Judged { missing: if acts { missing } else { 0 }, surplus: place >= wanted, complete }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HELD: [u8; 32] = [7; 32];

    fn node(n: u8) -> NodeId {
        NodeId([n; 32])
    }

    /// The decision for each of `nodes`, which all hold it.
    fn all(nodes: &[NodeId], origin: Option<NodeId>, wanted: usize) -> Vec<Judged> {
        let holders: Vec<_> = nodes.iter().map(|node| (*node, true)).collect();
        nodes.iter().map(|me| judge(&HELD, *me, origin, &holders, wanted)).collect()
    }

    #[test]
    fn the_origin_alone_sees_to_copies_that_are_missing() {
        let judged = all(&[node(1), node(2), node(3)], Some(node(2)), 5);
        assert_eq!(judged.iter().map(|one| one.missing).collect::<Vec<_>>(), [0, 2, 0]);
        assert!(judged.iter().all(|one| one.complete == judged[0].complete && !one.surplus));
    }

    #[test]
    fn without_the_origin_one_holder_sees_to_them_and_all_agree_which() {
        for gone in [None, Some(node(9))] {
            let judged = all(&[node(1), node(2), node(3)], gone, 4);
            assert_eq!(judged.iter().filter(|one| one.missing == 1).count(), 1);
            assert_eq!(judged.iter().filter(|one| one.missing == 0).count(), 2);
        }
    }

    #[test]
    fn just_those_beyond_the_wanted_are_surplus_and_never_the_origin() {
        for origin in 1..=5 {
            let nodes: Vec<_> = (1..=5).map(node).collect();
            let judged = all(&nodes, Some(node(origin)), 3);
            assert_eq!(judged.iter().filter(|one| one.surplus).count(), 2);
            assert!(!judged[usize::from(origin) - 1].surplus);
            assert!(judged.iter().all(|one| one.missing == 0));
        }
    }

    #[test]
    fn one_that_is_still_getting_it_counts_as_a_copy_and_keeps_none() {
        let judged = judge(&HELD, node(1), None, &[(node(2), false), (node(1), true)], 2);
        assert_eq!(judged, Judged { complete: vec![node(1)], missing: 0, surplus: false });
    }

    #[tokio::test(start_paused = true)]
    async fn a_lack_counts_when_it_lasts_and_begins_anew_after_it_was_made_good() {
        let (mut since, wait) = (None, Duration::from_secs(5));
        assert!(!lasts(&mut since, true, wait));
        tokio::time::advance(wait).await;
        assert!(lasts(&mut since, true, wait));
        assert!(!lasts(&mut since, false, wait) && !lasts(&mut since, true, wait));
    }
}
