//! A set of numbers, most of which follow each other: one bit each.

use std::collections::HashMap;

/// Numbers of one page.
const PAGE: u64 = 512;

#[derive(Debug, Default)]
pub(super) struct Numbers(HashMap<u64, [u64; (PAGE / 64) as usize]>);

impl Numbers {
    /// True if it was not in it.
    pub(super) fn insert(&mut self, number: u64) -> bool {
        let bits = self.0.entry(number / PAGE).or_default();
        let word = &mut bits[(number % PAGE / 64) as usize];
        let before = *word;
        *word |= 1 << (number % 64);
        *word != before
    }

    pub(super) fn has(&self, number: u64) -> bool {
        self.0
            .get(&(number / PAGE))
            .is_some_and(|bits| bits[(number % PAGE / 64) as usize] >> (number % 64) & 1 == 1)
    }
}
