//! The findings of a verification, for programs and, by `Display`, for people.

use std::fmt;
use std::path::{Path, PathBuf};

/// The result of [`verify`](crate::verify).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// The problems, by path. Empty if the tree matches the manifest.
    pub problems: Vec<Problem>,
    /// The number of further ones, where the list is long.
    pub more: u64,
    /// Names on disk that the publisher had excluded: those that match its patterns, and sockets, devices and
    /// pipes, which no manifest has. Not problems. Sorted.
    pub left_out: Vec<PathBuf>,
    /// Files and links in the manifest.
    pub files: u32,
    /// Bytes in the manifest.
    pub bytes: u64,
}

impl Report {
    /// Whether the tree matches the manifest exactly.
    #[must_use]
    pub fn is_good(&self) -> bool {
        self.problems.is_empty()
    }
}

/// One thing that is wrong with one file, link or directory. One path may have several.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// Path below the verified directory; empty for that itself, or for the single file.
    pub path: PathBuf,
    /// The defect.
    pub what: ProblemKind,
}

/// A problem of a file, link or directory.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum ProblemKind {
    /// It is in the manifest but not on disk.
    Missing,
    /// It is on disk but not in the manifest. The contents of such a directory are not either.
    Extra,
    /// It is something else than it should be.
    Kind {
        /// The value in the manifest.
        expected: Kind,
        /// The value on disk.
        found: Kind,
    },
    /// The file is too long or too short.
    Size {
        /// Bytes in the manifest.
        expected: u64,
        /// Bytes on disk.
        found: u64,
    },
    /// Bytes differ.
    Content {
        /// Pieces that are wrong. In v1-only manifests a piece may span several files: then each is listed, for it
        /// cannot be told which is at fault.
        pieces: u32,
        /// Pieces that the file has a part in.
        of: u32,
    },
    /// The symbolic link leads elsewhere.
    Target {
        /// The target in the manifest.
        expected: PathBuf,
        /// Where it does.
        found: PathBuf,
    },
    /// Permission bits differ.
    Mode {
        /// As in the manifest, without those that change identity.
        expected: u32,
        /// On disk.
        found: u32,
    },
    /// The system does not let it be read; the reason.
    Unreadable(String),
    /// In v1-only manifests: bytes that share a piece with a file that is missing or unreadable and so cannot be
    /// checked.
    Unchecked {
        /// Pieces that could not be checked.
        pieces: u32,
        /// Pieces that the file has a part in.
        of: u32,
    },
}

impl ProblemKind {
    /// One word for the kind of problem, as programs read it.
    #[must_use]
    pub fn word(&self) -> &'static str {
        match self {
            Self::Missing => "missing",
            Self::Extra => "extra",
            Self::Unchecked { .. } => "unchecked",
            Self::Unreadable(_) => "unreadable",
            Self::Kind { .. }
            | Self::Size { .. }
            | Self::Content { .. }
            | Self::Target { .. }
            | Self::Mode { .. } => "damaged",
        }
    }
}

/// Kinds of directory entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Symlink,
    /// A socket, device or pipe.
    Special,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::File => "a file",
            Self::Directory => "a directory",
            Self::Symlink => "a symbolic link",
            Self::Special => "a socket, device or pipe",
        })
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = if self.path.as_os_str().is_empty() { Path::new(".") } else { &self.path };
        // A name may contain any bytes, including terminal escapes: quoted as Rust does.
        write!(f, "{}: {path:?}: ", self.what.word())?;
        match &self.what {
            ProblemKind::Missing => write!(f, "in the manifest but not on disk"),
            ProblemKind::Extra => write!(f, "on disk but not in the manifest"),
            ProblemKind::Kind { expected, found } => write!(f, "{found} instead of {expected}"),
            ProblemKind::Size { expected, found } => write!(f, "{found} bytes instead of {expected}"),
            ProblemKind::Content { pieces, of } => write!(f, "{pieces} of {of} pieces differ"),
            ProblemKind::Target { expected, found } => {
                write!(f, "points to {found:?} instead of {expected:?}")
            }
            ProblemKind::Mode { expected, found } => write!(f, "mode {found:03o} instead of {expected:03o}"),
            ProblemKind::Unreadable(why) => write!(f, "{why}"),
            ProblemKind::Unchecked { pieces, of } => write!(
                f,
                "{pieces} of {of} pieces cannot be checked: another file in them is missing or damaged"
            ),
        }
    }
}
