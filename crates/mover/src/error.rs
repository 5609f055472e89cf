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
        /// What was tried: "open", "write".
        doing: &'static str,
        /// To what.
        path: PathBuf,
        /// What the system said.
        error: io::Error,
    },
    /// The same, of a disk or a quota that is full.
    #[error("cannot {doing} {path}: {error}{held}", path = escaped(path))]
    NoRoom {
        /// What was tried: "write".
        doing: &'static str,
        /// To what.
        path: PathBuf,
        /// What the system said.
        error: io::Error,
        /// What takes room beside it; each begins with a semicolon.
        held: String,
    },
    /// The network.
    #[error("{doing}: {error}")]
    Network {
        /// What was tried, and with whom.
        doing: String,
        /// What the system said.
        error: io::Error,
    },
    /// The other end has said no.
    #[error("the other end refuses: {0}")]
    Refused(String),
    /// The other end has failed.
    #[error("at the other end: {0}")]
    There(String),
    /// What came does not follow the protocol, or is damaged.
    #[error("invalid data from the other end: {0}")]
    Damaged(String),
    /// A program has said something else before its first message.
    #[error("the other end printed \"{0}\" instead of the answer of tidecast")]
    Noise(String),
    /// The command asks for something that cannot be.
    #[error("{0}")]
    Usage(String),
    /// There is nothing to copy.
    #[error("{0}")]
    Nothing(String),
    /// Nobody answered for too long.
    #[error("{0}")]
    Silent(String),
    /// The caller has cancelled it.
    #[error("cancelled")]
    Cancelled,
    /// The caller has ended what waits for a reader.
    #[error("interrupted")]
    Interrupted,
    /// A pipe has no reader any more.
    #[error("cannot write to {}: its reader has closed it before all data was written", escaped(.0))]
    ReaderGone(PathBuf),
    /// The program that takes files from memory has gone.
    #[error("{0}; the rest was not copied")]
    ConsumerGone(&'static str),
    /// So many names failed, and all else was done.
    #[error("{} could not be copied or deleted; the rest is done", count(*.0, "name"))]
    Missing(u64),
    /// So many names lack attributes, and all else was done.
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
    /// What it asks of the caller.
    #[must_use]
    pub fn kind(&self) -> Kind {
        match self {
            Self::Usage(_) => Kind::Usage,
            Self::Cancelled | Self::Interrupted | Self::Silent(_) => Kind::Cut,
            _ => Kind::Fault,
        }
    }

    /// What is said of it to the other end, which says itself that it comes from there.
    #[must_use]
    pub fn why(&self) -> String {
        match self {
            Self::Refused(why) | Self::There(why) => why.clone(),
            other => other.to_string(),
        }
    }

    /// For `map_err`: what was tried, to what.
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
