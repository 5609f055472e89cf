//! Errors of the store, with what to do about them.

use std::io;
use std::path::{Path, PathBuf};

use crate::{CacheId, Size, State};

/// Anything the depot reports.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Another process has the store open.
    #[error("the store {} is in use by another process", path.display())]
    Busy {
        /// The store.
        path: PathBuf,
    },
    /// The store was last written by a program with a newer format.
    #[error("the store has format {needs} and this program supports format {known}: use a newer program")]
    Format {
        /// The format that the store needs.
        needs: u64,
        /// The format of this program.
        known: u64,
    },
    /// No such cache, or the caller may not know of it.
    #[error("no cache {0}")]
    NoCache(CacheId),
    /// The cache is not in a state that allows this.
    #[error("cache {id} is {state}: {why}")]
    State {
        /// The cache.
        id: CacheId,
        /// Its state.
        state: State,
        /// The required state.
        why: &'static str,
    },
    /// An owner has declared too many caches that never came.
    #[error("{owner} has {most} declared caches without data: upload or remove some")]
    Declared {
        /// Whose.
        owner: String,
        /// As many as may be.
        most: usize,
    },
    /// A name, origin, owner or group that cannot be used.
    #[error("invalid name `{name}`: {why}")]
    Name {
        /// The given name, made printable.
        name: String,
        /// Why not.
        why: &'static str,
    },
    /// The name belongs to another user. The error does not say more: the caller may not know of that cache.
    #[error("the name {origin}/{name} is not available on this host: choose another")]
    Taken {
        /// Host of the name.
        origin: String,
        /// The name.
        name: String,
    },
    /// The same version of a name was seen with other content: never a silent change.
    #[error("{origin}/{name}@{version} exists with other content")]
    Conflict {
        /// Host of the name.
        origin: String,
        /// The name.
        name: String,
        /// The version.
        version: u64,
    },
    /// More came than was declared. The cache is INVALID now.
    #[error(
        "declared {} bytes and {} files, received {} bytes and {} files: declare the full size and start again",
        declared.bytes, declared.inodes, found.bytes, found.inodes
    )]
    Exceeded {
        /// The declared size.
        declared: Size,
        /// The received size.
        found: Size,
    },
    /// A manifest that cannot be kept.
    #[error("cannot store the cache: {0}")]
    Unfit(&'static str),
    /// A manifest that cannot be read.
    #[error("malformed manifest: {0}")]
    Manifest(#[from] tidecast_metainfo::Error),
    /// Something staged does not fit the manifest.
    #[error("{}: {why}", path.display())]
    Wrong {
        /// The file.
        path: PathBuf,
        /// The defect.
        why: &'static str,
    },
    /// The cache is used by a job, or is being handed out or received at the moment.
    #[error("cache {0} is in use")]
    InUse(CacheId),
    /// The cache is pinned.
    #[error("cache {0} is pinned: unpin it first")]
    Pinned(CacheId),
    /// A path in the store differs from the committed one.
    #[error("{} was changed by another program ({why}); run: tidecast admin fsck", path.display())]
    Changed {
        /// The path.
        path: PathBuf,
        /// How it shows.
        why: &'static str,
    },
    /// The store belongs to another user, who could change committed caches.
    #[error(
        "{} belongs to user {owner}, not to the user of this program; run the program as that user, or change the owner of \
         the whole store as root (chown -R)",
        path.display()
    )]
    Foreign {
        /// The path of another user.
        path: PathBuf,
        /// Its owner.
        owner: u32,
    },
    /// The disk is full, by bytes or by inodes.
    #[error("no space for {}: {source}", path.display())]
    Full {
        /// The file that was being written.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// Anything else that the system reported.
    #[error("cannot {op} {}: {source}", path.display())]
    Io {
        /// The operation.
        op: &'static str,
        /// The path.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// There are caches, and no database that describes them.
    #[error(
        "{} is missing or empty, and only it describes the caches of the store: put it back, or move {} away to begin \
         with an empty store",
        path.display(), store.display()
    )]
    NoDatabase {
        /// The database.
        path: PathBuf,
        /// The directory of the store.
        store: PathBuf,
    },
    /// The database cannot be read.
    #[error(
        "{} is damaged ({why}): restore it from a backup, or move {} away to begin with an empty store",
        path.display(), store.display()
    )]
    DamagedDatabase {
        /// The database.
        path: PathBuf,
        /// The directory of the store.
        store: PathBuf,
        /// How it shows.
        why: String,
    },
    /// The database reported something.
    #[error("database of the store: {0}")]
    Db(#[from] Box<redb::Error>),
    /// A record of the database cannot be written or read.
    #[error("record in the database of the store: {0}")]
    Record(#[from] serde_json::Error),
}

impl Error {
    /// No room left on the disk.
    #[must_use]
    pub fn is_full(&self) -> bool {
        match self {
            Error::Full { .. } => true,
            Error::Db(e) => matches!(&**e, redb::Error::Io(e) if full(e)),
            _ => false,
        }
    }

    /// The system's error for a path: no space, or another failure.
    #[must_use]
    pub fn io(op: &'static str, path: &Path, source: io::Error) -> Self {
        let path = path.to_path_buf();
        if tidecast_paths::is_link(&source) {
            let why = "the path contains a symbolic link, which the store does not follow; remove the link";
            return Error::Io { op, path, source: io::Error::new(source.kind(), why) };
        }
        if full(&source) { Error::Full { path, source } } else { Error::Io { op, path, source } }
    }
}

impl Error {
    /// This host lacks descriptors or memory, or its disk fails: nothing is known about unread files.
    pub(crate) fn is_of_host(&self) -> bool {
        let is_trouble = |e: &io::Error| tidecast_paths::is_exhausted(e) || tidecast_paths::is_failing(e);
        matches!(self, Error::Io { source, .. } if is_trouble(source))
    }
}

fn full(e: &io::Error) -> bool {
    matches!(e.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// Adds operation and path to the system's word.
pub(crate) trait Context<T> {
    fn at(self, op: &'static str, path: &Path) -> Result<T, Error>;
}

impl<T, E: Into<io::Error>> Context<T> for Result<T, E> {
    fn at(self, op: &'static str, path: &Path) -> Result<T, Error> {
        self.map_err(|e| Error::io(op, path, e.into()))
    }
}

macro_rules! from_redb {
    ($($name:ident),*) => {$(
        impl From<redb::$name> for Error {
            fn from(e: redb::$name) -> Self {
                Error::Db(Box::new(e.into()))
            }
        }
    )*};
}

from_redb!(DatabaseError, TransactionError, TableError, StorageError, CommitError, SetDurabilityError);
