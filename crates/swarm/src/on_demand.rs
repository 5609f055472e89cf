//! A plan on demand: it delivers the pieces that a member of the group has read, and no others.
//!
//! All nodes of a job open the same files in the same second. A member that wants a piece tells its parent in
//! one tree of the plan, by a *wish*, and a relay that lacks the piece passes it up the same tree, once: the
//! source is asked for each piece by its own children only, however many want it. It sends wished pieces,
//! each by one stripe and in the order of the wishes, urgent ones first. Every member accepts the offered
//! pieces, wanted or not: it will need them in a moment.
//!
//! A piece that a member waits for and that is not offered for long is *released*, and fetched as in a swarm
//! from any peer that has it. When no other pieces come either, every wish goes up again, by the next tree,
//! and is released as well. (While others come it does not: the piece may be in transit, and would be sent to
//! a whole tree once more.) A relay that forwards a wish wants the piece itself, so each wish is tracked at
//! each node that it has reached.

use std::ops::Range;

use crate::api::{Action, PeerId, Reason};
use crate::engine::Engine;
use crate::state::pieces::State;
use crate::state::plan_state::PlanState;

impl Engine {
    /// There is a plan, on demand.
    pub(crate) fn on_demand(&self) -> bool {
        self.env.policy().on_demand && self.plan.state().is_some()
    }

    /// A piece is wanted by us, or by a child that has wished for it in the tree of this stripe. `urgent`: a
    /// reader waits for it.
    pub(crate) fn wish(&mut self, piece: u32, urgent: bool, stripe: Option<u16>) {
        let (urgent, state) = (urgent || self.selection.has_deadline(piece), self.pieces.state(piece));
        let on_demand = self.env.policy().on_demand;
        let Some(plan) = self.plan.state_mut().filter(|_| on_demand) else { return };
        let (source, stripes) = (plan.is_source(), plan.role().stripes.len() as u32);
        let due = if source { State::Verified } else { State::Missing };
        if state != due || plan.stripe_of(piece).is_some() || stripes == 0 {
            return;
        }
        if plan.wishes_mut().add(piece, urgent, stripe, stripes, source) {
            // From now on it is minded.
            self.upkeep.arm();
        }
    }

    /// A member below us in the tree of this stripe lacks pieces that a reader there has requested.
    pub(crate) fn on_wished(&mut self, id: PeerId, pieces: Range<u32>, stripe: u16, urgent: bool) {
        if pieces.is_empty() || pieces.end > self.pieces.count() {
            return self.disconnect(id, Reason::Protocol("wished for invalid pieces"));
        }
        let member = self.peers.get(&id).and_then(|p| p.place.member());
        let on_demand = self.env.policy().on_demand;
        let Some(plan) = self.plan.state().filter(|_| member.is_some() && on_demand) else { return };
        let (source, stripes) = (plan.is_source(), plan.role().stripes.len());
        let stripe = Some(stripe).filter(|s| usize::from(*s) < stripes);
        let mut here = Vec::new();
        for piece in pieces {
            let given = self.plan.state().is_some_and(|c| c.stripe_of(piece).is_some());
            if self.pieces.verified(piece) && (given || !source) {
                here.push(piece);
                continue;
            }
            if !source {
                self.want(piece);
            }
            self.wish(piece, urgent, stripe);
        }
        self.give_again(id, stripe, urgent, &here);
    }

    /// A child lacks pieces that are here: they came to it too late, or were lost in transit.
    fn give_again(&mut self, id: PeerId, stripe: Option<u16>, urgent: bool, here: &[u32]) {
        let most = self.pieces.count() as usize;
        let Some(plan) = self.plan.state_mut() else { return };
        if plan.give_again(id, stripe, urgent, here, most) {
            self.feed(id);
        }
    }

    /// Wants a piece that is wanted elsewhere.
    fn want(&mut self, piece: u32) {
        if self.pieces.priority(piece) == 0 && !self.pieces.verified(piece) {
            self.with_piece(piece, |p| p.set_priority(piece, 1));
            self.wanting_again();
        }
    }

    /// Passes wishes up.
    pub(crate) fn send_wishes(&mut self) {
        let (now, peers) = (self.env.now(), &self.peers);
        let mut runs: Vec<(PeerId, u16, bool, Range<u32>)> = Vec::new();
        self.plan.send_wishes(
            now,
            |id| peers.get(&id).is_some_and(|p| !p.is_closing()),
            |piece, id, stripe, urgent| match runs.last_mut() {
                Some((to, s, u, run)) if (*to, *s, *u, run.end) == (id, stripe, urgent, piece) => {
                    run.end += 1
                }
                _ => runs.push((id, stripe, urgent, piece..piece + 1)),
            },
        );
        self.outbox.extend(runs.into_iter().map(|(peer, stripe, urgent, pieces)| Action::Wish {
            peer,
            pieces,
            stripe,
            urgent,
        }));
    }

    /// The piece that the source gives next: urgent ones first.
    pub(crate) fn next_touched(&mut self) -> Option<u32> {
        let pieces = &self.pieces;
        self.plan.state_mut()?.next_wished(|piece| pieces.verified(piece))
    }

    /// A parent offers a piece: it is accepted, whether it is wanted here yet or not.
    pub(crate) fn take_touched(&mut self, piece: u32) {
        if self.plan.state().is_some_and(PlanState::is_source) {
            return;
        }
        self.want(piece);
        if let Some(plan) = self.plan.state_mut() {
            plan.wishes_mut().forget(piece);
        }
        // Should it not come, it is fetched.
        self.await_piece(piece, false);
    }

    /// Unanswered wishes go up again; called a few times a second.
    pub(crate) fn check_wishes(&mut self) {
        let (now, pieces) = (self.env.now(), &self.pieces);
        let Some(plan) = self.plan.state_mut() else { return };
        let released = plan.check_wishes(now, |piece| pieces.state(piece) == State::Missing);
        for piece in released {
            self.await_piece(piece, false);
        }
    }

    /// Pieces that others have and that do not come, though we wish for them, are fetched.
    pub(crate) fn left_out_of_wishes(&self) -> Vec<u32> {
        let open = self.plan.state().into_iter().flat_map(|c| c.wishes().open());
        open.filter(|&p| self.is_awaited(p) && self.others_have(p)).collect()
    }

    /// A new epoch: pieces that were given to no stripe, as far as we know, are awaited, and wished for where
    /// they are wanted.
    pub(crate) fn await_untouched(&mut self) {
        let Some(plan) = self.plan.state_mut() else { return };
        let source = plan.is_source();
        if !source {
            plan.wishes_mut().clear();
        }
        for piece in 0..self.pieces.count() {
            let known = self.plan.state().is_some_and(|c| c.stripe_of(piece).is_some());
            // Requested pieces may be requested again.
            let asked = self.pieces.lacks(piece) && self.pieces.state(piece) != State::Missing;
            self.await_piece(piece, !source && !known && !asked);
            if !source && self.pieces.lacks(piece) {
                self.wish(piece, false, None);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::single_range_in_vec_init)]
    use std::collections::VecDeque;
    use std::sync::Arc;

    use super::*;
    use crate::api::{Block, Event, Limits, Policy, Protocol, Setup, Time};
    use crate::plan::{Edges, Role};

    const MS: u64 = 1_000_000;
    /// Peers are called as the members that they are.
    const PARENTS: [PeerId; 2] = [PeerId(1), PeerId(2)];
    const CHILDREN: [PeerId; 2] = [PeerId(4), PeerId(5)];

    /// A member of a plan on demand over 200 pieces, in two stripes; the source, 0, has them, member 3 has nothing
    /// and wants nothing yet. Both feed members 4 and 5.
    fn member(member: u32) -> Engine {
        let (policy, limits) = (Policy { on_demand: true, ..Policy::TIDECAST }, Limits::default());
        let source = member == 0;
        let have = if source { vec![0..200] } else { vec![] };
        let setup = Setup { lengths: vec![1 << 14; 200].into(), have, want: vec![], policy, limits, seed: 1 };
        let mut engine = Engine::new(setup, Time(0)).unwrap();
        let parent = |stripe: usize| (!source).then_some(PARENTS[stripe].0);
        let stripes = vec![
            Edges { parent: parent(0), children: vec![4] },
            Edges { parent: parent(1), children: vec![5] },
        ];
        give(&mut engine, 0, Event::Plan(Arc::new(Role { epoch: 1, member, sources: vec![0], stripes })));
        for peer in PARENTS.into_iter().filter(|_| !source).chain(CHILDREN) {
            let protocol = Protocol::Tidecast { max_block: 1 << 20 };
            give(&mut engine, 0, Event::PeerUp { peer, protocol, candidate: None });
            give(&mut engine, 0, Event::Member { peer, member: peer.0, distance: 0 });
            give(&mut engine, 0, Event::HasNone { peer });
        }
        engine
    }

    fn give(engine: &mut Engine, ms: u64, event: Event) -> Vec<Action> {
        engine.handle(Time(ms * MS), event);
        engine.check().unwrap();
        std::iter::from_fn(|| engine.poll()).collect()
    }

    fn wish(peer: PeerId, pieces: Range<u32>, stripe: u16, urgent: bool) -> Action {
        Action::Wish { peer, pieces, stripe, urgent }
    }

    fn wishes(actions: Vec<Action>) -> Vec<Action> {
        actions.into_iter().filter(|a| matches!(a, Action::Wish { .. })).collect()
    }

    #[test]
    fn a_relay_passes_a_wish_up_its_tree_once() {
        let mut relay = member(3);
        let wished = |peer, pieces, stripe, urgent| Event::Wished { peer, pieces, stripe, urgent };
        let up = give(&mut relay, 1, wished(CHILDREN[0], 7..9, 0, true));
        assert_eq!(wishes(up), [wish(PARENTS[0], 7..9, 0, true)]);
        assert_eq!(wishes(give(&mut relay, 2, wished(CHILDREN[1], 7..9, 0, true))), []);
        // Now it wants them itself, which is nothing new.
        let at = Time(3 * MS);
        assert_eq!(wishes(give(&mut relay, 3, Event::Deadline { pieces: 7..8, at })), []);
        assert_eq!(wishes(give(&mut relay, 3, Event::Priority { pieces: 7..8, priority: 1 })), []);
        // A wish that comes up another tree continues up that one: otherwise wishes could loop.
        let up = give(&mut relay, 4, wished(CHILDREN[1], 8..9, 1, false));
        assert_eq!(wishes(up), [wish(PARENTS[1], 8..9, 1, true)]);
    }

    #[test]
    fn what_somebody_waits_for_is_wished_for_again_though_it_was_prefetched() {
        let mut node = member(3);
        let priority = |pieces| Event::Priority { pieces, priority: 1 };
        let up = give(&mut node, 1, priority(60..70));
        assert_eq!(wishes(up), [wish(PARENTS[0], 60..64, 0, false), wish(PARENTS[1], 64..70, 1, false)]);
        let up = give(&mut node, 2, Event::Deadline { pieces: 65..66, at: Time(2 * MS) });
        assert_eq!(wishes(up), [wish(PARENTS[1], 65..66, 1, true)]);
        assert_eq!(wishes(give(&mut node, 3, Event::Deadline { pieces: 90..91, at: Time(2 * MS) })), []);
        assert_eq!(wishes(give(&mut node, 3, priority(90..91))), [wish(PARENTS[1], 90..91, 1, true)]);
    }

    #[test]
    fn what_is_offered_is_taken_and_passed_on_though_nobody_here_wants_it() {
        let mut relay = member(3);
        let got = give(&mut relay, 1, Event::Offered { peer: PARENTS[1], piece: 5, stripe: 1 });
        assert!(!got.iter().any(|a| matches!(a, Action::Cancel { .. })), "{got:?}");
        assert!(!relay.is_complete());
        let got = give(&mut relay, 2, Event::PieceVerified { piece: 5 });
        assert!(got.contains(&Action::Offer { peer: CHILDREN[1], piece: 5, stripe: 1 }), "{got:?}");
        assert!(got.contains(&Action::Complete) && relay.is_complete());
    }

    #[test]
    fn who_comes_late_is_given_what_is_here_as_soon_as_it_wishes() {
        let (mut relay, child) = (member(3), CHILDREN[1]);
        give(&mut relay, 1, Event::Offered { peer: PARENTS[1], piece: 5, stripe: 1 });
        give(&mut relay, 2, Event::PieceVerified { piece: 5 });
        // It has refused it, as it had not asked for it, and lost it since.
        let whole = Block { piece: 5, begin: 0, len: 1 << 14 };
        give(&mut relay, 3, Event::Canceled { peer: child, block: whole });
        let wished = Event::Wished { peer: child, pieces: 5..7, stripe: 1, urgent: true };
        let got = give(&mut relay, 4, wished);
        assert!(got.contains(&Action::Offer { peer: child, piece: 5, stripe: 1 }), "{got:?}");
        assert_eq!(wishes(got), [wish(PARENTS[1], 6..7, 1, true)]);
    }

    #[test]
    fn wishes_without_end_make_no_list_without_end() {
        let mut relay = member(3);
        (0..200).for_each(|piece| drop(give(&mut relay, 1, Event::PieceVerified { piece })));
        for urgent in [true, false] {
            for ms in 2..20 {
                give(&mut relay, ms, Event::Wished { peer: CHILDREN[0], pieces: 0..200, stripe: 0, urgent });
            }
        }
        assert!(relay.plan.state().unwrap().footprint() <= 3 * 200, "all of it is asked for already");
    }

    #[test]
    fn a_wish_goes_up_again_when_nothing_comes_or_its_parent_goes() {
        let mut node = member(3);
        let up = give(&mut node, 0, Event::Priority { pieces: 3..4, priority: 2 });
        assert_eq!(wishes(up), [wish(PARENTS[0], 3..4, 0, true)]);
        let up = give(&mut node, 10, Event::PeerDown { peer: PARENTS[0] });
        assert_eq!(wishes(up), [wish(PARENTS[1], 3..4, 1, true)]);
        let all = (10..2500).flat_map(|ms| give(&mut node, ms, Event::Tick)).collect();
        assert_eq!(wishes(all), [wish(PARENTS[1], 3..4, 1, true)], "there is no other parent");
        // Nothing came at all: from now on it may come from any peer that has it.
        let asked = give(&mut node, 2500, Event::Has { peer: CHILDREN[0], pieces: 3..4 });
        assert!(asked.contains(&Action::RequestPieces { peer: CHILDREN[0], pieces: 3..4 }), "{asked:?}");
    }

    #[test]
    fn a_wish_is_minded_though_nothing_was_wanted_before() {
        let mut node = member(3);
        (0..100).for_each(|tenth| drop(give(&mut node, tenth * 100, Event::Tick)));
        assert_eq!(node.wakeup(), None);
        give(&mut node, 10_000, Event::Priority { pieces: 3..4, priority: 1 });
        let mut again = Vec::new();
        while again.is_empty() {
            let at = node.wakeup().unwrap();
            again = wishes(give(&mut node, at.0 / MS, Event::Tick));
        }
        assert_eq!(again, [wish(PARENTS[1], 3..4, 1, false)]);
    }

    #[test]
    fn a_wish_does_not_go_round_for_ever() {
        let mut relay = member(3);
        let mut up = |ms: u64, stripe| {
            let wished = Event::Wished { peer: CHILDREN[0], pieces: 7..8, stripe, urgent: true };
            wishes(give(&mut relay, ms, wished)).len()
        };
        assert_eq!((1..1000).map(|ms| up(ms, (ms % 2) as u16)).sum::<usize>(), 3);
    }

    #[test]
    fn what_no_parent_brings_is_fetched_and_fetched_again_after_a_new_epoch() {
        let mut node = member(3);
        PARENTS.into_iter().for_each(|peer| drop(give(&mut node, 1, Event::PeerDown { peer })));
        give(&mut node, 2, Event::Has { peer: CHILDREN[0], pieces: 3..4 });
        give(&mut node, 2, Event::Priority { pieces: 3..4, priority: 1 });
        let mut asked = |ms: std::ops::Range<u64>, event: Option<Event>| {
            let first =
                event.into_iter().flat_map(|event| give(&mut node, ms.start, event)).collect::<Vec<_>>();
            let rest = ms.flat_map(|ms| give(&mut node, ms, Event::Tick)).collect::<Vec<_>>();
            let asked = first.iter().chain(&rest).filter(|a| matches!(a, Action::RequestPieces { .. }));
            asked.filter_map(Action::peer).collect::<Vec<_>>()
        };
        assert_eq!(asked(3..2500, None), [CHILDREN[0]]);
        let stripes = vec![Edges { parent: Some(9), children: vec![] }; 2];
        let role = Role { epoch: 2, member: 3, sources: vec![0], stripes };
        asked(2500..2501, Some(Event::Plan(Arc::new(role))));
        asked(2600..2601, Some(Event::Has { peer: CHILDREN[1], pieces: 3..4 }));
        assert_eq!(asked(2700..2800, Some(Event::PeerDown { peer: CHILDREN[0] })), [CHILDREN[1]]);
    }

    #[test]
    fn the_source_gives_what_is_touched_once_and_what_is_waited_for_first() {
        let mut source = member(0);
        let mut offered = Vec::new();
        let mut told = |source: &mut Engine, event: Event| {
            let mut actions = VecDeque::from(give(source, 1, event));
            while let Some(action) = actions.pop_front() {
                match action {
                    Action::Offer { piece, .. } => offered.push(piece),
                    Action::Serve { peer, block } => {
                        actions.extend(give(source, 1, Event::Sent { peer, block }))
                    }
                    _ => {}
                }
            }
            std::mem::take(&mut offered)
        };
        assert_eq!(told(&mut source, Event::Tick), []);
        let wished = |peer, pieces, urgent| Event::Wished { peer, pieces, stripe: 0, urgent };
        source.wish(100, false, None);
        source.wish(101, false, None);
        assert_eq!(told(&mut source, wished(CHILDREN[0], 9..10, true)), [9, 100, 101]);
        assert_eq!(told(&mut source, wished(CHILDREN[1], 9..10, true)), []);
        assert_eq!(told(&mut source, wished(CHILDREN[1], 9..11, true)), [10]);
        assert!(source.plan.state().is_some_and(|c| c.wishes().len() == 0));
    }
}
