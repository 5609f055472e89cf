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

    /// All of them in stretches: the first, and how many; at most this many stretches.
    pub(super) fn stretches(&self, most: usize) -> Vec<(u64, u64)> {
        let mut pages: Vec<_> = self.0.iter().collect();
        pages.sort_unstable_by_key(|(page, _)| **page);
        let (mut all, mut left): (Vec<(u64, u64)>, usize) = (Vec::new(), most);
        for (page, bits) in pages {
            let numbers = (0..PAGE).filter(|n| bits[(n / 64) as usize] >> (n % 64) & 1 == 1);
            for number in numbers.map(|n| page * PAGE + n) {
                match all.last_mut() {
                    Some((first, count)) if *first + *count == number => *count += 1,
                    _ if left == 0 => return all,
                    _ => {
                        left -= 1;
                        all.push((number, 1));
                    }
                }
            }
        }
        all
    }

    pub(super) fn has(&self, number: u64) -> bool {
        self.0
            .get(&(number / PAGE))
            .is_some_and(|bits| bits[(number % PAGE / 64) as usize] >> (number % 64) & 1 == 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stretches_have_all_that_was_put_in() {
        let mut numbers = Numbers::default();
        for number in [7, 8, 511, 512, 513, 5000] {
            numbers.insert(number);
        }
        assert_eq!(numbers.stretches(9), [(7, 2), (511, 3), (5000, 1)]);
        assert_eq!(numbers.stretches(1), [(7, 2)]);
    }
}
