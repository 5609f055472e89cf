//! What a tree at the final place has and the data does not: removed if the user says so, else
//! counted. And the record of what is there when all is done.

use std::collections::{BTreeSet, HashSet};
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use tidecast_hash::Digest;
use tidecast_metainfo::{FileRef, merkle};

use crate::disk::Kind;
use crate::error::{Context, Error};
use crate::record;
use crate::store::{Download, Store};

/// Names of staging areas, of this and of other destinations, begin so.
const STAGING: &[u8] = b".tidecast-";

/// What came of the names that the data does not have.
#[derive(Default)]
pub(crate) struct Stale {
    /// Files that stay.
    pub(crate) left: u64,
    /// Files that were removed.
    pub(crate) deleted: u64,
    /// The marks of those that stay and were once put there by us.
    marks: Vec<u64>,
    /// The first that could not be removed.
    pub(crate) failed: Option<Error>,
}

impl Store {
    /// Removes what the tree has and the data does not, or counts it.
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
            for name in names.iter().filter(|n| !n.as_bytes().starts_with(STAGING)) {
                let extra = path.join(name);
                if !known.contains(&extra) {
                    self.clear_one(dl, &extra, &mut stale)?;
                }
            }
        }
        Ok(stale)
    }

    /// A name that the data does not have, and all beneath it.
    fn clear_one(&self, dl: &Download, extra: &Path, stale: &mut Stale) -> Result<(), Error> {
        let (count, marks) = self.count(dl, extra);
        if !dl.replace.delete {
            stale.left += count;
            stale.marks.extend(marks);
            return Ok(());
        }
        match self.disk.remove_tree(extra) {
            Ok(()) => stale.deleted += count,
            Err(mut source) => {
                if source.kind() == ErrorKind::CrossesDevices {
                    source = std::io::Error::other("a file system is mounted there; unmount it");
                }
                stale.left += count;
                let path = self.disk.root().join(extra);
                stale.failed.get_or_insert(Error::Undeleted { path, source });
            }
        }
        Ok(())
    }

    /// How many files there are below a name, itself one if it is none or an empty directory; and the marks of those
    /// that are ours. What vanishes meanwhile, or is mounted there, does not count.
    fn count(&self, dl: &Download, top: &Path) -> (u64, Vec<u64>) {
        let (mut files, mut marks, mut rest) = (0u64, Vec::new(), vec![top.to_path_buf()]);
        let (record, mut device) = (dl.record.read(), None);
        while let Some(path) = rest.pop() {
            let Ok(meta) = self.disk.stat(&path) else { continue };
            if *device.get_or_insert(meta.stamp.dev) != meta.stamp.dev {
                continue;
            }
            let short = self.below_home(&path);
            let mark = if meta.kind == Kind::Dir {
                rest.extend(self.disk.list(&path).unwrap_or_default().iter().map(|name| path.join(name)));
                record::dir(short)
            } else {
                files += 1;
                record::state(short, &meta)
            };
            marks.extend(record.holds(mark).then_some(mark));
        }
        (files.max(1), marks)
    }

    /// Records what is about to be put there, beside what was: a crash from here on leaves some of both.
    pub(crate) fn record_plan(&self, dl: &Download) -> Option<String> {
        let mut record = dl.record.write();
        record.reload();
        let mut marks = record.marks().clone();
        marks.extend(self.lasting_marks());
        record.write(marks).err().map(|e| self.unrecorded(&e))
    }

    /// Records what is there now.
    pub(crate) fn record_done(&self, dl: &Download, stale: &Stale) -> Option<String> {
        let mut marks: BTreeSet<u64> = self.lasting_marks().chain(stale.marks.iter().copied()).collect();
        for file in self.map.files() {
            let path = self.map.file_path(&self.home, file);
            if let Ok(meta) = self.disk.stat(&path) {
                marks.insert(record::state(self.below_home(&path), &meta));
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
        format!("cannot record what was put at {}: {e}; its next version will need --force", at.display())
    }

    /// The marks of contents and of directories.
    fn lasting_marks(&self) -> impl Iterator<Item = u64> + '_ {
        let needed = self.needed_dirs();
        let dirs = self.manifest.dirs().filter(move |d| needed.get(d.index()));
        let dirs = dirs.map(|d| record::dir(&d.path().below(Path::new(""))));
        let files = self.map.files().filter_map(|f| self.manifest.file(f)).filter_map(|file| {
            let path = file.path().below(Path::new(""));
            match file.symlink() {
                Some(text) => Some(record::link(&path, &text)),
                None => Some(record::content(&path, file.len(), &self.expected_root(file)?)),
            }
        });
        dirs.chain(files)
    }

    /// The root of a file by the manifest; `None` in v1, which has none.
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
