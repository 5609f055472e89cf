//! Whole trees, by descriptors: without recursion, with few of them open, and never over a mount.

use std::ffi::{OsStr, OsString};
use std::io;
use std::path::Path;

use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{Access, AtFlags, FileType, Mode, OFlags, accessat, fstat, statat, unlinkat};
use rustix::io::Errno;

use crate::entries::entries;
use crate::resolve::{self, How};
use crate::{Descent, Meta, Root, STICKY, descriptor_mode};

/// Times that a directory is emptied again when another process fills it meanwhile.
const TRIES: usize = 16;

const LISTED: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY);

/// Opens a directory to empty it: one of ours that keeps us out is made passable, by its descriptor.
fn enter(at: BorrowedFd<'_>, name: &OsStr, how: How) -> Result<OwnedFd, Errno> {
    let how = How { one_mount: true, ..how };
    match resolve::open(at, Path::new(name), LISTED, Mode::empty(), how) {
        Err(Errno::ACCESS) => {
            let path =
                resolve::open(at, Path::new(name), OFlags::PATH | OFlags::DIRECTORY, Mode::empty(), how)?;
            descriptor_mode::open_closed(&path)
        }
        other => {
            let dir = other?;
            descriptor_mode::make_passable(dir.as_fd())?;
            Ok(dir)
        }
    }
}

/// Removes all in a directory but directories, whose names come back.
fn strip(dir: BorrowedFd<'_>) -> io::Result<Vec<OsString>> {
    let mut below = Vec::new();
    for (name, kind) in entries(dir)? {
        if kind == FileType::Directory || !unlinked(dir, &name)? {
            below.push(name);
        }
    }
    Ok(below)
}

/// Removes a name that is not a directory; false if it is one.
fn unlinked(at: BorrowedFd<'_>, name: &OsStr) -> io::Result<bool> {
    match unlinkat(at, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => Ok(true),
        Err(Errno::ISDIR) => Ok(false),
        Err(Errno::PERM) => match statat(at, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(s) if Meta::of(&s).is_dir() => Ok(false),
            _ => Err(Errno::PERM.into()),
        },
        Err(e) => Err(e.into()),
    }
}

/// Removes a directory with all that is in it.
fn remove_dir(at: BorrowedFd<'_>, name: &OsStr, how: How) -> io::Result<()> {
    let mut tries = 0;
    loop {
        match enter(at, name, how) {
            Ok(dir) => empty(dir, how)?,
            Err(Errno::NOENT) => return Ok(()),
            // It was a directory when it was listed.
            Err(Errno::LOOP | Errno::NOTDIR) if unlinked(at, name)? => return Ok(()),
            Err(Errno::LOOP | Errno::NOTDIR) => {}
            Err(e) => return Err(e.into()),
        }
        tries += 1;
        match unlinkat(at, name, AtFlags::REMOVEDIR) {
            Ok(()) | Err(Errno::NOENT) => return Ok(()),
            Err(Errno::NOTEMPTY | Errno::EXIST | Errno::NOTDIR) if tries < TRIES => {}
            Err(e) => return Err(e.into()),
        }
    }
}

/// Removes all that is in a directory.
fn empty(dir: OwnedFd, how: How) -> io::Result<()> {
    let below = strip(dir.as_fd())?;
    let mut way = Descent::begin(dir, below, ())?;
    loop {
        if let Some(name) = way.next_below() {
            match enter(way.dir()?, &name, how) {
                Ok(dir) => {
                    let below = strip(dir.as_fd())?;
                    way.enter(dir, name, below, ())?;
                }
                Err(Errno::NOENT) => {}
                Err(Errno::LOOP | Errno::NOTDIR) if unlinked(way.dir()?, &name)? => {}
                Err(Errno::LOOP | Errno::NOTDIR) => way.again(name),
                Err(e) => return Err(e.into()),
            }
            continue;
        }
        let Some(left) = way.leave()? else { return Ok(()) };
        let Ok(above) = way.dir() else { return Ok(()) };
        match unlinkat(above, &left.name, AtFlags::REMOVEDIR) {
            // If another process fills or swaps it meanwhile, the final removal reports it.
            Ok(()) | Err(Errno::NOENT | Errno::NOTEMPTY | Errno::EXIST | Errno::NOTDIR) => {}
            Err(e) => return Err(e.into()),
        }
    }
}

/// A directory whose names may be removed, and the directories in it; None where there is nothing to look at.
fn removable(at: BorrowedFd<'_>, name: &OsStr, how: How) -> io::Result<Option<(OwnedFd, Vec<OsString>)>> {
    let how = How { one_mount: true, ..how };
    let open = |flags| resolve::open(at, Path::new(name), flags, Mode::empty(), how);
    let dir = match open(LISTED) {
        Ok(dir) => dir,
        Err(Errno::NOENT | Errno::LOOP | Errno::NOTDIR) => return Ok(None),
        // One of ours is made passable before its names are removed.
        Err(Errno::ACCESS) if Meta::of(&fstat(open(OFlags::PATH)?)?).is_mine() => return Ok(None),
        Err(e) => return Err(e.into()),
    };
    let names = entries(&dir)?;
    let meta = Meta::of(&fstat(&dir)?);
    if !names.is_empty() && !meta.is_mine() {
        accessat(&dir, ".", Access::WRITE_OK | Access::EXEC_OK, AtFlags::EACCESS)?;
    }
    let is_sticky = meta.mode & STICKY != 0 && !meta.is_mine() && !rustix::process::geteuid().is_root();
    let mut below = Vec::new();
    for (name, kind) in names {
        let look = is_sticky || kind == FileType::Unknown;
        let there =
            if look { Some(Meta::of(&statat(&dir, &name, AtFlags::SYMLINK_NOFOLLOW)?)) } else { None };
        if is_sticky && there.is_some_and(|there| !there.is_mine()) {
            return Err(Errno::PERM.into());
        }
        if there.map_or(kind == FileType::Directory, |there| there.is_dir()) {
            below.push(name);
        }
    }
    Ok(Some((dir, below)))
}

impl Root {
    /// Removes the entry of this name, a tree with its contents; a missing one is no error. Directories of
    /// ours that deny us access are made accessible; a mount in the tree is an error and stays.
    ///
    /// # Errors
    /// The system's error; part of the tree may be removed by then.
    pub fn remove_all(&self, path: impl AsRef<Path>) -> io::Result<()> {
        let (dir, name) = match self.parent(path.as_ref()) {
            Err(Errno::NOENT) => return Ok(()),
            other => other?,
        };
        if unlinked(dir.as_fd(), name)? { Ok(()) } else { remove_dir(dir.as_fd(), name, self.how()) }
    }

    /// Whether [`Root::remove_all`] would remove all of a tree, as far as that can be seen; nothing is changed.
    ///
    /// # Errors
    /// The first obstacle: a mount, or a directory of another user in which this one may not remove names.
    pub fn check_removable(&self, path: impl AsRef<Path>) -> io::Result<()> {
        let (at, name) = match self.parent(path.as_ref()) {
            Err(Errno::NOENT) => return Ok(()),
            other => other?,
        };
        let how = self.how();
        let Some((dir, below)) = removable(at.as_fd(), name, how)? else { return Ok(()) };
        let mut way = Descent::begin(dir, below, ())?;
        loop {
            if let Some(name) = way.next_below() {
                if let Some((dir, below)) = removable(way.dir()?, &name, how)? {
                    way.enter(dir, name, below, ())?;
                }
            } else if way.leave()?.is_none() {
                return Ok(());
            }
        }
    }

    /// Removes all that is in a directory, which stays.
    ///
    /// # Errors
    /// As [`Root::remove_all`].
    pub fn clear(&self, path: impl AsRef<Path>) -> io::Result<()> {
        let dir = self.resolve(path.as_ref(), LISTED, Mode::empty())?;
        descriptor_mode::make_passable(dir.as_fd())?;
        empty(dir, self.how())
    }

    /// Calls `each` for all inodes of a tree, once for each name, a directory before its contents. Links are
    /// not followed. Entries that vanish meanwhile are left out.
    ///
    /// # Errors
    /// Errors of the system or of `each`.
    pub fn visit(
        &self,
        path: impl AsRef<Path>,
        each: &mut dyn FnMut(&Meta) -> io::Result<()>,
    ) -> io::Result<()> {
        let Some(top) = self.look(path.as_ref())? else { return Ok(()) };
        each(&top)?;
        if !top.is_dir() {
            return Ok(());
        }
        let dir = match self.resolve(path.as_ref(), LISTED, Mode::empty()) {
            Err(Errno::NOENT) => return Ok(()),
            other => other?,
        };
        let below = visited(dir.as_fd(), each)?;
        let mut way = Descent::begin(dir, below, ())?;
        loop {
            let Some(name) = way.next_below() else {
                match way.leave()? {
                    Some(_) => continue,
                    None => return Ok(()),
                }
            };
            match resolve::open(way.dir()?, Path::new(&name), LISTED, Mode::empty(), self.how()) {
                Ok(dir) => {
                    let below = visited(dir.as_fd(), each)?;
                    way.enter(dir, name, below, ())?;
                }
                Err(Errno::NOENT | Errno::LOOP | Errno::NOTDIR) => {}
                Err(e) => return Err(e.into()),
            }
        }
    }
}

fn visited(dir: BorrowedFd<'_>, each: &mut dyn FnMut(&Meta) -> io::Result<()>) -> io::Result<Vec<OsString>> {
    let mut below = Vec::new();
    for (name, _) in entries(dir)? {
        let meta = match statat(dir, &name, AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) => continue,
            other => Meta::of(&other?),
        };
        each(&meta)?;
        if meta.is_dir() {
            below.push(name);
        }
    }
    Ok(below)
}
