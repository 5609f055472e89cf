//! Removes names at the destination, except those that must stay.

use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{self, AtFlags, FileType, Mode};
use rustix::io::Errno;
use tidecast_paths::mount_of;

use super::delete::Budget;
use super::dirs::{STEP, kind, set_mode, split};
use super::entry_error::{Doing, EntryError, EntryResult};
use super::write::reopen;
use crate::overlap::Inode;

/// The permissions that an owner needs to empty a directory.
const OWNER: u32 = 0o700;

/// Keeps a name in a directory under another; the last argument is its path.
type BackUp<'b> = dyn Fn(&OwnedFd, &[u8], &[u8]) -> EntryResult + 'b;

/// The rules of a removal.
pub(super) struct Removal<'r> {
    /// Whether a path stays; the second argument tells whether it is a directory. Directories that contain it
    /// stay, too.
    pub(super) keep: &'r dyn Fn(&[u8], bool) -> bool,
    /// Directories that must never be lost, by device and inode.
    pub(super) spare: &'r [Inode],
    /// How many names may go; None: all.
    pub(super) budget: Option<&'r Budget>,
    /// Directories that stay with all that is in them.
    pub(super) stays: &'r [Inode],
    /// Called before a non-directory is removed: it may be kept under another name.
    pub(super) backup: &'r BackUp<'r>,
    /// Called with each removed name, and whether it was a directory.
    pub(super) gone: &'r dyn Fn(&[u8], bool),
    /// Called with each name that could not be removed; the rest is removed all the same.
    pub(super) failed: &'r mut dyn FnMut(&[u8], EntryError),
}

/// Removes all that is in `dir`; the first trouble is the answer.
pub(super) fn remove_all(dir: &OwnedFd, path: &[u8]) -> EntryResult {
    let mut first = None;
    let mut failed = |_: &[u8], trouble| {
        first.get_or_insert(trouble);
    };
    all(&mut failed).within(dir, path)?;
    first.map_or(Ok(()), Err)
}

/// Removes a directory with all that is in it.
pub(super) fn remove_tree(at: &OwnedFd, name: &[u8]) -> EntryResult {
    let mut first = None;
    let mut failed = |_: &[u8], trouble| {
        first.get_or_insert(trouble);
    };
    all(&mut failed).tree(at, name, name)?;
    first.map_or(Ok(()), Err)
}

/// Of everything.
fn all(failed: &mut dyn FnMut(&[u8], EntryError)) -> Removal<'_> {
    let backup = &|_: &OwnedFd, _: &[u8], _: &[u8]| Ok(());
    Removal { keep: &|_, _| false, spare: &[], stays: &[], backup, budget: None, gone: &|_, _| (), failed }
}

impl Removal<'_> {
    /// Removes a name; how many were removed.
    pub(super) fn name(&mut self, at: &OwnedFd, name: &[u8], path: &[u8], is_dir: bool) -> u64 {
        let tried = match is_dir {
            true => self.tree(at, name, path),
            false => self.spend(|| self.file(at, name, path)).inspect(|gone| self.tell(*gone, path, false)),
        };
        tried.unwrap_or_else(|trouble| {
            (self.failed)(path, trouble);
            0
        })
    }

    /// Removes a directory, unless something in it stays; how many names were removed.
    pub(super) fn tree(&mut self, at: &OwnedFd, name: &[u8], path: &[u8]) -> EntryResult<u64> {
        let found = fs::openat(at, name, STEP, Mode::empty()).doing("open")?;
        let stat = fs::fstat(&found).doing("stat")?;
        if self.spare.contains(&(stat.st_dev, stat.st_ino)) {
            return Err(EntryError::because("remove", "it is a source of this copy"));
        }
        if self.stays.contains(&(stat.st_dev, stat.st_ino)) {
            return Ok(0);
        }
        let mount = |fd: &OwnedFd| mount_of(fd).doing("stat");
        if mount(at)? != mount(&found)? {
            return Err(EntryError::because("remove", "a file system is mounted there; unmount it"));
        }
        // A user who owns a directory may remove its contents, if need be after granting themselves access.
        let euid = rustix::process::geteuid();
        let closed = !euid.is_root() && stat.st_uid == euid.as_raw() && stat.st_mode & OWNER != OWNER;
        if closed {
            set_mode(&found, stat.st_mode & 0o7777 | OWNER).doing("set the mode of")?;
        }
        let removed = self.within(&found, path);
        let gone = self.spend(|| match (&removed, fs::unlinkat(at, name, AtFlags::REMOVEDIR)) {
            (_, Ok(()) | Err(Errno::NOENT)) => Ok(1),
            // It holds names that stay, or whose failed removal was reported.
            (Ok(_), Err(Errno::NOTEMPTY | Errno::EXIST)) | (Err(_), Err(_)) => Ok(0),
            (Ok(_), Err(e)) => Err(e).doing("remove"),
        });
        if let Ok(gone) = gone {
            self.tell(gone, path, true);
        }
        if closed && !matches!(gone, Ok(1)) {
            let _ = set_mode(&found, stat.st_mode & 0o7777);
        }
        Ok(removed? + gone?)
    }

    /// Removes one name, if one more may go.
    fn spend(&self, remove: impl FnOnce() -> EntryResult<u64>) -> EntryResult<u64> {
        let Some(budget) = self.budget else { return remove() };
        if !budget.take() {
            return Ok(0);
        }
        let removed = remove();
        if !matches!(removed, Ok(1)) {
            budget.give_back();
        }
        removed
    }

    fn tell(&self, gone: u64, path: &[u8], is_dir: bool) {
        if gone > 0 {
            (self.gone)(path, is_dir);
        }
    }

    fn file(&self, at: &OwnedFd, name: &[u8], path: &[u8]) -> EntryResult<u64> {
        (self.backup)(at, name, path)?;
        match fs::unlinkat(at, name, AtFlags::empty()) {
            Ok(()) => Ok(1),
            Err(Errno::NOENT) => Ok(0),
            Err(e) => Err(e).doing("remove"),
        }
    }

    fn within(&mut self, dir: &OwnedFd, path: &[u8]) -> EntryResult<u64> {
        let (mut removed, mut dirs) = (0, Vec::new());
        for entry in fs::Dir::new(reopen(dir)?).doing("list")? {
            let entry = entry.doing("list")?;
            let name = entry.file_name().to_bytes();
            if matches!(name, b"." | b"..") {
                continue;
            }
            let below = [path, name].join(&b'/');
            let is_dir = is_dir(dir, name, entry.file_type());
            if (self.keep)(&below, is_dir) {
                continue;
            }
            if is_dir {
                // Gone through when the list is closed: a deep tree must not need many descriptors.
                dirs.push(below);
            } else {
                removed += self.name(dir, name, &below, false);
            }
        }
        for below in dirs {
            removed += self.name(dir, split(&below).1, &below, true);
        }
        Ok(removed)
    }
}

/// Whether a listed name is a directory; not every file system reports that in the list.
pub(super) fn is_dir(at: impl AsFd, name: &[u8], listed: FileType) -> bool {
    match listed {
        FileType::Unknown => fs::statat(at, name, AtFlags::SYMLINK_NOFOLLOW)
            .is_ok_and(|stat| kind(&stat) == FileType::Directory),
        known => known == FileType::Directory,
    }
}
