//! Modes, owners, times and extended attributes.

use std::io;
use std::path::Path;

use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{
    AtFlags, Gid, Mode, OFlags, Timespec, Timestamps, UTIME_OMIT, Uid, XattrFlags, chownat, fgetxattr,
    fsetxattr, futimens, utimensat,
};
use rustix::io::Errno;

use crate::{Root, descriptor_mode};

/// A time of modification: seconds since the epoch, and nanoseconds.
pub type Time = (i64, u32);

/// Times to set: the access time stays.
pub(crate) fn times(mtime: Time) -> Timestamps {
    let omit = Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT as _ };
    let last_modification = Timespec { tv_sec: mtime.0, tv_nsec: i64::from(mtime.1) as _ };
    Timestamps { last_access: omit, last_modification }
}

impl Root {
    /// Sets permission bits, on a descriptor. A link is `ELOOP`.
    ///
    /// # Errors
    /// The system's error.
    pub fn chmod(&self, path: impl AsRef<Path>, mode: u32) -> io::Result<()> {
        let path = path.as_ref();
        let fd = match self.any(path) {
            Err(Errno::ACCESS | Errno::NXIO) => self.resolve(path, OFlags::PATH, Mode::empty())?,
            other => other?,
        };
        Ok(descriptor_mode::set_mode(fd.as_fd(), mode)?)
    }

    /// Opens a file or a directory to change its metadata (mode, times, attributes) by its descriptor.
    ///
    /// # Errors
    /// `ELOOP` for a link; else the system's error.
    pub fn inode(&self, path: impl AsRef<Path>) -> io::Result<OwnedFd> {
        Ok(self.any(path.as_ref())?)
    }

    fn any(&self, path: &Path) -> Result<OwnedFd, Errno> {
        self.resolve(path, OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY, Mode::empty())
    }

    /// Sets owner and group; of a link, the link's.
    ///
    /// # Errors
    /// The system's error.
    pub fn chown(&self, path: impl AsRef<Path>, uid: Option<u32>, gid: Option<u32>) -> io::Result<()> {
        let (uid, gid) = (uid.map(Uid::from_raw), gid.map(Gid::from_raw));
        let path = path.as_ref();
        if path.as_os_str().is_empty() {
            return Ok(rustix::fs::fchown(self.as_fd(), uid, gid)?);
        }
        let (dir, name) = self.parent(path)?;
        Ok(chownat(dir, name, uid, gid, AtFlags::SYMLINK_NOFOLLOW)?)
    }

    /// Sets the time of modification; of a link, the link's.
    ///
    /// # Errors
    /// The system's error.
    pub fn set_time(&self, path: impl AsRef<Path>, mtime: Time) -> io::Result<()> {
        let path = path.as_ref();
        if path.as_os_str().is_empty() {
            return Ok(futimens(self.as_fd(), &times(mtime))?);
        }
        let (dir, name) = self.parent(path)?;
        Ok(utimensat(dir, name, &times(mtime), AtFlags::SYMLINK_NOFOLLOW)?)
    }

    /// Sets an extended attribute.
    ///
    /// # Errors
    /// `ELOOP` for a link; else the system's error.
    pub fn set_xattr(&self, path: impl AsRef<Path>, name: &[u8], value: &[u8]) -> io::Result<()> {
        Ok(fsetxattr(self.inode(path.as_ref())?, name, value, XattrFlags::empty())?)
    }

    /// Reads an extended attribute of at most 64 KiB, which is all that Linux allows.
    ///
    /// # Errors
    /// `ENODATA` if there is none, `ELOOP` for a link; else the system's error.
    pub fn xattr(&self, path: impl AsRef<Path>, name: &[u8]) -> io::Result<Vec<u8>> {
        let fd = self.inode(path.as_ref())?;
        let mut value = vec![0; 64 << 10];
        let len = fgetxattr(fd, name, value.as_mut_slice())?;
        value.truncate(len);
        Ok(value)
    }
}
