//! The origin's budget: when the source of a plan has sent this many copies of the data, members help one another.
//!
//! Beyond it the source delays a request for pieces that others claim ([`WAIT`]), and does not push old
//! pieces to newcomers. If the requester finds them elsewhere meanwhile it cancels its request; else it is
//! served after all. A peer that received nothing new while it waited depends on us, and does not wait again
//! for a while ([`NEEDY`]): so the cost of the budget is bounded, whichever peers cannot reach each other.
//! Pieces that no other peer has are served at once, and so are requests of stock clients, which get nothing
//! by the plan.

use std::time::Duration;

use crate::api::{Block, PeerId};
use crate::engine::Engine;

/// How long a request waits for others to serve it.
const WAIT: Duration = Duration::from_millis(500);
/// ... where all members go on serving: it pays to wait for them, on slow links too.
const WAIT_STAYS: Duration = Duration::from_secs(2);
/// A peer that found no help is served at once for this long.
const NEEDY: Duration = Duration::from_secs(8);

impl Engine {
    /// We are a source of a plan and have sent all copies of the data, or of our share of it, that we are to send.
    pub(crate) fn over_budget(&self) -> bool {
        let Some(plan) = self.plan.state().filter(|c| c.is_source()) else { return false };
        if self.env.policy().on_demand {
            // Wished pieces have been given: only pieces lost in transit are requested.
            return true;
        }
        let role = plan.role();
        let ours = role.sources.iter().filter(|s| **s == role.member).count() as u64;
        self.budget.spent(self.totals.served(), ours, role.sources.len() as u64)
    }

    /// Whether this request waits for others to serve it.
    pub(crate) fn spare(&mut self, id: PeerId, block: Block) -> bool {
        if self.on_demand() {
            // A peer that is not in the plan, or not yet, gets nothing by it, and may know no other peer.
            if self.peers.get(&id).is_none_or(|p| p.place.member().is_none()) {
                return false;
            }
            self.wish(block.piece, true, None);
        }
        let stays = self.env.policy().stays;
        let others = self.selection.holders(block.piece) > 0 || stays && self.budget.any_finished();
        let claimed = others && self.over_budget();
        // A full list rejects no request.
        if !claimed || self.budget.waiting() >= self.env.limits().queued_requests {
            return false;
        }
        let waits = self.peers.get(&id).is_some_and(|p| !p.is_stock() && !p.need.is_pressing(self.env.now()));
        if waits {
            self.budget.wait(self.env.now().after(self.spared_for()), id, block);
        }
        waits
    }

    fn spared_for(&self) -> Duration {
        if self.env.policy().stays { WAIT_STAYS } else { WAIT }
    }

    /// Serves peers that have waited long enough.
    pub(crate) fn spared_due(&mut self) {
        let (now, wait) = (self.env.now(), self.spared_for());
        while let Some((id, block)) = self.budget.next_due(now) {
            let Some(peer) = self.peers.get_mut(&id) else { continue };
            peer.need.waited(now, wait, NEEDY);
            self.queue_request(id, block);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::single_range_in_vec_init)]
    use std::collections::VecDeque;
    use std::sync::Arc;

    use super::*;
    use crate::api::{Action, Event, Limits, Policy, Protocol, Setup, Time};
    use crate::plan::{Edges, Role};

    const LEN: u32 = 64 << 10;
    const MS: u64 = 1_000_000;

    /// The source of a plan over ten pieces in which it has sent its budget, a tenth of the data, and its
    /// clock. Peer 1 receives served data at once, peer 2 has piece 3.
    struct Origin(Engine, u64);

    impl Origin {
        fn new() -> Self {
            Self::with(10, false)
        }

        fn with(origin_copies: u32, stays: bool) -> Self {
            let limits = Limits { origin_copies, ..Limits::default() };
            let (lengths, policy) = (vec![LEN; 10].into(), Policy { stays, ..Policy::TIDECAST });
            let setup = Setup { lengths, have: vec![0..10], want: vec![], policy, limits, seed: 1 };
            let mut origin = Origin(Engine::new(setup, Time(0)).unwrap(), 0);
            let stripes = vec![Edges { parent: None, children: vec![9] }];
            origin.give(Event::Plan(Arc::new(Role { epoch: 1, member: 0, sources: vec![0], stripes })));
            for (peer, pieces) in [(PeerId(1), vec![]), (PeerId(2), vec![3..4])] {
                origin.up(peer);
                origin.give(Event::HasExactly { peer, pieces });
            }
            assert_eq!(origin.ask(0), [0]);
            origin
        }

        fn up(&mut self, peer: PeerId) {
            let protocol = Protocol::Tidecast { max_block: 1 << 20 };
            self.give(Event::PeerUp { peer, protocol, candidate: None });
        }

        fn give(&mut self, event: Event) -> Vec<Action> {
            self.0.handle(Time(self.1), event);
            self.0.check().unwrap();
            std::iter::from_fn(|| self.0.poll()).collect()
        }

        /// The pieces served to peer 1 by this event; they are sent at once.
        fn served(&mut self, event: Event) -> Vec<u32> {
            let (mut events, mut out) = (vec![event], Vec::new());
            while let Some(event) = events.pop() {
                for action in self.give(event) {
                    if let Action::Serve { peer, block } = action {
                        assert_eq!(peer, PeerId(1));
                        out.push(block.piece);
                        events.push(Event::Sent { peer, block });
                    }
                }
            }
            out
        }

        fn ask(&mut self, piece: u32) -> Vec<u32> {
            self.served(Event::RequestedPieces { peer: PeerId(1), pieces: piece..piece + 1 })
        }

        fn pass(&mut self, ms: u64) -> Vec<u32> {
            self.1 += ms * MS;
            self.served(Event::Tick)
        }
    }

    #[test]
    fn what_others_have_waits_and_is_served_after_all() {
        let mut origin = Origin::new();
        assert_eq!(origin.ask(4), [4], "nobody else has it");
        assert_eq!(origin.ask(3), []);
        assert_eq!(origin.pass(499), []);
        assert!(origin.0.wakeup().is_some_and(|at| at <= Time(500 * MS)));
        assert_eq!(origin.pass(1), [3]);
        // It has found no help, and does not wait again for a while.
        assert_eq!(origin.ask(3), [3]);
        assert_eq!(origin.pass(9000), []);
        assert_eq!(origin.ask(3), []);
    }

    #[test]
    fn who_finds_it_elsewhere_takes_it_back_and_goes_on_waiting() {
        let mut origin = Origin::new();
        assert_eq!(origin.ask(3), []);
        origin.pass(300);
        origin.give(Event::Has { peer: PeerId(1), pieces: 5..6 });
        let block = Block { piece: 3, begin: 0, len: LEN };
        origin.give(Event::Canceled { peer: PeerId(1), block });
        assert_eq!(origin.pass(300), []);
        assert_eq!(origin.ask(3), []);
        origin.pass(100);
        let half = Block { len: LEN / 2, ..block };
        origin.give(Event::Canceled { peer: PeerId(1), block: half });
        // Another peer sent it piece 6 meanwhile.
        origin.give(Event::Has { peer: PeerId(1), pieces: 6..7 });
        assert_eq!(origin.pass(400), [3]);
        assert_eq!(origin.0.stats().served, u64::from(LEN) * 3 / 2);
        assert_eq!(origin.ask(3), []);
    }

    #[test]
    fn who_has_left_with_everything_is_waited_for_where_members_stay() {
        for stays in [false, true] {
            let mut origin = Origin::with(10, stays);
            let member = PeerId(3);
            origin.up(member);
            origin.give(Event::Member { peer: member, member: 8, distance: 0 });
            origin.give(Event::HasAll { peer: member });
            origin.give(Event::PeerDown { peer: member });
            assert_eq!(origin.ask(4) == [4], !stays, "nobody who is here has it");
            assert_eq!(origin.pass(1999), []);
            assert_eq!(origin.pass(1) == [4], stays, "it gave no help");
        }
    }

    #[test]
    fn a_newcomer_is_pushed_only_what_nobody_has() {
        for (copies, all) in [(10, false), (0, true)] {
            let mut origin = Origin::with(copies, false);
            // A child that took everything, and has disconnected.
            let (child, next) = (PeerId(3), PeerId(4));
            origin.up(child);
            origin.give(Event::Member { peer: child, member: 9, distance: 0 });
            origin.give(Event::HasExactly { peer: child, pieces: vec![0..10] });
            origin.give(Event::PeerDown { peer: child });
            origin.up(next);
            origin.give(Event::Member { peer: next, member: 9, distance: 0 });
            let mut offered = Vec::new();
            let mut actions = VecDeque::from(origin.give(Event::HasNone { peer: next }));
            while let Some(action) = actions.pop_front() {
                match action {
                    Action::Offer { piece, .. } => offered.push(piece),
                    Action::Serve { peer, block } => actions.extend(origin.give(Event::Sent { peer, block })),
                    _ => {}
                }
            }
            assert_eq!(offered.contains(&3), all, "{offered:?}");
            assert_eq!(offered.len(), if all { 10 } else { 9 }, "{offered:?}");
        }
    }
}
