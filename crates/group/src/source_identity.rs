//! The place of the source, for a worker that may be on the same host: a broadcast must not delete its own source, nor copy
//! the source into itself. Files are identified by device and inode, whatever their names.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::control::message::SourceIdentity;
use crate::error::Error;

/// Device and inode.
type Inode = (u64, u64);

impl SourceIdentity {
    pub(crate) fn of(source: &Path, records: Option<&Path>) -> Self {
        let path = fs::canonicalize(source).unwrap_or_else(|_| source.to_owned());
        let records = records.map(|dir| dir.as_os_str().as_bytes().to_vec());
        let above = above(&path);
        Self { boot: boot().unwrap_or_default(), path: path.into_os_string().into_vec(), above, records }
    }

    /// Whether this host is that of the origin.
    pub(crate) fn is_here(&self) -> bool {
        !self.boot.is_empty() && boot().is_some_and(|boot| self.boot == boot)
    }

    /// The directory of records that was chosen for the host of the origin, on that host only.
    pub(crate) fn records(&self) -> Option<PathBuf> {
        let dir = self.records.as_ref().filter(|_| self.is_here())?;
        Some(PathBuf::from(OsStr::from_bytes(dir)))
    }

    /// Whether `dest` is the source itself, in which nothing may be replaced or deleted. `clears`: files in `dest` may be
    /// deleted.
    ///
    /// # Errors
    /// [`Error::SourceOverlap`] if `dest` is inside the source, or the source inside `dest` and could be deleted.
    pub(crate) fn is_source(&self, dest: &Path, clears: bool) -> Result<bool, Error> {
        let Some(source) = self.above.first().filter(|_| self.is_here()) else {
            return Ok(false);
        };
        let refused = |why| {
            let source = PathBuf::from(OsStr::from_bytes(&self.path));
            Err(Error::SourceOverlap { source_path: source, dest: dest.to_owned(), why })
        };
        let dir = dest.ancestors().skip(1).find_map(|dir| fs::canonicalize(dir).ok()).unwrap_or_default();
        if above(&dir).contains(source) {
            return refused("DEST is inside SRC; choose another destination");
        }
        if clears && self.lies_in(dest) {
            return refused(
                "SRC is inside DEST, where --delete or --force could remove it; leave them out, or choose another destination",
            );
        }
        Ok(inode(dest) == Some(*source))
    }

    /// Whether the source is inside `dest`, on the host of the origin.
    pub(crate) fn lies_in(&self, dest: &Path) -> bool {
        let parents = self.above.get(1..).unwrap_or_default();
        self.is_here() && inode(dest).is_some_and(|dest| parents.contains(&dest))
    }
}

/// The inodes of a path without links, and of all directories above it.
fn above(path: &Path) -> Vec<Inode> {
    path.ancestors().map_while(inode).collect()
}

fn inode(path: &Path) -> Option<Inode> {
    fs::symlink_metadata(path).ok().map(|meta| (meta.dev(), meta.ino()))
}

/// The boot id of this host's kernel.
pub(crate) fn boot() -> Option<String> {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    Some(boot.trim().to_owned())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_destination_may_be_the_source_and_neither_in_the_other() {
        let dir = tempfile::tempdir().unwrap();
        let at = |path: &str| dir.path().join(path);
        fs::create_dir_all(at("proj/data/sub")).unwrap();
        std::os::unix::fs::symlink(at("proj"), at("link")).unwrap();
        let source_identity = SourceIdentity::of(&at("link/data"), Some(Path::new("/r")));
        let is = |dest: &str, clears| source_identity.is_source(&at(dest), clears).map_err(|e| e.to_string());
        for same in ["proj/data", "link/data"] {
            assert_eq!(is(same, true), Ok(true), "{same}");
        }
        for other in ["proj/other", "proj/other/deep", "proj/data2", "other"] {
            assert_eq!(is(other, true), Ok(false), "{other}");
        }
        for inside in ["proj/data/new", "proj/data/sub", "link/data/sub/a/b"] {
            assert!(is(inside, false).unwrap_err().contains("DEST is inside SRC"), "{inside}");
        }
        assert!(is("proj", true).unwrap_err().contains("SRC is inside DEST"));
        assert_eq!(is("proj", false), Ok(false));
        assert!(source_identity.lies_in(&at("proj")) && source_identity.lies_in(dir.path()));
        assert!(!source_identity.lies_in(&at("proj/data")) && !source_identity.lies_in(&at("proj/none")));
        // A symbolic link is replaced, not followed.
        assert_eq!(is("link", true), Ok(false));
        assert_eq!(source_identity.records(), Some("/r".into()));
        let elsewhere = SourceIdentity { boot: "another".into(), ..source_identity.clone() };
        assert_eq!((elsewhere.is_source(&at("proj"), true).unwrap(), elsewhere.records()), (false, None));
        assert!(!elsewhere.lies_in(&at("proj")));
    }
}
