//! Tidecast's own key of the info dictionary: metadata for which BitTorrent has no field.
//!
//! The format is described in `docs/manifest-format.md`. Columns (mode, nanoseconds, attributes) run over all
//! entries: files in manifest order, then directories. Promise: memory stays within a small multiple of the
//! key's size plus 8 bytes an entry; values that do not fit the tree are rejected; an unknown version is
//! ignored.

mod column;
mod read;
mod write;

pub(crate) use column::Runs;
pub(crate) use read::Raw;
pub(crate) use write::{Columns, write};

use std::ops::Range;

/// A time of modification.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Mtime {
    /// Seconds since 1970, negative before.
    pub secs: i64,
    /// Nanoseconds, under 10^9.
    pub nanos: u32,
}

/// The version of the key that is written, and the only one that is read.
pub(crate) const VERSION: i64 = 1;

/// The decoded key. Empty if it is absent or of an unknown version.
#[derive(Debug, Clone, Default)]
pub(crate) struct Extra {
    pub(crate) present: bool,
    pub(crate) prefix: Option<Range<usize>>,
    /// Mode plus one; 0 if not recorded.
    modes: Runs,
    secs: Vec<i64>,
    /// Nanoseconds plus one; 0 if the entry has no time.
    nanos: Runs,
    /// Set of attributes plus one; 0 for none.
    xattrs: Runs,
    /// Offset of each set's dictionary in the info dictionary.
    sets: Vec<u32>,
    /// (link, its target), ascending.
    links: Vec<(u32, u32)>,
    /// (symbolic link, place of its exact text), ascending.
    symlinks: Vec<(u32, Range<u32>)>,
    /// (file, first of its holes), ascending.
    sparse: Vec<(u32, u32)>,
    holes: Vec<Range<u64>>,
}

fn lookup<T: Clone>(sorted: &[(u32, T)], key: u32) -> Option<T> {
    let at = sorted.binary_search_by_key(&key, |(k, _)| *k).ok()?;
    sorted.get(at).map(|(_, v)| v.clone())
}

impl Extra {
    pub(crate) fn mode(&self, entry: u32) -> Option<u32> {
        self.modes.get(entry)?.checked_sub(1)
    }

    pub(crate) fn mtime(&self, entry: u32) -> Option<Mtime> {
        let nanos = self.nanos.get(entry)?.checked_sub(1)?;
        let secs = *self.secs.get(entry as usize)?;
        Some(Mtime { secs, nanos })
    }

    pub(crate) fn xattrs_at(&self, entry: u32) -> Option<usize> {
        let set = self.xattrs.get(entry)?.checked_sub(1)?;
        self.sets.get(set as usize).map(|at| *at as usize)
    }

    pub(crate) fn hard_link(&self, file: u32) -> Option<u32> {
        lookup(&self.links, file)
    }

    pub(crate) fn symlink_text(&self, file: u32) -> Option<Range<usize>> {
        lookup(&self.symlinks, file).map(|r| r.start as usize..r.end as usize)
    }

    pub(crate) fn holes(&self, file: u32) -> &[Range<u64>] {
        let Ok(at) = self.sparse.binary_search_by_key(&file, |(k, _)| *k) else {
            return &[];
        };
        let start = self.sparse.get(at).map_or(0, |(_, s)| *s as usize);
        let end = self.sparse.get(at + 1).map_or(self.holes.len(), |(_, s)| *s as usize);
        self.holes.get(start..end).unwrap_or_default()
    }
}
