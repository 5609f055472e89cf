//! Errors of starting or running the daemon.

use std::io;
use std::path::PathBuf;

use axum::http::StatusCode;

use crate::model::api_error::{ApiError, ErrorKind};

/// Errors of a daemon.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Its directory.
    #[error("cannot use {}: {source}", path.display())]
    Dir {
        /// Which.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// Its directory, or an entry of it, belongs to another user.
    #[error("{} belongs to user {owner}, and that user could control this daemon; remove it or choose another --dir", path.display())]
    Foreign {
        /// Which.
        path: PathBuf,
        /// Its owner's number.
        owner: u32,
    },
    /// Its socket.
    #[error("cannot listen at {}: {source}", path.display())]
    Socket {
        /// Which.
        path: PathBuf,
        /// The reason.
        source: tidecast_socket::BindError,
    },
    /// The daemon's own certificate.
    #[error("cannot use the certificate {}: {why}", path.display())]
    Certificate {
        /// Its file.
        path: PathBuf,
        /// The defect, and what to do.
        why: String,
    },
    /// The system.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The store.
    #[error(transparent)]
    Depot(#[from] tidecast_depot::Error),
    /// Keys, cards or certificates.
    #[error(transparent)]
    Identity(#[from] tidecast_identity::Error),
    /// The network.
    #[error(transparent)]
    Net(#[from] tidecast_net::Error),
    /// A manifest.
    #[error(transparent)]
    Manifest(#[from] tidecast_metainfo::Error),
    /// An ad or an expression.
    #[error("{0}")]
    Ad(String),
    /// Something else.
    #[error("{0}")]
    Start(String),
}

impl From<Error> for ApiError {
    fn from(error: Error) -> Self {
        match error {
            Error::Depot(error) => error.into(),
            Error::Manifest(_) | Error::Ad(_) => ApiError::malformed(error),
            other => ApiError::internal(other),
        }
    }
}

impl From<tidecast_depot::Error> for ApiError {
    fn from(error: tidecast_depot::Error) -> Self {
        use tidecast_depot::Error as D;
        let (status, kind) = match &error {
            D::NoCache(_) => (StatusCode::NOT_FOUND, ErrorKind::Absent),
            D::State { .. } | D::Conflict { .. } => (StatusCode::CONFLICT, ErrorKind::State),
            D::Name { .. } | D::Unfit(_) | D::Manifest(_) => (StatusCode::BAD_REQUEST, ErrorKind::Malformed),
            D::Taken { .. } => (StatusCode::FORBIDDEN, ErrorKind::Taken),
            D::Exceeded { .. } => (StatusCode::PAYLOAD_TOO_LARGE, ErrorKind::Exceeded),
            D::Wrong { .. } => (StatusCode::UNPROCESSABLE_ENTITY, ErrorKind::Wrong),
            D::InUse(_) | D::Pinned(_) => (StatusCode::CONFLICT, ErrorKind::InUse),
            D::Declared { .. } => (StatusCode::TOO_MANY_REQUESTS, ErrorKind::Denied),
            D::Full { .. } => (StatusCode::INSUFFICIENT_STORAGE, ErrorKind::Full),
            _ => (StatusCode::INTERNAL_SERVER_ERROR, ErrorKind::Internal),
        };
        ApiError::new(status, kind, error.to_string())
    }
}
