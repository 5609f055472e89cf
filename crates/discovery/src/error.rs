//! Errors of the search for peers, each with its object.
//!
//! Text from the network is truncated and stripped of control characters before it gets here.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

/// Why an announce, a name, a socket or an address list failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A URL of a tracker or web seed that cannot be used as it is written.
    #[error("invalid URL {url:?}: {why}")]
    Url {
        /// The URL, cut to a printable length.
        url: String,
        /// The defect.
        why: &'static str,
    },
    /// A peer or bootstrap address that cannot be read.
    #[error("{text:?} is not an address: {why} (write HOST:PORT, or [IPV6]:PORT)")]
    Address {
        /// The text, cut to a printable length.
        text: String,
        /// The defect.
        why: &'static str,
    },
    /// The name does not resolve.
    #[error("cannot resolve {host:?}: {source}")]
    Resolve {
        /// The name asked for.
        host: String,
        /// The resolver's error.
        source: io::Error,
    },
    /// The name has no address that the chosen network can reach.
    #[error("{host:?} has no address in the family of the chosen network")]
    NoAddress {
        /// The name asked for.
        host: String,
    },
    /// A local socket could not be made.
    #[error("cannot open {what}: {source}")]
    Socket {
        /// Which socket, and where.
        what: String,
        /// The system's error.
        source: io::Error,
    },
    /// The connection failed.
    #[error("{addr}: {source}")]
    Io {
        /// The other side.
        addr: SocketAddr,
        /// The system's error.
        source: io::Error,
    },
    /// No answer in time.
    #[error("{what} did not answer within {after:?}")]
    Timeout {
        /// The server.
        what: String,
        /// How long it was given.
        after: Duration,
    },
    /// HTTP or TLS failed below the status line.
    #[error("{url}: {why}")]
    Http {
        /// The tracker.
        url: String,
        /// The failure.
        why: String,
    },
    /// An HTTP status other than success.
    #[error("{url} answered with HTTP status {status}")]
    Status {
        /// The tracker.
        url: String,
        /// The status code.
        status: u16,
    },
    /// A redirect that is not followed: too many, to nowhere, or away from TLS.
    #[error("redirect of {url} not followed: {why}")]
    Redirect {
        /// The tracker.
        url: String,
        /// Why not.
        why: &'static str,
    },
    /// An answer over the limit.
    #[error("{url} sent more than {limit} bytes")]
    TooLarge {
        /// The tracker.
        url: String,
        /// The limit, in bytes.
        limit: usize,
    },
    /// An answer that violates the protocol.
    #[error("malformed reply from {from}: {why}")]
    Malformed {
        /// The sender.
        from: String,
        /// The defect.
        why: &'static str,
    },
    /// The tracker understood and refused.
    #[error("tracker {from} rejected the request: {reason}")]
    Refused {
        /// The tracker.
        from: String,
        /// Its `failure reason`.
        reason: String,
    },
}

/// `text` from outside, fit to be printed: at most 200 characters, none of them control characters.
pub(crate) fn printable(text: &[u8]) -> String {
    const MAX: usize = 200;
    let cut = text.get(..4 * MAX).unwrap_or(text);
    String::from_utf8_lossy(cut).chars().map(|c| if c.is_control() { '?' } else { c }).take(MAX).collect()
}
