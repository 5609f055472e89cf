//! Errors of the viewer.

use std::io;
use std::path::PathBuf;

/// Errors of the viewer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// There is nothing of this name.
    #[error("unknown field {0}; `tidecast field recv --name {0}` creates it")]
    Absent(String),
    /// A name that cannot be a field name.
    #[error("invalid field name {0:?}; use at most 64 letters, digits, '-', '_' and '.'")]
    Name(String),
    /// A file of another format.
    #[error("{path} is not {what}: {why}", path = .path.display())]
    Format {
        /// Which file.
        path: PathBuf,
        /// The expected format.
        what: &'static str,
        /// Why it is not.
        why: String,
    },
    /// The system refused.
    #[error("cannot read {path}: {error}", path = .path.display())]
    Io {
        /// The path that was read.
        path: PathBuf,
        /// The system's error.
        error: io::Error,
    },
    /// A request that makes no sense, or asks too much.
    #[error("{0}")]
    Request(String),
    /// A step that is not there.
    #[error("step {0} is not available")]
    Step(u64),
    /// It was changing each time that it was looked at.
    #[error("the step changes faster than it can be read; use how=point, which reads less")]
    Changing,
    /// It takes too long.
    #[error("reading took more than {0} s; use a larger factor with how=point, which reads less")]
    Slow(u64),
    /// Another viewer does not answer as one.
    #[error("{address}: {why}")]
    Remote {
        /// Which.
        address: String,
        /// The reason.
        why: String,
    },
    /// A token that could be guessed, or fits into no URL.
    #[error("invalid token; use {0} to {1} letters, digits, '-', '_', '.' or '~'")]
    Token(usize, usize),
    /// A token that cannot be read.
    #[error(transparent)]
    Secret(#[from] tidecast_secret::Error),
    /// Where proxies see the page.
    #[error(
        "invalid base path {0:?}; write for example /node/x/8765, with letters, digits, '-', '_', '.', '~', '%' and '/'"
    )]
    Base(String),
    /// Cannot listen at a path.
    #[error("cannot listen on {path}: {error}", path = .path.display())]
    Socket {
        /// Where.
        path: PathBuf,
        /// The obstacle.
        error: tidecast_socket::BindError,
    },
    /// Cannot listen.
    #[error("cannot listen on {address}: {error}")]
    Listen {
        /// Where.
        address: std::net::SocketAddr,
        /// The system's error.
        error: io::Error,
    },
}
