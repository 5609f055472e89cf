//! A fixed set of numbers that many threads set and clear at once, and ranges made from it.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

/// One bit per number below a bound.
pub(crate) struct Bits(Box<[AtomicU64]>);

impl Bits {
    /// All clear, for numbers below `len`.
    pub(crate) fn new(len: u32) -> Self {
        Bits((0..len.div_ceil(64)).map(|_| AtomicU64::new(0)).collect())
    }

    /// Whether `i` is in; false when out of bounds.
    pub(crate) fn get(&self, i: u32) -> bool {
        self.0.get(i as usize / 64).is_some_and(|w| w.load(Ordering::Acquire) >> (i % 64) & 1 == 1)
    }

    /// Puts `i` in; true if it was not.
    pub(crate) fn set(&self, i: u32) -> bool {
        let bit = 1 << (i % 64);
        self.0.get(i as usize / 64).is_some_and(|w| {
            // The plain load spares the hot path a locked write when the bit is set already.
            w.load(Ordering::Acquire) & bit == 0 && w.fetch_or(bit, Ordering::AcqRel) & bit == 0
        })
    }

    /// Takes `i` out; true if it was in.
    pub(crate) fn clear(&self, i: u32) -> bool {
        let bit = 1 << (i % 64);
        self.0.get(i as usize / 64).is_some_and(|w| w.fetch_and(!bit, Ordering::AcqRel) & bit != 0)
    }

    /// Empties the set and returns its content, in order.
    pub(crate) fn take(&self) -> Vec<u32> {
        let mut out = Vec::new();
        for (base, word) in (0u32..).step_by(64).zip(self.0.iter()) {
            let mut bits = word.swap(0, Ordering::AcqRel);
            while bits != 0 {
                out.push(base + bits.trailing_zeros());
                bits &= bits - 1;
            }
        }
        out
    }
}

/// Sorted, disjoint, non-touching ranges from numbers in rising order.
pub(crate) fn ranges(numbers: impl IntoIterator<Item = u32>) -> Vec<Range<u32>> {
    let mut out: Vec<Range<u32>> = Vec::new();
    for n in numbers {
        match out.last_mut() {
            Some(last) if n < last.end => {}
            Some(last) if n == last.end => last.end = n + 1,
            _ => out.push(n..n + 1),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn set_clear_take() {
        let bits = Bits::new(130);
        assert!(bits.set(0) && bits.set(64) && bits.set(129) && !bits.set(129));
        assert!(bits.get(64) && !bits.get(63) && !bits.get(5000));
        assert!(bits.clear(64) && !bits.clear(64));
        assert_eq!(bits.take(), [0, 129]);
        assert!(bits.take().is_empty());
    }

    #[test]
    fn ranges_join_neighbours() {
        assert_eq!(ranges([1, 2, 2, 3, 7, 9, 10]), [1..4, 7..8, 9..11]);
        assert!(ranges([]).is_empty());
    }
}
