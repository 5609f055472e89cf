//! `--delete`: removes names that the sender does not have, except those that the filter excludes.

use std::collections::HashSet;
use std::sync::Arc;

use parking_lot::Mutex;
use rustix::fd::OwnedFd;
use rustix::fs;

use super::ask::lookup_dirs;
use super::backup::Backups;
use super::dirs::Dirs;
use super::entry_error::{Doing, EntryError, EntryResult};
use super::itemize::deleting;
use super::remove::{Removal, is_dir};
use super::stage::PREFIX;
use super::write::reopen;
use super::{Directory, Relaxed};
use crate::error::Error;
use crate::job::Walked;
use crate::overlap::Inode;

/// How many names may be deleted still (None: all), and how many more there were.
#[derive(Debug, Default)]
pub(super) struct Budget(Mutex<(Option<u64>, u64)>);

impl Budget {
    pub(super) fn new(most: Option<u64>) -> Self {
        Self(Mutex::new((most, 0)))
    }

    /// Whether one more may be deleted, which then counts.
    pub(super) fn take(&self) -> bool {
        let mut budget = self.0.lock();
        match &mut budget.0 {
            None => true,
            Some(0) => {
                budget.1 += 1;
                false
            }
            Some(left) => {
                *left -= 1;
                true
            }
        }
    }

    /// It was not deleted.
    pub(super) fn give_back(&self) {
        self.0.lock().0.iter_mut().for_each(|left| *left += 1);
    }

    fn spared(&self) -> u64 {
        self.0.lock().1
    }
}

impl Directory {
    /// Deletes names that the sender does not have, in the directories that it has sent.
    pub(super) fn delete(&self, walked: &Walked) -> Result<(), Error> {
        let Some(named) = &self.named else { return Ok(()) };
        if !walked.complete || walked.failed > 0 {
            self.problem(
                b"",
                "nothing was deleted because parts of the source could not be read".into(),
                false,
            );
            return Ok(());
        }
        let base = self.staging.as_ref().map(|staging| &**staging.base()).or(self.place.base.as_ref());
        let Some(base) = base else { return Ok(()) };
        let mut dirs = lookup_dirs(base).map_err(|t| t.at(self.place.shown.clone()))?;
        let whole = named.has(b"");
        let apart: HashSet<&[u8]> = walked.apart.iter().map(Vec::as_slice).collect();
        let mut stack = vec![Vec::new()];
        while let Some(path) = stack.pop() {
            let is_apart = apart.contains(path.as_slice()) || named.is_apart(&path);
            let only_named = path.is_empty() && !whole || is_apart;
            let tried = self.sweep(&mut dirs, &path, only_named, &mut stack);
            self.or_problem(&path, tried)?;
        }
        let spared = self.budget.spared();
        if spared > 0 {
            let (most, what) = (self.spec.max_delete.unwrap_or(0), "they are not in the source");
            let what =
                format!("{spared} names were not deleted although {what}: --max-delete {most} is reached");
            self.problem(b"", what, true);
        }
        Ok(())
    }

    /// Deletes in one directory; those in it that stay go on the stack.
    fn sweep(&self, dirs: &mut Dirs, path: &[u8], spare: bool, stack: &mut Vec<Vec<u8>>) -> EntryResult {
        let Some(named) = &self.named else { return Ok(()) };
        let at: Arc<OwnedFd> = dirs.find(path).doing("open")?;
        let stat = fs::fstat(&at).doing("stat")?;
        if self.sources.contains(&(stat.st_dev, stat.st_ino)) {
            return Err(EntryError::because("delete in", "it is a source of this copy"));
        }
        if self.backups.as_ref().and_then(Backups::inode) == Some((stat.st_dev, stat.st_ino)) {
            return Ok(());
        }
        for entry in fs::Dir::new(reopen(&at)?).doing("list")? {
            let entry = entry.doing("list")?;
            let name = entry.file_name().to_bytes();
            let ours = path.is_empty() && name.starts_with(PREFIX.as_bytes());
            if matches!(name, b"." | b"..") || ours {
                continue;
            }
            let below = if path.is_empty() { name.to_vec() } else { [path, name].join(&b'/') };
            let is_dir = is_dir(&at, name, entry.file_type());
            if named.has(&below) {
                if is_dir && named.has_dir(&below) {
                    stack.push(below);
                }
            } else if !spare && !self.stays(&below, is_dir) {
                self.remove(&at, name, &below, is_dir);
            }
        }
        Ok(())
    }

    /// Whether a name that the sender does not have is left alone.
    pub(super) fn stays(&self, path: &[u8], is_dir: bool) -> bool {
        if self.filter.leaves_out(path, is_dir)
            || self.backups.as_ref().is_some_and(|made| made.has_made(path))
        {
            return true;
        }
        let doubtful = self.is_doubtful(path, is_dir);
        if doubtful {
            let what = "not deleted: a pattern that starts with / is matched from the top of the copy, which holds the contents of \
                        another source; start it with the name of this source to keep it, or leave out the leading /";
            self.problem(path, what.into(), true);
        }
        doubtful
    }

    /// Where contents and named directories are merged at the top (`a/ b`), a pattern such as `/cache`
    /// applies to `a/cache`, as with rsync. A user who means `b/cache` would lose data, so such names are
    /// reported and kept.
    fn is_doubtful(&self, path: &[u8], is_dir: bool) -> bool {
        let Some(slash) = path.iter().position(|b| *b == b'/') else { return false };
        let (name, below) = (&path[..slash], &path[slash + 1..]);
        self.spec.offer.mixed.iter().any(|mixed| mixed == name) && self.filter.leaves_out_below(below, is_dir)
    }

    /// Removes a name with its contents, except names that the filter leaves out; a dry run only reports it.
    /// A failure does not stop the removal of the rest.
    pub(super) fn remove(&self, at: &OwnedFd, name: &[u8], path: &[u8], is_dir: bool) {
        let mut failed = |path: &[u8], EntryError { doing, error }| {
            self.problem(path, format!("cannot {doing} it: {error}"), true)
        };
        if self.spec.dry_run {
            if let Err(trouble) = self.would_remove(at, name, path, is_dir) {
                failed(path, trouble);
            }
            return;
        }
        let keep = |path: &[u8], is_dir| self.stays(path, is_dir);
        let (spare, budget) = (self.sources.as_slice(), Some(&self.budget));
        let stays: Vec<Inode> = self.backups.as_ref().and_then(Backups::inode).into_iter().collect();
        let backup = |at: &OwnedFd, name: &[u8], path: &[u8]| match &self.backups {
            Some(backups) if backups.keeps(name) => self.back_up(at, name, path).map(drop),
            _ => Ok(()),
        };
        let gone = |path: &[u8], is_dir: bool| {
            self.change_done(path, "delete", self.before.as_ref().map(|_| deleting(path, is_dir)));
        };
        let failed = &mut failed;
        let mut removal =
            Removal { keep: &keep, spare, stays: &stays, backup: &backup, budget, gone: &gone, failed };
        let removed = removal.name(at, name, path, is_dir);
        self.counts.deleted.fetch_add(removed, Relaxed);
    }
}
