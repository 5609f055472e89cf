//! Errors of a broadcast, or of one of its workers.

use std::path::PathBuf;

use tidecast_event::bcast::Unreached;

/// Errors that end a broadcast as a whole. The report has the errors of single hosts.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The source cannot be read or described.
    #[error("{0}")]
    Source(#[from] tidecast_publish::Error),
    /// The source changed, or cannot be served.
    #[error("cannot serve the source: {0}")]
    Store(#[from] tidecast_store::Error),
    /// The data cannot be written to the destination.
    #[error("{0}")]
    Place(tidecast_store::Error),
    /// The source changed, or could not be read, while it was being sent.
    #[error("cannot read the source to its end: {0}")]
    Reading(std::sync::Arc<tidecast_store::Error>),
    /// The source does not exist.
    #[error("cannot find {}: {source}", path.display())]
    NoSource {
        /// The path that was given.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// The destination is not a valid path of a file.
    #[error("invalid destination {}: give the path of the copy on each host", .0.display())]
    Dest(PathBuf),
    /// Source and destination overlap.
    #[error("cannot copy {} to {}: {why}", source_path.display(), dest.display())]
    SourceOverlap {
        /// The source.
        source_path: PathBuf,
        /// The destination.
        dest: PathBuf,
        /// How they overlap, and what to do.
        why: &'static str,
    },
    /// Sockets, TLS, and the like.
    #[error("{0}")]
    Net(#[from] tidecast_net::Error),
    /// Keys.
    #[error("{0}")]
    Identity(#[from] tidecast_identity::Error),
    /// No suitable network.
    #[error("{0}")]
    Network(String),
    /// A system call failed.
    #[error("cannot {what}: {source}")]
    System {
        /// The operation.
        what: &'static str,
        /// The system's error.
        source: std::io::Error,
    },
    /// A worker cannot connect to its coordinator.
    #[error("{}", crate::unreached::line(.0))]
    Unreached(Unreached),
    /// A worker was dismissed, or could not continue.
    #[error("{0}")]
    Coordinator(String),
    /// The broadcast was stopped.
    #[error("interrupted; received data is kept, give the same command again to resume")]
    Stopped,
}

/// For `map_err`: adds the operation that failed.
pub(crate) fn system(what: &'static str) -> impl FnOnce(std::io::Error) -> Error {
    move |source| Error::System { what, source }
}
