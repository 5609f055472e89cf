//! One piece in progress: which of its 16 KiB cells is requested from which peer, received, stored.
//!
//! Invariant: a cell is free (not requested), asked (of its owner, and in endgame of others too), received
//! (from its owner, verdict awaited) or stored (from its owner); the counts are the number of cells in each
//! state.

use std::ops::Range;

use crate::api::PeerId;
use crate::planted::{Bug, planted};

/// Owner of a cell whose sender is not known.
pub(crate) const NOBODY: PeerId = PeerId(u32::MAX);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cell {
    Free,
    Asked,
    Received,
    Stored,
}

/// Cells that a peer had been asked for, run by run.
pub(crate) type Runs = Vec<(PeerId, Range<u32>)>;

fn add_to(runs: &mut Runs, peer: PeerId, cell: u32) {
    match runs.last_mut() {
        Some((last, run)) if *last == peer && run.end == cell => run.end += 1,
        _ => runs.push((peer, cell..cell + 1)),
    }
}

/// See the head of the file.
#[derive(Clone, Debug)]
pub(crate) struct Partial {
    cells: Vec<(Cell, PeerId)>,
    /// Endgame: cells asked of more peers than their owner.
    more: Vec<(PeerId, u32)>,
    free: u32,
    asked: u32,
    stored: u32,
    /// Every stored cell was compared with its own leaf hash.
    proven: bool,
}

impl Partial {
    pub(crate) fn new(cells: u32) -> Self {
        Partial {
            cells: vec![(Cell::Free, NOBODY); cells as usize],
            more: Vec::new(),
            free: cells,
            asked: 0,
            stored: 0,
            proven: true,
        }
    }

    fn len(&self) -> u32 {
        self.cells.len() as u32
    }

    /// Cells, and requests for them beyond one each.
    pub(crate) fn footprint(&self) -> usize {
        self.cells.len() + self.more.len()
    }

    /// Cells that are not requested.
    pub(crate) fn free(&self) -> u32 {
        self.free
    }

    /// Nothing asked, received or stored.
    pub(crate) fn is_idle(&self) -> bool {
        self.free == self.len()
    }

    /// Everything stored.
    pub(crate) fn is_full(&self) -> bool {
        self.stored == self.len()
    }

    /// Some cells have arrived or are on disk.
    pub(crate) fn has_data(&self) -> bool {
        self.free + self.asked < self.len()
    }

    fn set(&mut self, at: u32, to: (Cell, PeerId)) {
        let Some(cell) = self.cells.get_mut(at as usize) else { return };
        let from = std::mem::replace(cell, to);
        match from.0 {
            Cell::Free => self.free -= 1,
            Cell::Asked => self.asked -= 1,
            Cell::Received => {}
            Cell::Stored => self.stored -= 1,
        }
        match to.0 {
            Cell::Free => self.free += 1,
            Cell::Asked => self.asked += 1,
            Cell::Received => {}
            Cell::Stored => self.stored += 1,
        }
    }

    fn get(&self, at: u32) -> (Cell, PeerId) {
        self.cells.get(at as usize).copied().unwrap_or((Cell::Stored, NOBODY))
    }

    fn within(&self, cells: Range<u32>) -> Range<u32> {
        cells.start.min(self.len())..cells.end.min(self.len())
    }

    pub(crate) fn ask(&mut self, peer: PeerId, cells: Range<u32>) -> u32 {
        let mut n = 0;
        for at in self.within(cells) {
            if self.get(at).0 == Cell::Free {
                self.set(at, (Cell::Asked, peer));
                n += 1;
            }
        }
        n
    }

    /// Asks one more peer for a cell that is asked already; false when it may not be.
    pub(crate) fn ask_too(&mut self, peer: PeerId, at: u32) -> bool {
        let (cell, owner) = self.get(at);
        let may = cell == Cell::Asked && owner != peer && !self.more.contains(&(peer, at));
        if may {
            self.more.push((peer, at));
        }
        may
    }

    /// Takes back from `peer`; the cells that it was asked for. Where another was asked too, it
    /// becomes the owner.
    pub(crate) fn release(&mut self, peer: PeerId, cells: Range<u32>) -> Vec<u32> {
        let mut out = Vec::new();
        for at in self.within(cells) {
            if self.get(at) == (Cell::Asked, peer) {
                out.push(at);
                let heir = self.more.iter().position(|&(_, c)| c == at);
                match heir.map(|i| self.more.swap_remove(i)) {
                    Some((other, _)) => self.set(at, (Cell::Asked, other)),
                    None if planted(Bug::ForgetRequest) => {}
                    None => self.set(at, (Cell::Free, NOBODY)),
                }
            } else if let Some(i) = self.more.iter().position(|&m| m == (peer, at)) {
                self.more.swap_remove(i);
                out.push(at);
            }
        }
        out
    }

    /// Data for `cells` has come from `peer`: free and asked cells become received. Returns every peer that
    /// was asked for one of them, `peer` included.
    pub(crate) fn receive(&mut self, peer: PeerId, cells: Range<u32>) -> Runs {
        self.arrive(peer, cells, Cell::Received)
    }

    /// Likewise, but the data is on disk.
    pub(crate) fn store(&mut self, peer: PeerId, cells: Range<u32>) -> Runs {
        self.arrive(peer, cells, Cell::Stored)
    }

    /// The data that `peer` sent for `cells` was on disk already, its sender is unknown: cells that are not
    /// received from another peer are stored. Returns every peer that was asked for one of them.
    pub(crate) fn store_known(&mut self, peer: PeerId, cells: Range<u32>) -> Runs {
        let mut out = Runs::new();
        for at in self.within(cells) {
            let (cell, owner) = self.get(at);
            if cell != Cell::Received || owner == peer {
                out.append(&mut self.arrive(NOBODY, at..at + 1, Cell::Stored));
            }
        }
        out
    }

    fn arrive(&mut self, peer: PeerId, cells: Range<u32>, to: Cell) -> Runs {
        let mut out = Runs::new();
        for at in self.within(cells) {
            let (cell, owner) = self.get(at);
            if cell == Cell::Asked {
                add_to(&mut out, owner, at);
                self.more.retain(|&(other, c)| {
                    if c == at {
                        add_to(&mut out, other, at);
                    }
                    c != at
                });
            }
            let changes = match cell {
                Cell::Free | Cell::Asked => true,
                Cell::Received => to == Cell::Stored,
                Cell::Stored => false,
            };
            if changes {
                self.set(at, (to, peer));
            }
        }
        out
    }

    /// The data that `peer` sent among `cells` was wrong: its received and stored cells are free again, and
    /// those with unknown sender (if they are intact after all, the driver will report it again).
    pub(crate) fn spoil(&mut self, peer: PeerId, cells: Range<u32>) {
        for at in self.within(cells) {
            let (cell, owner) = self.get(at);
            let its = owner == peer || owner == NOBODY;
            if its && matches!(cell, Cell::Received | Cell::Stored) {
                self.set(at, (Cell::Free, NOBODY));
            }
        }
    }

    /// Something of it is stored that was not compared with its leaf hash.
    pub(crate) fn doubt(&mut self) {
        self.proven = false;
    }

    /// The end of the stored, proven cells that follow one another from `from`.
    pub(crate) fn proven_until(&self, from: u32) -> u32 {
        let stored = |c: &&(Cell, PeerId)| self.proven && c.0 == Cell::Stored;
        from + self.cells.iter().skip(from as usize).take_while(stored).count() as u32
    }

    /// Cells that are not requested, ascending.
    pub(crate) fn free_cells(&self) -> impl Iterator<Item = u32> + '_ {
        let free = self.cells.iter().enumerate().filter(|(_, c)| c.0 == Cell::Free);
        free.map(|(at, _)| at as u32)
    }

    /// Cells that are here, or asked of others than `peer`, ascending.
    pub(crate) fn not_from(&self, peer: PeerId) -> Vec<u32> {
        let its = |c: &(Cell, PeerId)| c.0 == Cell::Free || *c == (Cell::Asked, peer);
        let others = self.cells.iter().enumerate().filter(|(_, c)| !its(c));
        others.map(|(at, _)| at as u32).collect()
    }

    /// The first run of free cells, at most `max` long.
    pub(crate) fn free_run(&self, max: u32) -> Option<Range<u32>> {
        let start = self.cells.iter().position(|c| c.0 == Cell::Free)?;
        let run = self.cells.iter().skip(start).take_while(|c| c.0 == Cell::Free);
        let len = run.take(max as usize).count();
        Some(start as u32..(start + len) as u32)
    }

    /// The last cells asked of `peer` alone, as one run of at most `max`.
    pub(crate) fn last_asked(&self, peer: PeerId, max: u32) -> Option<Range<u32>> {
        let is = |at: usize| self.cells.get(at) == Some(&(Cell::Asked, peer));
        let end = (0..self.cells.len()).rev().find(|&at| is(at))? + 1;
        let len = (0..end).rev().take_while(|&at| is(at)).take(max as usize).count();
        Some((end - len) as u32..end as u32)
    }

    /// Requested cells, ascending.
    pub(crate) fn asked(&self) -> impl Iterator<Item = u32> + '_ {
        let asked = self.cells.iter().enumerate().filter(|(_, c)| c.0 == Cell::Asked);
        asked.map(|(at, _)| at as u32)
    }

    /// The one peer that is asked for something of it, while nothing has come.
    pub(crate) fn sole_source(&self) -> Option<PeerId> {
        let first = self.cells.iter().find(|c| c.0 == Cell::Asked)?.1;
        let its = |c: &(Cell, PeerId)| *c == (Cell::Asked, first) || c.0 == Cell::Free;
        (self.more.is_empty() && self.cells.iter().all(its)).then_some(first)
    }

    /// Every peer that is asked for a cell, with the cell.
    pub(crate) fn requests(&self) -> impl Iterator<Item = (PeerId, u32)> + '_ {
        let owners = self.asked().map(|at| (self.get(at).1, at));
        owners.chain(self.more.iter().copied())
    }

    /// Cells asked of this peer, as owner or besides.
    pub(crate) fn asked_of(&self, peer: PeerId) -> impl Iterator<Item = u32> + '_ {
        self.requests().filter(move |r| r.0 == peer).map(|r| r.1)
    }

    /// The distinct senders of stored cells, ascending.
    pub(crate) fn senders(&self) -> Vec<PeerId> {
        let stored = self.cells.iter().filter(|c| c.0 == Cell::Stored);
        let mut out: Vec<PeerId> = Vec::new();
        for &(_, owner) in stored {
            if let Err(at) = out.binary_search(&owner) {
                out.insert(at, owner);
            }
        }
        out
    }

    /// Whether the counts match the cells.
    pub(crate) fn check(&self) -> Result<(), String> {
        let n = |s: Cell| self.cells.iter().filter(|c| c.0 == s).count() as u32;
        if (n(Cell::Free), n(Cell::Asked), n(Cell::Stored)) != (self.free, self.asked, self.stored) {
            return Err("counts of cells are wrong".into());
        }
        if self.more.iter().any(|&(_, at)| self.get(at).0 != Cell::Asked) {
            return Err("a cell is requested from a second peer but not from a first".into());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const A: PeerId = PeerId(1);
    const B: PeerId = PeerId(2);

    #[test]
    fn endgame_heirs_and_losers() {
        let mut p = Partial::new(4);
        p.ask(A, 0..4);
        assert!(p.ask_too(B, 1) && !p.ask_too(B, 1) && !p.ask_too(A, 1));
        assert_eq!(p.release(A, 0..2), vec![0, 1]);
        assert_eq!(p.asked_of(B).collect::<Vec<_>>(), vec![1]);
        assert!(p.ask_too(B, 2));
        assert_eq!(p.receive(B, 2..3), vec![(A, 2..3), (B, 2..3)]);
        assert_eq!(p.receive(A, 2..3), vec![]);
        p.check().unwrap();
    }

    #[test]
    fn spoiled_cells_are_free_again_but_only_the_culprits() {
        let mut p = Partial::new(3);
        p.store(A, 0..1);
        p.receive(B, 1..2);
        p.ask(B, 2..3);
        p.spoil(B, 0..3);
        assert_eq!((p.free(), p.senders()), (1, vec![A]));
        assert_eq!(p.free_run(9), Some(1..2));
        p.check().unwrap();
    }

    #[test]
    fn runs() {
        let mut p = Partial::new(8);
        p.ask(A, 0..3);
        p.ask(B, 5..6);
        p.ask(A, 6..8);
        assert_eq!(p.free_run(1), Some(3..4));
        assert_eq!(p.free_run(5), Some(3..5));
        assert_eq!(p.last_asked(A, 10), Some(6..8));
        assert_eq!(p.last_asked(A, 1), Some(7..8));
        assert_eq!(p.last_asked(NOBODY, 1), None);
    }
}
