//! A set of piece numbers with a summary over it, so that "the next piece that is in both sets" does
//! not look at every word.
//!
//! Promise: `count` is always the number of members; bit `i` of the summary is set exactly when word
//! `i` is not zero. 64 pieces cost one word, 4096 one summary word more.

use std::ops::Range;

/// A set of numbers below a fixed bound.
#[derive(Clone, Debug, Default)]
pub(crate) struct BitSet {
    words: Vec<u64>,
    summary: Vec<u64>,
    count: u32,
}

fn lowest(word: u64) -> usize {
    word.trailing_zeros() as usize
}

impl BitSet {
    /// The empty set of numbers below `len`.
    pub(crate) fn new(len: u32) -> Self {
        let words = (len as usize).div_ceil(64);
        BitSet { words: vec![0; words], summary: vec![0; words.div_ceil(64)], count: 0 }
    }

    pub(crate) fn count(&self) -> u32 {
        self.count
    }

    /// The default set holds nothing and has room for nothing; it costs no memory.
    pub(crate) fn has_room(&self) -> bool {
        !self.words.is_empty()
    }

    pub(crate) fn get(&self, i: u32) -> bool {
        self.words.get(i as usize / 64).is_some_and(|w| w >> (i % 64) & 1 == 1)
    }

    /// Adds `i`; true when it was not there. A number beyond the bound is not added.
    pub(crate) fn set(&mut self, i: u32) -> bool {
        let at = i as usize / 64;
        let Some(word) = self.words.get_mut(at) else { return false };
        let bit = 1u64 << (i % 64);
        if *word & bit != 0 {
            return false;
        }
        *word |= bit;
        if let Some(s) = self.summary.get_mut(at / 64) {
            *s |= 1 << (at % 64);
        }
        self.count += 1;
        true
    }

    /// Removes `i`; true when it was there.
    pub(crate) fn clear(&mut self, i: u32) -> bool {
        let at = i as usize / 64;
        let Some(word) = self.words.get_mut(at) else { return false };
        let bit = 1u64 << (i % 64);
        if *word & bit == 0 {
            return false;
        }
        *word &= !bit;
        if *word == 0
            && let Some(s) = self.summary.get_mut(at / 64)
        {
            *s &= !(1 << (at % 64));
        }
        self.count -= 1;
        true
    }

    /// The smallest member at or after `from`.
    pub(crate) fn next(&self, from: u32) -> Option<u32> {
        self.scan(
            from,
            |w| self.words.get(w).copied().unwrap_or(0),
            |s| self.summary.get(s).copied().unwrap_or(0),
        )
    }

    /// The smallest number at or after `from` that is in both sets.
    pub(crate) fn next_common(&self, other: &BitSet, from: u32) -> Option<u32> {
        let both =
            |a: &[u64], b: &[u64], i: usize| a.get(i).copied().unwrap_or(0) & b.get(i).copied().unwrap_or(0);
        self.scan(from, |w| both(&self.words, &other.words, w), |s| both(&self.summary, &other.summary, s))
    }

    /// The smallest number at or after `from` whose bit is set in `word`; `summary` may have false positives
    /// but no false negatives.
    fn scan(&self, from: u32, word: impl Fn(usize) -> u64, summary: impl Fn(usize) -> u64) -> Option<u32> {
        let first = from as usize / 64;
        let head = word(first) & (u64::MAX << (from % 64));
        if head != 0 {
            return Some((first * 64 + lowest(head)) as u32);
        }
        let next = first + 1;
        let mut mask = u64::MAX << (next % 64);
        for s in next / 64..self.summary.len() {
            let mut left = summary(s) & mask;
            mask = u64::MAX;
            while left != 0 {
                let w = s * 64 + lowest(left);
                let bits = word(w);
                if bits != 0 {
                    return Some((w * 64 + lowest(bits)) as u32);
                }
                left &= left - 1;
            }
        }
        None
    }

    /// All members, ascending.
    pub(crate) fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        let mut from = 0;
        std::iter::from_fn(move || {
            let i = self.next(from)?;
            from = i.saturating_add(1);
            Some(i)
        })
    }
}

/// Sorted distinct numbers as disjoint, non-touching ranges.
pub(crate) fn to_ranges(sorted: impl IntoIterator<Item = u32>) -> Vec<Range<u32>> {
    let mut out: Vec<Range<u32>> = Vec::new();
    for i in sorted {
        match out.last_mut() {
            Some(r) if r.end == i => r.end = i + 1,
            _ => out.push(i..i + 1),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn behaves_like_a_set(ops in prop::collection::vec((any::<bool>(), 0u32..9000), 0..300),
                              other in prop::collection::btree_set(0u32..9000, 0..200),
                              from in 0u32..9100) {
            let mut set = BitSet::new(9000);
            let mut model = BTreeSet::new();
            for (add, i) in ops {
                if add {
                    prop_assert_eq!(set.set(i), model.insert(i));
                } else {
                    prop_assert_eq!(set.clear(i), model.remove(&i));
                }
            }
            prop_assert_eq!(set.count() as usize, model.len());
            prop_assert_eq!(set.iter().collect::<Vec<_>>(), model.iter().copied().collect::<Vec<_>>());
            prop_assert_eq!(set.next(from), model.range(from..).next().copied());
            let mut b = BitSet::new(9000);
            for &i in &other { b.set(i); }
            let common = model.intersection(&other).find(|&&i| i >= from).copied();
            prop_assert_eq!(set.next_common(&b, from), common);
        }
    }

    #[test]
    fn bounds_hold() {
        let mut set = BitSet::new(10);
        assert!(!set.set(1000) && !set.get(1000) && !set.clear(1000));
        assert_eq!(set.next(5000), None);
        assert_eq!(BitSet::new(0).next(0), None);
        for i in [1, 2, 3, 7, 9] {
            set.set(i);
        }
        assert_eq!(to_ranges(set.iter()), vec![1..4, 7..8, 9..10]);
    }
}
