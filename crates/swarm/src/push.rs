//! The plan, towards our children: every piece of a stripe goes to each of them, in order, block by
//! block as it gets here, whether they asked or not.
//!
//! Nothing waits for a child: who takes slowly has a longer list. A piece is offered first, and who has
//! it, or gets it elsewhere, declines. The source gives each piece to the stripe that has got least,
//! of those whose first member takes what it is sent.

use std::ops::Range;

use crate::api::{Action, Block, PeerId};
use crate::course::{Course, Order};
use crate::engine::Engine;

/// Bytes queued for a child, beyond which nothing new is offered to it: a 32nd of a second at its rate,
/// and at least this.
const BACKLOG_LEAST: u64 = 64 << 10;
/// Pieces of a list that are looked at for one that can be sent.
const LOOK: usize = 32;
/// Parts of a piece that a child may decline; whoever declines more gets the others.
const SKIPS: usize = 64;

/// What is left of `range` without these parts, in order.
pub(crate) fn without(range: Range<u32>, parts: &[Range<u32>]) -> Vec<Range<u32>> {
    let mut parts = parts.to_vec();
    parts.sort_unstable_by_key(|p| p.start);
    let (mut at, mut out) = (range.start, Vec::new());
    for part in parts.into_iter().chain([range.end..range.end]) {
        let end = part.start.min(range.end);
        if end > at {
            out.push(at..end);
        }
        at = at.max(part.end);
    }
    out
}

impl Engine {
    /// The source gives pieces to stripes, as many as they take.
    pub(crate) fn give_out(&mut self) {
        while let Some(piece) = self.next_to_give() {
            let Some((stripe, root)) = self.stripe_with_room() else { return };
            let len = u64::from(self.pieces.length(piece));
            let Some(course) = &mut self.course else { return };
            course.assign(piece, stripe);
            if let Some(line) = course.lines.get_mut(usize::from(stripe)) {
                line.bytes += len;
            }
            self.feed(root);
        }
    }

    /// The first piece here that no stripe has; none where we are not the source.
    fn next_to_give(&mut self) -> Option<u32> {
        if self.on_demand() {
            return self.next_touched();
        }
        let course = self.course.as_mut().filter(|c| c.is_source())?;
        let (me, to) = (Some(course.role.member), self.pieces.count());
        while course.given < to
            && (course.stripe_of(course.given).is_some() || course.role.giver(course.given) != me)
        {
            course.given += 1;
        }
        let mut ours = (course.given..to).filter(|&p| course.role.giver(p) == me).take(LOOK);
        ours.find(|&p| self.pieces.verified(p) && course.stripe_of(p).is_none())
    }

    /// The stripe that has got least, of those whose root has taken all that it was given but a little.
    fn stripe_with_room(&self) -> Option<(u16, PeerId)> {
        let course = self.course.as_ref()?;
        let mut best: Option<(u64, u16, PeerId)> = None;
        for (&id, orders) in &course.orders {
            if !self.has_push_room(id) {
                continue;
            }
            for order in orders.iter().filter(|o| !o.last && o.pending.is_empty() && o.open.is_none()) {
                let bytes = course.lines.get(usize::from(order.stripe)).map_or(0, |l| l.bytes);
                let this = (bytes, order.stripe, id);
                best = Some(best.map_or(this, |b| b.min(this)));
            }
        }
        best.map(|(_, stripe, id)| (stripe, id))
    }

    /// Little is queued for this child.
    fn has_push_room(&self, id: PeerId) -> bool {
        let Some(peer) = self.peers.get(&id).filter(|p| !p.closing && p.introduced) else { return false };
        // The other half of the queue is for what it asks for.
        peer.queue.len() < self.limits.queued_requests / 2
            && peer.queue.waiting() + peer.queue.in_flight() < BACKLOG_LEAST.max(peer.queue.rate() / 32)
    }

    /// More of a piece is here: on it goes.
    pub(crate) fn pass_on(&mut self, piece: u32) {
        let Some(course) = &self.course else { return };
        let Some(stripe) = course.stripe_of(piece) else { return };
        for child in course.children(stripe) {
            self.feed(child);
        }
    }

    /// Queues what a child is to get and can get now.
    pub(crate) fn feed(&mut self, id: PeerId) {
        let Some(orders) = self.course.as_mut().and_then(|c| c.orders.get_mut(&id)) else { return };
        let mut orders = std::mem::take(orders);
        // They take turns at what room there is.
        orders.rotate_left(1);
        for order in &mut orders {
            self.feed_order(id, order);
        }
        orders.retain(|o| !o.last || o.open.is_some());
        if let Some(course) = &mut self.course {
            match course.orders.get_mut(&id) {
                Some(kept) if !orders.is_empty() => *kept = orders,
                _ => drop(course.orders.remove(&id)),
            }
        }
        if let Some(peer) = self.peers.get_mut(&id) {
            self.turns.enter(id, &mut peer.queue);
        }
    }

    fn feed_order(&mut self, id: PeerId, order: &mut Order) {
        loop {
            if let Some((piece, from)) = order.open {
                let (end, len) = (self.pieces.passable(piece, from), self.pieces.length(piece));
                let Some(peer) = self.peers.get_mut(&id).filter(|p| !p.closing) else { return };
                for part in without(from..end, &order.skip) {
                    if peer.queue.len() >= self.limits.queued_requests {
                        order.open = Some((piece, part.start));
                        return;
                    }
                    let len = part.end - part.start;
                    peer.queue.push_on(Block { piece, begin: part.start, len });
                }
                order.open = (end < len).then_some((piece, end));
                if order.open.is_some() {
                    return;
                }
            }
            if order.last || !self.has_push_room(id) {
                return;
            }
            let Some(piece) = self.next_of(id, order) else { return };
            self.out.push_back(Action::Offer { peer: id, piece, stripe: order.stripe });
            order.open = Some((piece, 0));
            order.skip.clear();
        }
    }

    /// Takes the next piece out of a list that the child surely lacks and of which something is here.
    fn next_of(&self, id: PeerId, order: &mut Order) -> Option<u32> {
        let peer = self.peers.get(&id)?;
        let have = &peer.have;
        while order.pending.front().is_some_and(|&p| have.has(p)) {
            order.pending.pop_front();
        }
        let ready = |&p: &u32| p < peer.offer_below && !have.has(p) && self.pieces.passable(p, 0) > 0;
        let at = order.pending.iter().take(LOOK).position(ready)?;
        order.pending.remove(at)
    }

    /// A child does not want this part of a piece, or what is left of all of it.
    pub(crate) fn declined(&mut self, id: PeerId, block: Block) {
        let whole = block.begin == 0 && block.len >= self.pieces.length(block.piece);
        let Some(orders) = self.course.as_mut().and_then(|c| c.orders.get_mut(&id)) else { return };
        let of_it = |order: &&mut Order| order.open.is_some_and(|o| o.0 == block.piece);
        for order in orders.iter_mut().filter(of_it) {
            if whole {
                order.open = None;
            } else if order.skip.len() < SKIPS {
                order.skip.push(block.begin..block.begin.saturating_add(block.len));
            }
        }
        self.feed(id);
    }

    /// A connection turns out to be this member's.
    pub(crate) fn on_member(&mut self, id: PeerId, member: u32) {
        let Some(peer) = self.peers.get_mut(&id) else { return };
        peer.member = Some(member);
        self.members.insert(member, id);
        self.meet(id, member);
    }

    /// A peer has said what it has: from now on it is fed, where it is our child.
    pub(crate) fn introduced(&mut self, id: PeerId) {
        let new = self.peers.get_mut(&id).is_some_and(|p| !std::mem::replace(&mut p.introduced, true));
        if new {
            self.feed(id);
        }
    }

    /// A child knows by now what it has of the pieces below this one, and has told us.
    pub(crate) fn on_offer_below(&mut self, id: PeerId, below: u32) {
        if let Some(peer) = self.peers.get_mut(&id) {
            peer.offer_below = below;
        }
        self.feed(id);
    }

    /// Sets what a connected member is to get, and notes that it is there. Whoever fed it until now, its stripes go on
    /// where they broke off: it gets all that it lacks, from the source where that is within the budget. What the
    /// source has given to somebody and nobody has must come from the source again.
    pub(crate) fn meet(&mut self, id: PeerId, member: u32) {
        let all = !self.over_budget();
        let Engine { course: Some(course), availability, .. } = self else { return };
        course.open_orders(id, member, |p| all || availability.holders(p) == 0);
        let fed = course.orders.contains_key(&id);
        let Course { role, lines, .. } = course;
        for (line, edges) in lines.iter_mut().zip(&role.stripes) {
            line.met |= edges.parent == Some(member);
        }
        if let Some(peer) = self.peers.get_mut(&id) {
            peer.queue.feed(fed);
        }
        course.wishes.stir();
        self.feed(id);
    }

    /// A connection is gone, with what was to go over it.
    pub(crate) fn left_plan(&mut self, id: PeerId) {
        let member = self.peers.get(&id).and_then(|p| p.member);
        if let Some(member) = member
            && self.members.get(&member) == Some(&id)
        {
            self.members.remove(&member);
        }
        if let Some(course) = &mut self.course {
            course.orders.remove(&id);
            if let Some(member) = member {
                course.wishes.lost(member);
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

    /// What becomes of an event; what is to be sent is sent at once.
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

    #[test]
    fn parts_that_are_declined_are_left_out() {
        assert_eq!(without(4..9, &[]), [4..9]);
        assert_eq!(without(4..4, &[]), []);
        assert_eq!(without(4..20, &[12..15, 0..5, 6..8, 7..9]), [5..6, 9..12, 15..20]);
        assert_eq!(without(4..20, &[0..30]), []);
        assert_eq!(without(4..20, &[18..30]), [4..18]);
    }
}
