//! Resolving a path beneath an open directory: by the kernel, or by walking it.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{
    AtFlags, FileType, Mode, OFlags, ResolveFlags, StatxFlags, fstat, openat, openat2, statat, statx,
};
use rustix::io::Errno;

/// The kernel takes paths that are shorter than this.
const PATH_MAX: usize = 4096;

/// Times that a resolution is tried again when the kernel saw a rename on its way.
const TRIES: usize = 64;

/// This process has no `openat2`: the kernel is older than 5.6, or a sandbox refuses the call.
static NO_OPENAT2: AtomicBool = AtomicBool::new(false);

/// How paths are resolved.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct How {
    /// Walk, though the kernel could do it.
    pub(crate) walk: bool,
    /// Stay on the mount of the directory.
    pub(crate) one_mount: bool,
}

/// A path without `..`, leading `/` and leading `.`, without trailing slashes; "." for the empty one.
pub(crate) fn plain(path: &Path) -> Result<&Path, Errno> {
    if path.as_os_str().is_empty() {
        return Ok(Path::new("."));
    }
    if !path.components().all(|c| matches!(c, Component::Normal(_))) {
        return Err(Errno::INVAL);
    }
    Ok(path.components().as_path())
}

/// As openat2(2), which gives up when something is renamed anywhere on the host while it goes through `..`: tried again.
///
/// # Errors
/// The system's error.
pub fn openat2_again(
    at: impl AsFd,
    path: impl rustix::path::Arg + Copy,
    flags: OFlags,
    how: ResolveFlags,
) -> Result<OwnedFd, Errno> {
    for _ in 1..TRIES {
        match openat2(at.as_fd(), path, flags, Mode::empty(), how) {
            Err(Errno::AGAIN | Errno::INTR) => {}
            other => return other,
        }
    }
    openat2(at.as_fd(), path, flags, Mode::empty(), how)
}

/// Opens `path` beneath `at`. A link anywhere on it is `ELOOP`, as its last component too.
pub(crate) fn open(
    at: BorrowedFd<'_>,
    path: &Path,
    flags: OFlags,
    mode: Mode,
    how: How,
) -> Result<OwnedFd, Errno> {
    let path = plain(path)?;
    let flags = flags | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    if how.walk || NO_OPENAT2.load(Ordering::Relaxed) || path.as_os_str().len() >= PATH_MAX {
        return walk(at, path, flags, mode, how);
    }
    let mut inside = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    if how.one_mount {
        inside |= ResolveFlags::NO_XDEV;
    }
    for _ in 0..TRIES {
        match openat2(at, path, flags, mode, inside) {
            // A concurrent rename, or a signal.
            Err(Errno::AGAIN | Errno::INTR) => {}
            // Some sandboxes answer EPERM to calls that they do not know; it may also be about this file.
            Err(Errno::NOSYS | Errno::PERM) => {
                let probe = openat2(at, ".", OFlags::PATH | OFlags::CLOEXEC, Mode::empty(), inside);
                if matches!(probe, Err(Errno::NOSYS | Errno::PERM)) {
                    NO_OPENAT2.store(true, Ordering::Relaxed);
                }
                return walk(at, path, flags, mode, how);
            }
            // Its last component may be a link, for which the kernel has more than one word.
            Err(Errno::NOTDIR) => {
                let (above, name) = (path.parent().unwrap_or(path), path.file_name().ok_or(Errno::INVAL)?);
                let above = open(at, above, OFlags::PATH | OFlags::DIRECTORY, Mode::empty(), how)?;
                return Err(link_or(above.as_fd(), name, Errno::NOTDIR));
            }
            other => return no_link(other?, flags),
        }
    }
    walk(at, path, flags, mode, how)
}

/// Only a last component that is opened as a mere path can be a link.
fn no_link(fd: OwnedFd, flags: OFlags) -> Result<OwnedFd, Errno> {
    let mere = flags.contains(OFlags::PATH) && !flags.contains(OFlags::DIRECTORY);
    if mere && FileType::from_raw_mode(fstat(&fd)?.st_mode) == FileType::Symlink {
        return Err(Errno::LOOP);
    }
    Ok(fd)
}

fn walk(at: BorrowedFd<'_>, path: &Path, flags: OFlags, mode: Mode, how: How) -> Result<OwnedFd, Errno> {
    const STEP: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
    let mount = if how.one_mount { Some(mount_of(at)?) } else { None };
    let mut parts = path.iter().peekable();
    let mut dir: Option<OwnedFd> = None;
    while let Some(part) = parts.next() {
        let from = dir.as_ref().map_or(at, AsFd::as_fd);
        let last = parts.peek().is_none();
        let flags = if last { flags } else { STEP };
        let mode = if last { mode } else { Mode::empty() };
        let next = open_retrying(from, part, flags, mode).map_err(|e| link_or(from, part, e))?;
        let next = no_link(next, flags)?;
        if mount.is_some_and(|mount| mount_of(&next) != Ok(mount)) {
            return Err(Errno::XDEV);
        }
        dir = Some(next);
    }
    dir.ok_or(Errno::INVAL)
}

/// The mount that an open file or directory lies on. Two mounts may show the same device (bind mounts), so the device
/// stands in only where the kernel does not report the mount (before 5.8).
///
/// # Errors
/// The system's error.
#[allow(clippy::unnecessary_cast)] // its width differs between architectures
pub fn mount_of(fd: impl AsFd) -> Result<u64, Errno> {
    match statx(&fd, "", AtFlags::EMPTY_PATH, StatxFlags::MNT_ID) {
        Ok(s) if StatxFlags::from_bits_retain(s.stx_mask).contains(StatxFlags::MNT_ID) => Ok(s.stx_mnt_id),
        _ => Ok(fstat(fd)?.st_dev as u64),
    }
}

fn open_retrying(at: BorrowedFd<'_>, part: &OsStr, flags: OFlags, mode: Mode) -> Result<OwnedFd, Errno> {
    rustix::io::retry_on_intr(|| openat(at, part.as_bytes(), flags, mode))
}

/// With `O_NOFOLLOW | O_DIRECTORY` a symbolic link is `ENOTDIR`; `openat2` returns `ELOOP`. Returns `ELOOP`
/// for both.
fn link_or(at: BorrowedFd<'_>, part: &OsStr, e: Errno) -> Errno {
    if e != Errno::NOTDIR {
        return e;
    }
    match statat(at, part.as_bytes(), AtFlags::SYMLINK_NOFOLLOW) {
        Ok(s) if FileType::from_raw_mode(s.st_mode) == FileType::Symlink => Errno::LOOP,
        _ => e,
    }
}
