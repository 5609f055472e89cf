//! Why a cache was not made.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

use crate::client::ClientError;

/// Why it was not made.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The daemon did not give it.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// Another thing has the name.
    #[error("{} exists and differs from the cache; remove it, choose another --to, or replace it with --force", .0.display())]
    Exists(PathBuf),
    /// It is in place, but what had its name could not be removed as a whole.
    #[error(
        "{} is in place; the file or directory that it replaces could not be removed as a whole, and the rest of it is {}: {source}",
        path.display(),
        left.display()
    )]
    Left {
        /// The name.
        path: PathBuf,
        /// What is left of the old content.
        left: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// Another user owns what has the name, or a file of the tree there.
    #[error("cannot use {}: {why}", path.display())]
    Foreign {
        /// The link, file or directory.
        path: PathBuf,
        /// Why not, and what to do.
        why: &'static str,
    },
    /// The cache has no such path.
    #[error("no {} in the cache", .0.display())]
    Absent(PathBuf),
    /// A link on the way leads out of the cache, to another place on this host, or round in a circle.
    #[error("{} is a link that leads out of the cache", .0.display())]
    Outside(PathBuf),
    /// The name is not one component of a path.
    #[error("{0:?} is not a file name")]
    Name(OsString),
    /// A bind mount cannot be made.
    #[error("cannot bind-mount {} at {} (needs root, or your own mount namespace): {source}", path.display(), to.display())]
    Bind {
        /// The directory or file to mount.
        path: PathBuf,
        /// Where.
        to: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The daemon's data does not match its manifest.
    #[error("malformed reply from the daemon: {0}")]
    Malformed(String),
    /// The system refused.
    #[error("cannot {op} {}: {source}", path.display())]
    Io {
        /// The operation.
        op: &'static str,
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
}

pub(super) fn at(op: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Error {
    move |source| Error::Io { op, path: path.to_owned(), source }
}
