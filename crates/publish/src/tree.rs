//! The result of a scan: a tree of files, links and directories with their metadata, in manifest order.

use std::ffi::OsString;
use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};

use tidecast_metainfo::Excluded;

/// A scanned file or directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tree {
    /// Where it is on disk.
    pub root: PathBuf,
    /// The absolute path that it was built for, if something in it needs that, or the caller has given it.
    pub built_for: Option<PathBuf>,
    /// Its name.
    pub name: OsString,
    /// Directories, each with an empty path or one below the root. None if a single file was scanned.
    pub dirs: Vec<Node<()>>,
    /// Files and symbolic links in the order of BEP 52: by path, component after component, as bytes. A single
    /// file has an empty path.
    pub files: Vec<Node<Content>>,
    /// The excluded patterns.
    pub left_out: Excluded,
    /// Warnings about skipped or unusual entries.
    pub warnings: Vec<Warning>,
}

impl Tree {
    /// Whether it is one file and no directory.
    #[must_use]
    pub fn is_single(&self) -> bool {
        self.dirs.is_empty()
    }

    /// Bytes of all files.
    #[must_use]
    pub fn total_len(&self) -> u64 {
        self.files.iter().map(|f| f.kind.len()).sum()
    }

    /// Where a node is on disk.
    pub(crate) fn path_of<K>(&self, node: &Node<K>) -> PathBuf {
        // Joining an empty path would append a slash.
        if node.path.as_os_str().is_empty() { self.root.clone() } else { self.root.join(&node.path) }
    }
}

/// One entry of a tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node<K> {
    /// Path below the root.
    pub path: PathBuf,
    /// Permission bits, with set-user-id, set-group-id and sticky: `st_mode & 0o7777`.
    pub mode: u32,
    /// Time of the last change of content.
    pub mtime: Time,
    /// Extended attributes of the `user` namespace, by full name, sorted.
    pub xattrs: Vec<(OsString, Vec<u8>)>,
    /// The kind and content.
    pub kind: K,
}

/// The kind and content of a file or link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Content {
    /// A regular file.
    File {
        /// The identity of the file when scanned.
        identity: Identity,
        /// Index in [`Tree::files`] of an earlier name of the same file, if this is a further one.
        link_of: Option<usize>,
        /// The stretches that read as zeros and take no room on disk, ascending.
        holes: Vec<Range<u64>>,
    },
    /// A symbolic link.
    Symlink {
        /// Where it leads.
        target: PathBuf,
    },
}

impl Content {
    /// Length in bytes; 0 for a link.
    #[must_use]
    pub fn len(&self) -> u64 {
        match self {
            Self::File { identity, .. } => identity.len,
            Self::Symlink { .. } => 0,
        }
    }

    /// Whether it has no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// A point in time: seconds and nanoseconds since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time {
    /// Seconds, negative before 1970.
    pub seconds: i64,
    /// Nanoseconds, below 10^9.
    pub nanos: u32,
}

/// The identity of a file's state, obtained without reading it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Identity {
    /// Number of the file system.
    pub dev: u64,
    /// Number of the file in it.
    pub ino: u64,
    /// Length in bytes.
    pub len: u64,
    /// When the content last changed.
    pub mtime: Time,
    /// When content or metadata last changed: no program can set it back.
    pub ctime: Time,
}

impl Identity {
    /// The difference between two states of the same file; `None` if nothing that matters to its bytes. The
    /// change time alone does not matter: links made to a file and modes set change it too.
    pub(crate) fn difference(&self, now: &Self) -> Option<&'static str> {
        if (self.dev, self.ino) != (now.dev, now.ino) {
            Some("replaced by another file")
        } else if self.len != now.len {
            Some("size")
        } else if self.mtime != now.mtime {
            Some("modification time")
        } else {
            None
        }
    }
}

/// A condition of a tree that is not an error but worth a line to the user.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Warning {
    /// A socket, device or pipe was left out.
    Special(PathBuf),
    /// A symbolic link that leads out of the tree was left out.
    OutsideLink {
        /// The link.
        path: PathBuf,
        /// Where it leads.
        target: PathBuf,
    },
    /// Some extended attributes are not published: only those of the `user` namespace are.
    Attributes {
        /// The first file that has such.
        path: PathBuf,
        /// The attribute.
        name: OsString,
        /// How many files have such.
        files: u64,
    },
    /// A file has more holes than a manifest should carry; it is published as if it had none.
    Fragmented(PathBuf),
    /// A pattern that excludes nothing, because its path begins above the tree.
    Above {
        /// The pattern.
        glob: String,
        /// The same path from the top of the tree.
        meant: String,
    },
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let show = |path: &Path| path.display().to_string();
        match self {
            Self::Special(path) => {
                write!(f, "skipped {}: it is a socket, device or pipe", show(path))
            }
            Self::OutsideLink { path, target } => {
                let (path, target) = (show(path), show(target));
                write!(f, "skipped {path} -> {target}: the link leads out of the tree")
            }
            Self::Attributes { path, name, files } => write!(
                f,
                "extended attributes outside `user.` are not published ({files} files; first {} on {})",
                name.display(),
                show(path)
            ),
            Self::Fragmented(path) => {
                write!(f, "{} has too many holes; they are published as zeros", show(path))
            }
            Self::Above { glob, meant } => {
                write!(
                    f,
                    "pattern {glob} excludes nothing: paths begin in the published directory; write /{meant}"
                )
            }
        }
    }
}
