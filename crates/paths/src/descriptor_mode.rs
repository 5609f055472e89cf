//! What a descriptor names, whatever has its name meanwhile; and directories and files of ours whose mode keeps even us out.

use std::io;
use std::sync::OnceLock;

use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use rustix::fs::{CWD, Mode, OFlags, chmodat, fchmod, fstat, openat, statfs};
use rustix::io::Errno;

use crate::Meta;

/// `f_type` of procfs.
const PROC_MAGIC: i64 = 0x9fa0;

/// The name under which procfs shows a descriptor: a path to the inode itself, whatever its names refer to by
/// now.
fn name_of(fd: BorrowedFd<'_>) -> Result<String, Errno> {
    static THERE: OnceLock<bool> = OnceLock::new();
    #[allow(clippy::unnecessary_cast)] // its width differs between architectures
    let there = || statfs("/proc/self/fd").is_ok_and(|s| s.f_type as i64 == PROC_MAGIC);
    // Without it the mode of a file that may not be opened cannot be changed.
    if !*THERE.get_or_init(there) {
        return Err(Errno::ACCESS);
    }
    Ok(format!("/proc/self/fd/{}", fd.as_raw_fd()))
}

/// Opens what a descriptor (`O_PATH`) names, with these flags.
///
/// # Errors
/// The system's error; `EACCES` where `/proc` is missing.
pub fn reopen(found: impl AsFd, flags: OFlags) -> io::Result<OwnedFd> {
    Ok(openat(CWD, name_of(found.as_fd())?, flags | OFlags::CLOEXEC, Mode::empty())?)
}

/// Sets the mode of the inode of a descriptor, including one opened with `O_PATH`.
pub(crate) fn set_mode(fd: BorrowedFd<'_>, mode: u32) -> Result<(), Errno> {
    let mode = Mode::from_raw_mode(mode & 0o7777);
    match fchmod(fd, mode) {
        Err(Errno::BADF) => {
            if Meta::of(&fstat(fd)?).is_symlink() {
                return Err(Errno::LOOP);
            }
            chmodat(CWD, name_of(fd)?, mode, rustix::fs::AtFlags::empty())
        }
        other => other,
    }
}

/// Opens for listing and changing a directory that is open as a path, if it is ours: gives its owner all rights first.
pub(crate) fn open_closed(path: &OwnedFd) -> Result<OwnedFd, Errno> {
    make_passable(path.as_fd())?;
    openat(CWD, name_of(path.as_fd())?, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
}

/// Gives the owner of a directory all rights to it, if we are he and he lacks some.
pub(crate) fn make_passable(dir: BorrowedFd<'_>) -> Result<(), Errno> {
    let meta = Meta::of(&fstat(dir)?);
    if meta.is_dir() && meta.mode & 0o700 != 0o700 && meta.is_mine() {
        return set_mode(dir, meta.mode | 0o700);
    }
    Ok(())
}
