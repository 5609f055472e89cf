//! Errors of a session.

use std::io;

/// Why a session has ended, or never began.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Error {
    /// The protocol's own errors: certificates, alerts, records that do not decrypt.
    #[error(transparent)]
    Tls(#[from] rustls::Error),
    /// A handshake message that is larger than the buffer for it.
    #[error("TLS handshake message too long")]
    TooLong,
    /// More was encrypted than the cipher allows with one key.
    #[error("the TLS keys of the connection are exhausted")]
    Exhausted,
    /// Nothing can be sent: the handshake is not finished, or this end has closed the connection.
    #[error("not connected")]
    NotConnected,
}

impl From<Error> for io::Error {
    /// With rustls's error, if it is one, as the inner error.
    fn from(error: Error) -> Self {
        match error {
            Error::Tls(error) => Self::new(io::ErrorKind::InvalidData, error),
            Error::TooLong => Self::new(io::ErrorKind::InvalidData, error),
            Error::Exhausted => Self::other(error),
            Error::NotConnected => io::ErrorKind::NotConnected.into(),
        }
    }
}
