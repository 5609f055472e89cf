//! A user's own directories that are closed to their owner are opened for the copy. Their entries give them their modes at its end;
//! those that have no entry get the mode back that they had.

use std::collections::HashMap;

use parking_lot::Mutex;
use rustix::fd::OwnedFd;
use rustix::fs;

use super::dirs::{Dirs, set_mode, split};
use super::entry_error::{Doing, EntryResult};
use super::{Directory, Writer};
use crate::overlap::Inode;

/// The directories that were opened.
#[derive(Debug, Default)]
pub(super) struct ClosedDirs(Mutex<HashMap<Inode, Closed>>);

#[derive(Debug)]
struct Closed {
    /// The mode that it had.
    mode: u32,
    /// Its path, if it has no entry so far.
    without_entry: Option<Vec<u8>>,
}

impl Directory {
    /// Does something with a name; again, if its directory is closed and can be opened.
    pub(super) fn in_opened<T>(
        &self,
        writer: &mut Writer,
        path: &[u8],
        mut act: impl FnMut(&mut Writer) -> EntryResult<T>,
    ) -> EntryResult<T> {
        match act(writer) {
            Err(trouble) if trouble.is_denied() && self.open_parent(&mut writer.dirs, path).is_ok() => {
                act(writer)
            }
            other => other,
        }
    }

    /// Opens the directory of a name. Its entry may be on the way.
    fn open_parent(&self, dirs: &mut Dirs, path: &[u8]) -> EntryResult {
        let (parent, _) = split(path);
        let dir = dirs.find(parent).doing("open")?;
        self.before.iter().for_each(|before| before.note(dirs, parent));
        self.opened(&dir, Some(parent)).map(drop)
    }

    /// Opens a directory, and returns the mode that it had. `path`: of one whose entry has not come.
    pub(super) fn opened(&self, dir: &OwnedFd, path: Option<&[u8]>) -> EntryResult<u32> {
        let mut closed = self.closed_dirs.0.lock();
        let stat = fs::fstat(dir).doing("stat")?;
        let (inode, mode) = ((stat.st_dev, stat.st_ino), stat.st_mode & 0o7777);
        if let Some(closed) = closed.get_mut(&inode) {
            if path.is_none() {
                closed.without_entry = None;
            }
            return Ok(closed.mode);
        }
        if mode & 0o700 != 0o700 && !self.owners.is_root() && !self.place.fresh {
            set_mode(dir, mode | 0o700).doing("set the mode of")?;
            closed.insert(inode, Closed { mode, without_entry: path.map(<[u8]>::to_vec) });
        }
        Ok(mode)
    }

    /// Closes those again that have no entry, the deepest first.
    pub(super) fn close_dirs(&self, dirs: &mut Dirs) {
        let closed = std::mem::take(&mut *self.closed_dirs.0.lock());
        let left = closed.into_values().filter_map(|closed| Some((closed.without_entry?, closed.mode)));
        let mut left: Vec<_> = left.collect();
        left.sort_unstable_by_key(|(path, _)| std::cmp::Reverse(path.len()));
        for (path, mode) in left {
            let closed = dirs.find(&path).and_then(|dir| set_mode(&*dir, mode));
            if let Err(error) = closed {
                self.problem(&path, format!("cannot set the mode of it: {error}"), true);
            }
        }
    }
}
