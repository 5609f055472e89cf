//! Errors of a single name, and errors that end the copy.

use std::io;

use rustix::io::Errno;

use crate::error::Error;

/// Why something could not be done to one name.
#[derive(Debug)]
pub(super) struct EntryError {
    pub(super) doing: &'static str,
    pub(super) error: io::Error,
}

pub(super) type EntryResult<T = ()> = Result<T, EntryError>;

/// Adds the attempted action.
pub(super) trait Doing<T> {
    fn doing(self, doing: &'static str) -> EntryResult<T>;
}

impl<T, E: Into<io::Error>> Doing<T> for Result<T, E> {
    fn doing(self, doing: &'static str) -> EntryResult<T> {
        self.map_err(|error| EntryError { doing, error: error.into() })
    }
}

impl EntryError {
    pub(super) fn because(doing: &'static str, why: &str) -> Self {
        Self { doing, error: io::Error::other(why.to_owned()) }
    }

    pub(super) fn occupied() -> Self {
        Self::because("replace", "a non-empty directory has this name (--delete replaces it)")
    }

    /// Whether no other name would fare better: a full disk, one that is broken or read-only.
    pub(super) fn ends_all(&self) -> bool {
        const ALL: [Errno; 7] =
            [Errno::NOSPC, Errno::DQUOT, Errno::ROFS, Errno::IO, Errno::MFILE, Errno::NFILE, Errno::NOMEM];
        self.errno().is_some_and(|e| ALL.contains(&e))
    }

    /// Whether the user of this process may not do it.
    pub(super) fn is_denied(&self) -> bool {
        self.errno() == Some(Errno::ACCESS)
    }

    /// Why it failed.
    pub(super) fn why(&self) -> String {
        match self.errno() {
            Some(Errno::FBIG) => {
                "file too large for the file size limit (ulimit -f) or the file system".into()
            }
            _ => self.error.to_string(),
        }
    }

    fn errno(&self) -> Option<Errno> {
        Errno::from_io_error(&self.error)
    }

    /// As the end of a copy.
    pub(super) fn at(self, path: impl Into<std::path::PathBuf>) -> Error {
        Error::Io { doing: self.doing, path: path.into(), error: self.error }
    }
}
