//! Older versions that lie elsewhere: what a file of theirs has at the same offset need not be brought again.
//!
//! A file that is not here yet begins as a copy of the one that has its path in an older version, sharing blocks where the
//! file system can. Like all that stands in the staging area and no journal names, it is hashed piece by piece before any
//! of it counts; so a base need not be trusted, and one that fails costs nothing but what it would have saved. It is only
//! read, through no link.

use std::ffi::OsStr;
use std::fmt;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tidecast_paths::Root;

use crate::disk::{Disk, How, Kind};
use crate::error::Error;
use crate::os::OsDisk;
use crate::stage;
use crate::store::{Download, Store};

/// An older version: a tree, or a file.
#[derive(Clone)]
pub struct Base {
    disk: Arc<dyn Disk>,
    /// Where it is below the disk's root.
    home: PathBuf,
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
    /// There is none, or it cannot be opened.
    pub fn open(path: &Path) -> io::Result<Self> {
        let path = path.canonicalize()?;
        match (Root::open(&path), path.parent().zip(path.file_name())) {
            (Err(e), Some((above, name))) if e.kind() == io::ErrorKind::NotADirectory => {
                Ok(Self::beneath(Root::open(above)?, Path::new(name)))
            }
            (root, _) => Ok(Self::beneath(root?, Path::new(""))),
        }
    }

    /// What lies at `home` beneath a directory that is open.
    #[must_use]
    pub fn beneath(root: Root, home: &Path) -> Self {
        Self { disk: Arc::new(OsDisk::from(root)), home: home.to_owned() }
    }
}

impl Store {
    /// Begins files that are not here by the first base that has them.
    pub(crate) fn begin_by(&self, dl: &Download, bases: &[Base]) {
        for file in self.plain_files().filter(|file| !file.is_empty() && !dl.in_place.get(file.index())) {
            let staged = self.file_path(file.index());
            if bases.is_empty() || !matches!(self.absent(&staged), Ok(true)) {
                continue;
            }
            for base in bases {
                match self.copy_of(dl, base, &file.path().below(&base.home), &staged, file.len()) {
                    Ok(true) => break,
                    Ok(false) => {}
                    Err(error) => {
                        let _ = self.disk.remove_tree(&dl.stage.scratch());
                        // Where there is no room, there is none for the next file either.
                        if error.kind() == io::ErrorKind::StorageFull {
                            return;
                        }
                    }
                }
            }
        }
    }

    /// Copies a file of a base to its place in the staging area; false if the base has none.
    fn copy_of(&self, dl: &Download, base: &Base, from: &Path, staged: &Path, len: u64) -> io::Result<bool> {
        let mut from = from.to_owned();
        let mut found = base.disk.stat(&from);
        if self.manifest.is_single_file() && found.as_ref().is_ok_and(|meta| meta.kind == Kind::Dir) {
            // The directory that the file lies in will do as well.
            from.push(OsStr::from_bytes(self.manifest.name_bytes()));
            found = base.disk.stat(&from);
        }
        let old = match found {
            Ok(meta) if meta.kind == Kind::File && meta.stamp.size > 0 => meta.stamp.size.min(len),
            _ => return Ok(false),
        };
        let source = base.disk.open(&from, How::Read)?;
        let scratch = dl.stage.scratch();
        let copy = dl.stage.create(&*self.disk, &scratch)?;
        copy.set_len(0)?;
        copy.copy_from(&*source, old)?;
        copy.set_len(len)?;
        stage::make_parents(&*self.disk, staged)?;
        self.disk.rename(&scratch, staged, true)?;
        Ok(true)
    }
}

/// Opens what is there of these paths.
///
/// # Errors
/// One of them cannot be opened.
pub fn open_bases(paths: &[PathBuf]) -> Result<Vec<Base>, Error> {
    let open = |path: &PathBuf| Base::open(path).map_err(|e| Error::io("open the older version", path, e));
    paths.iter().map(open).collect()
}
