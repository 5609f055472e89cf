//! Where every piece stands.
//!
//! Invariant: a piece is in exactly one state.
//!
//! * `Unwanted`: not ours, not asked for; it has no `Partial`.
//! * `Missing`: wanted, nothing asked for, nothing stored; no `Partial`.
//! * `InFlight`: it has a `Partial` with at least one block that is asked for, received or stored,
//!   and at least one that is not stored.
//! * `Settling`: it has a `Partial` whose blocks are all stored; the driver owes a verdict.
//! * `Verified`: ours; no `Partial`. Only this state may be served.
//!
//! `check` tells whether it holds; tests call it after every event.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

use crate::api::{Block, PeerId};
use crate::planted::{Bug, planted};
use crate::state::partial::{Partial, Runs};

/// The unit in which the state of a piece in flight is kept: 16 KiB, as stock clients request.
pub(crate) const CELL: u32 = 16_384;

/// The state of one piece; see the head of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Unwanted,
    Missing,
    InFlight,
    Settling,
    Verified,
}

/// All pieces of the swarm.
#[derive(Debug)]
pub(crate) struct Pieces {
    lengths: Arc<[u32]>,
    state: Vec<State>,
    priority: Vec<u8>,
    partials: BTreeMap<u32, Partial>,
    /// Pieces in flight with blocks that are not requested.
    open: BTreeSet<u32>,
    /// Wanted pieces that are not verified, and their bytes.
    left: u32,
    left_bytes: u64,
    /// Bytes of the pieces in state `Missing`.
    missing_bytes: u64,
    verified: u32,
    /// Nothing was left at the last check, and it was reported.
    complete: bool,
}

impl Pieces {
    /// Nothing wanted, nothing there.
    pub(crate) fn new(lengths: Arc<[u32]>) -> Self {
        let n = lengths.len();
        Pieces {
            lengths,
            state: vec![State::Unwanted; n],
            priority: vec![0; n],
            partials: BTreeMap::new(),
            open: BTreeSet::new(),
            left: 0,
            left_bytes: 0,
            missing_bytes: 0,
            verified: 0,
            complete: false,
        }
    }

    pub(crate) fn count(&self) -> u32 {
        self.state.len() as u32
    }

    /// Length of a piece in bytes; 0 for one that does not exist.
    pub(crate) fn length(&self, piece: u32) -> u32 {
        self.lengths.get(piece as usize).copied().unwrap_or(0)
    }

    pub(crate) fn state(&self, piece: u32) -> State {
        self.state.get(piece as usize).copied().unwrap_or(State::Unwanted)
    }

    pub(crate) fn verified(&self, piece: u32) -> bool {
        self.state(piece) == State::Verified
    }

    /// Whether the piece may be served: only verified pieces may.
    pub(crate) fn servable(&self, piece: u32) -> bool {
        self.verified(piece) || planted(Bug::ServeUnverified)
    }

    /// How many bytes of the piece, from its start on through `from`, may be forwarded: all of a verified
    /// one, else the stored cells proven leaf by leaf. At least `from`, a multiple of a cell.
    pub(crate) fn passable(&self, piece: u32, from: u32) -> u32 {
        let len = self.length(piece);
        if self.verified(piece) {
            return len;
        }
        let cells = self.partials.get(&piece).map_or(0, |p| p.proven_until(from / CELL));
        cells.saturating_mul(CELL).min(len).max(from)
    }

    /// Stored cells of the piece were not compared with their leaf hashes.
    pub(crate) fn doubt(&mut self, piece: u32) {
        if let Some(partial) = self.partials.get_mut(&piece) {
            partial.doubt();
        }
    }

    pub(crate) fn priority(&self, piece: u32) -> u8 {
        self.priority.get(piece as usize).copied().unwrap_or(0)
    }

    /// Wanted and not verified.
    pub(crate) fn lacks(&self, piece: u32) -> bool {
        self.priority(piece) > 0 && !self.verified(piece)
    }

    pub(crate) fn left(&self) -> u32 {
        self.left
    }

    /// Looks whether nothing is left; true when that is new.
    pub(crate) fn note_complete(&mut self) -> bool {
        let was = std::mem::replace(&mut self.complete, self.left == 0);
        self.complete && !was
    }

    /// Nothing was left at the last `note_complete`. Within an event `left` may be ahead of it.
    pub(crate) fn is_complete(&self) -> bool {
        self.complete
    }

    pub(crate) fn left_bytes(&self) -> u64 {
        self.left_bytes
    }

    pub(crate) fn missing_bytes(&self) -> u64 {
        self.missing_bytes
    }

    pub(crate) fn verified_count(&self) -> u32 {
        self.verified
    }

    pub(crate) fn in_flight_count(&self) -> usize {
        self.partials.len()
    }

    pub(crate) fn open(&self) -> &BTreeSet<u32> {
        &self.open
    }

    pub(crate) fn partial(&self, piece: u32) -> Option<&Partial> {
        self.partials.get(&piece)
    }

    /// The pieces in flight or settling, ascending.
    pub(crate) fn in_flight(&self) -> impl Iterator<Item = (u32, &Partial)> {
        self.partials.iter().map(|(&piece, partial)| (piece, partial))
    }

    /// Whether the block lies within its piece, is not empty, and begins and ends where a block may.
    pub(crate) fn sound(&self, block: Block) -> bool {
        let len = self.length(block.piece);
        let Some(end) = block.begin.checked_add(block.len) else { return false };
        block.len > 0
            && end <= len
            && block.begin.is_multiple_of(CELL)
            && (end == len || end.is_multiple_of(CELL))
    }

    /// The cells that a sound block covers.
    pub(crate) fn cells(&self, block: Block) -> Range<u32> {
        block.begin / CELL..(block.begin + block.len).div_ceil(CELL)
    }

    /// The block that a run of cells of `piece` makes.
    pub(crate) fn block(&self, piece: u32, cells: Range<u32>) -> Block {
        let begin = cells.start * CELL;
        let end = cells.end.saturating_mul(CELL).min(self.length(piece));
        Block { piece, begin, len: end.saturating_sub(begin) }
    }

    fn enter(&mut self, piece: u32, to: State) {
        let len = u64::from(self.length(piece));
        let lacked = self.lacks(piece);
        let Some(state) = self.state.get_mut(piece as usize) else { return };
        let from = std::mem::replace(state, to);
        self.missing_bytes += if to == State::Missing { len } else { 0 };
        self.missing_bytes -= if from == State::Missing { len } else { 0 };
        self.verified += u32::from(to == State::Verified);
        self.verified -= u32::from(from == State::Verified);
        self.count_left(piece, lacked);
    }

    /// Counts `piece` in or out of the missing data when its `lacks` has changed from `lacked`.
    fn count_left(&mut self, piece: u32, lacked: bool) {
        let len = u64::from(self.length(piece));
        match (lacked, self.lacks(piece)) {
            (false, true) => {
                self.left += 1;
                self.left_bytes += len;
            }
            (true, false) => {
                self.left -= 1;
                self.left_bytes -= len;
            }
            _ => {}
        }
    }

    /// Sets the priority; a piece with nothing in flight moves between unwanted and missing.
    pub(crate) fn set_priority(&mut self, piece: u32, priority: u8) {
        let lacked = self.lacks(piece);
        let Some(p) = self.priority.get_mut(piece as usize) else { return };
        *p = priority;
        self.count_left(piece, lacked);
        match (self.state(piece), priority) {
            (State::Unwanted, 1..) => self.enter(piece, State::Missing),
            (State::Missing, 0) => self.enter(piece, State::Unwanted),
            _ => {}
        }
    }

    /// The piece is ours. The partial it had is given back, so that requests can be cancelled.
    pub(crate) fn verify(&mut self, piece: u32) -> Option<Partial> {
        self.open.remove(&piece);
        self.enter(piece, State::Verified);
        self.partials.remove(&piece)
    }

    /// All data of the piece is lost. The partial it had is returned.
    pub(crate) fn reset(&mut self, piece: u32) -> Option<Partial> {
        self.open.remove(&piece);
        let to = if self.priority(piece) > 0 { State::Missing } else { State::Unwanted };
        self.enter(piece, to);
        self.partials.remove(&piece)
    }

    /// Asks `peer` for the free cells among `cells`; the number of cells it now owns.
    pub(crate) fn ask(&mut self, peer: PeerId, piece: u32, cells: Range<u32>) -> u32 {
        self.change(piece, |p| p.ask(peer, cells)).unwrap_or(0)
    }

    /// Asks `peer` too for cells asked of others (endgame).
    pub(crate) fn ask_too(&mut self, peer: PeerId, piece: u32, cell: u32) -> bool {
        self.change(piece, |p| p.ask_too(peer, cell)).unwrap_or(false)
    }

    /// Cancels the requests to `peer` among `cells`: the number of cells taken back from it.
    pub(crate) fn release(&mut self, peer: PeerId, piece: u32, cells: Range<u32>) -> Vec<u32> {
        self.change(piece, |p| p.release(peer, cells)).unwrap_or_default()
    }

    /// `cells` came from `peer`; returns the other peers that were asked for them.
    pub(crate) fn receive(&mut self, peer: PeerId, piece: u32, cells: Range<u32>) -> Runs {
        self.change(piece, |p| p.receive(peer, cells)).unwrap_or_default()
    }

    /// `cells` from `peer` are on disk; returns the other peers that were asked for them.
    pub(crate) fn store(&mut self, peer: PeerId, piece: u32, cells: Range<u32>) -> Runs {
        self.change(piece, |p| p.store(peer, cells)).unwrap_or_default()
    }

    /// `cells` from `peer` were on disk already; returns the other peers that were asked for them.
    pub(crate) fn store_known(&mut self, peer: PeerId, piece: u32, cells: Range<u32>) -> Runs {
        self.change(piece, |p| p.store_known(peer, cells)).unwrap_or_default()
    }

    /// `cells` from `peer` were wrong and are dropped.
    pub(crate) fn spoil(&mut self, peer: PeerId, piece: u32, cells: Range<u32>) {
        self.change(piece, |p| p.spoil(peer, cells));
    }

    /// Changes the partial of a piece that is not verified, then moves the piece to the state that
    /// follows. A partial is made for a missing piece; an unwanted one gets one too, because bytes
    /// that are on disk are on disk.
    fn change<T>(&mut self, piece: u32, f: impl FnOnce(&mut Partial) -> T) -> Option<T> {
        if piece >= self.count() || self.verified(piece) {
            return None;
        }
        let cells = self.length(piece).div_ceil(CELL);
        let partial = self.partials.entry(piece).or_insert_with(|| Partial::new(cells));
        let out = f(partial);
        let (idle, full, free) = (partial.is_idle(), partial.is_full(), partial.free() > 0);
        if idle {
            self.reset(piece);
        } else {
            self.enter(piece, if full { State::Settling } else { State::InFlight });
            if free {
                self.open.insert(piece);
            } else {
                self.open.remove(&piece);
            }
        }
        Some(out)
    }

    /// Our pieces, as ranges.
    pub(crate) fn verified_ranges(&self) -> Vec<Range<u32>> {
        let ours = self.state.iter().enumerate().filter(|(_, s)| **s == State::Verified);
        crate::bitset::to_ranges(ours.map(|(i, _)| i as u32))
    }

    /// Whether the invariant at the head of the file holds; the first thing that is wrong. O(pieces).
    pub(crate) fn check(&self) -> Result<(), String> {
        let (mut left, mut missing, mut verified) = (0u64, 0u64, 0u32);
        for piece in 0..self.count() {
            let (state, partial) = (self.state(piece), self.partials.get(&piece));
            let fits = match (state, partial) {
                (State::Unwanted, None) => self.priority(piece) == 0,
                (State::Missing, None) => self.priority(piece) > 0,
                (State::Verified, None) => true,
                (State::InFlight, Some(p)) => !p.is_idle() && !p.is_full(),
                (State::Settling, Some(p)) => p.is_full(),
                _ => false,
            };
            let open = partial.is_some_and(|p| p.free() > 0);
            if !fits || open != self.open.contains(&piece) {
                return Err(format!("piece {piece} is {state:?} with {partial:?}, open {open}"));
            }
            if let Some(p) = partial {
                p.check().map_err(|e| format!("piece {piece}: {e}"))?;
            }
            let len = u64::from(self.length(piece));
            left += if self.lacks(piece) { len } else { 0 };
            missing += if state == State::Missing { len } else { 0 };
            verified += u32::from(state == State::Verified);
        }
        if (left, missing, verified) != (self.left_bytes, self.missing_bytes, self.verified) {
            return Err("the totals do not match the states".into());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn pieces() -> Pieces {
        let mut p = Pieces::new(Arc::from([3 * CELL, CELL + 5, 7]));
        for i in 0..3 {
            p.set_priority(i, 1);
        }
        p.check().unwrap();
        p
    }

    #[test]
    fn a_piece_goes_through_all_states() {
        let (a, mut p) = (PeerId(1), pieces());
        assert_eq!(p.left_bytes(), u64::from(4 * CELL + 12));
        assert_eq!(p.ask(a, 0, 0..2), 2);
        assert_eq!(p.state(0), State::InFlight);
        assert!(p.open().contains(&0));
        assert_eq!(p.ask(a, 0, 0..3), 1);
        assert!(!p.open().contains(&0));
        p.receive(a, 0, 0..3);
        p.store(a, 0, 0..2);
        assert_eq!(p.state(0), State::InFlight);
        p.store(a, 0, 2..3);
        assert_eq!(p.state(0), State::Settling);
        assert!(p.verify(0).is_some());
        assert_eq!((p.state(0), p.left()), (State::Verified, 2));
        p.check().unwrap();
        p.reset(0);
        assert_eq!((p.state(0), p.left()), (State::Missing, 3));
        p.check().unwrap();
    }

    #[test]
    fn releasing_everything_makes_a_piece_missing_again() {
        let (a, mut p) = (PeerId(1), pieces());
        p.ask(a, 1, 0..2);
        assert_eq!(p.release(a, 1, 0..2), vec![0, 1]);
        assert_eq!(p.state(1), State::Missing);
        p.set_priority(1, 0);
        assert_eq!(p.state(1), State::Unwanted);
        p.check().unwrap();
    }

    #[test]
    fn blocks_and_cells() {
        let p = pieces();
        assert!(p.sound(Block { piece: 1, begin: CELL, len: 5 }));
        assert!(!p.sound(Block { piece: 1, begin: CELL, len: 4 }));
        assert!(!p.sound(Block { piece: 1, begin: 0, len: u32::MAX }));
        assert!(!p.sound(Block { piece: 3, begin: 0, len: 1 }));
        assert!(!p.sound(Block { piece: 2, begin: 0, len: 0 }));
        assert_eq!(p.block(1, 0..2), Block { piece: 1, begin: 0, len: CELL + 5 });
        assert_eq!(p.cells(Block { piece: 1, begin: CELL, len: 5 }), 1..2);
    }
}
