//! Errors of the data on disk, with what to do about them.

use std::io;
use std::path::{Path, PathBuf};

use tidecast_text::Size;

/// Why nothing is replaced or removed at a mount point or below one.
pub(crate) const MOUNT: &str = "a file system is mounted there; unmount it or choose another destination";

/// Anything the store reports. [`Error::is_full`] and its siblings sort them for exit codes.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The disk, or the user's quota on it, has no space for the remaining data.
    #[error(
        "{what} under {}: {} and {inodes} files are still to be written, {} and {} files are free; free space or choose another directory (received data is kept; run the same command again to resume)",
        path.display(), Size(*needed), Size(*free), free_inodes.map_or_else(|| "any number of".to_owned(), |n| n.to_string())
    )]
    NoSpace {
        /// "disk full" or "disk quota exceeded".
        what: &'static str,
        /// The directory that is full.
        path: PathBuf,
        /// Bytes still to be written.
        needed: u64,
        /// Bytes free.
        free: u64,
        /// Inodes still to be made.
        inodes: u64,
        /// Inodes free; `None` if there is no limit.
        free_inodes: Option<u64>,
    },
    /// The target is on a read-only file system.
    #[error("{} is on a read-only file system: choose a writable directory", path.display())]
    ReadOnly {
        /// The file.
        path: PathBuf,
    },
    /// The user may not do this there.
    #[error("permission denied: cannot {op} {}: check owner and mode, or choose another directory", path.display())]
    Denied {
        /// The operation.
        op: &'static str,
        /// The path.
        path: PathBuf,
    },
    /// Another process is fetching the same thing to the same place.
    #[error("another tidecast is fetching the same data into {}: wait for it, or choose another directory", path.display())]
    Busy {
        /// The staging area in use.
        path: PathBuf,
    },
    /// Another process was still writing to the destination when the wait for it was ended.
    #[error("another tidecast is writing to {} (it holds {}): wait until it ends, then run the same command again", path.display(), lock.display())]
    Waited {
        /// The destination.
        path: PathBuf,
        /// The lock of the other process.
        lock: PathBuf,
    },
    /// Something is where the data should go.
    #[error("{} is in the way: {why}; move it away or choose another directory", path.display())]
    Conflict {
        /// The name in the way.
        path: PathBuf,
        /// Why it cannot be used or replaced.
        why: &'static str,
    },
    /// The existing file may not be replaced.
    #[error("cannot replace {}: {why}", path.display())]
    Foreign {
        /// The name.
        path: PathBuf,
        /// Why not, and what to do.
        why: &'static str,
    },
    /// A file that the new tree lacks could not be removed.
    #[error("all data is in place, but cannot delete {}: {source}", path.display())]
    Undeleted {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// A source file is not there.
    #[error("source file {} is missing: it was there when the manifest was made; restore it and start again, or publish again", path.display())]
    Missing {
        /// The file.
        path: PathBuf,
    },
    /// A source file's size differs from the manifest.
    #[error("source file {} has {found} bytes instead of {expected} as in the manifest: it has changed; publish again", path.display())]
    WrongSize {
        /// The file.
        path: PathBuf,
        /// Bytes by the manifest.
        expected: u64,
        /// Bytes on disk.
        found: u64,
    },
    /// The source is not the kind of thing that the manifest describes.
    #[error("{} does not match the manifest: {why}", path.display())]
    WrongKind {
        /// The name.
        path: PathBuf,
        /// The defect.
        why: &'static str,
    },
    /// Several source files are missing or wrong; the first are named.
    #[error("{count} source files do not match the manifest, among them:{}", .first.iter().map(|e| format!("\n  {e}")).collect::<String>())]
    Sources {
        /// How many.
        count: usize,
        /// The first of them.
        first: Vec<Error>,
    },
    /// A source file changed since its content was checked.
    #[error("source file {} changed while it was being served: it is no longer sent; publish again", path.display())]
    Changed {
        /// The file.
        path: PathBuf,
    },
    /// A piece was asked for that is not verified here.
    #[error("piece {piece} is not verified in this copy")]
    NotVerified {
        /// The piece.
        piece: u32,
    },
    /// The manifest does not hold the hash of a piece yet (its layer must be fetched first).
    #[error("the hash of piece {piece} is unknown: its piece layer is missing")]
    NoHash {
        /// The piece.
        piece: u32,
    },
    /// Bytes outside a piece, a piece outside the manifest, or a wrong number of leaves.
    #[error("piece {piece}: no such bytes {begin}..{begin}+{len}")]
    OutOfRange {
        /// The piece.
        piece: u32,
        /// First byte.
        begin: u32,
        /// Number of bytes.
        len: usize,
    },
    /// A file number in the selection that the manifest does not have, or nothing selected.
    #[error("the selection names no file of this manifest")]
    Selection,
    /// `finish` was called too early.
    #[error("{missing} pieces are still missing")]
    Incomplete {
        /// How many.
        missing: u64,
    },
    /// This store only reads.
    #[error("this store serves existing files and is read-only")]
    ReadOnlyStore,
    /// A sync failed earlier: later writes may not be on disk.
    #[error("an earlier write to {} did not reach the disk; start again: data recorded in the journal is kept", path.display())]
    Poisoned {
        /// The staging area.
        path: PathBuf,
    },
    /// Anything else the system reported.
    #[error("cannot {op} {}: {source}", path.display())]
    Io {
        /// The operation.
        op: &'static str,
        /// The path.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
}

impl Error {
    /// No room, quota used up.
    #[must_use]
    pub fn is_full(&self) -> bool {
        matches!(self, Error::NoSpace { .. })
    }

    /// This host is short of descriptors or memory for now: nothing is known about the data.
    #[must_use]
    pub fn is_exhausted(&self) -> bool {
        matches!(self, Error::Io { source, .. } if tidecast_paths::is_exhausted(source))
    }

    /// The target cannot be written: read-only, or no permission.
    #[must_use]
    pub fn is_unwritable(&self) -> bool {
        matches!(self, Error::ReadOnly { .. } | Error::Denied { .. })
    }

    /// The served data is missing or has changed.
    #[must_use]
    pub fn is_source_changed(&self) -> bool {
        matches!(
            self,
            Error::Changed { .. }
                | Error::Missing { .. }
                | Error::WrongSize { .. }
                | Error::WrongKind { .. }
                | Error::Sources { .. }
        )
    }

    /// Something of the user's, or another process, is in the way.
    #[must_use]
    pub fn is_in_the_way(&self) -> bool {
        matches!(self, Error::Conflict { .. } | Error::Busy { .. } | Error::Foreign { .. })
    }

    /// Wraps the system's error of `op` on `path`. Lack of space becomes [`Error::NoSpace`] without figures; the
    /// store adds them where it knows them.
    pub(crate) fn io(op: &'static str, path: &Path, source: io::Error) -> Self {
        use rustix::io::Errno;
        let path = path.to_path_buf();
        let full =
            |what, path| Error::NoSpace { what, path, needed: 0, free: 0, inodes: 0, free_inodes: None };
        match Errno::from_io_error(&source) {
            Some(Errno::NOSPC) => full("disk full", path),
            Some(Errno::DQUOT) => full("disk quota exceeded", path),
            Some(Errno::ROFS) => Error::ReadOnly { path },
            Some(Errno::ACCESS | Errno::PERM) => Error::Denied { op, path },
            Some(Errno::XDEV) => Error::Foreign { path, why: MOUNT },
            Some(Errno::LOOP) => {
                Error::Conflict { path, why: "found a symbolic link instead of a file or directory" }
            }
            Some(Errno::NOTDIR) => Error::Conflict { path, why: "found a file instead of a directory" },
            Some(Errno::ISDIR) => Error::Conflict { path, why: "found a directory instead of a file" },
            _ => Error::Io { op, path, source },
        }
    }
}

/// Adds operation and path to an I/O result.
pub(crate) trait Context<T> {
    /// Converts an `io::Error` to this type.
    fn at(self, op: &'static str, path: &Path) -> Result<T, Error>;
}

impl<T> Context<T> for io::Result<T> {
    fn at(self, op: &'static str, path: &Path) -> Result<T, Error> {
        self.map_err(|e| Error::io(op, path, e))
    }
}
