//! Whether a file is still the same: without reading it.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Metadata that changes when a file is written, replaced or removed. A missing file has a stamp too.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Stamp(Option<(u64, u64, u64, (i64, i64))>);

impl Stamp {
    pub(crate) fn of(path: &Path) -> Self {
        // Through links: a site may switch one to a new file.
        let there = std::fs::metadata(path).ok();
        Self(there.map(|m| (m.dev(), m.ino(), m.size(), (m.ctime(), m.ctime_nsec()))))
    }
}
