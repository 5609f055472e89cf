//! Removes names at the destination, except those that must stay. A tree may be of any depth.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;

use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{self, AtFlags, FileType, Mode};
use rustix::io::Errno;
use tidecast_paths::{Descent, mount_of};

use super::delete::Budget;
use super::dirs::{STEP, kind, set_mode};
use super::entry_error::{Doing, EntryError, EntryResult};
use super::write::reopen;
use crate::overlap::Inode;

/// The permissions that an owner needs to empty a directory.
const OWNER: u32 = 0o700;

/// Keeps a name in a directory under another; the last argument is its path.
type BackUp<'b> = dyn Fn(&OwnedFd, &[u8], &[u8]) -> EntryResult + 'b;

/// A directory that is being emptied.
struct Emptied {
    /// Its mode, if this user was let in by another one.
    mode: Option<u32>,
    /// What kept its list from being read.
    trouble: Option<EntryError>,
}

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
        let (mut path, mut removed) = (path.to_vec(), 0);
        let Some((dir, mode)) = self.open(at.as_fd(), name)? else { return Ok(0) };
        let (below, trouble) = self.strip(&dir, &path, &mut removed);
        let mut way = Descent::begin(dir, below, Emptied { mode, trouble }).doing("open")?;
        loop {
            let length = path.len();
            if let Some(name) = way.next_below() {
                path.push(b'/');
                path.extend_from_slice(name.as_bytes());
                let entered = self.enter(&mut way, name, &path, &mut removed).unwrap_or_else(|trouble| {
                    (self.failed)(&path, trouble);
                    false
                });
                if !entered {
                    path.truncate(length);
                }
                continue;
            }
            let Some(left) = way.leave().doing("open")? else { return Ok(removed) };
            let Ok(above) = way.dir() else {
                return Ok(removed + self.emptied(at.as_fd(), name, &path, &left.dir, left.with)?);
            };
            match self.emptied(above, left.name.as_bytes(), &path, &left.dir, left.with) {
                Ok(gone) => removed += gone,
                Err(trouble) => (self.failed)(&path, trouble),
            }
            path.truncate(length - left.name.len() - 1);
        }
    }

    /// Enters a directory and removes its files, but not its subdirectories; false if the directory stays.
    fn enter(
        &mut self,
        way: &mut Descent<Emptied>,
        name: OsString,
        path: &[u8],
        removed: &mut u64,
    ) -> EntryResult<bool> {
        let above = way.dir().doing("open")?;
        let Some((dir, mode)) = self.open(above, name.as_bytes())? else { return Ok(false) };
        let (below, trouble) = self.strip(&dir, path, removed);
        way.enter(dir, name, below, Emptied { mode, trouble }).doing("stat")?;
        Ok(true)
    }

    /// Opens a directory that is to go, and its mode before this user was let in; None if it stays.
    fn open(&self, at: BorrowedFd<'_>, name: &[u8]) -> EntryResult<Option<(OwnedFd, Option<u32>)>> {
        let found = fs::openat(at, name, STEP, Mode::empty()).doing("open")?;
        let stat = fs::fstat(&found).doing("stat")?;
        if self.spare.contains(&(stat.st_dev, stat.st_ino)) {
            return Err(EntryError::because("remove", "it is a source of this copy"));
        }
        if self.stays.contains(&(stat.st_dev, stat.st_ino)) {
            return Ok(None);
        }
        if mount_of(at).doing("stat")? != mount_of(&found).doing("stat")? {
            return Err(EntryError::because("remove", "a file system is mounted there; unmount it"));
        }
        // A user who owns a directory may remove its contents, if need be after granting themselves access.
        let euid = rustix::process::geteuid();
        let closed = !euid.is_root() && stat.st_uid == euid.as_raw() && stat.st_mode & OWNER != OWNER;
        if closed {
            set_mode(&found, stat.st_mode & 0o7777 | OWNER).doing("set the mode of")?;
        }
        Ok(Some((found, closed.then_some(stat.st_mode & 0o7777))))
    }

    /// Removes a directory whose contents are gone, unless some of them stay; how many names were removed.
    fn emptied(
        &self,
        at: BorrowedFd<'_>,
        name: &[u8],
        path: &[u8],
        dir: &OwnedFd,
        Emptied { mode, trouble }: Emptied,
    ) -> EntryResult<u64> {
        let gone = self.spend(|| match (&trouble, fs::unlinkat(at, name, AtFlags::REMOVEDIR)) {
            (_, Ok(()) | Err(Errno::NOENT)) => Ok(1),
            // It holds names that stay, or whose failed removal was reported.
            (None, Err(Errno::NOTEMPTY | Errno::EXIST)) | (Some(_), Err(_)) => Ok(0),
            (None, Err(e)) => Err(e).doing("remove"),
        });
        if let Ok(gone) = gone {
            self.tell(gone, path, true);
        }
        if let Some(mode) = mode.filter(|_| !matches!(gone, Ok(1))) {
            let _ = set_mode(dir, mode);
        }
        trouble.map_or(gone, Err)
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

    /// Removes what is in a directory.
    fn within(&mut self, dir: &OwnedFd, path: &[u8]) -> EntryResult<u64> {
        let mut removed = 0;
        let (below, trouble) = self.strip(dir, path, &mut removed);
        for name in below.iter().rev().map(|name| name.as_bytes()) {
            removed += self.name(dir, name, &[path, name].join(&b'/'), true);
        }
        trouble.map_or(Ok(removed), Err)
    }

    /// Removes the files in a directory. Returns its subdirectories in reverse order, and the error that kept its list from being read.
    fn strip(
        &mut self,
        dir: &OwnedFd,
        path: &[u8],
        removed: &mut u64,
    ) -> (Vec<OsString>, Option<EntryError>) {
        let mut below = Vec::new();
        let listed = self.strip_into(dir, path, removed, &mut below);
        below.reverse();
        (below, listed.err())
    }

    fn strip_into(
        &mut self,
        dir: &OwnedFd,
        path: &[u8],
        removed: &mut u64,
        below: &mut Vec<OsString>,
    ) -> EntryResult {
        for entry in fs::Dir::new(reopen(dir)?).doing("list")? {
            let entry = entry.doing("list")?;
            let name = entry.file_name().to_bytes();
            if matches!(name, b"." | b"..") {
                continue;
            }
            let inner = [path, name].join(&b'/');
            let is_dir = is_dir(dir, name, entry.file_type());
            if (self.keep)(&inner, is_dir) {
                continue;
            }
            if is_dir {
                // Entered when the list is closed: a deep tree must not need many descriptors.
                below.push(OsStr::from_bytes(name).to_owned());
            } else {
                *removed += self.name(dir, name, &inner, false);
            }
        }
        Ok(())
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

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::fs::File;
    use std::path::Path;

    use rustix::fs::OFlags;

    use super::*;

    /// A directory with directories in it, this many levels deep, and a file in the last.
    fn deep(at: &Path, levels: usize) -> OwnedFd {
        let base = OwnedFd::from(File::open(at).unwrap());
        let mut dir = base.try_clone().unwrap();
        for _ in 0..levels {
            fs::mkdirat(&dir, "d", Mode::from_raw_mode(0o755)).unwrap();
            dir = fs::openat(&dir, "d", STEP, Mode::empty()).unwrap();
        }
        fs::openat(&dir, "f", OFlags::CREATE | OFlags::WRONLY, Mode::from_raw_mode(0o644)).unwrap();
        base
    }

    #[test]
    fn a_tree_of_any_depth_is_removed() {
        let dir = tempfile::tempdir().unwrap();
        let base = deep(dir.path(), 10_000);
        remove_tree(&base, b"d").unwrap();
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[test]
    fn what_stays_keeps_the_directories_above_it() {
        let dir = tempfile::tempdir().unwrap();
        let base = deep(dir.path(), 100);
        std::fs::create_dir_all(dir.path().join("d/d/e/e")).unwrap();
        let (mut failures, gone) = (0, parking_lot::Mutex::new(Vec::new()));
        let note = |path: &[u8], is_dir| gone.lock().push((path.to_vec(), is_dir));
        let mut failed = |_: &[u8], _| failures += 1;
        let mut removal = Removal { keep: &|path, _| path.ends_with(b"/f"), gone: &note, ..all(&mut failed) };
        assert_eq!(removal.tree(&base, b"d", b"d").unwrap(), 2);
        assert_eq!(*gone.lock(), [(b"d/d/e/e".to_vec(), true), (b"d/d/e".to_vec(), true)]);
        assert!(dir.path().join("d/".repeat(100)).join("f").exists());
        assert_eq!(failures, 0);
    }
}
