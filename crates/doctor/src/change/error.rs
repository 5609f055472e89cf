//! What can go wrong with changes.

/// Why changes cannot be planned, applied or undone.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The directory of the record cannot be used.
    #[error("cannot use the record of changes {path}: {source}")]
    Record {
        /// The directory or file.
        path: std::path::PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// The directory of the record can be written to by another user, who could have other values restored.
    #[error(
        "{path} belongs to user {owner}, or others may write to it, so others could choose the values that are restored: remove it"
    )]
    NotOurs {
        /// The directory.
        path: std::path::PathBuf,
        /// Its owner.
        owner: u32,
    },
    /// The record cannot be understood.
    #[error("the record of changes {path} is damaged at line {line}: {why}; nothing was changed")]
    Damaged {
        /// The file.
        path: std::path::PathBuf,
        /// The line, from 1.
        line: usize,
        /// What is wrong.
        why: String,
    },
    /// Another process is changing settings.
    #[error("another tidecast doctor is changing settings of this host; try again when it has ended")]
    Locked,
    /// A test's hook ended the work here.
    #[error("interrupted at step {0}")]
    Interrupted(&'static str),
}
