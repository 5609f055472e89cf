//! Errors of scanning, hashing and verifying a tree.

use std::io;
use std::path::{Path, PathBuf};

use tidecast_metainfo::MAX_COMPONENTS;

/// Why a tree was not scanned, hashed or verified. Every error names the file it is about.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The operating system refused something.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// The attempted action, as a verb: "read", "open".
        action: &'static str,
        /// The path.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// A file is no longer as it was when the tree was scanned.
    #[error("{} changed while it was being hashed ({what}); publish again when no process writes to it", path.display())]
    Changed {
        /// The file.
        path: PathBuf,
        /// The changed property.
        what: &'static str,
    },
    /// The path to publish is neither a file nor a directory.
    #[error("cannot publish {}: it is neither a regular file nor a directory", .0.display())]
    Kind(PathBuf),
    /// There is no file name to publish under.
    #[error("{} has no file name to publish under; give one with --name", .0.display())]
    NoName(PathBuf),
    /// A pattern of files to leave out cannot be understood.
    #[error("invalid pattern `{glob}`: {why}")]
    Glob {
        /// The pattern.
        glob: String,
        /// The defect.
        why: String,
    },
    /// A piece length that no format allows.
    #[error("invalid piece length of {0} bytes: it must be a power of two from 16 KiB to 512 MiB")]
    PieceLength(u32),
    /// The names, sizes or links of the tree make no valid manifest.
    #[error("cannot make a manifest of {}: {source}", path.display())]
    Manifest {
        /// The path to publish.
        path: PathBuf,
        /// Why not.
        source: tidecast_metainfo::Error,
    },
    /// No path of a manifest may be that deep.
    #[error("cannot publish {}: directories nested too deep (limit {MAX_COMPONENTS})", .0.display())]
    TooDeep(PathBuf),
    /// The caller asked to stop.
    #[error("cancelled")]
    Cancelled,
}

impl Error {
    /// For `map_err`: an error of the system while doing `action` on `path`.
    pub(crate) fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io { action, path, source }
    }

    /// This host lacks descriptors or memory: not a problem of any file.
    #[must_use]
    pub fn is_exhausted(&self) -> bool {
        matches!(self, Self::Io { source, .. } if tidecast_paths::is_exhausted(source))
    }

    /// True if the file at fault is simply not there.
    pub(crate) fn is_missing(&self) -> bool {
        matches!(self, Self::Io { source, .. } if source.kind() == io::ErrorKind::NotFound)
    }
}
