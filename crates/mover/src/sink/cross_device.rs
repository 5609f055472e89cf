//! Names below the destination that lie on another file system, at or below a mount point: no rename reaches
//! them. A finished file is copied to a private directory beside its place and renamed there.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry::Vacant;
use std::fs::File;

use parking_lot::Mutex;
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{self, AtFlags, FileType, Gid, Mode, OFlags, Timespec, Timestamps, Uid, XattrFlags};
use rustix::io::Errno;

use super::dirs::kind;
use super::entry_error::{Doing, EntryResult};
use super::private::Private;
use super::write::reopen;
use crate::spec::STAGING;
use crate::xattr;

/// Room for the names of all extended attributes of a file, in bytes: the kernel's bound.
const XATTRS: usize = 1 << 16;

/// The name of an entry in the directory beside its place.
pub(super) const NEW: &str = "new";

/// A private directory beside the place of one entry that has to be copied there.
pub(super) fn aside(to: &OwnedFd) -> EntryResult<Private> {
    Private::open(to, &format!("{STAGING}move-{:016x}", rand::random::<u64>()), &|_| false)
}

/// The other file systems that were written to, each by a directory of it.
#[derive(Debug, Default)]
pub(super) struct OtherDevices(Mutex<BTreeMap<u64, OwnedFd>>);

impl OtherDevices {
    pub(super) fn note(&self, dir: &OwnedFd) -> EntryResult {
        let device = fs::fstat(dir).doing("stat")?.st_dev;
        if let Vacant(place) = self.0.lock().entry(device) {
            place.insert(reopen(dir)?);
        }
        Ok(())
    }

    /// Syncs the written data to disk.
    pub(super) fn sync(&self) -> EntryResult {
        self.0.lock().values().try_for_each(|dir| fs::syncfs(dir).doing("sync"))
    }
}

/// The problem text of a hard link that was copied instead.
pub(super) const UNLINKED: &str = "copied, not a hard link: its other name is on another file system";

/// Makes [`NEW`] in `to`, a directory of [`aside`], a copy of `from/name` with all attributes. With `each` it
/// is synced.
pub(super) fn duplicate(from: &OwnedFd, name: &[u8], to: &OwnedFd, each: bool) -> EntryResult {
    let stat = fs::statat(from, name, AtFlags::SYMLINK_NOFOLLOW).doing("stat")?;
    match kind(&stat) {
        FileType::RegularFile => return file(from, name, to, &stat, each),
        FileType::Symlink => {
            let target = fs::readlinkat(from, name, Vec::new()).doing("read")?;
            fs::symlinkat(target, to, NEW).doing("create")?;
        }
        other => fs::mknodat(to, NEW, other, mode(&stat), stat.st_rdev).doing("create")?,
    }
    let (uid, gid) = (Uid::from_raw(stat.st_uid), Gid::from_raw(stat.st_gid));
    fs::chownat(to, NEW, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW).doing("set the owner of")?;
    for (attribute, value) in xattr::at(from, name, true).ok().flatten().into_iter().flatten() {
        xattr::set_at(to, NEW.as_bytes(), &attribute, &value).doing("set attributes of")?;
    }
    if kind(&stat) != FileType::Symlink {
        fs::chmodat(to, NEW, mode(&stat), AtFlags::empty()).doing("set the mode of")?;
    }
    fs::utimensat(to, NEW, &times(&stat), AtFlags::SYMLINK_NOFOLLOW).doing("set the time of")
}

fn file(from: &OwnedFd, name: &[u8], to: &OwnedFd, stat: &fs::Stat, each: bool) -> EntryResult {
    let read = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let source = match fs::openat(from, name, read, Mode::empty()) {
        // A mode of ours that denies all reading.
        Err(Errno::ACCESS) => {
            fs::chmodat(from, name, mode(stat) | Mode::RUSR, AtFlags::empty()).doing("open")?;
            fs::openat(from, name, read, Mode::empty())
        }
        other => other,
    };
    let source = File::from(source.doing("open")?);
    let write = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let target = File::from(fs::openat(to, NEW, write, Mode::RUSR | Mode::WUSR).doing("create")?);
    tidecast_paths::copy(&source, &target).doing("write")?;
    if (stat.st_uid, stat.st_gid) != owner(&target)? {
        let (uid, gid) = (Uid::from_raw(stat.st_uid), Gid::from_raw(stat.st_gid));
        fs::fchown(&target, Some(uid), Some(gid)).doing("set the owner of")?;
    }
    fs::fchmod(&target, mode(stat)).doing("set the mode of")?;
    xattrs(&source, &target).doing("set attributes of")?;
    fs::futimens(&target, &times(stat)).doing("set the time of")?;
    if each { fs::fsync(&target).doing("sync") } else { Ok(()) }
}

/// All extended attributes; empty where the file system does not support any.
fn xattrs(source: &File, target: &File) -> Result<(), Errno> {
    let mut names = vec![0; XATTRS];
    let len = match fs::flistxattr(source, names.as_mut_slice()) {
        Err(Errno::OPNOTSUPP) => return Ok(()),
        other => other?,
    };
    let names = names.get(..len).unwrap_or_default();
    let mut value = vec![0; XATTRS];
    for name in names.split(|&b| b == 0).filter(|name| !name.is_empty()) {
        let len = fs::fgetxattr(source, name, value.as_mut_slice())?;
        fs::fsetxattr(target, name, value.get(..len).unwrap_or_default(), XattrFlags::empty())?;
    }
    Ok(())
}

fn owner(file: impl AsFd) -> EntryResult<(u32, u32)> {
    let stat = fs::fstat(file).doing("stat")?;
    Ok((stat.st_uid, stat.st_gid))
}

fn mode(stat: &fs::Stat) -> Mode {
    Mode::from_raw_mode(stat.st_mode & 0o7777)
}

fn times(stat: &fs::Stat) -> Timestamps {
    let time = |seconds, nanos| Timespec { tv_sec: seconds, tv_nsec: nanos as _ };
    Timestamps {
        last_access: time(0, fs::UTIME_OMIT as u64),
        last_modification: time(stat.st_mtime, stat.st_mtime_nsec),
    }
}
