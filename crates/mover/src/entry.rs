//! An entry of a tree as it travels: a name and all that belongs to it but the bytes.

use std::sync::Arc;

/// A name in the tree that is copied.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Entry {
    /// Below the destination; components separated by `/`. Empty: the destination itself.
    pub path: Vec<u8>,
    /// Mode, times, owner, extended attributes.
    pub attributes: Attributes,
    /// The kind of entry.
    pub kind: Kind,
}

/// The attributes of an entry beside its content.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Attributes {
    /// Permission bits with set-user-id, set-group-id and sticky: `st_mode & 0o7777`.
    pub mode: u32,
    /// Time of the last change of content.
    pub mtime: Time,
    /// The owner.
    pub owner: Owner,
    /// Extended attributes (access control lists are among them), by full name; None if they are not known.
    pub xattrs: Option<Vec<(Vec<u8>, Vec<u8>)>>,
}

/// A point in time since 1970.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time {
    /// Seconds, negative before 1970.
    pub seconds: i64,
    /// Nanoseconds, below 10^9.
    pub nanos: u32,
}

/// User and group, by number and by name: the receiver goes by names that it knows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Owner {
    /// Number of the user.
    pub uid: u32,
    /// Number of the group.
    pub gid: u32,
    /// Name of the user; empty if unknown.
    pub user: Arc<str>,
    /// Name of the group; empty if unknown.
    pub group: Arc<str>,
}

/// The kind of an entry.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Kind {
    /// A regular file.
    File {
        /// Length in bytes at first sight.
        len: u64,
        /// It takes less room than its length: stretches of zeros are not written.
        sparse: bool,
    },
    /// A directory.
    #[default]
    Dir,
    /// A symbolic link.
    Symlink {
        /// Where it leads.
        target: Vec<u8>,
    },
    /// A further name of a file that has been sent, or will be, under another.
    HardLink {
        /// That name, a path like the entry's own.
        to: Vec<u8>,
    },
    /// A named pipe.
    Fifo,
    /// A socket, of no use elsewhere but as the name it is.
    Socket,
    /// A device.
    Device {
        /// Of characters, not of blocks.
        character: bool,
        /// Its number.
        number: u64,
    },
}

impl Entry {
    /// Length in bytes; 0 for everything but a file.
    #[must_use]
    pub fn len(&self) -> u64 {
        match self.kind {
            Kind::File { len, .. } => len,
            _ => 0,
        }
    }

    /// Whether it has no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
