//! Report of a check of the store.

use std::io;
use std::path::{Path, PathBuf};

use crate::CacheId;
use crate::error::Error;

/// How thoroughly to check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Depth {
    /// Names, kinds, lengths, links, counts.
    Names,
    /// Every byte too.
    Bytes,
}

/// A content that is damaged or missing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bad {
    /// Root of its Merkle tree.
    pub root: [u8; 32],
    /// Bytes.
    pub len: u64,
    /// The caches that have it.
    pub caches: Vec<CacheId>,
}

/// A file of the store that this host cannot read at the moment: its disk fails, and nothing is known of the data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unread {
    /// The file.
    pub path: PathBuf,
    /// The system's error.
    pub why: String,
    /// The caches that have it; they stay as they are.
    pub caches: Vec<CacheId>,
}

impl Unread {
    pub(crate) fn new(path: &Path, error: &io::Error, caches: Vec<CacheId>) -> Self {
        Self { path: path.to_owned(), why: error.to_string(), caches }
    }
}

/// The result of a check.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Checked caches.
    pub caches: u64,
    /// Checked objects.
    pub objects: u64,
    /// Bytes that were read.
    pub bytes: u64,
    /// Contents that could not be repaired.
    pub bad: Vec<Bad>,
    /// Contents that were.
    pub mended: Vec<Bad>,
    /// Files that could not be read.
    pub unread: Vec<Unread>,
    /// Views in which names, links or rights were put right.
    pub views: Vec<CacheId>,
    /// Caches that are INVALID now.
    pub invalid: Vec<CacheId>,
    /// Caches that were INVALID, and are COMMITTED again.
    pub restored: Vec<CacheId>,
    /// Things on disk that the database does not know, removed.
    pub orphans: u64,
    /// The database's counts were wrong, and are right now.
    pub recounted: bool,
}

impl Report {
    /// Nothing was wrong.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        let caches = [&self.views, &self.invalid, &self.restored];
        self.bad.is_empty()
            && self.unread.is_empty()
            && self.mended.is_empty()
            && caches.iter().all(|all| all.is_empty())
            && self.orphans == 0
            && !self.recounted
    }
}

/// The result of reading a file of the store.
pub(crate) enum Look {
    Right,
    Wrong,
    /// The disk fails, so it shows nothing.
    Unread(io::Error),
}

impl Look {
    /// Classifies a failure to open or read: the content is missing, unless the host failed.
    ///
    /// # Errors
    /// This host has no more descriptors or memory.
    pub(crate) fn failed(error: io::Error, op: &'static str, path: &Path) -> Result<Self, Error> {
        if tidecast_paths::is_exhausted(&error) {
            return Err(Error::io(op, path, error));
        }
        Ok(if tidecast_paths::is_failing(&error) { Self::Unread(error) } else { Self::Wrong })
    }
}
