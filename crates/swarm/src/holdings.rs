//! The pieces that peers claim, and whether we want any of them.

use std::ops::Range;

use crate::api::{Action, PeerId, Reason};
use crate::engine::Engine;
use crate::state::peer::Peer;
use crate::state::pieces::State;

/// Pieces of one `Has` that are checked for a change of the possible requests.
const LOOK: u32 = 256;
/// Pieces that a choking peer may name for us (BEP 6 names ten).
const ALLOWED_FAST: usize = 64;

/// How often a peer may have all and lose one.
const RELAPSES: u32 = 16;

impl Engine {
    /// Pieces that we lack and the peer has.
    pub(crate) fn lacking(&self, peer: &Peer) -> u32 {
        peer.have.lacking(self.pieces.left())
    }

    fn sound_pieces(&mut self, id: PeerId, pieces: &Range<u32>) -> bool {
        let sound = pieces.start < pieces.end && pieces.end <= self.pieces.count();
        if !sound {
            self.disconnect(id, Reason::Protocol("claims pieces that do not exist"));
        }
        sound
    }

    /// The peer has all.
    pub(crate) fn on_has_all(&mut self, id: PeerId) {
        if self.web_has(id, std::slice::from_ref(&(0..self.pieces.count()))) {
            return;
        }
        self.has_none(id);
        if let Some(peer) = self.peers.get_mut(&id) {
            peer.have.become_all();
            self.selection.add_seed();
            self.upkeep.arm();
        }
        self.after_news(id);
        self.introduced(id);
    }

    /// The peer has no pieces; its earlier claims no longer count.
    pub(crate) fn has_none(&mut self, id: PeerId) {
        let Some(peer) = self.peers.get_mut(&id) else { return };
        peer.next_request.leave_piece();
        if peer.have.is_all() {
            self.selection.remove_seed();
        }
        let had = peer.have.become_none();
        for piece in had.iter() {
            self.one_copy_less(piece);
        }
    }

    fn one_copy_less(&mut self, piece: u32) {
        self.selection.remove_copy(piece, self.pieces.priority(piece));
    }

    /// The peer has exactly these.
    pub(crate) fn on_has_exactly(&mut self, id: PeerId, pieces: Vec<Range<u32>>) {
        for range in pieces.iter().filter(|r| !r.is_empty()) {
            if !self.sound_pieces(id, range) {
                return;
            }
        }
        if !self.web_has(id, &pieces) {
            self.has_exactly(id, pieces);
        }
    }

    /// ... as far as we are to ask it.
    pub(crate) fn has_exactly(&mut self, id: PeerId, pieces: Vec<Range<u32>>) {
        self.has_none(id);
        for range in pieces {
            self.add_pieces(id, range);
        }
        self.after_news(id);
        self.introduced(id);
    }

    /// The peer has these too.
    pub(crate) fn on_has(&mut self, id: PeerId, news: &[Range<u32>]) {
        let mut useful = false;
        for pieces in news {
            if !self.sound_pieces(id, pieces) {
                return;
            }
            useful |= self.on_has_range(id, pieces.clone());
        }
        if useful {
            self.after_news(id);
        } else {
            self.update_interest(id);
        }
        for pieces in news {
            self.looked_at(pieces).for_each(|piece| self.seen(piece));
        }
    }

    /// The pieces of an announcement that are looked at one by one.
    fn looked_at(&self, pieces: &Range<u32>) -> Range<u32> {
        pieces.start..pieces.end.min(pieces.start.saturating_add(LOOK))
    }

    /// ... consecutive pieces; whether they may change the possible requests.
    fn on_has_range(&mut self, id: PeerId, pieces: Range<u32>) -> bool {
        let look = self.looked_at(&pieces);
        let useful = pieces.len() > LOOK as usize
            || look.clone().any(|p| match self.pieces.state(p) {
                State::Missing => true,
                State::InFlight => self.pieces.open().contains(&p) || self.env.policy().endgame,
                _ => false,
            });
        for piece in look.clone() {
            self.avoid_collision(piece);
        }
        self.add_pieces(id, pieces);
        for piece in look {
            self.relieve(id, piece);
        }
        useful
    }

    /// A peer is the first to have `piece`. If we are fetching it from the same source, we are following that
    /// peer and would collide piece after piece: our walk there begins again elsewhere.
    fn avoid_collision(&mut self, piece: u32) {
        if self.pieces.state(piece) != State::InFlight || self.selection.copies(piece) > 0 {
            return;
        }
        let Some(partial) = self.pieces.partial(piece) else { return };
        let mut last = None;
        for (source, _) in partial.requests() {
            if last.replace(source) == Some(source) {
                continue;
            }
            if let Some(peer) = self.peers.get_mut(&source)
                && peer.next_request.cursor().is_some_and(|c| c > piece && c - piece <= LOOK)
            {
                peer.next_request.walk_elsewhere();
            }
        }
    }

    fn add_pieces(&mut self, id: PeerId, pieces: Range<u32>) {
        let (now, count) = (self.env.now(), self.pieces.count());
        let Some(peer) = self.peers.get_mut(&id) else { return };
        for piece in pieces {
            if !peer.have.add(piece, count, self.pieces.lacks(piece)) {
                continue;
            }
            peer.need.grew(now);
            self.selection.add_copy(piece, self.pieces.priority(piece));
        }
        if !peer.have.has_relapsed() && !peer.have.is_all() && peer.have.count(count) == count {
            // All pieces one by one: a seed like any other.
            let had = peer.have.become_all();
            self.selection.add_seed();
            self.upkeep.arm();
            for piece in had.iter() {
                self.one_copy_less(piece);
            }
        }
    }

    /// The peer has lost a piece.
    pub(crate) fn on_has_not(&mut self, id: PeerId, piece: u32) {
        let count = self.pieces.count();
        if !self.sound_pieces(id, &(piece..piece.saturating_add(1))) {
            return;
        }
        self.web_has_not(id, piece);
        let Some(peer) = self.peers.get_mut(&id) else { return };
        if peer.have.is_all() {
            if peer.have.relapse() > RELAPSES {
                return self
                    .disconnect(id, Reason::Protocol("repeatedly claims all pieces and then retracts some"));
            }
            peer.have.expand(count, self.pieces.left());
            self.selection.remove_seed();
            for piece in 0..count {
                self.selection.add_copy(piece, self.pieces.priority(piece));
            }
        }
        let Some(peer) = self.peers.get_mut(&id) else { return };
        if peer.have.remove(piece, self.pieces.lacks(piece)) {
            self.one_copy_less(piece);
            self.take_back(id, piece, 0..u32::MAX, true);
            self.update_interest(id);
            self.announce_again(id, piece);
        }
    }

    /// There may be something new to ask of this peer.
    fn after_news(&mut self, id: PeerId) {
        if let Some(peer) = self.peers.get_mut(&id) {
            peer.next_request.look_again();
        }
        self.update_interest(id);
        self.request_checks.add(id);
    }

    /// Reports interest in the peer at once; the loss of interest is reported later, by `upkeep`, because it
    /// changes with every piece.
    pub(crate) fn update_interest(&mut self, id: PeerId) {
        let left = self.pieces.left();
        let Some(peer) = self.peers.get_mut(&id) else { return };
        let want = peer.have.lacking(left) > 0;
        if want {
            peer.interest.has_something(self.env.now());
        }
        if want == peer.interest.we_want() || peer.is_closing() {
            return;
        }
        if !want {
            self.upkeep.arm();
            return;
        }
        self.send_interested(id, true);
    }

    pub(crate) fn send_interested(&mut self, id: PeerId, interested: bool) {
        if let Some(peer) = self.peers.get_mut(&id) {
            peer.interest.want(interested);
            self.outbox.push(Action::Interested { peer: id, interested });
        }
    }

    /// The peer chokes us: without BEP 6 that drops our requests.
    pub(crate) fn on_choked(&mut self, id: PeerId) {
        let Some(peer) = self.peers.get_mut(&id) else { return };
        peer.interest.choked_us(true);
        peer.next_request.leave_piece();
        if peer.rejects() {
            return;
        }
        let asked = peer.asked_pieces();
        for piece in asked {
            let gone = self.take_back(id, piece, 0..u32::MAX, false);
            if let Some(peer) = self.peers.get_mut(&id) {
                peer.allow_unrequested(gone);
            }
        }
    }

    pub(crate) fn on_unchoked(&mut self, id: PeerId) {
        if let Some(peer) = self.peers.get_mut(&id) {
            peer.interest.choked_us(false);
            peer.next_request.look_again();
            self.request_checks.add(id);
        }
    }

    pub(crate) fn on_allowed_fast(&mut self, id: PeerId, piece: u32) {
        let Some(peer) = self.peers.get_mut(&id) else { return };
        if piece < self.pieces.count() && peer.interest.fast().len() < ALLOWED_FAST {
            peer.interest.allow_fast(piece);
            peer.next_request.look_again();
            self.request_checks.add(id);
        }
    }

    pub(crate) fn on_interested(&mut self, id: PeerId, interested: bool) {
        if let Some(peer) = self.peers.get_mut(&id) {
            peer.interest.wanted(interested);
            self.upkeep.arm();
            self.fill_slots();
        }
    }

    pub(crate) fn on_upload_only(&mut self, id: PeerId) {
        if let Some(peer) = self.peers.get_mut(&id) {
            peer.interest.uploads_only();
            self.upkeep.arm();
        }
    }
}
