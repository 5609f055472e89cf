//! The rename that gives the data its final name, or the renames over existing names.
//!
//! Each name is replaced atomically: a process that has the old file open keeps it, and after a crash a name leads
//! to the old or to the new file. A directory, which no rename replaces, is exchanged with the new one, and then
//! removed in the staging area.

use std::collections::BTreeSet;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

use rustix::io::Errno;

use crate::disk::Kind;
use crate::error::Error;
use crate::finish::FEW;
use crate::stage;
use crate::store::{Download, Store};

/// Directories that were made passable, with the modes that they had.
pub(crate) type Opened = Vec<(PathBuf, u32)>;

impl Store {
    /// Gives everything its final name; returns the number of replaced names, and directories whose modes must be
    /// restored.
    pub(crate) fn place(&self, dl: &Download, fresh: bool) -> Result<(u64, Opened), Error> {
        let tree = dl.stage.tree();
        // From here on files are opened at the final place; none may be opened in between.
        let _alone = self.moving.write();
        let mut done = (0, Opened::new());
        if fresh {
            let moved = self.disk.rename(&tree, &self.home, false);
            moved.map_err(|e| match e.kind() {
                ErrorKind::AlreadyExists => {
                    Error::Conflict { path: self.path(), why: "it was created during the transfer" }
                }
                _ => self.fail("move into place", &self.home, e),
            })?;
        } else {
            done = self.merge(dl, &tree)?;
        }
        dl.finished.store(true, Ordering::Release);
        self.fds.clear();
        Ok(done)
    }

    /// Over something that is there already: name by name.
    fn merge(&self, dl: &Download, tree: &Path) -> Result<(u64, Opened), Error> {
        let (mut replaced, opened) = self.make_final_dirs(dl, tree)?;
        for file in self.map.files().filter(|f| !dl.in_place.get(*f)) {
            let from = self.map.file_path(tree, file);
            let to = self.map.file_path(&self.home, file);
            let fail = |e| self.fail("move into place", &to, e);
            match self.disk.stat(&to) {
                Ok(meta) if meta.kind == Kind::Dir => {
                    // One of them is counted below, as any name.
                    replaced += self.count(dl, &to).files.saturating_sub(1).cast_signed();
                    self.swap(dl, &from, &to).map_err(fail)?;
                }
                Ok(_) => self.disk.rename(&from, &to, true).map_err(fail)?,
                Err(e) if e.kind() == ErrorKind::NotFound => {
                    self.disk.rename(&from, &to, true).map_err(fail)?;
                    replaced -= 1;
                }
                Err(e) => return Err(fail(e)),
            }
            replaced += 1;
            dl.in_place.set(file);
        }
        Ok((u64::try_from(replaced).unwrap_or(0), opened))
    }

    /// The directories that files are about to move into, durable before the first does: a power cut that kept the
    /// move and lost the directory would lose the file. Existing ones count too, as an earlier run that was killed
    /// may have made them. Anything else in their place is exchanged with the whole new directory.
    fn make_final_dirs(&self, dl: &Download, tree: &Path) -> Result<(i64, Opened), Error> {
        let fail = |op, path: &Path, e| self.fail(op, path, e);
        let (mut replaced, mut opened) = (0, Opened::new());
        let needed = self.needed_dirs();
        for dir in self.manifest.dirs().filter(|d| needed.get(d.index())) {
            let path = dir.path().below(&self.home);
            match self.disk.stat(&path) {
                Ok(meta) if meta.kind == Kind::Dir => {
                    self.may_count(&path, &meta, false)?;
                    // Its owner may change the content of a directory that was delivered read-only.
                    if meta.mine && meta.mode & 0o700 != 0o700 {
                        self.set_attributes(&path, Some(meta.mode | 0o700), None, &[])?;
                        opened.extend(dir.mode().is_none().then(|| (path.clone(), meta.mode)));
                    }
                }
                Ok(_) => {
                    let from = dir.path().below(tree);
                    self.swap(dl, &from, &path).map_err(|e| fail("move into place", &path, e))?;
                    replaced += 1;
                    let inside = |f: &u32| self.map.file_path(&self.home, *f).starts_with(&path);
                    self.map.files().filter(inside).for_each(|f| _ = dl.in_place.set(f));
                }
                Err(e) if e.kind() == ErrorKind::NotFound => {
                    stage::make_dir(&*self.disk, &path).map_err(|e| fail("create", &path, e))?;
                    // Another user may have been faster.
                    let made = self.disk.stat(&path).map_err(|e| fail("stat", &path, e))?;
                    self.may_count(&path, &made, false)?;
                }
                Err(e) => return Err(fail("stat", &path, e)),
            }
        }
        self.sync_parents(dl)?;
        Ok((replaced, opened))
    }

    fn sync_parents(&self, dl: &Download) -> Result<(), Error> {
        let mut dirs = BTreeSet::new();
        for file in self.map.files().filter(|f| !dl.in_place.get(*f)) {
            let to = self.map.file_path(&self.home, file);
            let parents = to.ancestors().skip(1).take_while(|p| p.starts_with(&self.home));
            dirs.extend(parents.map(Path::to_path_buf));
        }
        if !dl.flush.is_durable() {
            return Ok(());
        }
        if dirs.len() > FEW {
            return self.disk.sync_all().map_err(|e| self.fail("sync", &self.home, e));
        }
        dirs.iter().rev().try_for_each(|d| self.disk.sync_dir(d).map_err(|e| self.fail("sync", d, e)))
    }

    /// Exchanges the staged `from` and the existing `to`; the old one is removed.
    ///
    /// They pass through a name of their own in the staging area: the next run must not take the old file for new
    /// data.
    fn swap(&self, dl: &Download, from: &Path, to: &Path) -> io::Result<()> {
        let (disk, aside) = (&self.disk, dl.stage.aside());
        disk.remove_tree(&aside)?;
        let old = disk.stat(to)?;
        if old.kind == Kind::Dir && old.mine && old.mode & 0o700 != 0o700 {
            // A directory that may not be written cannot be moved by its owner.
            disk.set_attributes(
                to,
                &crate::disk::NewAttributes { mode: Some(old.mode | 0o700), ..Default::default() },
            )?;
        }
        disk.rename(from, &aside, false)?;
        let back = |e: io::Error| {
            let _ = disk.rename(&aside, from, false);
            e
        };
        match disk.exchange(&aside, to) {
            Err(e)
                if matches!(
                    Errno::from_io_error(&e),
                    Some(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP)
                ) =>
            {
                // Some network file systems cannot do it in one step.
                let scratch = dl.stage.scratch();
                disk.remove_tree(&scratch).and_then(|()| disk.rename(to, &scratch, false)).map_err(back)?;
                disk.rename(&aside, to, false).map_err(|e| {
                    let _ = disk.rename(&scratch, to, false);
                    back(e)
                })?;
                disk.remove_tree(&scratch)
            }
            other => {
                other.map_err(back)?;
                disk.remove_tree(&aside)
            }
        }
    }
}
