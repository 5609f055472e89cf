//! A set of pieces.

use std::ops::Range;

/// Pieces 0 to a number that is set when it is made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PieceSet {
    words: Vec<u64>,
    len: u32,
    count: u32,
}

impl PieceSet {
    /// None of `len` pieces.
    #[must_use]
    pub fn new(len: u32) -> Self {
        PieceSet { words: vec![0; len.div_ceil(64) as usize], len, count: 0 }
    }

    /// Those of `len` pieces that are in one of the ranges.
    #[must_use]
    pub fn of(len: u32, ranges: &[Range<u32>]) -> Self {
        let mut set = PieceSet::new(len);
        ranges.iter().cloned().flatten().for_each(|piece| set.insert(piece));
        set
    }

    /// Whether the piece is in it.
    #[must_use]
    pub fn has(&self, piece: u32) -> bool {
        self.words.get((piece / 64) as usize).is_some_and(|w| w >> (piece % 64) & 1 == 1)
    }

    /// Number of pieces in it.
    #[must_use]
    pub fn count(&self) -> u32 {
        self.count
    }

    /// Puts a piece in; one beyond the last is ignored.
    pub fn insert(&mut self, piece: u32) {
        if piece < self.len && !self.has(piece) {
            self.count += 1;
            self.words[(piece / 64) as usize] |= 1 << (piece % 64);
        }
    }

    /// Takes a piece out.
    pub fn remove(&mut self, piece: u32) {
        if self.has(piece) {
            self.count -= 1;
            self.words[(piece / 64) as usize] &= !(1 << (piece % 64));
        }
    }

    /// Takes all out.
    pub fn clear(&mut self) {
        *self = PieceSet::new(self.len);
    }

    /// The first piece that is in both `a` and `b` and not in this set.
    #[must_use]
    pub fn first_lacking(&self, a: &PieceSet, b: &PieceSet) -> Option<u32> {
        let words = self.words.iter().zip(&a.words).zip(&b.words).map(|((own, a), b)| a & b & !own);
        let (at, word) = words.enumerate().find(|(_, w)| *w != 0)?;
        Some(at as u32 * 64 + word.trailing_zeros())
    }

    /// Its pieces as sorted, disjoint, non-touching ranges.
    #[must_use]
    pub fn ranges(&self) -> Vec<Range<u32>> {
        let mut out: Vec<Range<u32>> = Vec::new();
        for piece in (0..self.len).filter(|&p| self.has(p)) {
            match out.last_mut() {
                Some(last) if last.end == piece => last.end += 1,
                _ => out.push(piece..piece + 1),
            }
        }
        out
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::single_range_in_vec_init)]
    use super::*;

    #[test]
    fn counts_what_is_in_it() {
        let mut set = PieceSet::of(130, &[0..2, 63..66, 128..130]);
        assert_eq!((set.count(), set.ranges()), (7, vec![0..2, 63..66, 128..130]));
        set.insert(64);
        set.insert(130);
        set.remove(0);
        set.remove(5);
        assert_eq!((set.count(), set.has(1), set.has(130)), (6, true, false));
        set.clear();
        assert_eq!(set, PieceSet::new(130));
    }

    #[test]
    fn lacking() {
        let set = |r: Range<u32>| PieceSet::of(200, &[r]);
        assert_eq!(set(0..70).first_lacking(&set(0..200), &set(10..90)), Some(70));
        assert_eq!(set(0..70).first_lacking(&set(0..100), &set(150..190)), None);
        assert_eq!(set(0..70).first_lacking(&set(10..20), &set(0..200)), None);
    }
}
