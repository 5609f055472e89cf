//! How many peers have each piece, and how rare that makes it.
//!
//! Peers that have everything are counted once, in `seeds`: they change no piece's rank. A rank
//! ("level") is exact up to 16 copies and coarser above, where the order no longer matters.

use crate::bitset::BitSet;

/// Number of levels of rarity; 0 is the rarest.
pub(crate) const LEVELS: usize = 24;

/// The level of a piece that `copies` partial peers have.
pub(crate) fn level(copies: u16) -> u8 {
    match copies {
        0..=16 => copies as u8,
        17..=23 => 17,
        24..=31 => 18,
        32..=47 => 19,
        48..=63 => 20,
        64..=127 => 21,
        128..=255 => 22,
        _ => 23,
    }
}

/// Copies of each piece among the peers that do not have all.
#[derive(Debug)]
pub(crate) struct Availability {
    copies: Vec<u16>,
    seeds: u32,
}

impl Availability {
    pub(crate) fn new(pieces: u32) -> Self {
        Availability { copies: vec![0; pieces as usize], seeds: 0 }
    }

    /// Copies at peers that lack something.
    pub(crate) fn copies(&self, piece: u32) -> u16 {
        self.copies.get(piece as usize).copied().unwrap_or(0)
    }

    /// Peers that have the piece, in all.
    pub(crate) fn holders(&self, piece: u32) -> u32 {
        u32::from(self.copies(piece)) + self.seeds
    }

    /// Peers that have everything.
    pub(crate) fn seeds(&self) -> u32 {
        self.seeds
    }

    /// One more copy; the levels before and after.
    pub(crate) fn add(&mut self, piece: u32) -> (u8, u8) {
        let Some(n) = self.copies.get_mut(piece as usize) else { return (0, 0) };
        let before = level(*n);
        *n = n.saturating_add(1);
        (before, level(*n))
    }

    /// One copy less; the levels before and after.
    pub(crate) fn remove(&mut self, piece: u32) -> (u8, u8) {
        let Some(n) = self.copies.get_mut(piece as usize) else { return (0, 0) };
        debug_assert!(*n > 0, "a copy of piece {piece} that was never counted is taken away");
        let before = level(*n);
        *n = n.saturating_sub(1);
        (before, level(*n))
    }

    pub(crate) fn add_seed(&mut self) {
        self.seeds += 1;
    }

    pub(crate) fn remove_seed(&mut self) {
        debug_assert!(self.seeds > 0, "a seed that was never counted is taken away");
        self.seeds = self.seeds.saturating_sub(1);
    }
}

/// The pieces of one peer: everything, or a set (allocated only when it has some).
#[derive(Clone, Debug, Default)]
pub(crate) struct Holding {
    all: bool,
    some: BitSet,
}

impl Holding {
    pub(crate) fn has(&self, piece: u32) -> bool {
        self.all || self.some.get(piece)
    }

    pub(crate) fn is_all(&self) -> bool {
        self.all
    }

    /// The members when this is not "all".
    pub(crate) fn some(&self) -> Option<&BitSet> {
        (!self.all).then_some(&self.some)
    }

    pub(crate) fn count(&self, pieces: u32) -> u32 {
        if self.all { pieces } else { self.some.count() }
    }

    /// Has everything from now on; the set it had before.
    pub(crate) fn become_all(&mut self) -> BitSet {
        self.all = true;
        std::mem::take(&mut self.some)
    }

    /// Has nothing from now on; the set it had before (empty when it had all).
    pub(crate) fn become_none(&mut self) -> BitSet {
        self.all = false;
        std::mem::take(&mut self.some)
    }

    /// "All" becomes the full set, so that single pieces can leave it.
    pub(crate) fn expand(&mut self, pieces: u32) {
        if self.all {
            self.all = false;
            self.some = BitSet::new(pieces);
            for i in 0..pieces {
                self.some.set(i);
            }
        }
    }

    /// Adds a piece; true when it is new.
    pub(crate) fn add(&mut self, piece: u32, pieces: u32) -> bool {
        if self.all {
            return false;
        }
        if !self.some.has_room() {
            self.some = BitSet::new(pieces);
        }
        self.some.set(piece)
    }

    /// Takes a piece away; true when it was there. The holding must be spelled out.
    pub(crate) fn remove(&mut self, piece: u32) -> bool {
        !self.all && self.some.clear(piece)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_rise_and_stay_in_range() {
        let mut last = 0;
        for copies in 0..=u16::MAX {
            let l = level(copies);
            assert!(l >= last && usize::from(l) < LEVELS);
            last = l;
        }
        assert_eq!(usize::from(last), LEVELS - 1);
    }

    #[test]
    fn counts_copies_and_seeds() {
        let mut a = Availability::new(3);
        assert_eq!(a.add(1), (0, 1));
        a.add_seed();
        assert_eq!((a.holders(0), a.holders(1)), (1, 2));
        assert_eq!(a.remove(1), (1, 0));
        a.remove_seed();
        assert_eq!(a.holders(1), 0);
        assert_eq!(a.add(99), (0, 0));
    }

    #[test]
    fn holding_goes_from_none_to_all_and_back() {
        let mut h = Holding::default();
        assert!(!h.has(0) && h.add(2, 5) && !h.add(2, 5) && h.has(2));
        h.become_all();
        assert!(h.has(4) && h.is_all() && h.count(5) == 5);
        h.expand(5);
        assert!(h.remove(4) && !h.has(4) && h.has(3) && h.count(5) == 4);
        h.become_none();
        assert_eq!(h.count(5), 0);
    }
}
