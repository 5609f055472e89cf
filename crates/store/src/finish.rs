//! The last step of a download: restores metadata that BitTorrent does not carry, and gives the data its final
//! name.
//!
//! In this order, so that a crash at any instant leaves either the old state or the new one, and the next run
//! continues: everything in the staging area is completed and made durable; the record lists the files about to be
//! placed; then one rename (or, over existing names, one rename per file, `place.rs`); files that are no part of
//! the data are removed or counted (`stale.rs`); the record lists the placed files; then the staging area is
//! removed. Metadata that the file system or the user's rights do not allow is a warning.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

use tidecast_metainfo::{FileRef, Mtime};

use crate::disk::{How, Meta, NewAttributes};
use crate::error::Error;
use crate::record::DestinationLock;
use crate::stage;
use crate::stale::Stale;
use crate::store::{Download, Mode, Store};

/// Most warnings kept; the rest are counted.
const WARNINGS: usize = 50;
/// Up to this many files are synced one by one.
pub(crate) const FEW: usize = 16;
/// Only attributes of this kind are restored: others mean rights, which data must not bring along.
const USER: &[u8] = b"user.";

/// The result of a finished download.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Where it is.
    pub path: PathBuf,
    /// Files, links included.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Files that were at their place already and right.
    pub kept: u64,
    /// Nothing was at the final place before.
    pub fresh: bool,
    /// Names that stood for something else before, and were replaced.
    pub replaced: u64,
    /// Of those: files that the record did not know ([`Replace::unknown`](crate::Replace::unknown)).
    pub replaced_foreign: u64,
    /// Files in the tree that are no part of the data: those that stay, and those that were removed.
    pub stale: u64,
    /// Of those that stay: files that this program did not put there.
    pub foreign: u64,
    /// See `stale`.
    pub deleted: u64,
    /// Metadata that could not be restored, and the like; the data is complete all the same.
    pub warnings: Vec<String>,
}

/// Warnings, a bounded number of them.
#[derive(Default)]
struct Warnings {
    said: Vec<String>,
    more: usize,
}

impl Warnings {
    fn add(&mut self, warnings: impl IntoIterator<Item = String>) {
        for warning in warnings {
            if self.said.len() < WARNINGS {
                self.said.push(warning);
            } else {
                self.more += 1;
            }
        }
    }

    fn all(mut self) -> Vec<String> {
        if self.more > 0 {
            self.said.push(format!("and {} more", self.more));
        }
        self.said
    }
}

impl Store {
    /// Restores metadata and gives the data its final name. To be called when [`Store::missing`] is 0; may be
    /// called again after an error. The store serves from the final place afterwards.
    ///
    /// # Errors
    /// [`Error::Incomplete`]; an obstacle at the final place; the disk's error.
    pub fn finish(&self) -> Result<Summary, Error> {
        let mut summary = Summary { path: self.path(), ..Summary::default() };
        for file in self.map.files() {
            summary.files += 1;
            summary.bytes += self.map.file_len(file);
        }
        let dl = match &self.mode {
            Mode::Download(dl) if !dl.finished.load(Ordering::Acquire) => dl,
            _ => return Ok(summary),
        };
        if self.missing() > 0 {
            return Err(Error::Incomplete { missing: self.missing() });
        }
        // A crash from here on costs nothing that arrived.
        self.sync()?;
        // From here on no other process changes the existing files, which are checked again.
        let _lock = self.lock_destination(dl)?;
        let mut warnings = Warnings::default();
        self.complete(dl)?;
        summary.kept = self.map.files().filter(|f| dl.in_place.get(*f)).count() as u64;
        self.set_file_attributes(dl, &mut warnings)?;
        self.link_files(dl, &mut warnings)?;
        summary.fresh = self.absent(&self.home)?;
        if summary.fresh {
            // The root last: a directory that may not be written cannot be renamed by its owner.
            self.set_dir_attributes(dl, &dl.stage.tree(), true, &mut warnings)?;
        } else {
            summary.replaced_foreign = self.judge(dl)?;
        }
        self.make_final_durable(dl)?;
        warnings.add(self.record_plan(dl, summary.fresh));
        let stale = self.put(dl, &mut summary, &mut warnings)?;
        self.sync_final(dl, summary.fresh)?;
        self.stamp_all();
        warnings.add(self.record_done(dl, &stale));
        if let Err(e) = dl.stage.remove(&*self.disk) {
            let at = self.disk.root().join(dl.stage.dir());
            warnings.add([format!("{}: cannot remove the staging area: {e}", at.display())]);
        }
        summary.warnings = warnings.all();
        match stale.failed {
            Some(error) => Err(error),
            None => Ok(summary),
        }
    }

    /// The right to write to the destination, which another process may have for now.
    fn lock_destination(&self, dl: &Download) -> Result<Option<DestinationLock>, Error> {
        let goes_on = |lock: &Path| {
            let mut wait = dl.wait.lock();
            wait.lock.get_or_insert_with(|| lock.to_owned());
            !wait.ended
        };
        let locked = dl.record.read().lock_destination(goes_on);
        dl.wait.lock().lock = None;
        locked.map_err(|lock| Error::Waited { path: self.path(), lock })
    }

    /// The lock that [`Store::finish`] waits for, if it does.
    pub fn waits_for(&self) -> Option<PathBuf> {
        let Mode::Download(dl) = &self.mode else { return None };
        dl.wait.lock().lock.clone()
    }

    /// Ends a wait of [`Store::finish`] for another process, now or later. Placing files is not interrupted.
    pub fn stop_waiting(&self) {
        if let Mode::Download(dl) = &self.mode {
            dl.wait.lock().ended = true;
        }
    }

    /// Puts the data at its final place, and removes or counts other files there.
    fn put(&self, dl: &Download, summary: &mut Summary, warnings: &mut Warnings) -> Result<Stale, Error> {
        let fresh = summary.fresh;
        let (replaced, opened) = self.place(dl, fresh)?;
        summary.replaced = replaced;
        let stale = if fresh { Stale::default() } else { self.clear_stale(dl)? };
        (summary.stale, summary.foreign, summary.deleted) = (stale.left, stale.foreign, stale.deleted);
        self.set_dir_attributes(dl, &self.home, !fresh, warnings)?;
        for (path, mode) in opened {
            warnings.add(self.set_attributes(&path, Some(mode), None, &[])?);
        }
        Ok(stale)
    }

    pub(crate) fn absent(&self, path: &Path) -> Result<bool, Error> {
        match self.disk.stat(path) {
            Ok(_) => Ok(false),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(true),
            Err(e) => Err(self.fail("stat", path, e)),
        }
    }

    /// Creates everything that no block created: empty files, files of zeros (missing data reads as zeros, so their
    /// pieces may be right without them), empty directories. A file in place that is too long is copied; one that
    /// changed since it was checked is rejected.
    fn complete(&self, dl: &Download) -> Result<(), Error> {
        let tree = dl.stage.tree();
        for file in self.plain_files() {
            let (index, len) = (file.index(), file.len());
            let path = self.file_path(index);
            if dl.in_place.get(index) {
                let open = self.disk.open(&path, How::Read);
                let open = open.map_err(|e| self.fail("open", &path, e))?;
                self.unchanged(index, &*open)?;
                let meta = open.meta().map_err(|e| self.fail("stat", &path, e))?;
                if meta.stamp.size != len {
                    self.promote(dl, index)?;
                } else if self.shows_elsewhere(dl, file, &path, &meta) {
                    self.copy_out(dl, index)?;
                }
            } else if self.absent(&path)? {
                dl.flush.created(index);
                let made = dl.stage.create(&*self.disk, &path).and_then(|f| f.set_len(len));
                made.map_err(|e| self.fail("create", &path, e))?;
                dl.flush.touched(index);
            }
        }
        if self.map.is_whole() {
            for dir in self.manifest.dirs() {
                let path = dir.path().below(&tree);
                let made = stage::make_dir(&*self.disk, &path)
                    .and_then(|()| self.disk.stat(&path))
                    .map_err(|e| self.fail("create", &path, e))?;
                // A finish that was interrupted may have taken the right to write away.
                if made.mode & 0o700 != 0o700 {
                    self.set_attributes(&path, Some(made.mode | 0o700), None, &[])?;
                }
            }
        }
        Ok(())
    }

    /// Whether new attributes of a file would also show under other names of it, which are the user's. Where we put the
    /// file, its other names are hard links of the data, or were made after.
    fn shows_elsewhere(&self, dl: &Download, file: FileRef<'_>, path: &Path, meta: &Meta) -> bool {
        let mode = match file.mode() {
            Some(mode) => mode & 0o777 & !dl.withheld != meta.mode & 0o7777,
            None => file.is_executable() && (meta.mode & 0o444) >> 2 & !meta.mode != 0,
        };
        let time = file.mtime().is_some_and(|t| (t.secs, t.nanos) != (meta.stamp.mtime, meta.stamp.nanos));
        let differs = mode || time || file.xattrs().next().is_some();
        meta.links > 1 && differs && !self.is_recorded(dl, path, meta)
    }

    /// The selected files that are not symbolic links.
    pub(crate) fn plain_files(&self) -> impl Iterator<Item = FileRef<'_>> {
        self.map.files().filter_map(|f| self.manifest.file(f)).filter(|f| !f.is_symlink())
    }

    fn set_file_attributes(&self, dl: &Download, warnings: &mut Warnings) -> Result<(), Error> {
        for file in self.plain_files() {
            let path = self.file_path(file.index());
            let mode = match file.mode() {
                Some(mode) => Some(self.permissions(dl, mode, false, &path, warnings)),
                None if file.is_executable() => {
                    let meta = self.disk.stat(&path).map_err(|e| self.fail("stat", &path, e))?;
                    // The right to read implies the right to execute, so the user's umask applies.
                    Some(meta.mode | (meta.mode & 0o444) >> 2)
                }
                None => None,
            };
            if dl.in_place.get(file.index())
                && let Some(stamp) = self.stamps.write().get_mut(file.index() as usize)
            {
                // Its time changes now, by our own hand.
                *stamp = None;
            }
            let xattrs = self.attributes(file.xattrs(), &path, warnings);
            let done = self.set_attributes(&path, mode, file.mtime(), &xattrs)?;
            warnings.add(done);
        }
        Ok(())
    }

    fn set_dir_attributes(
        &self,
        dl: &Download,
        root: &Path,
        whole: bool,
        warnings: &mut Warnings,
    ) -> Result<(), Error> {
        // Children first: making an entry changes the time of its directory. After a rename of the
        // whole tree only its root is left to do.
        let dirs: Vec<_> = self.manifest.dirs().collect();
        for dir in dirs.into_iter().rev() {
            let path = dir.path().below(root);
            let is_root = dir.index() == 0;
            let skip = if whole { is_root && root != self.home } else { !is_root };
            if skip || (!self.map.is_whole() && self.absent(&path)?) {
                continue;
            }
            let mode = dir.mode().map(|m| self.permissions(dl, m, true, &path, warnings));
            let xattrs = self.attributes(dir.xattrs(), &path, warnings);
            let done = self.set_attributes(&path, mode, dir.mtime(), &xattrs)?;
            warnings.add(done);
        }
        Ok(())
    }

    pub(crate) fn set_attributes(
        &self,
        path: &Path,
        mode: Option<u32>,
        mtime: Option<Mtime>,
        xattrs: &[(Vec<u8>, Vec<u8>)],
    ) -> Result<Vec<String>, Error> {
        let mtime = mtime.map(|t| (t.secs, t.nanos));
        if mode.is_none() && mtime.is_none() && xattrs.is_empty() {
            return Ok(Vec::new());
        }
        let done = self.disk.set_attributes(path, &NewAttributes { mode, mtime, xattrs });
        let done = done.map_err(|e| self.fail("set the metadata of", path, e))?;
        Ok(done.into_iter().map(|warning| format!("{}: {warning}", self.shown(path))).collect())
    }

    /// A path of the staging area or of the final place, as it will be found there.
    fn shown(&self, path: &Path) -> String {
        let below = match &self.mode {
            Mode::Download(dl) => path.strip_prefix(dl.stage.tree()).ok(),
            Mode::Seed(_) => None,
        };
        let last =
            below.map(
                |below| if below.as_os_str().is_empty() { self.home.clone() } else { self.home.join(below) },
            );
        self.disk.root().join(last.as_deref().unwrap_or(path)).display().to_string()
    }

    /// The restored part of a recorded mode: no rights beyond reading, writing and executing, and none that are withheld. The
    /// sticky bit of directories is kept, as it gives no right.
    fn permissions(
        &self,
        dl: &Download,
        mode: u32,
        is_dir: bool,
        path: &Path,
        warnings: &mut Warnings,
    ) -> u32 {
        let (kept, lost) = match is_dir {
            true => (mode & 0o1777, "set-id bits"),
            false => (mode & 0o777, "set-id and sticky bits"),
        };
        let given = kept & !dl.withheld;
        if kept != mode {
            let at = self.shown(path);
            warnings.add([format!("{at}: mode {mode:04o} becomes {given:04o}: {lost} are not restored")]);
        }
        given
    }

    fn attributes<'a>(
        &self,
        all: impl Iterator<Item = (&'a [u8], &'a [u8])>,
        path: &Path,
        warnings: &mut Warnings,
    ) -> Vec<(Vec<u8>, Vec<u8>)> {
        let (mut user, mut others) = (Vec::new(), 0);
        for (name, value) in all {
            if name.starts_with(USER) {
                user.push((name.to_vec(), value.to_vec()));
            } else {
                others += 1;
            }
        }
        if others > 0 {
            warnings.add([format!("{}: {others} attributes outside `user.` not restored", self.shown(path))]);
        }
        user
    }

    /// Hard links and symbolic links, in the staging area.
    fn link_files(&self, dl: &Download, warnings: &mut Warnings) -> Result<(), Error> {
        let tree = dl.stage.tree();
        let scratch = dl.stage.scratch();
        for file in self.map.files().filter_map(|f| self.manifest.file(f)) {
            let path = self.map.file_path(&tree, file.index());
            if let Some(target) = file.symlink() {
                if dl.in_place.get(file.index()) {
                    let path = self.map.file_path(&self.home, file.index());
                    warnings.add(self.set_attributes(&path, None, file.mtime(), &[])?);
                    continue;
                }
                self.disk
                    .remove_tree(&path)
                    .and_then(|()| stage::make_parents(&*self.disk, &path))
                    .and_then(|()| self.disk.symlink(Path::new(OsStr::from_bytes(&target)), &path))
                    .map_err(|e| self.fail("create the symbolic link", &path, e))?;
                let done = self.set_attributes(&path, None, file.mtime(), &[])?;
                warnings.add(done);
            }
            // Both have the content, each verified for itself; from here on they share it.
            let Some(first) = file.hard_link().filter(|f| self.map.is_selected(*f)) else { continue };
            // Hard links of the manifest are made only if the hashes agree.
            if dl.in_place.get(file.index()) || !self.manifest.same_content(file.index(), first) {
                continue;
            }
            let linked = self
                .disk
                .remove_tree(&scratch)
                .and_then(|()| self.disk.link(&self.file_path(first), &scratch))
                .and_then(|()| self.disk.rename(&scratch, &path, true))
                .and_then(|()| self.disk.remove_tree(&scratch));
            if let Err(e) = linked {
                warnings.add([format!("{}: cannot create a hard link, made a copy: {e}", self.shown(&path))]);
            }
            self.fds.forget(file.index());
        }
        Ok(())
    }

    /// All of the staging area, metadata too.
    fn make_final_durable(&self, dl: &Download) -> Result<(), Error> {
        if !dl.flush.is_durable() {
            return Ok(());
        }
        let fail = |path: &Path, e| self.fail("sync", path, e);
        if self.map.files().nth(FEW).is_some() || self.manifest.dirs().len() > FEW {
            return self.disk.sync_all().map_err(|e| fail(&dl.stage.dir(), e));
        }
        let mut dirs = std::collections::BTreeSet::from([dl.stage.dir()]);
        for file in self.plain_files().filter(|f| !dl.in_place.get(f.index())) {
            let path = self.file_path(file.index());
            let synced = self.disk.open(&path, How::Read).and_then(|f| f.sync(true));
            synced.map_err(|e| fail(&path, e))?;
            dirs.extend(dl.stage.parents(&path).map(Path::to_path_buf));
        }
        let tree = dl.stage.tree();
        if self.map.is_whole() {
            dirs.extend(self.manifest.dirs().map(|d| d.path().below(&tree)));
        }
        // Deepest first, so that no durable name leads to nothing.
        dirs.iter().rev().try_for_each(|d| self.disk.sync_dir(d).map_err(|e| fail(d, e)))
    }

    fn sync_final(&self, dl: &Download, fresh: bool) -> Result<(), Error> {
        if !dl.flush.is_durable() {
            return Ok(());
        }
        if !fresh {
            return self.disk.sync_all().map_err(|e| self.fail("sync", &self.home, e));
        }
        if !self.manifest.is_single_file() {
            self.disk.sync_dir(&self.home).map_err(|e| self.fail("sync", &self.home, e))?;
        }
        self.disk.sync_dir(Path::new("")).map_err(|e| self.fail("sync", Path::new(""), e))
    }

    /// Records the current state of the files, so that a later change is noticed.
    fn stamp_all(&self) {
        let mut stamps = self.stamps.write();
        for file in self.plain_files() {
            let path = self.map.file_path(&self.home, file.index());
            if let Some(slot) = stamps.get_mut(file.index() as usize) {
                *slot = self.disk.stat(&path).ok().map(|m| m.stamp);
            }
        }
    }
}
