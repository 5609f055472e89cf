//! Errors of creating a cache.

use std::io;
use std::path::{Path, PathBuf};

use tidecast_text::Span;

use crate::client::ClientError;

/// Why a cache was not created.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The daemon refuses, or does not answer.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// The files cannot be read or described.
    #[error(transparent)]
    Publish(#[from] tidecast_publish::Error),
    /// There is no room now.
    #[error("{0}; use --wait DURATION to wait for space")]
    NoRoom(String),
    /// There was no room for as long as the caller waits.
    #[error("{name} was not created within {}: {why}", Span(*.after))]
    Late {
        /// The cache.
        name: String,
        /// How long was waited.
        after: std::time::Duration,
        /// The occupant of the space.
        why: String,
    },
    /// Files of several directories.
    #[error("{} is not inside {}: give one directory", path.display(), root.display())]
    Apart {
        /// One of them.
        path: PathBuf,
        /// Where the others are.
        root: PathBuf,
    },
    /// A path that ends in `..` or the like.
    #[error("{} does not end in a file name", .0.display())]
    Nameless(PathBuf),
    /// A file.
    #[error("cannot {doing} {}: {source}", path.display())]
    Io {
        /// The operation.
        doing: &'static str,
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// A file cannot be read any more, or has become shorter.
    #[error(transparent)]
    Reading(io::Error),
    /// The system does not tell the groups of this process.
    #[error(transparent)]
    Groups(io::Error),
}

impl Error {
    pub(super) fn io(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Io { doing, path: path.to_owned(), source }
    }
}
