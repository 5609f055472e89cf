//! Reuses an old version of a file for a new one: leaves of 16 KiB are found in it at any offset, so that inserted
//! or removed bytes cost no more than the leaves around them (as in zsync).
//!
//! The holder of the new version sends a fingerprint of each leaf ([`Fingerprint`]). It need not be true: the
//! assembled file is hashed piece by piece like everything else before it counts. A search ends by itself if
//! fingerprints are made to mislead it ([`Search`]).

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;

use tidecast_hash::{Fingerprint, LEAF, Search, leaf_digests};
use tidecast_paths::PageBuffer;

const LEN: u64 = LEAF as u64;
/// The old file is read by this much at once.
const READ: usize = 4 << 20;
/// Leaves that are read and hashed at once.
const AT_ONCE: usize = 64;

/// How a new file is put together of an old one.
#[derive(Debug)]
pub struct Patch {
    len: u64,
    /// Where each leaf is in the old file.
    sources: Vec<Option<u64>>,
    /// Received data, by its offset in the new file.
    given: BTreeMap<u64, Vec<u8>>,
}

impl Patch {
    /// Looks for the leaves of a file of `len` bytes in an old one.
    ///
    /// # Errors
    /// The old file cannot be read.
    pub fn find(leaves: &[Fingerprint], old: &File, len: u64) -> io::Result<Self> {
        let old_len = u64::try_from(rustix::fs::fstat(old)?.st_size).unwrap_or(0);
        let mut patch = Self { len, sources: vec![None; leaves.len()], given: BTreeMap::new() };
        patch.at_their_offsets(leaves, old, old_len)?;
        let whole = (len / LEN) as usize;
        let left: Vec<(u32, Fingerprint)> =
            (0..).zip(leaves).take(whole).map(|(i, leaf)| (i, *leaf)).collect();
        let left =
            left.into_iter().filter(|(i, _)| patch.sources.get(*i as usize).is_some_and(Option::is_none));
        patch.anywhere(Search::new(left), old, old_len)?;
        Ok(patch)
    }

    fn leaf_len(&self, leaf: usize) -> usize {
        (self.len - leaf as u64 * LEN).min(LEN) as usize
    }

    fn at_their_offsets(&mut self, leaves: &[Fingerprint], old: &File, old_len: u64) -> io::Result<()> {
        let mut buffer = PageBuffer::new(AT_ONCE * LEAF);
        for (part, known) in leaves.chunks(AT_ONCE).enumerate() {
            let offset = (part * AT_ONCE) as u64 * LEN;
            // The last leaf of either file is shorter: it is the same only where both end.
            let end = (offset + (known.len() as u64) * LEN).min(self.len).min(old_len);
            let Some(len) = end.checked_sub(offset).filter(|len| *len > 0) else { break };
            let data = buffer.get_mut(..len as usize).unwrap_or_default();
            old.read_exact_at(data, offset)?;
            for (leaf, (known, digest)) in known.iter().zip(leaf_digests(data)).enumerate() {
                let leaf = part * AT_ONCE + leaf;
                if known.has(&digest)
                    && let Some(source) = self.sources.get_mut(leaf)
                {
                    *source = Some(leaf as u64 * LEN);
                }
            }
        }
        Ok(())
    }

    fn anywhere(&mut self, mut search: Search, old: &File, old_len: u64) -> io::Result<()> {
        let (mut buffer, mut at) = (PageBuffer::new(READ), 0);
        while old_len.saturating_sub(at) >= LEN && !search.is_over() {
            let want = (old_len - at).min(READ as u64) as usize;
            let data = buffer.get_mut(..want).unwrap_or_default();
            old.read_exact_at(data, at)?;
            let next = search.scan(data, |offset, leaves| {
                for leaf in leaves {
                    if let Some(source) = self.sources.get_mut(*leaf as usize) {
                        *source = Some(at + offset as u64);
                    }
                }
            });
            at += next.max(1) as u64;
        }
        Ok(())
    }

    /// How many leaves were found.
    #[must_use]
    pub fn found(&self) -> usize {
        self.sources.iter().flatten().count()
    }

    /// Adds received data.
    pub fn give(&mut self, offset: u64, data: Vec<u8>) {
        self.given.insert(offset, data);
    }

    /// Whether every leaf is found where it is in the new file: a copy of the old one has as much.
    #[must_use]
    pub fn is_plain(&self) -> bool {
        self.given.is_empty() && self.moved().next().is_none()
    }

    fn moved(&self) -> impl Iterator<Item = (u64, u64)> {
        let leaves = (0..).step_by(LEAF).zip(&self.sources);
        leaves.filter_map(|(at, source)| Some((at, (*source)?))).filter(|(at, source)| at != source)
    }

    /// Writes the data found at other offsets of the old file, and received data; data found at its own offset
    /// exists already, or with `all` is written too.
    ///
    /// # Errors
    /// The old file cannot be read, or `write` fails.
    pub fn apply(
        &self,
        old: &File,
        all: bool,
        mut write: impl FnMut(&[u8], u64) -> io::Result<()>,
    ) -> io::Result<()> {
        let mut buffer = vec![0; LEAF];
        let leaves = (0_usize..).zip(&self.sources).filter_map(|(leaf, source)| Some((leaf, (*source)?)));
        for (leaf, source) in leaves.filter(|(leaf, source)| all || *leaf as u64 * LEN != *source) {
            let data = buffer.get_mut(..self.leaf_len(leaf)).unwrap_or_default();
            old.read_exact_at(data, source)?;
            write(data, leaf as u64 * LEN)?;
        }
        self.given.iter().try_for_each(|(offset, data)| write(data, *offset))
    }

    /// The bytes that are missing of pieces of which something was found.
    #[must_use]
    pub fn missing(&self, piece_length: u64) -> Vec<Range<u64>> {
        let leaves = (piece_length / LEN).max(1) as usize;
        let mut all: Vec<Range<u64>> = Vec::new();
        for (piece, sources) in self.sources.chunks(leaves).enumerate() {
            if sources.iter().all(Option::is_none) {
                continue;
            }
            for leaf in (0..sources.len()).filter(|leaf| sources.get(*leaf).is_some_and(Option::is_none)) {
                let start = (piece * leaves + leaf) as u64 * LEN;
                let end = start + self.leaf_len(piece * leaves + leaf) as u64;
                match all.last_mut().filter(|last| last.end == start) {
                    Some(last) => last.end = end,
                    None => all.push(start..end),
                }
            }
        }
        all
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn what_is_missing_is_asked_for_in_parts() {
        let patch = |sources| Patch { len: 9 * LEN + 5, sources, given: BTreeMap::new() };
        assert!(
            patch(vec![None; 10]).missing(4 * LEN).is_empty(),
            "pieces of which nothing is here come by the swarm"
        );
        let mut sources = vec![Some(0); 10];
        for leaf in [1, 2, 4, 9] {
            sources[leaf] = None;
        }
        let missing = patch(sources).missing(4 * LEN);
        assert_eq!(missing, [LEN..3 * LEN, 4 * LEN..5 * LEN, 9 * LEN..9 * LEN + 5]);
    }

    fn versions() -> (Vec<u8>, Vec<u8>) {
        let old: Vec<u8> = (0..20 * LEAF).map(|i| ((i * i) >> 7) as u8 ^ (i >> 9) as u8).collect();
        let mut new = old.clone();
        new.splice(5 * LEAF + 3..5 * LEAF + 3, *b"put in");
        new.extend(b"at the end");
        (old, new)
    }

    /// A new file from an old one, with and without a copy of the old one to begin with.
    #[test]
    fn a_new_file_is_put_together_of_an_old_one() {
        let (old, new) = versions();
        let dir = tempfile::tempdir().unwrap();
        let at = dir.path().join("old");
        std::fs::write(&at, &old).unwrap();
        let source = File::open(&at).unwrap();
        let leaves: Vec<Fingerprint> = new.chunks(LEAF).map(Fingerprint::of).collect();
        let mut patch = Patch::find(&leaves, &source, new.len() as u64).unwrap();
        let missing = patch.missing(1 << 30);
        assert!(missing.iter().map(|range| range.end - range.start).sum::<u64>() <= 2 * LEN, "{missing:?}");
        for range in missing {
            patch.give(range.start, new[range.start as usize..range.end as usize].to_vec());
        }
        assert!(!patch.is_plain());
        for all in [true, false] {
            let mut made = if all { vec![0; new.len()] } else { [&old[..], &[0; 16]].concat() };
            let write = |data: &[u8], at: u64| {
                made[at as usize..][..data.len()].copy_from_slice(data);
                Ok(())
            };
            patch.apply(&source, all, write).unwrap();
            assert!(made == new, "{all}");
        }
        let same: Vec<Fingerprint> = old.chunks(LEAF).map(Fingerprint::of).collect();
        assert!(Patch::find(&same, &source, old.len() as u64).unwrap().is_plain());
    }

    #[test]
    fn fingerprints_that_mislead_end_the_search() {
        let (old, _) = versions();
        let dir = tempfile::tempdir().unwrap();
        let at = dir.path().join("old");
        // Each window of zeros has the sum of the leaf of zeros, and none its digest.
        std::fs::write(&at, [&vec![0; 64 * LEAF][..], &old].concat()).unwrap();
        let zeros = Fingerprint::of(&[0; LEAF]).to_bytes();
        let lie = |n: u8| {
            let mut bytes = zeros;
            bytes[15] ^= n + 1;
            Fingerprint::from_bytes(bytes)
        };
        let leaves: Vec<Fingerprint> = (0..200).map(lie).collect();
        let patch = Patch::find(&leaves, &File::open(&at).unwrap(), 200 * LEN).unwrap();
        assert_eq!(patch.found(), 0);
    }
}
