//! The entries of an open directory.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;

use rustix::fd::AsFd;
use rustix::fs::{FileType, RawDir};

/// Names in an open directory, with their types as the file system reports them.
pub(crate) fn entries(dir: impl AsFd) -> io::Result<Vec<(OsString, FileType)>> {
    let mut buf = Vec::with_capacity(32 << 10);
    let mut all = Vec::new();
    let mut raw = RawDir::new(dir, buf.spare_capacity_mut());
    while let Some(entry) = raw.next() {
        let entry = entry?;
        let name = OsStr::from_bytes(entry.file_name().to_bytes());
        if name != "." && name != ".." {
            all.push((name.to_owned(), entry.file_type()));
        }
    }
    Ok(all)
}
