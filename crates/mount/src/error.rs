//! What can go wrong with a mount.

use std::io;
use std::path::PathBuf;

/// What can go wrong with a mount.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The kernel, or its helper, refuses.
    #[error("cannot mount at {at}: {why}")]
    Mount {
        /// Where.
        at: PathBuf,
        /// Why, and what can be done.
        why: String,
    },
    /// Likewise.
    #[error("cannot unmount {at}: {why}")]
    Unmount {
        /// Where.
        at: PathBuf,
        /// Why, and what can be done.
        why: String,
    },
    /// The conversation with the kernel failed.
    #[error("the kernel and this program do not understand each other: {0}")]
    Device(#[source] io::Error),
    /// A thread could not be started.
    #[error("cannot start a thread: {0}")]
    Thread(#[source] io::Error),
}
