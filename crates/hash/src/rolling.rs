//! Finding leaves of one version of a file in another, wherever they lie there (as zsync does).
//!
//! The holder of the new version sends a [`Fingerprint`] for each leaf; the holder of an old one moves a
//! window of a leaf's length over it, byte by byte, and keeps the window's sum, a polynomial modulo 2^64.
//! Where a sum matches, the first 64 bits of the window's SHA-256 decide: enough for a candidate, because the
//! caller verifies the result.

use std::collections::HashMap;

use crate::{Digest, LEAF, leaf_digests, sha256};

/// The base of the polynomial: odd, and 5 modulo 8, so that its powers are as many as can be.
const BASE: u64 = 0x9e37_79b9_7f4a_7c15;
/// Sums are looked up by this many of their upper bits first.
const FILTER_BITS: u32 = 20;
/// Different leaves with one sum: more of them do not occur in real data.
const MOST_ALIKE: usize = 4;
/// Windows whose sum is right and whose content is not: beyond this many, and one a leaf, nothing more is looked for.
const WRONG: u64 = 100;

/// The fingerprint of a leaf: its sum, and the first bytes of its digest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Fingerprint {
    sum: u64,
    digest: u64,
}

impl Fingerprint {
    /// Length of one as bytes.
    pub const LEN: usize = 16;

    /// Of a leaf, shorter ones too.
    #[must_use]
    pub fn of(leaf: &[u8]) -> Self {
        Self::with(leaf, &sha256(leaf))
    }

    /// Of a leaf whose digest is known.
    #[must_use]
    pub fn with(leaf: &[u8], digest: &Digest) -> Self {
        Self { sum: sum(leaf), digest: first(digest) }
    }

    /// Of each leaf of `data`, in order (the last may be shorter).
    pub fn of_leaves(data: &[u8]) -> impl Iterator<Item = Self> {
        data.chunks(LEAF).zip(leaf_digests(data)).map(|(leaf, digest)| Self::with(leaf, &digest))
    }

    /// As bytes.
    #[must_use]
    pub fn to_bytes(self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        bytes[..8].copy_from_slice(&self.sum.to_be_bytes());
        bytes[8..].copy_from_slice(&self.digest.to_be_bytes());
        bytes
    }

    /// From bytes; any are one.
    #[must_use]
    pub fn from_bytes(bytes: [u8; Self::LEN]) -> Self {
        let all = u128::from_be_bytes(bytes);
        Self { sum: (all >> 64) as u64, digest: all as u64 }
    }

    /// Whether this is the digest of the leaf.
    #[must_use]
    pub fn has(self, digest: &Digest) -> bool {
        first(digest) == self.digest
    }
}

fn first(digest: &Digest) -> u64 {
    digest.iter().take(8).fold(0, |all, byte| all << 8 | u64::from(*byte))
}

fn sum(data: &[u8]) -> u64 {
    data.iter().fold(0, |sum: u64, byte| sum.wrapping_mul(BASE).wrapping_add(u64::from(*byte) + 1))
}

/// Leaves that are looked for.
#[derive(Debug)]
pub struct Search {
    /// By sum: digests, and the leaves that have them.
    wanted: HashMap<u64, Vec<(u64, Vec<u32>)>>,
    filter: Vec<u64>,
    /// The weight of the byte that leaves the window: a power of the base.
    leaving: u64,
    wrong: u64,
}

impl Search {
    /// For these leaves of [`LEAF`] bytes, each with the caller's number.
    #[must_use]
    pub fn new(leaves: impl IntoIterator<Item = (u32, Fingerprint)>) -> Self {
        let mut wanted: HashMap<u64, Vec<(u64, Vec<u32>)>> = HashMap::new();
        let mut filter = vec![0; 1 << (FILTER_BITS - 6)];
        for (number, leaf) in leaves {
            let alike = wanted.entry(leaf.sum).or_default();
            if let Some((_, numbers)) = alike.iter_mut().find(|(digest, _)| *digest == leaf.digest) {
                numbers.push(number);
            } else if alike.len() < MOST_ALIKE {
                alike.push((leaf.digest, vec![number]));
            }
            let (word, bit) = place(leaf.sum);
            if let Some(word) = filter.get_mut(word) {
                *word |= bit;
            }
        }
        let leaving = (0..LEAF).fold(1u64, |power, _| power.wrapping_mul(BASE));
        Self { wanted, filter, leaving, wrong: 0 }
    }

    /// Whether there is nothing to look for any more.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.wanted.is_empty() || self.wrong > WRONG
    }

    /// Finds leaves in `data`, by their offset there and their numbers: each leaf once, at the first place.
    /// Returns the offset from which on windows extend beyond the data: the caller continues there with more
    /// of it.
    pub fn scan(&mut self, data: &[u8], mut found: impl FnMut(usize, &[u32])) -> usize {
        self.wrong = self.wrong.saturating_sub((data.len() / LEAF) as u64);
        let mut at = 0;
        'window: while let Some(window) = data.get(at..at + LEAF) {
            let mut now = sum(window);
            loop {
                if self.is_over() {
                    return data.len();
                }
                let (word, bit) = place(now);
                if self.filter.get(word).is_some_and(|word| word & bit != 0)
                    && let Some(numbers) = data.get(at..at + LEAF).and_then(|window| self.take(now, window))
                {
                    found(at, &numbers);
                    at += LEAF;
                    continue 'window;
                }
                let (Some(out), Some(next)) = (data.get(at), data.get(at + LEAF)) else {
                    at += 1;
                    break 'window;
                };
                let gone = (u64::from(*out) + 1).wrapping_mul(self.leaving);
                now = now.wrapping_mul(BASE).wrapping_add(u64::from(*next) + 1).wrapping_sub(gone);
                at += 1;
            }
        }
        at
    }

    /// The leaves that match this window; they are no longer searched for.
    fn take(&mut self, sum: u64, window: &[u8]) -> Option<Vec<u32>> {
        let alike = self.wanted.get_mut(&sum)?;
        let digest = first(&sha256(window));
        let Some(at) = alike.iter().position(|(wanted, _)| *wanted == digest) else {
            self.wrong += 1;
            return None;
        };
        let (_, numbers) = alike.swap_remove(at);
        if alike.is_empty() {
            self.wanted.remove(&sum);
        }
        Some(numbers)
    }
}

/// Where a sum is in the filter.
fn place(sum: u64) -> (usize, u64) {
    let bits = sum >> (64 - FILTER_BITS);
    ((bits >> 6) as usize, 1 << (bits & 63))
}
