//! A way down into a tree, by descriptors: without recursion, and with few of them open.

use std::ffi::OsString;
use std::io;

use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{Mode, OFlags, fstat, openat};
use rustix::io::Errno;

use crate::Meta;

/// Directories that stay open on the way down; those above are opened again on the way up.
const OPEN: usize = 16;

/// A directory on the path down.
struct Level<T> {
    dir: Option<OwnedFd>,
    id: (u64, u64),
    name: OsString,
    /// Directories in it that are still to be entered, the next one last.
    below: Vec<OsString>,
    with: T,
}

/// A directory that was left.
#[derive(Debug)]
pub struct Left<T> {
    /// The directory.
    pub dir: OwnedFd,
    /// Its name in the one above; empty for the first.
    pub name: OsString,
    /// What it was entered with.
    pub with: T,
}

/// The directories from the first one of a tree to the deepest that has been entered, each with something of the caller's.
pub struct Descent<T> {
    levels: Vec<Level<T>>,
}

impl<T> Descent<T> {
    /// Begins at a directory, in which `below` are to be entered, the last one first.
    ///
    /// # Errors
    /// The system's error.
    pub fn begin(dir: OwnedFd, below: Vec<OsString>, with: T) -> io::Result<Self> {
        let mut way = Self { levels: Vec::new() };
        way.enter(dir, OsString::new(), below, with)?;
        Ok(way)
    }

    /// Enters `dir`, which has this name in the deepest directory.
    ///
    /// # Errors
    /// The system's error.
    pub fn enter(&mut self, dir: OwnedFd, name: OsString, below: Vec<OsString>, with: T) -> io::Result<()> {
        let id = Meta::of(&fstat(&dir)?).id;
        self.levels.push(Level { dir: Some(dir), id, name, below, with });
        let far = self.levels.len().checked_sub(OPEN + 1);
        // The first stays open: the walk began with it.
        if let Some(level) = far.filter(|i| *i > 0).and_then(|i| self.levels.get_mut(i)) {
            level.dir = None;
        }
        Ok(())
    }

    /// The next name to be entered in the deepest directory.
    pub fn next_below(&mut self) -> Option<OsString> {
        self.levels.last_mut()?.below.pop()
    }

    /// Has a name of the deepest directory come again.
    pub fn again(&mut self, name: OsString) {
        if let Some(level) = self.levels.last_mut() {
            level.below.push(name);
        }
    }

    /// The deepest directory.
    ///
    /// # Errors
    /// All were left.
    pub fn dir(&self) -> Result<BorrowedFd<'_>, Errno> {
        self.levels.last().and_then(|level| level.dir.as_ref()).map(AsFd::as_fd).ok_or(Errno::BADF)
    }

    /// What the deepest directory was entered with.
    pub fn with(&mut self) -> Option<&mut T> {
        self.levels.last_mut().map(|level| &mut level.with)
    }

    /// Leaves the deepest directory. The one above is reopened by `..` if need be, and has to be the one
    /// through which the walk descended.
    ///
    /// # Errors
    /// The system's error; a directory was moved meanwhile.
    pub fn leave(&mut self) -> io::Result<Option<Left<T>>> {
        let Some(Level { dir: Some(dir), name, with, .. }) = self.levels.pop() else { return Ok(None) };
        if let Some(above) = self.levels.last_mut().filter(|above| above.dir.is_none()) {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
            let reopened = openat(&dir, "..", flags, Mode::empty())?;
            if Meta::of(&fstat(&reopened)?).id != above.id {
                return Err(io::Error::other("a directory was moved while the tree was being read"));
            }
            above.dir = Some(reopened);
        }
        Ok(Some(Left { dir, name, with }))
    }
}
