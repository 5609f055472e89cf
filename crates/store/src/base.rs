//! Older versions in other places: their data need not be transferred again; at the same offset, or, with a
//! [`Patch`], at any offset.
//!
//! A new file begins as a copy of the file with the same path in an older version, sharing blocks where the file
//! system can. Like all data in the staging area without a journal entry, it is hashed piece by piece before any of
//! it counts; so a base need not be trusted, and a bad one costs nothing but the saving. It is only read, through
//! no link.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fmt;
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tidecast_metainfo::{FileRef, Manifest};
use tidecast_paths::Root;

use crate::disk::{Disk, How, Kind};
use crate::error::Error;
use crate::os::OsDisk;
use crate::patch::Patch;
use crate::stage;
use crate::store::{Download, Store};

/// An older version: a tree, or a file.
#[derive(Clone)]
pub struct Base {
    disk: Arc<dyn Disk>,
    /// Where it is below the disk's root.
    home: PathBuf,
    /// Patches of files of the new version, by their numbers.
    patches: Arc<HashMap<u32, Patch>>,
}

impl fmt::Debug for Base {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Base").field("at", &self.disk.root().join(&self.home)).finish()
    }
}

impl Base {
    /// The file or directory at `path`.
    ///
    /// # Errors
    /// It does not exist, or cannot be opened.
    pub fn open(path: &Path) -> io::Result<Self> {
        let path = path.canonicalize()?;
        match (Root::open(&path), path.parent().zip(path.file_name())) {
            (Err(e), Some((above, name))) if e.kind() == io::ErrorKind::NotADirectory => {
                Ok(Self::beneath(Root::open(above)?, Path::new(name)))
            }
            (root, _) => Ok(Self::beneath(root?, Path::new(""))),
        }
    }

    /// The file or directory at `home` beneath an open directory.
    #[must_use]
    pub fn beneath(root: Root, home: &Path) -> Self {
        Self { disk: Arc::new(OsDisk::from(root)), home: home.to_owned(), patches: Arc::default() }
    }

    /// Adds the patches of the files of a manifest.
    #[must_use]
    pub fn patched(self, patches: HashMap<u32, Patch>) -> Self {
        Self { patches: Arc::new(patches), ..self }
    }

    /// The file that has a file's path, opened for reading, if there is one with something in it.
    #[must_use]
    pub fn file(&self, manifest: &Manifest, file: u32) -> Option<Arc<File>> {
        let path = manifest.file(file).filter(|file| !file.is_symlink())?.path().below(&self.home);
        let (path, _) = self.find(manifest, path)?;
        self.disk.open(&path, How::Read).ok()?.os().cloned()
    }

    /// Where a file is, and how long it is.
    fn find(&self, manifest: &Manifest, mut path: PathBuf) -> Option<(PathBuf, u64)> {
        let mut found = self.disk.stat(&path);
        if manifest.is_single_file() && found.as_ref().is_ok_and(|meta| meta.kind == Kind::Dir) {
            // The directory that the file lies in will do as well.
            path.push(OsStr::from_bytes(manifest.name_bytes()));
            found = self.disk.stat(&path);
        }
        let file = found.ok().filter(|meta| meta.kind == Kind::File && meta.stamp.size > 0);
        file.map(|meta| (path, meta.stamp.size))
    }
}

impl Store {
    /// Begins files that are not here by the first base that has them.
    pub(crate) fn begin_by(&self, dl: &Download, bases: &[Base]) {
        for file in self.plain_files().filter(|file| !file.is_empty()) {
            if dl.in_place.get(file.index()) {
                // Files that may not be replaced are reported when a piece differs.
                bases.iter().any(|base| matches!(self.move_within(dl, base, file), Ok(true)));
                continue;
            }
            let staged = self.file_path(file.index());
            if bases.is_empty() || !matches!(self.absent(&staged), Ok(true)) {
                continue;
            }
            for base in bases {
                match self.copy_of(dl, base, file, &staged) {
                    Ok(true) => break,
                    Ok(false) => {}
                    Err(error) => {
                        let _ = self.disk.remove_tree(&dl.stage.scratch());
                        // No space for this file means none for the next one either.
                        if error.kind() == io::ErrorKind::StorageFull {
                            return;
                        }
                    }
                }
            }
        }
    }

    /// Begins a file that exists at its final place and of which a base has parts at other offsets.
    fn move_within(&self, dl: &Download, base: &Base, file: FileRef<'_>) -> Result<bool, Error> {
        let index = file.index();
        let Some(patch) = base.patches.get(&index).filter(|patch| !patch.is_plain()) else {
            return Ok(false);
        };
        let Some(source) = base.file(&self.manifest, index) else { return Ok(false) };
        self.promote(dl, index)?;
        let staged = self.file_path(index);
        let copy = self.disk.open(&staged, How::Write).map_err(|e| self.fail("open", &staged, e))?;
        let write = |data: &[u8], offset| copy.write_at(data, offset);
        patch.apply(&source, false, write).map_err(|e| self.fail("write", &staged, e))?;
        Ok(true)
    }

    /// Copies a file of a base to its place in the staging area; false if the base does not have the file.
    fn copy_of(&self, dl: &Download, base: &Base, file: FileRef<'_>, staged: &Path) -> io::Result<bool> {
        let path = file.path().below(&base.home);
        let Some((from, old)) = base.find(&self.manifest, path) else { return Ok(false) };
        let source = base.disk.open(&from, How::Read)?;
        let scratch = dl.stage.scratch();
        let copy = dl.stage.create(&*self.disk, &scratch)?;
        copy.set_len(0)?;
        copy.copy_from(&*source, old.min(file.len()))?;
        copy.set_len(file.len())?;
        if let (Some(patch), Some(source)) = (base.patches.get(&file.index()), source.os()) {
            patch.apply(source, false, |data, offset| copy.write_at(data, offset))?;
        }
        stage::make_parents(&*self.disk, staged)?;
        self.disk.rename(&scratch, staged, true)?;
        Ok(true)
    }
}

/// Opens these paths.
///
/// # Errors
/// One of them cannot be opened.
pub fn open_bases(paths: &[PathBuf]) -> Result<Vec<Base>, Error> {
    let open = |path: &PathBuf| Base::open(path).map_err(|e| Error::io("open the older version", path, e));
    paths.iter().map(open).collect()
}
