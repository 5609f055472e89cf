//! Why a broadcast failed for this rank.

use std::path::PathBuf;

/// Why a broadcast failed for this rank.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The arguments make no sense; nobody else has heard of the call.
    #[error("{0}")]
    Usage(String),
    /// The group was not reached, or takes no such member.
    #[error("cannot join the group: {0}")]
    Join(String),
    /// This rank is no longer of the group; every further call fails too.
    #[error("{0}")]
    Lost(String),
    /// This broadcast failed; the next may not.
    #[error("{0}")]
    Failed(String),
    /// The caller broke the call off; the group can only be closed.
    #[error("the call was broken off; this rank has left the group")]
    Stopped,
    /// Shared memory is too small.
    #[error(
        "{} has {free} bytes free and the buffer takes {need}; TIDECAST_SHM_DIR names another directory", dir.display()
    )]
    Room {
        /// Where it was to lie.
        dir: PathBuf,
        /// Bytes there.
        free: u64,
        /// Bytes wanted.
        need: u64,
    },
    /// The operating system refused something.
    #[error("cannot {what}: {source}")]
    System {
        /// What was tried.
        what: String,
        /// What it said.
        source: std::io::Error,
    },
}

/// For `map_err`: what was tried when the system refused.
pub(crate) fn system(what: impl Into<String>) -> impl FnOnce(std::io::Error) -> Error {
    move |source| Error::System { what: what.into(), source }
}
