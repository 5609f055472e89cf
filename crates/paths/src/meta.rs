//! The type and metadata of a name.

use rustix::fs::{FileType, Stat};

/// Kind of an inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A regular file.
    File,
    /// A directory.
    Dir,
    /// A symbolic link.
    Symlink,
    /// A FIFO, socket or device.
    Other,
}

impl Kind {
    pub(crate) fn of(kind: FileType) -> Kind {
        match kind {
            FileType::RegularFile => Kind::File,
            FileType::Directory => Kind::Dir,
            FileType::Symlink => Kind::Symlink,
            _ => Kind::Other,
        }
    }
}

/// Metadata of an inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Meta {
    /// Its kind.
    pub kind: Kind,
    /// Device and inode number.
    pub id: (u64, u64),
    /// Bytes.
    pub len: u64,
    /// Bytes that are allocated on disk.
    pub allocated: u64,
    /// Permission bits, 0o7777 of them.
    pub mode: u32,
    /// Hard links.
    pub links: u64,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Modification time: seconds and nanoseconds.
    pub mtime: (i64, u32),
    /// Time of the last change of the inode: seconds and nanoseconds.
    pub ctime: (i64, u32),
}

impl Meta {
    /// The kernel's error.
    #[allow(clippy::unnecessary_cast)] // widths differ between architectures
    #[must_use]
    pub fn of(s: &Stat) -> Self {
        Meta {
            kind: Kind::of(FileType::from_raw_mode(s.st_mode)),
            id: (s.st_dev as u64, s.st_ino as u64),
            len: u64::try_from(s.st_size).unwrap_or(0),
            allocated: u64::try_from(s.st_blocks).unwrap_or(0).saturating_mul(512),
            mode: s.st_mode & 0o7777,
            links: s.st_nlink as u64,
            uid: s.st_uid,
            gid: s.st_gid,
            ctime: (s.st_ctime as i64, u32::try_from(s.st_ctime_nsec).unwrap_or(0)),
            mtime: (s.st_mtime as i64, u32::try_from(s.st_mtime_nsec).unwrap_or(0)),
        }
    }

    /// A regular file.
    #[must_use]
    pub fn is_file(&self) -> bool {
        self.kind == Kind::File
    }

    /// A directory.
    #[must_use]
    pub fn is_dir(&self) -> bool {
        self.kind == Kind::Dir
    }

    /// A symbolic link.
    #[must_use]
    pub fn is_symlink(&self) -> bool {
        self.kind == Kind::Symlink
    }

    /// This process's user owns it.
    #[must_use]
    pub fn is_mine(&self) -> bool {
        self.uid == rustix::process::geteuid().as_raw()
    }
}
