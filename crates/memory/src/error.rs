//! Errors of a broadcast for this rank.

use std::path::PathBuf;

use tidecast_text::Size;

/// Why a broadcast failed for this rank.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The arguments are invalid; other ranks are not affected.
    #[error("{0}")]
    Usage(String),
    /// Rank 0 was not reached, or rejected this member.
    #[error("cannot join the group: {0}")]
    Join(String),
    /// This rank was removed from the group; all further calls fail too.
    #[error("{0}")]
    Lost(String),
    /// This broadcast failed; the next may succeed.
    #[error("{0}")]
    Failed(String),
    /// The caller broke the call off; the group can only be closed.
    #[error("the call was broken off; this rank has left the group")]
    Stopped,
    /// Shared memory is too small.
    #[error(
        "not enough space in {}: {} free, the buffer needs {}; set TIDECAST_SHM_DIR to another directory", dir.display(), Size(*free), Size(*need)
    )]
    Room {
        /// The directory of shared memory.
        dir: PathBuf,
        /// Bytes free.
        free: u64,
        /// Bytes needed.
        need: u64,
    },
    /// A system call failed.
    #[error("cannot {what}: {source}")]
    System {
        /// The operation.
        what: String,
        /// The system's error.
        source: std::io::Error,
    },
}

/// For `map_err`: adds the operation that failed.
pub(crate) fn system(what: impl Into<String>) -> impl FnOnce(std::io::Error) -> Error {
    move |source| Error::System { what: what.into(), source }
}
