//! Why a host cannot found, join or use a site.

use std::net::SocketAddr;
use std::path::PathBuf;

use tidecast_identity::NodeId;

/// Errors of joining and keeping a site.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SiteError {
    /// The host has joined a site before.
    #[error("this host has joined a site already; to join another, remove {} first", .0.display())]
    Joined(PathBuf),
    /// The record of a joined site is damaged.
    #[error("{} is damaged: {why}; remove {}, and join again", path.display(), path.parent().unwrap_or(path).display())]
    Damaged {
        /// Its file.
        path: PathBuf,
        /// The fault.
        why: String,
    },
    /// No address of the authority answered.
    #[error("cannot reach the certificate authority: {0}")]
    Unreachable(String),
    /// Another node answers at that address.
    #[error("{addr} is node {found}, not the certificate authority that the ticket names")]
    OtherNode {
        /// The address.
        addr: SocketAddr,
        /// The node that is there.
        found: NodeId,
    },
    /// The authority refused.
    #[error("the certificate authority refused: {0}")]
    Refused(String),
    /// The authority answered something unusable.
    #[error("invalid answer from the certificate authority: {0}")]
    Invalid(String),
    /// Keys and certificates.
    #[error(transparent)]
    Identity(#[from] tidecast_identity::Error),
    /// The daemon's directory.
    #[error(transparent)]
    Dir(#[from] crate::Error),
}
