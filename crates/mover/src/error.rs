//! Errors that end a copy.

use std::io;
use std::path::PathBuf;

use tidecast_event::Kind;
use tidecast_text::{count, escaped};

/// Why a copy ended before its time, or did not begin.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file, a directory.
    #[error("cannot {doing} {path}: {error}", path = escaped(path))]
    Io {
        /// The attempted action: "open", "write".
        doing: &'static str,
        /// The path of the action.
        path: PathBuf,
        /// The system's error.
        error: io::Error,
    },
    /// The same, of a disk or a quota that is full.
    #[error("cannot {doing} {path}: {error}{held}", path = escaped(path))]
    NoSpace {
        /// The attempted action: "write".
        doing: &'static str,
        /// The path of the action.
        path: PathBuf,
        /// The system's error.
        error: io::Error,
        /// Other users of the space; each begins with a semicolon.
        held: String,
    },
    /// The network.
    #[error("{doing}: {error}")]
    Network {
        /// The attempted action, with its peer.
        doing: String,
        /// The system's error.
        error: io::Error,
    },
    /// The other end has refused.
    #[error("the other end refuses: {0}")]
    Refused(String),
    /// The other end has failed.
    #[error("at the other end: {0}")]
    Remote(String),
    /// The program that connects the two ends, such as ssh, did not start here.
    #[error("{0}")]
    Start(String),
    /// Received data violates the protocol, or is damaged.
    #[error("invalid data from the other end: {0}")]
    Damaged(String),
    /// A program has printed something else before its first message.
    #[error("the other end printed \"{0}\" instead of the answer of tidecast")]
    UnexpectedOutput(String),
    /// The command asks for something that cannot be.
    #[error("{0}")]
    Usage(String),
    /// There is nothing to copy.
    #[error("{0}")]
    Nothing(String),
    /// No answer within the timeout.
    #[error("{0}")]
    Timeout(String),
    /// The caller has cancelled it.
    #[error("cancelled")]
    Cancelled,
    /// The caller has ended a wait for a reader.
    #[error("interrupted")]
    Interrupted,
    /// A pipe has no reader any more.
    #[error("cannot write to {}: its reader has closed it before all data was written", escaped(.0))]
    ReaderGone(PathBuf),
    /// The program that takes files from memory has ended.
    #[error("{0}; the rest was not copied")]
    ConsumerGone(&'static str),
    /// This many names failed, and all else was done.
    #[error("{} could not be copied or deleted; the rest is done", count(*.0, "name"))]
    Missing(u64),
    /// This many names lack attributes, and all else was done.
    #[error("{} did not keep all attributes; all data was copied", count(*.0, "name"))]
    AttributesLost(u64),
    /// The key file of a server.
    #[error("{0}")]
    Key(String),
    /// This process cannot serve as the user that it should.
    #[error("{0}")]
    User(String),
    /// Keys and TLS.
    #[error(transparent)]
    Identity(#[from] tidecast_identity::Error),
}

impl Error {
    /// The kind of error, for the exit code.
    #[must_use]
    pub fn kind(&self) -> Kind {
        match self {
            Self::Usage(_) => Kind::Usage,
            Self::Cancelled | Self::Interrupted | Self::Timeout(_) | Self::ReaderGone(_) => Kind::Interrupted,
            _ => Kind::Fault,
        }
    }

    /// The text that is sent to the other end, which adds by itself that it comes from there.
    #[must_use]
    pub fn why(&self) -> String {
        match self {
            Self::Refused(why) | Self::Remote(why) => why.clone(),
            other => other.to_string(),
        }
    }

    /// For `map_err`: the attempted action, and its path.
    pub fn io(doing: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |error| Self::Io { doing, path, error }
    }
}

impl From<crate::part::BadTable> for Error {
    fn from(error: crate::part::BadTable) -> Self {
        Self::Damaged(error.to_string())
    }
}
