//! Why a broadcast, or a worker of one, could not go on.

use std::path::PathBuf;

use tidecast_event::bcast::Unreached;

/// What ends a broadcast as a whole. What ends it for one host is in the report.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The source cannot be read or described.
    #[error("{0}")]
    Source(#[from] tidecast_publish::Error),
    /// The source changed, or cannot be served.
    #[error("cannot serve the source: {0}")]
    Store(#[from] tidecast_store::Error),
    /// The data cannot be put at the destination.
    #[error("{0}")]
    Place(tidecast_store::Error),
    /// The source changed, or could not be read, while it was being sent.
    #[error("cannot read the source to its end: {0}")]
    Reading(std::sync::Arc<tidecast_store::Error>),
    /// The source is not there.
    #[error("cannot find {}: {source}", path.display())]
    NoSource {
        /// The path that was given.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The destination is no path for a file.
    #[error("{} is no place on a node: give the path that the file or tree shall have", .0.display())]
    Dest(PathBuf),
    /// Source and destination lie in one another.
    #[error("cannot put {} at {}: {why}", source_path.display(), dest.display())]
    Lineage {
        /// The source.
        source_path: PathBuf,
        /// The destination.
        dest: PathBuf,
        /// How, and what to do.
        why: &'static str,
    },
    /// Sockets, TLS, and the like.
    #[error("{0}")]
    Net(#[from] tidecast_net::Error),
    /// Keys.
    #[error("{0}")]
    Identity(#[from] tidecast_identity::Error),
    /// No network fits.
    #[error("{0}")]
    Network(String),
    /// The operating system refused something.
    #[error("cannot {what}: {source}")]
    System {
        /// What was tried.
        what: &'static str,
        /// What it said.
        source: std::io::Error,
    },
    /// A worker cannot connect to its coordinator.
    #[error("{}", crate::unreached::line(.0))]
    Unreached(Unreached),
    /// A worker was sent away, or its part could not go on.
    #[error("{0}")]
    Coordinator(String),
    /// Somebody asked to stop.
    #[error("interrupted; what has arrived is kept, the same command goes on from there")]
    Stopped,
}

/// For `map_err`: what was tried when the system refused.
pub(crate) fn system(what: &'static str) -> impl FnOnce(std::io::Error) -> Error {
    move |source| Error::System { what, source }
}
