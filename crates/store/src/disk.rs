//! The I/O boundary: all that the store asks of a file system, as two small traits.
//!
//! [`crate::OsDisk`] is the real one. Tests put an in-memory disk here that cuts the power: it
//! drops whatever was not synced, or any part of it. So the contract that matters is durability:
//!
//! - bytes written are durable after [`DiskFile::sync`] on that file or [`Disk::sync_all`];
//! - a new, renamed or removed name is durable after [`Disk::sync_dir`] on its directory or
//!   [`Disk::sync_all`];
//! - anything else may or may not survive, in any combination and in parts. A rename is atomic.
//!
//! Paths are relative to the disk's root, hold only plain components and never pass through a
//! symbolic link; the empty path is the root itself.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

/// The mode of opening a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// Read an existing file.
    Read,
    /// Read and write an existing file.
    Write,
    /// Read and write; a missing file is created. Its directory must exist.
    Create,
}

/// The type of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A regular file.
    File,
    /// A directory.
    Dir,
    /// A symbolic link (never followed).
    Symlink,
    /// A device, pipe or socket.
    Other,
}

/// Identifies a state of a file: if all of it is unchanged, so are the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Stamp {
    /// Device.
    pub dev: u64,
    /// Inode.
    pub ino: u64,
    /// Bytes.
    pub size: u64,
    /// Modification time, seconds.
    pub mtime: i64,
    /// Modification time, nanoseconds within the second.
    pub nanos: u32,
}

/// Result of looking at a name or an open file.
#[derive(Clone, Copy, Debug)]
pub struct Meta {
    /// Its type.
    pub kind: Kind,
    /// Identity and state.
    pub stamp: Stamp,
    /// Time of the last change of content, attributes or names, seconds and nanoseconds: no program can set it back.
    pub ctime: (i64, u32),
    /// Bytes of disk in use.
    pub allocated: u64,
    /// Names that lead to it; 0 when an open file was removed.
    pub links: u64,
    /// It belongs to the user that this process acts as.
    pub mine: bool,
    /// The user that it belongs to.
    pub owner: u32,
    /// Permission bits, with the sticky bit.
    pub mode: u32,
}

/// Room on the file system below the root.
#[derive(Clone, Copy, Debug)]
pub struct Room {
    /// Bytes an ordinary user may still write.
    pub bytes: u64,
    /// Inodes an ordinary user may still create; `None` if the file system has no such limit.
    pub inodes: Option<u64>,
    /// Smallest unit in which a file occupies the disk, bytes.
    pub block: u64,
    /// Reserving space ahead is worth it (not on RAM file systems, where it costs a pass of zeroing).
    pub reserve: bool,
}

/// Metadata of a finished file, directory or symbolic link. `None` leaves it unchanged.
#[derive(Clone, Copy, Debug, Default)]
pub struct NewAttributes<'a> {
    /// Permission bits.
    pub mode: Option<u32>,
    /// Modification time: seconds and nanoseconds.
    pub mtime: Option<(i64, u32)>,
    /// Extended attributes: names and values.
    pub xattrs: &'a [(Vec<u8>, Vec<u8>)],
}

/// A directory tree that the store may use.
pub trait Disk: Send + Sync {
    /// Where the root is, for messages.
    fn root(&self) -> &Path;
    /// Opens a regular file; anything else is an error.
    fn open(&self, path: &Path, how: How) -> io::Result<Arc<dyn DiskFile>>;
    /// Looks at a name without following it.
    fn stat(&self, path: &Path) -> io::Result<Meta>;
    /// Names in a directory, in no order, without `.` and `..`.
    fn list(&self, path: &Path) -> io::Result<Vec<OsString>>;
    /// Makes a directory; fails if the name exists. `private` ones are for the owner alone.
    fn mkdir(&self, path: &Path, private: bool) -> io::Result<()>;
    /// Makes a symbolic link; fails if the name exists.
    fn symlink(&self, target: &Path, path: &Path) -> io::Result<()>;
    /// Makes another name of an existing file; fails if the name exists.
    fn link(&self, existing: &Path, path: &Path) -> io::Result<()>;
    /// Renames atomically; with `replace` false an existing target is `AlreadyExists`.
    fn rename(&self, from: &Path, to: &Path, replace: bool) -> io::Result<()>;
    /// Exchanges two names, atomically; an error if the file system cannot.
    fn exchange(&self, one: &Path, other: &Path) -> io::Result<()>;
    /// The text of a symbolic link.
    fn read_link(&self, path: &Path) -> io::Result<OsString>;
    /// Removes a file, a symbolic link, or an empty directory.
    fn remove(&self, path: &Path) -> io::Result<()>;
    /// Removes whatever has this name, a tree with all in it, but nothing that is mounted there; nothing there is fine.
    fn remove_tree(&self, path: &Path) -> io::Result<()>;
    /// Whether a name, or a directory on the way to it, is a mount point: no rename reaches there from the root.
    fn crosses_mount(&self, path: &Path) -> io::Result<bool>;
    /// Sets metadata; failures for lack of support or rights are returned as warnings, without the path.
    fn set_attributes(&self, path: &Path, attributes: &NewAttributes<'_>) -> io::Result<Vec<String>>;
    /// Makes the names in a directory durable.
    fn sync_dir(&self, path: &Path) -> io::Result<()>;
    /// Makes everything under the root durable.
    fn sync_all(&self) -> io::Result<()>;
    /// How much room is left.
    fn room(&self) -> io::Result<Room>;
    /// Identifies this directory among all that its user may reach, in every run; `None` if that is not possible.
    fn identity(&self) -> Option<Vec<u8>>;
}

/// An open regular file. All calls take an explicit offset and may come from many threads.
pub trait DiskFile: Send + Sync {
    /// Reads at an offset; fewer bytes than asked only at the end of the file.
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize>;
    /// Writes all of `data` at an offset.
    fn write_at(&self, data: &[u8], offset: u64) -> io::Result<()>;
    /// Cuts or extends (with a hole).
    fn set_len(&self, len: u64) -> io::Result<()>;
    /// Reserves disk space for a range without changing length or content; doing nothing where
    /// this is not supported.
    fn reserve(&self, range: Range<u64>) -> io::Result<()>;
    /// First run of bytes at or after `from` that may be other than a hole.
    fn next_data(&self, from: u64) -> io::Result<Option<Range<u64>>>;
    /// Replaces the content by the first `len` bytes of `source`, sharing blocks where possible.
    fn copy_from(&self, source: &dyn DiskFile, len: u64) -> io::Result<()>;
    /// Makes content and length durable; with `metadata` mode, times and attributes too.
    fn sync(&self, metadata: bool) -> io::Result<()>;
    /// Looks at the file.
    fn meta(&self) -> io::Result<Meta>;
    /// Takes the exclusive lock, held until the file is dropped; false if another holds it.
    fn lock(&self) -> io::Result<bool>;
    /// The descriptor, for `sendfile`; `None` on disks without one.
    fn os(&self) -> Option<&Arc<File>>;
}
