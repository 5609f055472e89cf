//! A cache of this host's daemon as a tree that is read: its directory, by descriptor.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use tidecast_event::{Context as _, Error};
use tidecast_paths::{Kind, Root};

use super::entries::{Entries, Entry, EntryKind};

/// Files that are kept open.
const OPEN: usize = 256;

/// See the head of the file.
#[derive(Debug)]
pub(super) struct Local {
    root: Root,
    open: Mutex<HashMap<usize, Arc<File>>>,
}

impl Local {
    /// Opens a directory, or the one that holds a file, and looks at all that is in it.
    pub(super) fn open(path: &Path) -> Result<(Entries, Self), Error> {
        let cannot = || format!("cannot read {}", path.display());
        let root = Root::open(path).with_context(cannot)?;
        let mut all = Vec::new();
        let mut dirs = vec![PathBuf::new()];
        while let Some(dir) = dirs.pop() {
            for name in root.list(&dir).with_context(cannot)? {
                let at = dir.join(name);
                let meta = root.stat(&at).with_context(cannot)?;
                let kind = match meta.kind {
                    Kind::File => EntryKind::File,
                    Kind::Dir => {
                        dirs.push(at.clone());
                        EntryKind::Directory
                    }
                    Kind::Symlink => EntryKind::Symlink(root.read_link(&at).with_context(cannot)?.into_vec()),
                    Kind::Other => continue,
                };
                all.push(Entry {
                    path: at.into_os_string().into_vec(),
                    len: if kind == EntryKind::File { meta.len } else { 0 },
                    kind,
                    mode: meta.mode,
                    mtime: Some(meta.mtime),
                });
            }
        }
        // The order in which a manifest has them, and so in which they are read best.
        all.sort_by(|a, b| a.path.cmp(&b.path));
        Ok((Entries::new(all), Self { root, open: Mutex::default() }))
    }

    /// A file, open.
    pub(super) fn file(&self, entry: usize, path: &[u8]) -> Result<Arc<File>, Error> {
        let mut open = self.open.lock();
        if let Some(file) = open.get(&entry) {
            return Ok(file.clone());
        }
        let path = OsStr::from_bytes(path);
        let cannot = || format!("cannot read {}", self.root.full(path).display());
        let file = Arc::new(self.root.open_file(path).with_context(cannot)?);
        if open.len() >= OPEN {
            open.clear();
        }
        open.insert(entry, file.clone());
        Ok(file)
    }

    /// Where a file is, for others to open.
    pub(super) fn path(&self, path: &[u8]) -> PathBuf {
        self.root.full(OsStr::from_bytes(path))
    }
}
