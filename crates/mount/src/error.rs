//! Errors of mounts.

use std::io;
use std::path::PathBuf;

use tidecast_event::Kind;

/// Errors of mounts.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The kernel, or its helper, refuses.
    #[error("cannot mount at {at}: {why}")]
    Mount {
        /// Where.
        at: PathBuf,
        /// The reason, and a remedy.
        why: String,
    },
    /// Likewise.
    #[error("cannot unmount {at}: {why}")]
    Unmount {
        /// Where.
        at: PathBuf,
        /// The reason, and a remedy.
        why: String,
    },
    /// The conversation with the kernel failed.
    #[error("FUSE negotiation failed: {0}")]
    Device(#[source] io::Error),
    /// A thread could not be started.
    #[error("cannot start a thread: {0}")]
    Thread(#[source] io::Error),
    /// A file or directory of the tree's home cannot be used.
    #[error("cannot {doing} {}", path.display())]
    Home {
        /// The operation that failed.
        doing: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// The system's error.
        #[source]
        error: io::Error,
    },
    /// A directory of the tree's home belongs to another user, or others may write to it.
    #[error("{} belongs to another user, or others may write to it: remove it, or choose another directory with --cache", .0.display())]
    Foreign(PathBuf),
    /// Every user could put another directory in the place of the cache.
    #[error("{} is open to all users: set its sticky bit (chmod +t), or choose another directory with --cache", .0.display())]
    OpenToAll(PathBuf),
    /// Another user may have planted the cache, or a directory above it.
    #[error("cannot use the cache: {0}; choose another directory with --cache")]
    Planted(Exchangeable),
    /// Another user could put another directory in the place of the temporary directory.
    #[error(
        "cannot use the temporary directory {}: {why}; set TMPDIR to a directory of your own, or choose one with --cache",
        dir.display()
    )]
    Temporary {
        /// The directory.
        dir: PathBuf,
        /// The reason.
        why: Exchangeable,
    },
    /// The user has interrupted the start of a server.
    #[error("interrupted")]
    Interrupted,
    /// The system refuses.
    #[error("{doing}")]
    System {
        /// The operation that failed, or the missing file.
        doing: &'static str,
        /// The system's error.
        #[source]
        error: io::Error,
    },
    /// The ticket cannot be handed to a process.
    #[error(transparent)]
    Secret(#[from] tidecast_secret::Error),
    /// A server has announced its end but does not exit. Its log has the reason.
    #[error("the server of this tree neither serves nor ends; see {}", .0.display())]
    Stuck(PathBuf),
    /// A server has ended before it served. It has a log.
    #[error("the server did not start; see {}", .0.display())]
    NotStarted(PathBuf),
    /// Why a server has ended before it served, in its own words.
    #[error("{message}")]
    Start {
        /// The party that has to act.
        kind: Kind,
        /// The operation that failed.
        message: String,
    },
    /// A server has refused a request, in its own words.
    #[error("{0}")]
    Refused(String),
    /// A server has ended.
    #[error("the server of this tree has ended")]
    Ended,
    /// A server is about to end.
    #[error("the server of this tree is ending")]
    Ending,
    /// A server does not answer in time.
    #[error("the server of this tree did not answer")]
    Silent,
    /// A server has given the answer to another question.
    #[error("unexpected reply from the server of this tree")]
    Astray,
}

/// Why another user could put another directory in the place of a home.
#[derive(Debug, thiserror::Error)]
pub enum Exchangeable {
    /// Every user may rename what is in a directory.
    #[error("{} is open to all users and has no sticky bit", .0.display())]
    OpenToAll(PathBuf),
    /// Another user owns a name where all may create names.
    #[error("{} belongs to another user ({owner}), and all users may create names in its directory", name.display())]
    Planted {
        /// The name.
        name: PathBuf,
        /// That user.
        owner: u32,
    },
    /// Another user owns a directory.
    #[error("{} belongs to another user ({owner})", dir.display())]
    OfOther {
        /// The directory.
        dir: PathBuf,
        /// That user.
        owner: u32,
    },
}

/// For `map_err`.
pub(crate) fn system<E: Into<io::Error>>(doing: &'static str) -> impl FnOnce(E) -> Error {
    move |error| Error::System { doing, error: error.into() }
}

/// For `map_err`.
pub(crate) fn home<E: Into<io::Error>>(
    doing: &'static str,
    path: impl Into<PathBuf>,
) -> impl FnOnce(E) -> Error {
    move |error| Error::Home { doing, path: path.into(), error: error.into() }
}

impl From<Error> for tidecast_event::Error {
    fn from(error: Error) -> Self {
        match error {
            Error::Start { kind, .. } => Self::new(kind, error),
            Error::Interrupted => Self::interrupted(error),
            _ => Self::fault(error),
        }
    }
}
