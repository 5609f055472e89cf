//! Files of the tree at the final place that the data lacks: removed if the user requests it, else counted. And the
//! record of the final state.

use std::collections::{BTreeSet, HashSet};
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use tidecast_hash::Digest;
use tidecast_metainfo::{FileRef, MAX_COMPONENTS, merkle};

use crate::disk::{Kind, Meta, NewAttributes};
use crate::error::{Context, Error};
use crate::record;
use crate::store::{Download, Store};

/// Prefix of files that are being created beside their place: they may belong to a running program.
const WORK: &[u8] = b".tidecast-";
/// Suffix of files among those; the others are directories.
const NEW: &[u8] = b".new";

/// The result for names that the data lacks.
#[derive(Default)]
pub(crate) struct Stale {
    /// Files that stay.
    pub(crate) left: u64,
    /// Of them: files that were not put there by us.
    pub(crate) foreign: u64,
    /// Files that were removed.
    pub(crate) deleted: u64,
    /// The marks of remaining files that this program put there.
    marks: Vec<u64>,
    /// The first that could not be removed.
    pub(crate) failed: Option<Error>,
}

/// Everything below a name that the data lacks, itself included.
#[derive(Default)]
pub(crate) struct Found {
    /// Files; an empty directory counts as one.
    pub(crate) files: u64,
    /// Those of them that were not put there by us.
    foreign: u64,
    /// Our own files, directories before their content, with their marks.
    ours: Vec<(PathBuf, Meta, u64)>,
}

/// The warning that the record of the files delivered to `at` is missing.
pub fn unrecorded(at: &Path, why: &dyn std::fmt::Display) -> String {
    format!(
        "cannot record the files delivered to {}: {why}; the next version will treat them as files of others",
        at.display()
    )
}

impl Store {
    /// Removes the files that the data lacks, or counts them.
    pub(crate) fn clear_stale(&self, dl: &Download) -> Result<Stale, Error> {
        let mut stale = Stale::default();
        let dirs = self.manifest.dirs().map(|d| d.path().below(&self.home));
        let files = self.manifest.files().map(|f| f.path().below(&self.home));
        let known: HashSet<PathBuf> = dirs.chain(files).collect();
        for dir in self.manifest.dirs() {
            let path = dir.path().below(&self.home);
            let names = match self.disk.list(&path) {
                // In a part of the data not all directories need be there.
                Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => continue,
                other => other.at("list", &self.disk.root().join(&path))?,
            };
            for name in names {
                let extra = path.join(name);
                if !known.contains(&extra) && !self.is_at_work(&extra) {
                    self.clear_one(dl, &extra, &mut stale)?;
                }
            }
        }
        Ok(stale)
    }

    /// Whether a name is that of a staging area, or of a file that is being written: not every file that a user or the
    /// program names `.tidecast-...` is (`.tidecast-prefetch` is data).
    fn is_at_work(&self, path: &Path) -> bool {
        let name = path.file_name().unwrap_or_default().as_bytes();
        let is_dir = || self.disk.stat(path).is_ok_and(|meta| meta.kind == Kind::Dir);
        name.starts_with(WORK) && (name.ends_with(NEW) || is_dir())
    }

    /// A name that the data lacks, and all beneath it. Files of this program are removed by `--delete`; others only
    /// with `--force` too.
    fn clear_one(&self, dl: &Download, extra: &Path, stale: &mut Stale) -> Result<(), Error> {
        let found = self.count(dl, extra);
        if !dl.replace.delete {
            stale.left += found.files;
            stale.foreign += found.foreign;
            stale.marks.extend(found.ours.iter().map(|(_, _, mark)| mark));
            return Ok(());
        }
        if !dl.replace.force {
            self.clear_ours(&found, stale);
            return Ok(());
        }
        match self.disk.remove_tree(extra) {
            Ok(()) => stale.deleted += found.files,
            Err(source) => {
                stale.left += found.files;
                stale.failed.get_or_insert(self.undeleted(extra, source));
            }
        }
        Ok(())
    }

    /// Removes files of this program, name by name: files that others put among them, even now, stay.
    fn clear_ours(&self, found: &Found, stale: &mut Stale) {
        stale.left += found.foreign;
        stale.foreign += found.foreign;
        let mode = |path: &Path, mode| {
            drop(self.disk.set_attributes(path, &NewAttributes { mode, ..NewAttributes::default() }))
        };
        // Its owner may remove files in a directory that was delivered read-only.
        let closed = |meta: &&Meta| meta.kind == Kind::Dir && meta.mine && meta.mode & 0o700 != 0o700;
        for (path, meta, _) in found.ours.iter().filter(|(_, meta, _)| closed(&meta)) {
            mode(path, Some(meta.mode | 0o700));
        }
        for (path, meta, mark) in found.ours.iter().rev() {
            let is_dir = meta.kind == Kind::Dir;
            match self.disk.remove(path) {
                Ok(()) => {
                    stale.deleted += u64::from(!is_dir || found.files == 1 && found.ours.len() == 1);
                    continue;
                }
                // The files of others are in it.
                Err(e) if is_dir && e.kind() == ErrorKind::DirectoryNotEmpty => {}
                Err(source) => {
                    stale.left += u64::from(!is_dir);
                    stale.failed.get_or_insert(self.undeleted(path, source));
                }
            }
            stale.marks.push(*mark);
            if closed(&meta) {
                mode(path, Some(meta.mode));
            }
        }
    }

    fn undeleted(&self, path: &Path, mut source: std::io::Error) -> Error {
        if source.kind() == ErrorKind::CrossesDevices {
            source = std::io::Error::other("a file system is mounted there; unmount it");
        }
        Error::Undeleted { path: self.disk.root().join(path), source }
    }

    /// The content below a name, and which of it is ours. Names that disappear meanwhile do
    /// not count; a mount point, and a directory deeper than any of a manifest, count as one file.
    pub(crate) fn count(&self, dl: &Download, top: &Path) -> Found {
        let (mut found, mut rest) = (Found::default(), vec![top.to_path_buf()]);
        while let Some(path) = rest.pop() {
            let Ok(meta) = self.disk.stat(&path) else { continue };
            let short = self.below_home(&path);
            let mut is_file = meta.kind != Kind::Dir;
            let mounted = !is_file && self.disk.crosses_mount(&path).unwrap_or(true);
            let mark = if is_file { record::state(short, &meta) } else { record::dir(short) };
            let ours = !mounted && dl.record.read().holds(mark);
            // Below that depth nothing is ours.
            let is_deep = short.components().count() > usize::from(MAX_COMPONENTS);
            if mounted || is_deep {
                is_file = true;
            } else if !is_file {
                let names = self.disk.list(&path).unwrap_or_default();
                // An empty directory of others counts like a file.
                is_file = names.is_empty() && !(ours && path != top);
                rest.extend(names.iter().map(|name| path.join(name)));
            }
            found.files += u64::from(is_file);
            if ours {
                found.ours.push((path, meta, mark));
            } else {
                found.foreign += u64::from(is_file);
            }
        }
        found.files = found.files.max(1);
        found
    }

    /// Records the files about to be placed, beside the old ones: a crash from here on leaves some of both.
    /// Existing files that stay are ours only if they were before.
    pub(crate) fn record_plan(&self, dl: &Download, fresh: bool) -> Option<String> {
        let mut record = dl.record.write();
        record.reload();
        for file in self.map.files().filter_map(|f| self.manifest.file(f)) {
            let held = || self.lasting_mark(file).is_some_and(|mark| record.holds(mark));
            // Another of our versions may have come to its place meanwhile.
            let recorded = || {
                let path = file.path().below(&self.home);
                let state = |meta| record::state(self.below_home(&path), &meta);
                self.disk.stat(&path).is_ok_and(|meta| record.holds(state(meta)))
            };
            if fresh || !dl.in_place.get(file.index()) || held() || recorded() {
                dl.ours.set(file.index());
            }
        }
        let needed = self.needed_dirs();
        for dir in self.manifest.dirs().filter(|d| needed.get(d.index())) {
            let path = dir.path().below(&self.home);
            let stands = || match self.disk.stat(&path) {
                Ok(meta) => meta.kind == Kind::Dir,
                // Below a link that will be replaced there is no file of this tree.
                Err(e) if e.raw_os_error() == Some(rustix::io::Errno::LOOP.raw_os_error()) => false,
                Err(e) => !matches!(e.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory),
            };
            if fresh || record.holds(record::dir(self.below_home(&path))) || !stands() {
                dl.our_dirs.set(dir.index());
            }
        }
        let mut marks = record.marks().clone();
        marks.extend(self.lasting_marks(dl));
        record.write(marks).err().map(|e| self.unrecorded(&e))
    }

    /// Records the final state.
    pub(crate) fn record_done(&self, dl: &Download, stale: &Stale) -> Option<String> {
        let mut marks: BTreeSet<u64> = self.lasting_marks(dl).chain(stale.marks.iter().copied()).collect();
        if !self.manifest.is_single_file() {
            marks.insert(record::tree());
        }
        for file in self.map.files().filter(|f| dl.ours.get(*f)) {
            let path = self.map.file_path(&self.home, file);
            if let Ok(meta) = self.disk.stat(&path) {
                let short = self.below_home(&path);
                marks.extend([record::name(short), record::state(short, &meta)]);
            }
        }
        let mut record = dl.record.write();
        if !self.map.is_whole() {
            // Other files of the same data may have come before.
            marks.extend(record.marks());
        }
        record.write(marks).err().map(|e| self.unrecorded(&e))
    }

    fn unrecorded(&self, e: &std::io::Error) -> String {
        let at = self.path();
        unrecorded(&at, e)
    }

    /// The marks of contents and directories that are ours.
    fn lasting_marks<'a>(&'a self, dl: &'a Download) -> impl Iterator<Item = u64> + 'a {
        let dirs = self.manifest.dirs().filter(|d| dl.our_dirs.get(d.index()));
        let dirs = dirs.map(|d| record::dir(&d.path().below(Path::new(""))));
        let files = self.map.files().filter(|f| dl.ours.get(*f)).filter_map(|f| self.manifest.file(f));
        dirs.chain(files.filter_map(|file| self.lasting_mark(file)))
    }

    /// The mark of a file's content or of a link's text; `None` in v1, which has no root of a file.
    fn lasting_mark(&self, file: FileRef<'_>) -> Option<u64> {
        let path = file.path().below(Path::new(""));
        match file.symlink() {
            Some(text) => Some(record::link(&path, &text)),
            None => Some(record::content(&path, file.len(), &self.expected_root(file)?)),
        }
    }

    /// The root of a file by the manifest; `None` in v1.
    fn expected_root(&self, file: FileRef<'_>) -> Option<Digest> {
        let pieces = file.pieces();
        match pieces.len() {
            _ if file.is_empty() => Some(Digest::default()),
            1 => self.manifest.expected(pieces.start).v2,
            _ => {
                let layer: Option<Vec<Digest>> = pieces.map(|p| self.manifest.expected(p).v2).collect();
                Some(merkle::root_of_layer(&layer?, self.manifest.piece_length()))
            }
        }
    }
}
