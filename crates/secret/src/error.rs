//! Errors of reading a secret.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

/// Why a secret cannot be had. No message has any part of one.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file or standard input cannot be read.
    #[error("cannot read the {name} {place}")]
    Unreadable {
        /// The kind of secret: "ticket", "key".
        name: &'static str,
        /// The file, or "from standard input".
        place: String,
        /// Why.
        #[source]
        why: Unreadable,
    },
    /// There is nothing but blanks.
    #[error("{place} has no {name}")]
    None {
        /// The file, or standard input.
        place: String,
        /// The kind of secret.
        name: &'static str,
    },
    /// A file that others may read.
    #[error("{path} is readable by other users (mode {mode:04o}); run: chmod 600 {path}", path = path.display())]
    Exposed {
        /// The file.
        path: PathBuf,
        /// Its mode.
        mode: u32,
    },
    /// The value of an environment variable is not text.
    #[error("{0} is not UTF-8")]
    NotUtf8(&'static str),
    /// The secret named by an environment variable cannot be read.
    #[error("{variable}")]
    Variable {
        /// Its name.
        variable: &'static str,
        /// Why.
        #[source]
        why: Box<Self>,
    },
    /// The system gives no memory or descriptor for another process.
    #[error("cannot pass a secret to another process")]
    HandOver(#[source] io::Error),
    /// A secret passed by another process cannot be read.
    #[error("cannot read a secret passed by another process")]
    TakeOver(#[source] io::Error),
}

/// Why a file or standard input gives no text.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Unreadable {
    /// The system's error.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// A directory or a disk.
    #[error("not a regular file")]
    NoFile,
    /// More than any secret has, in bytes.
    #[error("too long (limit {0} bytes)")]
    TooLong(usize),
    /// No UTF-8.
    #[error("not text")]
    NoText,
    /// A pipe or a terminal that gives nothing.
    #[error("no data within {} s", .0.as_secs())]
    Silent(Duration),
}
