//! Why a command cannot have its own view of the files.

use std::io;
use std::path::PathBuf;

use crate::place::Unfit;

/// See the head of the file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The place is one that nothing may hide.
    #[error(transparent)]
    Unfit(#[from] Unfit),
    /// The system refused an operation.
    #[error("{doing}: {source}")]
    Io {
        /// The operation, or the feature that this host lacks.
        doing: String,
        /// The system's error.
        source: io::Error,
    },
    /// The system refused an operation.
    #[error(transparent)]
    System(#[from] io::Error),
    /// A directory that comes and goes.
    #[error("cannot create {}: other processes repeatedly create and remove it", .0.display())]
    Unstable(PathBuf),
}

/// For `map_err`.
pub(super) fn failed<E: Into<io::Error>>(doing: impl Into<String>) -> impl FnOnce(E) -> Error {
    let doing = doing.into();
    move |source| Error::Io { doing, source: source.into() }
}
