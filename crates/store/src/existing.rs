//! Existing files at the final place: used as far as they verify, never destroyed before the new data is complete,
//! and replaced only if they are a former version or the user forces it.
//!
//! Existing files are read in place. The first write to one copies it into the staging area (sharing blocks where
//! the file system can), so the user's own file stays unchanged until `finish`.
//!
//! The rule is applied as early as possible: by kind, record and size at the start, by content as soon as a piece
//! differs, and again before the first name is replaced.

use std::collections::BTreeSet;
use std::io::{self, ErrorKind};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use tidecast_hash::{Digest, LEAF};
use tidecast_metainfo::{FileRef, merkle};
use tidecast_paths::{OTHERS_WRITE, PageBuffer};

use crate::bits::Bits;
use crate::disk::{DiskFile, How, Kind, Meta};
use crate::error::{Context, Error, MOUNT};
use crate::map::Place;
use crate::record;
use crate::store::{CHANGED, Download, Mode, Store};

const OTHER: &str = "no record shows that an earlier bcast or get put it there, or it has changed since; replace it with \
                     --force, or choose another destination";
const EDITED: &str = "it has changed since bcast or get put it there; replace it with --force, or choose another \
                       destination";
const TREE: &str = "the directory contains other things; add the tree to them with --force, or choose another \
                     destination";
const DIR: &str = "found a directory instead of a file; remove it or choose another destination (--force does not \
                    remove the destination itself if it is a directory)";
const SPECIAL: &str = "it is a device, a pipe or a socket; remove it or choose another destination (--force does \
                       not replace it)";

/// Bytes of a file in one node of the layer that [`Store::root_of`] keeps.
const NODE: u32 = 1 << 20;

/// Something at the final place that has a name of the manifest.
pub(crate) struct Standing {
    /// Relative to the disk's root.
    pub(crate) path: PathBuf,
    pub(crate) meta: Meta,
    /// The file that belongs there; `None` where a directory does.
    pub(crate) file: Option<u32>,
}

/// Finds the selected files at the final place, and rejects obstacles.
pub(crate) fn survey(store: &Store, dl: &Download) -> Result<(), Error> {
    let at = || store.disk.root().join(&store.home);
    let (all, known) = store.standing()?;
    let Some(top) = all.first() else { return Ok(()) };
    let other_tree = top.file.is_none() && top.meta.kind == Kind::Dir && !known && !dl.replace.force;
    let ours = dl.record.read().holds(record::tree());
    if other_tree && !ours && !store.disk.list(&store.home).at("list", &at())?.is_empty() {
        return Err(Error::Foreign { path: at(), why: TREE });
    }
    for standing in &all {
        let counts = store.may_count(&standing.path, &standing.meta, dl.replace.force)?;
        let file = standing.file.and_then(|f| store.manifest.file(f));
        match (standing.meta.kind, file) {
            (Kind::Dir, None) => {}
            _ if !counts => {}
            (Kind::File, Some(file)) if !file.is_symlink() => store.survey_file(dl, standing, file)?,
            (Kind::Symlink, Some(file)) if store.is_same_link(&standing.path, file)? => {
                dl.in_place.set(file.index());
            }
            _ => _ = store.may_replace(dl, &standing.path, &standing.meta, is_plain(file))?,
        }
    }
    // Files in place are judged again if they differ later; all others will certainly be moved there.
    store.refuse_mounts(dl, &all)
}

/// Whether it is a regular file that belongs at a name.
fn is_plain(file: Option<FileRef<'_>>) -> bool {
    file.is_some_and(|file| !file.is_symlink())
}

/// The right to replace a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Right {
    /// It is a former version, or the user forces it.
    Known,
    /// The record has never known a file there ([`Replace::unknown`](crate::Replace::unknown)).
    Unknown,
}

impl Store {
    /// Existing names of the manifest, directories before their content, and whether any of its files' names
    /// exists, selected or not.
    pub(crate) fn standing(&self) -> Result<(Vec<Standing>, bool), Error> {
        let (mut all, mut known) = (Vec::new(), false);
        let look = |path: &Path| match self.disk.stat(path) {
            Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
            other => other.map(Some).at("stat", &self.disk.root().join(path)),
        };
        let (needed, open) = (self.needed_dirs(), Bits::new(self.manifest.dirs().len() as u32));
        for dir in self.manifest.dirs().filter(|d| d.parent().is_none_or(|p| open.get(p))) {
            let path = dir.path().below(&self.home);
            let Some(meta) = look(&path)? else { continue };
            if meta.kind == Kind::Dir {
                open.set(dir.index());
            }
            if needed.get(dir.index()) {
                all.push(Standing { path, meta, file: None });
            }
        }
        for file in self.manifest.files().filter(|f| f.dir().is_none_or(|d| open.get(d))) {
            let path = file.path().below(&self.home);
            let Some(meta) = look(&path)? else { continue };
            known = true;
            if self.map.is_selected(file.index()) {
                all.push(Standing { path, meta, file: Some(file.index()) });
            }
        }
        Ok((all, known))
    }

    /// The directories of the selection: all of them, or those on the paths of its files.
    pub(crate) fn needed_dirs(&self) -> Bits {
        let needed = Bits::new(self.manifest.dirs().len() as u32);
        if self.map.is_whole() {
            self.manifest.dirs().for_each(|d| _ = needed.set(d.index()));
            return needed;
        }
        for file in self.map.files().filter_map(|f| self.manifest.file(f)) {
            let mut at = file.dir();
            while let Some(dir) = at.filter(|d| needed.set(*d)) {
                at = self.manifest.dir(dir).and_then(|d| d.parent());
            }
        }
        needed
    }

    /// A file exists where a file belongs.
    fn survey_file(&self, dl: &Download, standing: &Standing, file: FileRef<'_>) -> Result<(), Error> {
        let Standing { path, meta, .. } = standing;
        let staged = self.disk.stat(&self.map.file_path(&dl.stage.tree(), file.index())).is_ok();
        let recorded = self.is_recorded(dl, path, meta);
        if recorded {
            dl.ours.set(file.index());
        }
        let former = dl.replace.force || recorded;
        if meta.stamp.size != file.len() {
            if former { self.refuse_mount(path)? } else { _ = self.may_replace(dl, path, meta, true)? }
        } else if !former {
            dl.foreign.set(file.index());
        }
        // A newer staged copy counts from here on.
        if !staged {
            dl.in_place.set(file.index());
            if let Some(slot) = self.stamps.write().get_mut(file.index() as usize) {
                *slot = Some(meta.stamp);
            }
        }
        Ok(())
    }

    fn is_same_link(&self, path: &Path, file: FileRef<'_>) -> Result<bool, Error> {
        let Some(wanted) = file.symlink() else { return Ok(false) };
        let text = self.disk.read_link(path).at("read the link", &self.disk.root().join(path))?;
        Ok(text.as_bytes() == wanted.as_ref())
    }

    /// The right to replace an existing name. `by_file`: a regular file belongs there.
    ///
    /// # Errors
    /// [`Error::Foreign`] if it may not.
    pub(crate) fn may_replace(
        &self,
        dl: &Download,
        path: &Path,
        meta: &Meta,
        by_file: bool,
    ) -> Result<Right, Error> {
        let refuse = |why| Err(Error::Foreign { path: self.disk.root().join(path), why });
        self.refuse_mount(path)?;
        match meta.kind {
            Kind::Other => refuse(SPECIAL),
            Kind::Dir => self.may_replace_dir(dl, path).map(|()| Right::Known),
            Kind::File | Kind::Symlink if dl.replace.force || self.is_former(dl, path, meta)? => {
                Ok(Right::Known)
            }
            Kind::File if dl.replace.unknown && by_file && !self.was_put(dl, path) => Ok(Right::Unknown),
            Kind::File if self.was_put(dl, path) => refuse(EDITED),
            Kind::File | Kind::Symlink => refuse(OTHER),
        }
    }

    /// No file is moved onto a mount point, or into a file system mounted at a directory that stays.
    fn refuse_mounts(&self, dl: &Download, all: &[Standing]) -> Result<(), Error> {
        let mut mounted = Vec::new();
        for dir in all.iter().filter(|s| s.meta.kind == Kind::Dir) {
            if self.crosses_mount(&dir.path)? {
                mounted.push(&dir.path);
            }
        }
        let moves = |file: &u32| !dl.in_place.get(*file);
        for file in self.map.files().filter(|file| !mounted.is_empty() && moves(file)) {
            let path = self.map.file_path(&self.home, file);
            if let Some(dir) = mounted.iter().find(|dir| path.starts_with(dir)) {
                return self.refuse_mount(dir);
            }
        }
        Ok(())
    }

    /// Rejects a name on another mount than the final place, and names the mount point.
    fn refuse_mount(&self, path: &Path) -> Result<(), Error> {
        if !self.crosses_mount(path)? {
            return Ok(());
        }
        let mut at = path;
        while let Some(above) = at.parent().filter(|p| p.starts_with(&self.home)) {
            if !self.crosses_mount(above)? {
                break;
            }
            at = above;
        }
        Err(Error::Foreign { path: self.disk.root().join(at), why: MOUNT })
    }

    fn crosses_mount(&self, path: &Path) -> Result<bool, Error> {
        self.disk.crosses_mount(path).at("stat", &self.disk.root().join(path))
    }

    /// A directory is replaced by a file, with its content.
    fn may_replace_dir(&self, dl: &Download, top: &Path) -> Result<(), Error> {
        let full = |path: &Path| self.disk.root().join(path);
        let ours = |path: &Path| dl.record.read().holds(record::dir(self.below_home(path)));
        let is_home = top == self.home;
        if is_home && !ours(top) {
            return Err(Error::Foreign { path: full(top), why: DIR });
        }
        let force = dl.replace.force && !is_home;
        let mut dirs = vec![top.to_path_buf()];
        while let Some(dir) = dirs.pop() {
            if !ours(&dir) && !force {
                return Err(Error::Foreign { path: full(&dir), why: OTHER });
            }
            for name in self.disk.list(&dir).at("list", &full(&dir))? {
                let path = dir.join(name);
                let inner = self.disk.stat(&path).at("stat", &full(&path))?;
                self.refuse_mount(&path)?;
                match inner.kind {
                    Kind::Dir => dirs.push(path),
                    _ if force => {}
                    _ => self.former_or_refuse(dl, &path, &inner)?,
                }
            }
        }
        Ok(())
    }

    fn former_or_refuse(&self, dl: &Download, path: &Path, meta: &Meta) -> Result<(), Error> {
        if self.is_former(dl, path, meta)? {
            return Ok(());
        }
        Err(Error::Foreign { path: self.disk.root().join(path), why: OTHER })
    }

    /// A path relative to the final place.
    pub(crate) fn below_home<'p>(&self, path: &'p Path) -> &'p Path {
        path.strip_prefix(&self.home).unwrap_or(path)
    }

    /// Whether it is as we left it, by the look of it.
    pub(crate) fn is_recorded(&self, dl: &Download, path: &Path, meta: &Meta) -> bool {
        dl.record.read().holds(record::state(self.below_home(path), meta))
    }

    /// Whether this program has put a file at this name, whatever exists there now.
    fn was_put(&self, dl: &Download, path: &Path) -> bool {
        dl.record.read().holds(record::name(self.below_home(path)))
    }

    /// Whether this program put it there. Another process may have done so since the record was read.
    fn is_former(&self, dl: &Download, path: &Path, meta: &Meta) -> Result<bool, Error> {
        Ok(self.is_in_record(dl, path, meta)?
            || dl.record.write().reload() && self.is_in_record(dl, path, meta)?)
    }

    /// By the look of it or else by its content.
    fn is_in_record(&self, dl: &Download, path: &Path, meta: &Meta) -> Result<bool, Error> {
        if self.is_recorded(dl, path, meta) {
            return Ok(true);
        }
        if dl.record.read().is_empty() {
            return Ok(false);
        }
        let at = || self.disk.root().join(path);
        let short = self.below_home(path);
        let mark = match meta.kind {
            Kind::File => {
                let open = self.disk.open(path, How::Read).at("open", &at())?;
                let root = root_of(&*open, meta.stamp.size).at("read", &at())?;
                record::content(short, meta.stamp.size, &root)
            }
            Kind::Symlink => {
                let text = self.disk.read_link(path).at("read the link", &at())?;
                record::link(short, text.as_bytes())
            }
            Kind::Dir | Kind::Other => return Ok(false),
        };
        Ok(dl.record.read().holds(mark))
    }

    /// To be called when a piece that was found at the final place is known to be another: then the file that it is
    /// of must be one that may be replaced.
    ///
    /// # Errors
    /// [`Error::Foreign`] if it may not.
    pub fn differs(&self, piece: u32) -> Result<(), Error> {
        let Mode::Download(dl) = &self.mode else { return Ok(()) };
        let mut places = self.map.piece(piece).map(|(place, _)| place);
        match (places.next(), places.find(|place| *place != Place::Zeros)) {
            // In v1 a piece of several files does not tell which of them differs, or whether it is only that one which is not
            // selected is not there.
            (Some(Place::File(file, _)), None) => self.claim(dl, file),
            _ => Ok(()),
        }
    }

    /// A file in place is to be replaced.
    fn claim(&self, dl: &Download, file: u32) -> Result<(), Error> {
        if !dl.in_place.get(file) {
            return Ok(());
        }
        let path = self.map.file_path(&self.home, file);
        self.refuse_mount(&path)?;
        if !dl.foreign.get(file) {
            return Ok(());
        }
        let meta = self.disk.stat(&path).at("stat", &self.disk.root().join(&path))?;
        self.may_replace(dl, &path, &meta, true)?;
        dl.foreign.clear(file);
        Ok(())
    }

    /// Checks every name of the tree again, against the current disk and record, before the first is replaced.
    /// Returns the number of files to replace that the record does not know.
    pub(crate) fn judge(&self, dl: &Download) -> Result<u64, Error> {
        dl.record.write().reload();
        let mut unknown = 0;
        let all = self.standing()?.0;
        self.refuse_mounts(dl, &all)?;
        for Standing { path, meta, file } in all {
            self.may_count(&path, &meta, dl.replace.force)?;
            let right = match file {
                None if meta.kind == Kind::Dir => continue,
                Some(file) if dl.in_place.get(file) => continue,
                _ => {
                    let by_file = is_plain(file.and_then(|file| self.manifest.file(file)));
                    self.may_replace(dl, &path, &meta, by_file)
                }
            };
            match (right, file) {
                (Err(Error::Foreign { .. }), Some(file))
                    if self.is_staged_same(dl, file, &path, &meta)? => {}
                (right, _) => unknown += u64::from(right? == Right::Unknown),
            }
        }
        Ok(unknown)
    }

    /// Whether a staged file is the same as the existing one.
    fn is_staged_same(&self, dl: &Download, file: u32, path: &Path, meta: &Meta) -> Result<bool, Error> {
        let len = self.map.file_len(file);
        let plain = self.manifest.file(file).is_some_and(|f| !f.is_symlink());
        if meta.kind != Kind::File || meta.stamp.size != len || !plain {
            return Ok(false);
        }
        let root = |path: &Path| {
            let read = self.disk.open(path, How::Read).and_then(|open| root_of(&*open, len));
            read.map_err(|e| self.fail("read", path, e))
        };
        Ok(root(path)? == root(&self.map.file_path(&dl.stage.tree(), file))?)
    }

    /// Copies a file that is in place into the staging area, where it may be written.
    ///
    /// Its verified pieces become journalled only now: until here they were in a file of the user's,
    /// which may change. The copy is durable before it takes its name.
    pub(crate) fn promote(&self, dl: &Download, file: u32) -> Result<(), Error> {
        if self.manifest.layout().is_aligned() {
            self.claim(dl, file)?;
        }
        self.copy_out(dl, file)
    }

    /// As [`Store::promote`], of a file that keeps its content and so need not be one that may be replaced.
    pub(crate) fn copy_out(&self, dl: &Download, file: u32) -> Result<(), Error> {
        let _one = dl.promoting.lock();
        if !dl.in_place.get(file) {
            return Ok(());
        }
        let staged = self.map.file_path(&dl.stage.tree(), file);
        let scratch = dl.stage.scratch();
        let fail = |path: &Path, e| self.fail("copy existing data to", path, e);
        let original = self.map.file_path(&self.home, file);
        let source = self.disk.open(&original, How::Read);
        let source = source.at("open", &self.disk.root().join(&original))?;

        let copy = dl.stage.create(&*self.disk, &scratch).map_err(|e| fail(&scratch, e))?;
        let len = self.map.file_len(file);
        let filled = copy
            .set_len(0)
            .and_then(|()| copy.copy_from(&*source, len))
            .and_then(|()| copy.set_len(len))
            .and_then(|()| if dl.flush.is_durable() { copy.sync(false) } else { Ok(()) });
        filled.map_err(|e| fail(&scratch, e))?;
        // The copied data must be the verified data.
        let source = self.unchanged(file, &*source)?;

        // A user who may write to the original can change it without a trace.
        let is_ours = source.is_some_and(|source| source.mine && source.mode & OTHERS_WRITE == 0);
        crate::stage::make_parents(&*self.disk, &staged).map_err(|e| fail(&staged, e))?;
        self.map.mark_holes_used(file);
        dl.flush.created(file);
        let mut copied = BTreeSet::new();
        loop {
            if !is_ours {
                self.verify_copy(file, &*copy, &mut copied)?;
            }
            let _alone = self.moving.write();
            if !is_ours && self.verified(file).any(|piece| !copied.contains(&piece)) {
                // Another thread has verified one in the original meanwhile.
                continue;
            }
            self.disk.rename(&scratch, &staged, true).map_err(|e| fail(&staged, e))?;
            dl.in_place.clear(file);
            self.fds.forget(file);
            if let Some(stamp) = self.stamps.write().get_mut(file as usize) {
                *stamp = None;
            }
            break;
        }
        dl.flush.touched(file);
        self.verified(file).for_each(|p| dl.flush.pending(p));
        Ok(())
    }

    /// The pieces of a file that count as done.
    fn verified(&self, file: u32) -> impl Iterator<Item = u32> {
        self.map.file_pieces(file).filter(|piece| self.done.get(*piece))
    }

    /// Verifies pieces that were verified in the original in its copy, but those that are `copied` already.
    fn verify_copy(&self, file: u32, copy: &dyn DiskFile, copied: &mut BTreeSet<u32>) -> Result<(), Error> {
        for piece in self.verified(file).filter(|piece| !copied.contains(piece)).collect::<Vec<_>>() {
            if self.verify(piece, Some((file, copy)))?.is_none() {
                let path = self.disk.root().join(self.map.file_path(&self.home, file));
                return Err(Error::Foreign { path, why: CHANGED });
            }
            copied.insert(piece);
        }
        Ok(())
    }
}

/// The root of the Merkle tree over the leaves of a file; zeros for an empty one.
fn root_of(file: &dyn DiskFile, len: u64) -> io::Result<Digest> {
    let (mut buffer, mut at) = (PageBuffer::new(NODE as usize), 0);
    let (mut layer, mut leaves) = (Vec::new(), Vec::new());
    while at < len {
        let want = usize::try_from(len - at).unwrap_or(usize::MAX).min(buffer.len());
        let part = buffer.get_mut(..want).unwrap_or_default();
        if file.read_at(part, at)? < want {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        leaves = vec![Digest::default(); want.div_ceil(LEAF)];
        tidecast_hash::leaves(part, &mut leaves);
        layer.push(merkle::piece_root(&leaves, NODE));
        at += want as u64;
    }
    Ok(match layer.len() {
        0 => Digest::default(),
        1 => merkle::root(&leaves, leaves.len().next_power_of_two()),
        _ => merkle::root_of_layer(&layer, NODE),
    })
}
