//! The plan, towards our parents: pieces that they offer count as requested, and pieces that will be pushed
//! are not requested.
//!
//! The source gives pieces out in order, and every stripe comes in order. So a piece below the front of
//! every stripe that flows, and not offered, belongs to a stripe that does not flow: it is *released*,
//! and fetched like in any swarm. When nothing flows any more, everything is.

use std::sync::Arc;
use std::time::Duration;

use crate::api::{Action, Block, Complaint, PeerId, Reason, Time};
use crate::bitset::to_ranges;
use crate::engine::Engine;
use crate::plan::Role;
use crate::state::peer::Peer;
use crate::state::pieces::{CELL, State};
use crate::state::plan_state::{Flow, SILENT, silence_limit};

/// If nothing at all has come for this long, the plan has failed.
const FAILED: Duration = Duration::from_secs(2);
/// When nothing has come for this long, missing pieces are fetched: where some peers are complete, and where
/// none is. The first is also the time after which, once a receiver at our own place is complete, we no
/// longer wait for what a late stripe may have in transit to us.
const LEFT_OUT: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(1));
/// The least time taken for the usual pause of a parent that owes us nothing: it announces its pieces to its
/// children this often (`announce`).
const IDLE: Duration = Duration::from_millis(200);
/// A live parent that sends nothing for this long, though it has pieces that we lack, is taken as unwilling.
const OWED: Duration = Duration::from_secs(5);
/// A stripe is slow that brings less than half as much as the median one, over this long at least, and so
/// many bytes.
const JUDGE: Duration = Duration::from_secs(3);
const JUDGE_BYTES: u64 = 256 << 10;
/// Pieces owed by one peer beyond which its offers are declined. Pushed pieces take no place among the
/// requests that it queues: over a long, fast link more pieces than those are in flight at any time, and a
/// declined piece comes all the same, in addition to our own fetches.
const OFFERS: usize = 1 << 14;
/// Of the pieces that a late stripe still has to bring, this part is fetched at a time.
const LATE_PART: usize = 4;

impl Engine {
    /// There is a plan, and it works.
    pub(crate) fn planned(&self) -> bool {
        self.plan.state().is_some_and(|c| !c.has_failed())
    }

    /// Whether the piece will be pushed to us.
    pub(crate) fn is_awaited(&self, piece: u32) -> bool {
        self.plan.state().is_some_and(|c| c.awaits(piece))
    }

    /// A new epoch.
    pub(crate) fn on_plan(&mut self, role: Arc<Role>) {
        let before = self.plan.state().map(|c| c.role().clone());
        self.request_checks.hold(None);
        if !self.plan.begin(role, self.pieces.count(), self.env.policy().stays, self.env.now()) {
            return;
        }
        self.await_rest();
        self.notify_parents(before.as_deref());
        for (member, id) in self.plan.members() {
            self.member_connected(id, member);
        }
        self.upkeep.arm();
    }

    /// New parents of a stripe are told of all our pieces, and continue with those that we lack.
    fn notify_parents(&mut self, before: Option<&Role>) {
        let Some(plan) = self.plan.state() else { return };
        let until_now = |stripe: usize| before.and_then(|b| b.stripes.get(stripe)).and_then(|e| e.parent);
        let mut new: Vec<u32> =
            plan.stripes().filter(|(s, e)| e.parent != until_now(*s)).filter_map(|(_, e)| e.parent).collect();
        new.sort_unstable();
        new.dedup();
        let new: Vec<PeerId> = new.iter().filter_map(|&member| self.plan.peer_of(member)).collect();
        self.announce_anew(&new);
    }

    /// The plan works, or may, and every stripe continues where it broke off: pieces that were released
    /// meanwhile, and are not requested, are awaited again.
    fn await_rest(&mut self) {
        let count = self.pieces.count();
        self.turns.follow_plan(true, !self.on_demand());
        if self.on_demand() {
            return self.await_untouched();
        }
        let Some(plan) = self.plan.state_mut() else { return };
        let (from, whole) = plan.resume(count);
        for piece in from..count {
            self.await_piece(piece, piece >= whole);
        }
    }

    /// Awaits a piece, or no longer, and moves it out of the picker or into it.
    pub(crate) fn await_piece(&mut self, piece: u32, awaited: bool) {
        self.with_place(piece, |e| {
            if let Some(plan) = e.plan.state_mut() {
                plan.set_awaited(piece, awaited);
            }
        });
    }

    /// A peer pushes this piece.
    pub(crate) fn on_offered(&mut self, id: PeerId, piece: u32, stripe: u16) {
        let now = self.env.now();
        if piece >= self.pieces.count() {
            return self.disconnect(id, Reason::Protocol("offered an invalid piece"));
        }
        let from = self.peers.get(&id).and_then(|p| p.place.member());
        let room = self.has_room(id);
        if let Some(plan) = self.plan.state_mut().filter(|c| from.is_some() && !c.is_source()) {
            // Pieces declined for lack of space are fetched later, and by then our children fetch them too:
            // they would get them twice.
            if room {
                plan.assign(piece, stripe);
            }
            // The first took longer than we wait: to go on as a swarm would cost the source more copies.
            if plan.offered(piece, stripe, from, now) && plan.has_failed() {
                self.await_rest();
            }
        }
        if from.is_some() && self.on_demand() {
            self.take_touched(piece);
        }
        self.accept(id, piece);
        self.release_due();
        self.pass_on(piece);
    }

    /// More may be awaited from this peer.
    fn has_room(&self, id: PeerId) -> bool {
        self.peers.get(&id).is_some_and(|p| p.asked().len() < OFFERS)
    }

    /// Offered pieces count as requested, as far as no other peer was asked; the rest is declined.
    fn accept(&mut self, id: PeerId, piece: u32) {
        let (now, all) = (self.env.now(), 0..u32::MAX);
        let whole = Block { piece, begin: 0, len: self.pieces.length(piece) };
        // A disk that cannot keep up slows the sockets: declined pieces are in transit already, and would
        // come twice.
        let wanted =
            self.has_room(id) && self.pieces.lacks(piece) && self.pieces.state(piece) != State::Settling;
        if wanted && self.pieces.partial(piece).is_some() {
            self.take_over(id, piece);
        }
        let partial = self.pieces.partial(piece);
        let free: Vec<u32> = match partial {
            _ if !wanted || !self.blame.allows(piece, id) => Vec::new(),
            None => (0..whole.len.div_ceil(CELL)).collect(),
            Some(partial) => partial.free_cells().collect(),
        };
        // Our own requests to the peer would be cancelled with the rest.
        let asked = partial.is_some_and(|p| p.asked_of(id).next().is_some());
        if free.is_empty() && asked {
            return;
        }
        if free.is_empty() {
            return self.outbox.push(Action::Cancel { peer: id, block: whole });
        }
        let runs = to_ranges(free.iter().copied());
        // Pieces that are here, or come from others, need not come from it.
        let rest = partial.map(|p| p.not_from(id)).unwrap_or_default();
        for run in to_ranges(rest) {
            self.outbox.push(Action::Cancel { peer: id, block: self.pieces.block(piece, run) });
        }
        self.with_piece(piece, |p| p.ask(id, piece, all));
        for run in runs {
            let bytes = self.pieces.block(piece, run).len;
            if let Some(peer) = self.peers.get_mut(&id) {
                peer.note_asked(piece, bytes, now);
            }
            self.downloads.asked(now, u64::from(bytes));
        }
    }

    /// Requests to other peers that have not all of a piece themselves, or that deliver nothing, may be moved
    /// to the peer that offers it now: two peers that wait for each other's rest would wait for ever.
    fn take_over(&mut self, id: PeerId, piece: u32) {
        let now = self.env.now();
        let doubtful =
            |p: &Peer| !p.have.has(piece) || now >= p.heard().after(silence_limit(p.pause(), SILENT));
        let owe =
            |p: &&Peer| p.id != id && p.asked_at(piece).is_some() && doubtful(p) && self.may_duplicate(p);
        for peer in self.peers.values().filter(owe).map(|p| p.id).collect::<Vec<_>>() {
            self.take_back(peer, piece, 0..u32::MAX, true);
        }
    }

    /// A block has come from a member.
    pub(crate) fn note_moved(&mut self, id: PeerId, block: Block) {
        let from = self.peers.get(&id).and_then(|p| p.place.member());
        if let Some(plan) = self.plan.state_mut().filter(|_| from.is_some()) {
            plan.came(block.piece, block.len, from, self.env.now());
        }
    }

    /// Looks whether the stripes flow; called a few times a second.
    pub(crate) fn check_parents(&mut self) {
        if !self.planned() || self.pieces.is_complete() {
            return;
        }
        self.upkeep.arm();
        self.blame_parents();
        self.check_wishes();
        self.release_due();
        self.release_left_out();
    }

    /// Pieces that no live stripe will bring are fetched.
    fn release_due(&mut self) {
        let (now, count) = (self.env.now(), self.pieces.count());
        // On demand, pieces come in no order, and nothing may come for long.
        let on_demand = self.env.policy().on_demand;
        let plan = self.plan.state().filter(|c| !c.has_failed() && !c.is_source() && !on_demand);
        let Some(plan) = plan else { return };
        let live = plan
            .stripes()
            .filter(|(s, e)| e.parent.is_some_and(|p| plan.flow(*s, self.last_heard(p), now) == Flow::Live));
        let low = live.filter_map(|(s, _)| plan.front_of(s)).min();
        let failed = low.is_none() && now.since(plan.last_moved()) >= plan.scaled(FAILED);
        self.release_until(low.unwrap_or(plan.front()).min(count));
        if failed {
            self.release_until(count);
            if let Some(plan) = self.plan.state_mut() {
                plan.fail();
            }
            self.turns.follow_plan(false, false);
        }
    }

    /// Pieces below this one are no longer awaited.
    fn release_until(&mut self, piece: u32) {
        let released = self.plan.state_mut().map(|plan| plan.release(piece));
        for piece in released.into_iter().flatten() {
            self.await_piece(piece, false);
        }
    }

    /// Where nothing is in flight to us, pieces of connected peers are fetched: they were left out, as the
    /// last pieces of a broken stripe are, which nothing follows.
    ///
    /// So are, once a receiver at our place is complete, pieces that a late stripe still has to bring, and after a while
    /// also those that it may be bringing: behind a lost relay it never makes up for the time until another took its
    /// place, since its relays have no uplink to spare; complete members have spare uplink. The last of these pieces are
    /// fetched first, a part at a time: the stripe brings them in order, and one that is fetched meanwhile comes twice.
    fn release_left_out(&mut self) {
        let (now, count) = (self.env.now(), self.pieces.count());
        let has_all = |p: &&Peer| !p.is_closing() && p.have.is_all() && !self.is_source(p);
        let ended = self.peers.values().any(|p| has_all(&p));
        let near = ended && self.peers.values().any(|p| has_all(&p) && p.place.is_near());
        let on_demand = self.on_demand();
        let Some(plan) = self.plan.state_mut().filter(|c| !c.has_failed() && !c.is_source()) else {
            return;
        };
        let over = if near && !on_demand { plan.ended(now, count) } else { None };
        let late = over.is_some_and(|over| over >= LEFT_OUT.0);
        // Those that were released before come first.
        let behind = over.filter(|_| !plan.fetches_late()).map(|_| plan.far_behind(count, late));
        let pause = if ended { LEFT_OUT.0 } else { LEFT_OUT.1 };
        let moved = plan.last_moved().max(plan.wishes().last());
        self.release_last(behind.unwrap_or_default());
        if now.since(moved) < pause || !late && self.downloads.outstanding() > 0 {
            return;
        }
        if on_demand {
            for piece in self.left_out_of_wishes() {
                self.await_piece(piece, false);
            }
            return;
        }
        self.release_held((0..count).filter(|&piece| self.is_awaited(piece)).collect());
    }

    /// Fetches a part of these pieces, the highest ones.
    fn release_last(&mut self, mut pieces: Vec<u32>) {
        let Some(plan) = self.plan.state_mut() else { return };
        let last = pieces.split_off(pieces.len() - pieces.len().div_ceil(LATE_PART));
        plan.fetch_late(&last);
        self.release_held(last);
    }

    /// A piece has come: it may be the last of those that were released at a time.
    pub(crate) fn note_fetched(&mut self, piece: u32) {
        if self.plan.state_mut().is_some_and(|plan| plan.note_fetched(piece)) {
            self.release_left_out();
        }
    }

    /// Of these pieces those that others have are no longer awaited.
    fn release_held(&mut self, pieces: Vec<u32>) {
        for piece in pieces {
            if self.others_have(piece) {
                self.await_piece(piece, false);
            }
        }
    }

    /// Complains about parents that are absent, silent or slow, and cancels requests to silent ones.
    fn blame_parents(&mut self) {
        let now = self.env.now();
        let Some(plan) = self.plan.state().filter(|c| !c.is_source()) else { return };
        let middle = plan.middle_bytes();
        let judge = now.since(plan.since()) >= JUDGE && middle >= JUDGE_BYTES;
        let flows = now.since(plan.last_moved()) < Duration::from_millis(300);
        let mut found: Vec<(u32, usize, Complaint)> = Vec::new();
        for (stripe, edges) in plan.stripes() {
            let Some(parent) = edges.parent.filter(|&p| !plan.is_blamed(p)) else { continue };
            match plan.flow(stripe, self.last_heard(parent), now) {
                Flow::Gone => found.push((parent, stripe, Complaint::Gone)),
                Flow::Silent if flows => found.push((parent, stripe, Complaint::Silent)),
                Flow::Dry if flows && self.withholds(parent) => {
                    found.push((parent, stripe, Complaint::Silent))
                }
                Flow::Live if judge && plan.bytes(stripe) < middle / 4 && self.lags(parent) => {
                    found.push((parent, stripe, Complaint::Slow));
                }
                _ => {}
            }
        }
        for (member, stripe, why) in found {
            if self.plan.state_mut().is_some_and(|plan| plan.blame(member)) {
                self.outbox.push(Action::Complain { member, stripe: stripe as u16, why });
            }
            if why == Complaint::Silent {
                self.give_up_on(member, stripe as u16);
            }
        }
    }

    /// The time of the last message of a member, and its usual pause; none where it is not connected.
    fn last_heard(&self, member: u32) -> Option<(Time, Duration)> {
        let peer = self.plan.peer_of(member).and_then(|id| self.peers.get(&id));
        // A complete peer that owes nothing has nothing to send.
        peer.map(|p| match p.outstanding() {
            0 if p.have.is_all() || self.on_demand() => (self.env.now(), p.pause()),
            // It owes nothing: it may have nothing.
            0 => (p.heard(), p.pause().max(IDLE)),
            _ => (p.heard(), p.pause()),
        })
    }

    /// A member has much less than we, or much that it has not forwarded to us. A member that lacks only
    /// pieces that a stripe should bring waits for it as we do.
    fn lags(&self, member: u32) -> bool {
        let peer = self.plan.peer_of(member).and_then(|id| self.peers.get(&id));
        let count = self.pieces.count();
        peer.is_some_and(|p| {
            let (theirs, ours) = (p.have.count(count), self.pieces.verified_count());
            theirs < ours / 4 * 3 || self.lacking(p) > ours / 8 + 8
        })
    }

    /// A live parent has had a piece of its stripe for us, and brings nothing for so long that it must have a
    /// fault. A parent that waits itself has no such piece, nor has one whose stripe is at its end; and
    /// offers of pieces requested from others would be declined. Pieces that were never announced to us,
    /// below the front of every active stripe, belong to none of these.
    fn withholds(&self, member: u32) -> bool {
        // On demand, pieces that it has and we lack may be in transit to us by another stripe.
        let Some(plan) = self.plan.state().filter(|_| !self.on_demand()) else { return false };
        let Some(peer) = self.plan.peer_of(member).and_then(|id| self.peers.get(&id)) else { return false };
        let last = plan.moved_by(member).max(peer.silence.last());
        if self.env.now().since(last) < plan.scaled(OWED) {
            return false;
        }
        let of_others = |piece| {
            let mut asked = self.pieces.partial(piece).into_iter().flat_map(|p| p.requests());
            asked.any(|(id, _)| id != peer.id)
        };
        let held = |piece| peer.have.has(piece) && self.pieces.lacks(piece);
        (0..plan.released()).any(|p| plan.stripe_of(p).is_none() && held(p) && !of_others(p))
    }

    /// Pieces of its stripe that a silent parent owes are requested from other peers that have them.
    fn give_up_on(&mut self, member: u32, stripe: u16) {
        let Some(id) = self.plan.peer_of(member) else { return };
        let Some(peer) = self.peers.get(&id) else { return };
        for piece in peer.asked_pieces() {
            let its = self.plan.state().is_some_and(|c| c.stripe_of(piece) == Some(stripe));
            if its && self.need_not_come_from(id, piece) {
                self.take_back(id, piece, 0..u32::MAX, true);
            }
        }
    }

    /// The peer is our child in the plan.
    pub(crate) fn feeds(&self, peer: &Peer) -> bool {
        self.plan.state().is_some_and(|c| !c.has_failed() && c.feeds(peer.id))
    }

    /// The peer is a source of the plan.
    pub(crate) fn is_source(&self, peer: &Peer) -> bool {
        self.plan.state().is_some_and(|c| peer.place.member().is_some_and(|m| c.role().is_source(m)))
    }

    /// Whether the piece may not be requested from this peer while there is a plan: as long as it brings us
    /// anything, a source gives pieces that no other peer has by the plan only. (When the first relay of a
    /// stripe is lost, all members lack the same pieces; requested by all, they would fill the source's
    /// uplink.)
    pub(crate) fn spares_source(&self, id: PeerId, piece: u32) -> bool {
        if self.spares_web(id, piece) {
            return true;
        }
        let fed = || self.plan.state().is_some_and(|c| self.env.now().since(c.last_moved()) < LEFT_OUT.1);
        let source = || self.peers.get(&id).is_some_and(|p| self.is_source(p));
        self.planned() && source() && (fed() || self.others_have(piece) && self.others_give(piece))
    }

    /// Among the peers that have the piece, some other than sources serve requests. A plan that is not on
    /// demand fails where nothing comes.
    fn others_give(&self, piece: u32) -> bool {
        let gives =
            |p: &Peer| !p.is_closing() && !p.silence.is_suspect() && p.have.has(piece) && !self.is_source(p);
        !self.on_demand() || self.peers.values().any(gives)
    }

    /// A peer other than the sources has the piece.
    pub(crate) fn others_have(&self, piece: u32) -> bool {
        let sources = self.plan.state().map_or(&[][..], |c| &c.role().sources);
        // The first stands for those that are lost, too.
        let there = |(turn, member): &(usize, &u32)| *turn == 0 || Some(*member) != sources.first();
        let peers = sources.iter().enumerate().filter(there).filter_map(|(_, &m)| self.plan.peer_of(m));
        let having = peers.filter_map(|id| self.peers.get(&id)).filter(|p| p.have.has(piece)).count();
        self.selection.holders(piece) as usize > having
    }
}

#[cfg(test)]
mod tests;
