//! Files with several names: where the first name of each is, in a file without a name, so that memory holds a few bytes each.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// First names, by device and inode.
#[derive(Debug, Default)]
pub(super) struct Links {
    places: HashMap<(u64, u64), u64>,
    file: Option<File>,
    end: u64,
}

/// Whether a name is the first of its file.
pub(super) enum First {
    /// It is.
    This,
    /// This is.
    Other(Box<[u8]>),
}

/// A file without a name; in memory where the directory for temporary files cannot be used (none, full, or out of reach of
/// a confined server).
pub(super) fn unnamed() -> io::Result<File> {
    tempfile::tempfile().or_else(|_| {
        let flags = rustix::fs::MemfdFlags::CLOEXEC;
        Ok(rustix::fs::memfd_create("tidecast-hard-links", flags)?.into())
    })
}

impl Links {
    /// The first name of this inode; `path` returns the present one.
    pub(super) fn first(&mut self, inode: (u64, u64), path: impl FnOnce() -> Vec<u8>) -> io::Result<First> {
        if self.file.is_none() {
            self.file = Some(unnamed()?);
        }
        let Some(file) = &self.file else { return Ok(First::This) };
        match self.places.entry(inode) {
            Entry::Occupied(at) => {
                let mut len = [0; 2];
                file.read_exact_at(&mut len, *at.get())?;
                let mut path = vec![0; usize::from(u16::from_le_bytes(len))];
                file.read_exact_at(&mut path, *at.get() + 2)?;
                Ok(First::Other(path.into()))
            }
            Entry::Vacant(at) => {
                let path = path();
                // Paths are shorter than 64 KiB: the walk goes no deeper.
                let mut record = (path.len() as u16).to_le_bytes().to_vec();
                record.extend_from_slice(&path);
                file.write_all_at(&record, self.end)?;
                at.insert(self.end);
                self.end += record.len() as u64;
                Ok(First::This)
            }
        }
    }
}
