//! Chooses requests for a peer, whenever its window has space.
//!
//! In this order: a suspect piece that it must deliver alone; the rest of the piece that it is delivering in
//! parts; the best missing pieces; blocks of pieces that others are delivering; in textbook endgame, blocks
//! that others were asked for already. Tidecast peers are asked for runs of whole pieces where pieces are
//! small against the window, stock peers for 16 KiB blocks of one piece after the other.
//!
//! Near the end no peer is asked for more than its share of the rest, so that all finish together and few
//! requests have to be cancelled.

use std::ops::Range;

use crate::api::{Action, PeerId};
use crate::engine::Engine;
use crate::planted::{Bug, about, planted};
use crate::ranges::chunks;
use crate::state::peer::Peer;
use crate::state::pieces::{CELL, State};

/// Pieces in one request.
const RUN_MOST: u32 = 64;
/// Requests composed for one peer in one go; more waits for the next event.
const ROUNDS: usize = 2048;
/// Pieces asked of one peer beyond its window, and the longest of them.
const RESERVED: u32 = 16;
const RESERVED_LENGTH: u32 = 4 << 20;
/// Pieces of others that are looked at for one request.
const OPEN_SCAN: usize = 64;
/// The smallest share of the missing data.
const SHARE_LEAST: u64 = 64 << 10;

impl Engine {
    /// Asks every peer that may have room.
    pub(crate) fn refill(&mut self) {
        if self.request_checks.held_until().is_some_and(|until| self.env.now() < until) {
            return;
        }
        if self.request_checks.release() {
            self.request_checks.add_all(self.peers.keys().copied());
        }
        if self.request_checks.take_stirred() {
            let epoch = self.request_checks.epoch();
            let dry = |p: &&Peer| p.next_request.dry().is_some_and(|at| at != epoch);
            self.request_checks.add_all(self.peers.values().filter(dry).map(|p| p.id));
        }
        let mut hungry = self.request_checks.take();
        // A peer that was silent or rejected gets the pieces that the others leave: requests taken from it
        // would go back to it.
        let doubtful = |id: &PeerId| self.peers.get(id).is_some_and(|p| p.silence.is_suspect());
        hungry.sort_by_key(doubtful);
        for id in hungry.drain(..) {
            self.refill_peer(id);
        }
        self.request_checks.keep(hungry);
    }

    fn refill_peer(&mut self, id: PeerId) {
        for _ in 0..ROUNDS {
            if self.downloads.pauses(self.env.limits().unsettled) {
                return;
            }
            let epoch = self.request_checks.epoch();
            let Some(peer) = self.peers.get(&id) else { return };
            if peer.next_request.dry() == Some(epoch) || self.lacking(peer) == 0 {
                return;
            }
            let room = self.fair_room(peer);
            if room == 0 {
                if self.reserve(id) {
                    continue;
                }
                return;
            }
            if !self.ask_next(id, room) {
                if let Some(peer) = self.peers.get_mut(&id) {
                    peer.next_request.found_nothing(epoch);
                    self.upkeep.arm_if(self.downloads.outstanding() > peer.outstanding());
                }
                return;
            }
        }
    }

    /// Space in the peer's window, within its share of the missing data.
    fn fair_room(&self, peer: &Peer) -> u64 {
        let room = peer.room(self.env.now());
        let left = self.pieces.missing_bytes() + self.downloads.outstanding();
        let pieces_left = u64::from(self.pieces.left()).max(1);
        if room == 0 || left > peer.window.size().saturating_mul(self.peers.len() as u64) {
            return room;
        }
        // How many holders a piece that we lack has on average, choking aside.
        let useful = self.peers.values().filter(|p| !p.is_closing() && !p.interest.chokes_us());
        let holders: u64 = useful.map(|p| u64::from(self.lacking(p))).sum();
        let share = (left * pieces_left / holders.max(pieces_left)).max(SHARE_LEAST);
        let share = if planted(Bug::FloatSum) { about(share) } else { share };
        room.min(share.saturating_sub(peer.outstanding()))
    }

    /// Whether `piece` may be asked of `id` as things are.
    pub(crate) fn may_ask(&self, id: PeerId, piece: u32) -> bool {
        let Some(peer) = self.peers.get(&id) else { return false };
        !peer.is_closing()
            && peer.have.has(piece)
            && (!peer.interest.chokes_us() || peer.interest.fast().contains(&piece))
            && self.blame.allows(piece, id)
    }

    /// Sends one request to `id`; false when there is nothing to ask for.
    fn ask_next(&mut self, id: PeerId, room: u64) -> bool {
        if self.peers.get(&id).is_some_and(|p| p.interest.chokes_us()) {
            return self.ask_allowed_fast(id, room);
        }
        if let Some(piece) = self.solo_for(id) {
            self.blame.assign(piece, id);
            return self.ask_part(id, piece, room);
        }
        let Some(peer) = self.peers.get(&id) else { return false };
        if let Some(piece) = peer.next_request.current()
            && self.may_ask(id, piece)
            && self.ask_part(id, piece, room)
        {
            return true;
        }
        self.ask_missing(id, room) || self.join(id, room) || self.endgame(id, room)
    }

    /// Asks for the best missing pieces that the peer has.
    fn ask_missing(&mut self, id: PeerId, room: u64) -> bool {
        let Some(peer) = self.peers.get(&id) else { return false };
        let most = RUN_MOST.min(peer.spare_requests());
        let run = match peer.in_order() {
            true => self.next_in_order(peer, most),
            false => {
                self.selection.pick(peer.have.holding(), peer.next_request.cursor(), most, &mut self.rng)
            }
        };
        let Some(run) = run.filter(|r| !self.spares_source(id, r.start)) else { return false };
        let first = run.start;
        let len = self.pieces.length(first);
        let small = u64::from(len) <= room.max(peer.block_size()) || self.only_there(peer, first);
        if peer.is_stock() || !small {
            return self.ask_part(id, first, room);
        }
        let mut bytes = 0;
        let fits = |piece: &u32| {
            bytes += u64::from(self.pieces.length(*piece));
            *piece == first || bytes <= room
        };
        let end = run.take_while(fits).last().unwrap_or(first) + 1;
        self.ask_pieces(id, first..end);
        true
    }

    /// Only complete peers have this piece: one of them gives it whole.
    fn only_there(&self, peer: &Peer, piece: u32) -> bool {
        let short = self.pieces.length(piece) <= RESERVED_LENGTH;
        peer.have.is_all() && short && self.selection.copies(piece) == 0
    }

    /// Asks a complete peer for one more piece that no other peer has, beyond its window.
    ///
    /// Many peers ask it, and only it knows which of its pieces it gives to others meanwhile: of the pieces
    /// that we have requested it gives us a new one (`upload`), and the rest comes from the others
    /// (`relieve`). Bounded by the data that we receive in a second, and by our share of the missing data.
    fn reserve(&mut self, id: PeerId) -> bool {
        let Some(peer) = self.peers.get(&id) else { return false };
        let patience =
            peer.silence.stalled() || peer.silence.resting(self.env.now()) || peer.interest.chokes_us();
        let most = (self.pieces.left() / self.selection.seeds().max(1)).min(RESERVED);
        if peer.is_stock()
            || peer.in_order()
            || peer.is_closing()
            || patience
            || peer.asked().len() >= most as usize
        {
            return false;
        }
        if peer.spare_requests() == 0 {
            return false;
        }
        if peer.outstanding() > self.downloads.rate().max(peer.window.size()) || !peer.have.is_all() {
            return false;
        }
        let run = self.selection.pick(peer.have.holding(), peer.next_request.cursor(), 1, &mut self.rng);
        let Some(run) = run.filter(|r| self.only_there(peer, r.start)) else { return false };
        self.ask_pieces(id, run);
        true
    }

    /// Asks a Tidecast peer for whole missing pieces.
    fn ask_pieces(&mut self, id: PeerId, pieces: Range<u32>) {
        let now = self.env.now();
        for piece in pieces.clone() {
            debug_assert_eq!(self.pieces.state(piece), State::Missing);
            let len = self.pieces.length(piece);
            self.with_piece(piece, |p| p.ask(id, piece, 0..u32::MAX));
            if let Some(peer) = self.peers.get_mut(&id) {
                peer.note_asked(piece, len, now);
            }
            self.downloads.asked(now, u64::from(len));
        }
        if let Some(peer) = self.peers.get_mut(&id) {
            peer.next_request.asked_up_to(pieces.end);
        }
        self.outbox.push(Action::RequestPieces { peer: id, pieces });
    }

    /// Asks for free cells of one piece, as many as there is room for.
    pub(crate) fn ask_part(&mut self, id: PeerId, piece: u32, room: u64) -> bool {
        let most = u32::try_from(room / u64::from(CELL)).unwrap_or(u32::MAX).max(1);
        let cells = match (self.pieces.state(piece), self.pieces.partial(piece)) {
            (State::Missing, _) => Some(0..self.pieces.length(piece).div_ceil(CELL).min(most)),
            (State::InFlight, Some(partial)) if self.pieces.lacks(piece) => partial.free_run(most),
            _ => None,
        };
        let Some(cells) = cells else { return false };
        self.ask_cells(id, piece, cells);
        let more = self.pieces.open().contains(&piece);
        if let Some(peer) = self.peers.get_mut(&id) {
            peer.next_request.asked_part_of(piece, more);
        }
        true
    }

    /// Asks for cells that are not requested.
    pub(crate) fn ask_cells(&mut self, id: PeerId, piece: u32, cells: Range<u32>) {
        let asked = self.with_piece(piece, |p| p.ask(id, piece, cells.clone()));
        debug_assert_eq!(asked as usize, cells.len(), "cells of piece {piece} were not free");
        self.blame.assign(piece, id);
        let block = self.pieces.block(piece, cells);
        let now = self.env.now();
        self.downloads.asked(now, u64::from(block.len));
        let Some(peer) = self.peers.get_mut(&id) else { return };
        peer.note_asked(piece, block.len, now);
        let requests = chunks(block, peer.request_size());
        self.outbox.extend(requests.map(|block| Action::Request { peer: id, block }));
    }

    /// Asks for blocks of a piece that others are delivering.
    fn join(&mut self, id: PeerId, room: u64) -> bool {
        if self.peers.get(&id).is_some_and(Peer::in_order) {
            return false;
        }
        let from = self.rng.below(self.pieces.count());
        let open = self.pieces.open();
        let turn = open.range(from..).chain(open.range(..from)).take(OPEN_SCAN);
        let piece = turn
            .copied()
            .find(|&p| self.pieces.lacks(p) && self.may_ask(id, p) && !self.spares_source(id, p));
        piece.is_some_and(|piece| self.ask_part(id, piece, room))
    }

    /// A peer that chokes us may still be asked for the pieces it has named (BEP 6).
    fn ask_allowed_fast(&mut self, id: PeerId, room: u64) -> bool {
        let Some(peer) = self.peers.get(&id) else { return false };
        let free = |piece: &u32| match self.pieces.state(*piece) {
            State::Missing => true,
            State::InFlight => self.pieces.open().contains(piece) && self.pieces.lacks(*piece),
            _ => false,
        };
        let ours = |p: &u32| self.may_ask(id, *p) && free(p);
        let piece = peer.interest.fast().iter().copied().find(ours);
        piece.is_some_and(|piece| self.ask_part(id, piece, room))
    }
}
