//! Handles payload that peers send us.

use crate::api::{Block, PeerId, Reason};
use crate::engine::Engine;
use crate::state::counts::Fate;
use crate::state::partial::Runs;
use crate::state::pieces::State;

/// Bytes that a peer may send without request, beyond cancelled ones: a reject and its block can cross.
const UNASKED_MOST: u64 = 1 << 20;

impl Engine {
    /// Payload has come off the socket.
    pub(crate) fn on_received(&mut self, id: PeerId, block: Block) {
        let now = self.env.now();
        let asked = self.peers.get(&id).and_then(|p| p.asked_at(block.piece)).unwrap_or_default();
        self.downloads.received(now, block.len, asked);
        self.count(id, Fate::Received, u64::from(block.len));
        let Some(peer) = self.peers.get_mut(&id) else { return };
        peer.note_heard(now);
        if !self.pieces.sound(block) {
            return self.disconnect(id, Reason::Protocol("sent an invalid block"));
        }
        let cells = self.pieces.cells(block);
        let asked = self.with_piece(block.piece, |p| p.receive(id, block.piece, cells));
        let mine = self.no_longer_asked(block.piece, asked, Some(id));
        let Some(peer) = self.peers.get_mut(&id) else { return };
        peer.silence.delivered(now);
        peer.window.received(now, block.len);
        let unasked = u64::from(block.len).saturating_sub(mine);
        if !peer.is_allowed_unrequested(unasked, UNASKED_MOST) {
            return self.disconnect(id, Reason::Protocol("sent data that was not requested"));
        }
        self.request_checks.add(id);
        self.note_moved(id, block);
    }

    /// Cells have arrived, so requests to other peers for them are cancelled; returns the bytes that `from`
    /// itself was asked for.
    fn no_longer_asked(&mut self, piece: u32, asked: Runs, from: Option<PeerId>) -> u64 {
        let mut mine = 0;
        for (peer, run) in asked {
            let bytes = self.pieces.block(piece, run.clone()).len;
            if Some(peer) == from {
                mine += u64::from(bytes);
                self.downloads.gone(u64::from(bytes));
                self.note_answer(peer, piece, bytes);
            } else {
                self.run_not_awaited(peer, piece, run, true);
                self.request_checks.add(peer);
            }
        }
        mine
    }

    /// `bytes` of a request have come: measures the delay when they are its first.
    fn note_answer(&mut self, id: PeerId, piece: u32, bytes: u32) {
        let now = self.env.now();
        let Some(peer) = self.peers.get_mut(&id) else { return };
        if let Some(entry) = peer.note_gone(piece, bytes)
            && entry.fresh
        {
            peer.window.answered(now, now.since(entry.at), entry.idle);
        }
    }

    /// Counts bytes of this peer, and of all.
    pub(crate) fn count(&mut self, id: PeerId, fate: Fate, bytes: u64) {
        self.totals.add(fate, bytes);
        if let Some(peer) = self.peers.get_mut(&id) {
            peer.counts.add(fate, bytes);
        }
    }

    /// A verdict on `len` received bytes.
    pub(crate) fn settled(&mut self, len: u32) {
        if self.downloads.settled(len, self.env.limits().unsettled) {
            self.request_checks.add_all(self.peers.keys().copied());
        }
    }

    /// It is on disk.
    pub(crate) fn on_stored(&mut self, id: PeerId, block: Block, proven: bool) {
        self.settled(block.len);
        self.count(id, Fate::Stored, u64::from(block.len));
        if self.pieces.sound(block) {
            let cells = self.pieces.cells(block);
            let asked = self.with_piece(block.piece, |p| p.store(id, block.piece, cells));
            self.no_longer_asked(block.piece, asked, None);
            if proven {
                self.pass_on(block.piece);
            } else {
                self.pieces.doubt(block.piece);
            }
        }
    }

    /// It was there already.
    pub(crate) fn on_duplicate(&mut self, id: PeerId, block: Block) {
        self.settled(block.len);
        self.count(id, Fate::Duplicate, u64::from(block.len));
        if self.pieces.sound(block) {
            let cells = self.pieces.cells(block);
            let asked = self.with_piece(block.piece, |p| p.store_known(id, block.piece, cells));
            self.no_longer_asked(block.piece, asked, None);
            self.pieces.doubt(block.piece);
        }
    }

    /// The piece is ours.
    pub(crate) fn on_piece_verified(&mut self, piece: u32) {
        if piece >= self.pieces.count() || self.pieces.verified(piece) {
            return;
        }
        if let Some(partial) = self.with_piece(piece, |p| p.verify(piece)) {
            self.nothing_awaited(piece, &partial);
        }
        self.blame.cleared(piece);
        self.selection.clear_deadline(piece);
        self.announce_piece(piece);
        self.pass_on(piece);
        self.note_fetched(piece);
        self.check_complete();
    }

    /// Our disk did not take it: it counts as never asked for.
    pub(crate) fn on_piece_dropped(&mut self, piece: u32) {
        if piece >= self.pieces.count() || self.pieces.verified(piece) {
            return;
        }
        self.forget_piece(piece);
        if self.on_demand() {
            // The plan has given it, and will not push it again.
            self.await_piece(piece, false);
        }
        self.wanting_again();
    }

    /// A piece was lost: peers need not request it from us, and it is fetched again if it is wanted.
    pub(crate) fn on_piece_lost(&mut self, piece: u32) {
        if self.pieces.state(piece) == State::Verified {
            self.with_piece(piece, |p| p.reset(piece));
            if self.on_demand() {
                // The plan has given it, and will not push it again.
                self.await_piece(piece, false);
            }
            self.announce_lost(piece);
            self.wanting_again();
        }
    }
}
