//! What does not work out.

use std::io;
use std::path::PathBuf;

/// What does not work out.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// There is nothing of this name.
    #[error("there is no field {0}: `tidecast field recv --name {0}` makes it")]
    Absent(String),
    /// A name that is no name of a field.
    #[error("{0:?} cannot name a field: letters, digits, '-', '_' and '.', at most 64")]
    Name(String),
    /// A file that is not what it should be.
    #[error("{path} is not {what}: {why}", path = .path.display())]
    Format {
        /// Which file.
        path: PathBuf,
        /// What it should be.
        what: &'static str,
        /// Why it is not.
        why: String,
    },
    /// The system says no.
    #[error("cannot read {path}: {error}", path = .path.display())]
    Io {
        /// What was read.
        path: PathBuf,
        /// What the system said.
        error: io::Error,
    },
    /// A request that makes no sense, or asks too much.
    #[error("{0}")]
    Request(String),
    /// A step that is not there.
    #[error("step {0} is not there")]
    Step(u64),
    /// It was changing each time that it was looked at.
    #[error("the step changes faster than it can be read; how=point reads less")]
    Changing,
    /// It takes too long.
    #[error("reading took more than {0} s; a larger factor with how=point reads less")]
    Slow(u64),
    /// Another viewer does not answer as one.
    #[error("{address}: {why}")]
    Remote {
        /// Which.
        address: String,
        /// What is the matter.
        why: String,
    },
    /// A token that could be guessed, or fits into no URL.
    #[error("a token has {0} to {1} letters, digits, '-', '_', '.' or '~'")]
    Token(usize, usize),
    /// A token that cannot be read.
    #[error(transparent)]
    Secret(#[from] tidecast_secret::Error),
    /// Where proxies see the page.
    #[error(
        "{0:?} is no base path: write it as /node/x/8765, of letters, digits, '-', '_', '.', '~', '%' and '/'"
    )]
    Base(String),
    /// Cannot listen at a path.
    #[error("cannot listen at {path}: {error}", path = .path.display())]
    Socket {
        /// Where.
        path: PathBuf,
        /// What stands in the way.
        error: tidecast_socket::BindError,
    },
    /// Cannot listen.
    #[error("cannot listen on {address}: {error}")]
    Listen {
        /// Where.
        address: std::net::SocketAddr,
        /// What the system said.
        error: io::Error,
    },
}
