//! The plan, towards our children: every piece of a stripe goes to each of them, in order, block by
//! block as it gets here, whether they asked or not.
//!
//! Nothing waits for a child: a slow one has a longer list. A piece is offered first, and a child that has
//! it, or gets it elsewhere, declines. The source gives each piece to the stripe that has got least, of those
//! whose first member keeps up; a stripe that gets far ahead waits (`balance`).

use crate::api::{Action, Block, PeerId};
use crate::engine::Engine;
use crate::state::balance::Given;
use crate::state::child_queue::ChildQueue;

/// Bytes queued for a child, beyond which nothing new is offered to it: a 32nd of a second at its rate,
/// and at least this.
const BACKLOG_LEAST: u64 = 64 << 10;
/// Pieces of a list that are looked at for one that can be sent.
const LOOK: usize = 32;

impl Engine {
    /// The source gives pieces to stripes, as many as they take.
    pub(crate) fn give_out(&mut self) {
        let now = self.env.now();
        // The children are visited only when there is a piece to give: a relay has no piece to give, and
        // would visit all of them at each event.
        while let Some(piece) = self.next_to_give()
            && let Some((stripe, root)) = self.stripe_with_room()
        {
            let len = self.pieces.length(piece);
            if !self.is_its_turn(stripe, len) {
                return;
            }
            let Some(plan) = self.plan.state_mut() else { return };
            plan.give(piece, stripe, len, now);
            self.feed(root);
        }
        if let Some(plan) = self.plan.state_mut() {
            plan.balance_mut().rest(now);
        }
    }

    /// Whether a stripe whose first member takes more gets more, or waits for the others. On demand nothing waits.
    fn is_its_turn(&mut self, stripe: u16, piece: u32) -> bool {
        let now = self.env.now();
        if self.on_demand() {
            return true;
        }
        let Some(plan) = self.plan.state_mut() else { return false };
        let given = |stripe| Given { bytes: plan.bytes(usize::from(stripe)), stripe };
        // A new first member is given earlier pieces first: no other waits for them.
        let follows = |queue: &&ChildQueue| !queue.is_last() && queue.pending() == 0;
        let fed = plan.queues().flat_map(|(_, queues)| queues).filter(follows);
        let all: Vec<Given> = fed.map(|queue| given(queue.stripe())).collect();
        let next = given(stripe);
        plan.balance_mut().allows(now, next, &all, u64::from(piece))
    }

    /// The first piece here that no stripe has; none where we are not the source.
    fn next_to_give(&mut self) -> Option<u32> {
        if self.on_demand() {
            return self.next_touched();
        }
        let pieces = &self.pieces;
        let plan = self.plan.state_mut().filter(|c| c.is_source())?;
        plan.next_to_give(pieces.count(), LOOK, |piece| pieces.verified(piece))
    }

    /// The stripe that has got least, of those whose root has received almost all of its pieces.
    fn stripe_with_room(&self) -> Option<(u16, PeerId)> {
        let plan = self.plan.state()?;
        let mut best: Option<(u64, u16, PeerId)> = None;
        for (id, queues) in plan.queues() {
            if !self.has_push_room(id) {
                continue;
            }
            for queue in queues.iter().filter(|queue| queue.is_done()) {
                let this = (plan.bytes(usize::from(queue.stripe())), queue.stripe(), id);
                best = Some(best.map_or(this, |b| b.min(this)));
            }
        }
        best.map(|(_, stripe, id)| (stripe, id))
    }

    /// Little is queued for this child.
    fn has_push_room(&self, id: PeerId) -> bool {
        let Some(peer) = self.peers.get(&id).filter(|p| !p.is_closing() && p.place.is_introduced()) else {
            return false;
        };
        // The other half of the queue is for its requests.
        peer.queue.len() < self.env.limits().queued_requests / 2
            && peer.queue.waiting() + peer.queue.in_flight() < BACKLOG_LEAST.max(peer.queue.rate() / 32)
    }

    /// More of a piece is here: on it goes.
    pub(crate) fn pass_on(&mut self, piece: u32) {
        let Some(plan) = self.plan.state() else { return };
        let Some(stripe) = plan.stripe_of(piece) else { return };
        for child in plan.children(stripe) {
            self.feed(child);
        }
    }

    /// Queues the pieces that a child is to get and can get now: of each of its stripes one in turn.
    ///
    /// The next event begins with the stripe after the one that was served last. Turns by events would starve stripes:
    /// where each piece that leaves makes two events, the same stripe always meets the free place.
    pub(crate) fn feed(&mut self, id: PeerId) {
        let Some(mut queues) = self.plan.state_mut().and_then(|c| c.take_queues(id)) else { return };
        let mut idle = 0;
        while idle < queues.len() {
            let fed = self.feed_piece(id, &mut queues[0]);
            idle = if fed { 0 } else { idle + 1 };
            queues.rotate_left(1);
        }
        if let Some(plan) = self.plan.state_mut() {
            plan.put_back(id, queues);
        }
        if let Some(peer) = self.peers.get_mut(&id) {
            self.turns.enter(id, &mut peer.queue);
        }
    }

    /// Queues what is here of the piece that a stripe has open, and begins the next; false where none is begun.
    fn feed_piece(&mut self, id: PeerId, queue: &mut ChildQueue) -> bool {
        if self.push_open(id, queue) || queue.is_last() || !self.has_push_room(id) {
            return false;
        }
        let Some(piece) = self.next_of(id, queue) else { return false };
        self.outbox.push(Action::Offer { peer: id, piece, stripe: queue.stripe() });
        queue.begin(piece);
        self.push_open(id, queue);
        true
    }

    /// Queues what is here of the piece that a stripe has open; true where it stays open.
    fn push_open(&mut self, id: PeerId, queue: &mut ChildQueue) -> bool {
        let Some((piece, from)) = queue.open() else { return false };
        let (end, len) = (self.pieces.passable(piece, from), self.pieces.length(piece));
        let Some(peer) = self.peers.get_mut(&id).filter(|p| !p.is_closing()) else { return true };
        for part in queue.wanted(from..end) {
            if peer.queue.len() >= self.env.limits().queued_requests {
                return queue.reach(piece, part.start, len);
            }
            peer.queue.push_on(Block { piece, begin: part.start, len: part.end - part.start });
        }
        queue.reach(piece, end, len)
    }

    /// Takes the next piece out of a list that the child surely lacks and of which something is here.
    fn next_of(&self, id: PeerId, queue: &mut ChildQueue) -> Option<u32> {
        let peer = self.peers.get(&id)?;
        let has = |piece| peer.have.has(piece);
        let ready =
            |piece| piece < peer.place.offer_below() && !has(piece) && self.pieces.passable(piece, 0) > 0;
        queue.next(LOOK, has, ready)
    }

    /// A child declines this part of a piece, or the rest of all of it.
    pub(crate) fn declined(&mut self, id: PeerId, block: Block) {
        let whole = block.begin == 0 && block.len >= self.pieces.length(block.piece);
        if self.plan.state_mut().is_some_and(|c| c.decline(id, block, whole)) {
            self.feed(id);
        }
    }

    /// A connection turns out to be this member's.
    pub(crate) fn on_member(&mut self, id: PeerId, member: u32, distance: u8) {
        let Some(peer) = self.peers.get_mut(&id) else { return };
        peer.place.is_of(member, distance);
        self.plan.join(member, id);
        self.member_connected(id, member);
    }

    /// A peer has announced its pieces: from now on it is fed, where it is our child.
    pub(crate) fn introduced(&mut self, id: PeerId) {
        let new = self.peers.get_mut(&id).is_some_and(|p| p.place.introduce());
        if new {
            self.feed(id);
        }
    }

    /// A child has verified its data of the pieces below this one, and has told us.
    pub(crate) fn on_offer_below(&mut self, id: PeerId, below: u32) {
        if let Some(peer) = self.peers.get_mut(&id) {
            peer.place.offer_only_below(below);
        }
        self.feed(id);
    }

    /// Sets the pieces that a connected member is to get, and notes that it is present. Its stripes continue
    /// where they broke off, whichever parent fed it until now: it gets all that it lacks, from the source
    /// where that is within the budget. Pieces that the source has sent and no member has must come from the
    /// source again.
    pub(crate) fn member_connected(&mut self, id: PeerId, member: u32) {
        let all = !self.over_budget();
        let selection = &self.selection;
        let Some(plan) = self.plan.state_mut() else { return };
        plan.open_queues(id, member, |piece| all || selection.holders(piece) == 0);
        plan.note_connected(member);
        plan.wishes_mut().stir();
        let fed = plan.feeds(id);
        if let Some(peer) = self.peers.get_mut(&id) {
            self.turns.feed(id, &mut peer.queue, fed);
        }
        self.feed(id);
    }

    /// A connection has ended, with the pieces that were to go over it.
    pub(crate) fn left_plan(&mut self, id: PeerId) {
        let member = self.peers.get(&id).and_then(|p| p.place.member());
        self.plan.leave(id, member);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::single_range_in_vec_init)]
    use std::collections::VecDeque;
    use std::sync::Arc;

    use super::*;
    use crate::api::{Event, Limits, Policy, Protocol, Setup, Time};
    use crate::plan::{Edges, Role};

    const PEER: PeerId = PeerId(1);
    const TIDE: Protocol = Protocol::Tidecast { max_block: 1 << 20 };

    /// One of two members of a plan, with a connection to the other. The source, 0, has ten pieces.
    fn member(member: u32) -> Engine {
        let (parent, children) = if member == 0 { (None, vec![1]) } else { (Some(0), vec![]) };
        let have = if member == 0 { vec![0..10] } else { vec![] };
        let (lengths, limits) = (vec![1 << 14; 10].into(), Limits::default());
        let setup = Setup { lengths, have, want: vec![], policy: Policy::TIDECAST, limits, seed: 1 };
        let mut engine = Engine::new(setup, Time(0)).unwrap();
        let stripes = vec![Edges { parent, children }];
        give(&mut engine, Event::Plan(Arc::new(Role { epoch: 1, member, sources: vec![0], stripes })));
        if member == 1 {
            give(&mut engine, Event::Judged { below: 3 });
        }
        let up = give(&mut engine, Event::PeerUp { peer: PEER, protocol: TIDE, candidate: None });
        let below = Action::OfferBelow { peer: PEER, below: 3 };
        assert_eq!(up.first() == Some(&below), member == 1, "before all else: {up:?}");
        give(&mut engine, Event::Member { peer: PEER, member: 1 - member, distance: 0 });
        engine
    }

    /// The actions of an event; data to send is sent at once.
    fn give(engine: &mut Engine, event: Event) -> Vec<Action> {
        let (mut events, mut out) = (VecDeque::from([event]), Vec::new());
        while let Some(event) = events.pop_front() {
            engine.handle(Time(0), event);
            engine.check().unwrap();
            for action in std::iter::from_fn(|| engine.poll()) {
                if let Action::Serve { peer, block } = action {
                    events.push_back(Event::Sent { peer, block });
                }
                out.push(action);
            }
        }
        out
    }

    /// A source of this many pieces of 64 KiB.
    fn source(pieces: u32) -> Engine {
        let (lengths, limits) = (vec![1 << 16; pieces as usize].into(), Limits::default());
        let have = vec![0..pieces];
        Engine::new(Setup { lengths, have, want: vec![], policy: Policy::TIDECAST, limits, seed: 1 }, Time(0))
            .unwrap()
    }

    /// A source's part in an epoch of two stripes with these first members.
    fn roots(epoch: u32, children: [u32; 2]) -> Event {
        let stripes = children.map(|child| Edges { parent: None, children: vec![child] }).to_vec();
        Event::Plan(Arc::new(Role { epoch, member: 0, sources: vec![0], stripes }))
    }

    /// A member that has nothing connects; its peer number is its member number.
    fn joins(member: u32) -> [Event; 4] {
        let (peer, below) = (PeerId(member), u32::MAX);
        let up = Event::PeerUp { peer, protocol: TIDE, candidate: None };
        [
            up,
            Event::Member { peer, member, distance: 0 },
            Event::HasNone { peer },
            Event::OfferBelow { peer, below },
        ]
    }

    /// A source of two stripes, whose first members take blocks at the instants that `taken` tells: this many bytes each
    /// have been offered when `ends` milliseconds have passed.
    fn two_stripes(ends: u64, taken: impl Fn(u64, PeerId, usize) -> usize) -> [u64; 2] {
        let mut engine = source(4000);
        let (mut sent, mut offered) = ([VecDeque::new(), VecDeque::new()], [0; 2]);
        let mut events: Vec<Event> = [roots(1, [1, 2])].into_iter().chain(joins(1)).chain(joins(2)).collect();
        for now in 0..ends {
            for event in events.drain(..).chain([Event::Tick]) {
                engine.handle(Time(now * 1_000_000), event);
            }
            for action in std::iter::from_fn(|| engine.poll()) {
                match action {
                    Action::Serve { peer, block } => sent[peer.0 as usize - 1].push_back(block),
                    Action::Offer { stripe, .. } => offered[usize::from(stripe)] += 1 << 16,
                    _ => {}
                }
            }
            let busy = sent.iter().filter(|queue| !queue.is_empty()).count();
            for (peer, queue) in [PeerId(1), PeerId(2)].into_iter().zip(&mut sent) {
                let count = taken(now, peer, busy).min(queue.len());
                events.extend(queue.drain(..count).map(|block| Event::Sent { peer, block }));
            }
        }
        offered
    }

    #[test]
    fn a_source_waits_for_the_first_member_that_tcp_treats_worse() {
        // Together they get a block each 5 ms: one of them four in five, or each all when it is alone.
        let uneven = |now: u64, peer: PeerId, busy| match busy {
            2 => usize::from(now.is_multiple_of(5) && now.is_multiple_of(25) == (peer == PeerId(1))),
            _ => usize::from(now.is_multiple_of(5)),
        };
        let [one, two] = two_stripes(20_000, uneven);
        assert!(one.abs_diff(two) <= 1 << 20, "{one} and {two} bytes");
        // One that takes little in any case is not waited for.
        let [one, two] = two_stripes(20_000, |now, peer, _| {
            usize::from(now.is_multiple_of([100, 5][peer.0 as usize - 1]))
        });
        assert!(two > one * 8, "{one} and {two} bytes");
    }

    /// Both stripes get a new first member that takes little: it gets what each has given so far, in turn.
    #[test]
    fn no_stripe_of_a_child_waits_for_another() {
        let mut engine = source(400);
        // The stripe of each offer, of this many.
        let mut offers = |count: usize, events: Vec<Event>| {
            let (mut events, mut offers) = (VecDeque::from(events), Vec::new());
            while offers.len() < count {
                engine.handle(Time(0), events.pop_front().unwrap());
                for action in std::iter::from_fn(|| engine.poll()) {
                    match action {
                        Action::Serve { peer, block } => events.push_back(Event::Sent { peer, block }),
                        Action::Offer { stripe, .. } => offers.push(stripe),
                        _ => {}
                    }
                }
            }
            offers
        };
        offers(400, [roots(1, [1, 2])].into_iter().chain(joins(1)).chain(joins(2)).collect());
        let offers = offers(200, [roots(2, [3, 3])].into_iter().chain(joins(3)).collect());
        let first = offers.iter().filter(|stripe| **stripe == 0).count();
        assert!(first.abs_diff(offers.len() - first) <= 2, "{offers:?}");
    }

    fn offered(engine: &mut Engine, event: Event) -> Vec<u32> {
        let piece = |action| if let Action::Offer { piece, .. } = action { Some(piece) } else { None };
        give(engine, event).into_iter().filter_map(piece).collect()
    }

    #[test]
    fn a_child_is_offered_what_it_surely_lacks() {
        let mut source = member(0);
        assert_eq!(offered(&mut source, Event::OfferBelow { peer: PEER, below: 3 }), []);
        assert_eq!(offered(&mut source, Event::HasNone { peer: PEER }), [0, 1, 2]);
        assert_eq!(offered(&mut source, Event::HasMore { peer: PEER, pieces: vec![3..5] }), []);
        assert_eq!(offered(&mut source, Event::OfferBelow { peer: PEER, below: 7 }), [5, 6]);
        assert_eq!(offered(&mut source, Event::OfferBelow { peer: PEER, below: u32::MAX }), [7, 8, 9]);
    }

    #[test]
    fn a_child_says_what_it_has_before_it_takes_more() {
        let mut child = member(1);
        give(&mut child, Event::HasAll { peer: PEER });
        for piece in 3..5 {
            give(&mut child, Event::PieceVerified { piece });
        }
        give(&mut child, Event::Priority { pieces: 5..6, priority: 1 });
        let said = give(&mut child, Event::Judged { below: 6 });
        let about = |a: &Action| matches!(a, Action::Announce { .. } | Action::OfferBelow { .. });
        let said: Vec<Action> = said.into_iter().filter(about).collect();
        let news = |from| Action::Announce { peer: PEER, pieces: vec![from..5] };
        let below = Action::OfferBelow { peer: PEER, below: 6 };
        assert!(said == [news(3), below.clone()] || said == [news(4), below], "{said:?}");
        let other = PeerId(2);
        let stock = Protocol::Stock { fast: true };
        let up = give(&mut child, Event::PeerUp { peer: other, protocol: stock, candidate: None });
        assert!(!up.iter().any(|a| matches!(a, Action::OfferBelow { .. })), "{up:?}");
        assert!(give(&mut child, Event::Judged { below: u32::MAX }).iter().filter(|a| about(a)).count() == 1);
    }
}
