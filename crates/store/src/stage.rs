//! The staging area: its names, its lock, and the directories made in it.

use std::hash::{BuildHasher, RandomState};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::disk::{Disk, DiskFile, How, Kind};
use crate::error::Error;

/// Longest part of the published name that goes into the name of the staging area, bytes: a name
/// has at most 255.
const NAME_MAX: usize = 200;

/// Names tried for a staging area: other users can occupy some.
const NAMES: u64 = 64;

/// A staging area that this process holds the lock of.
pub(crate) struct Stage {
    dir: PathBuf,
    /// Never read: holding it open holds the lock.
    _lock: Arc<dyn DiskFile>,
}

impl Stage {
    /// Makes or takes over the staging area for `name`; `id` tells manifests and selections apart. A name that another
    /// user has occupied is left for the next one.
    pub(crate) fn take(disk: &dyn Disk, name: &[u8], id: &[u8; 32]) -> Result<Self, Error> {
        for number in 1..=NAMES {
            match Self::take_one(disk, name, id, number) {
                Err(Error::Conflict { .. }) => {}
                other => return other,
            }
        }
        // A random one, which no later run finds.
        Self::take_one(disk, name, id, RandomState::new().hash_one(id))
    }

    fn take_one(disk: &dyn Disk, name: &[u8], id: &[u8; 32], number: u64) -> Result<Self, Error> {
        let mut dir = b".tidecast-".to_vec();
        dir.extend(name.iter().take(NAME_MAX));
        let short: String = id.iter().take(4).map(|b| format!("{b:02x}")).collect();
        dir.extend_from_slice(b"-");
        dir.extend_from_slice(short.as_bytes());
        if number > 1 {
            dir.extend_from_slice(format!("-{number}").as_bytes());
        }
        let dir = PathBuf::from(std::ffi::OsStr::from_bytes(&dir));

        let at = disk.root().join(&dir);
        // Another process may be removing it as it finishes: then begin again.
        for _ in 0..100 {
            match disk.mkdir(&dir, true) {
                Err(e) if e.kind() != io::ErrorKind::AlreadyExists => {
                    return Err(Error::io("create the staging area", &at, e));
                }
                _ => {}
            }
            // The owner is checked before anything in the directory is opened, and again when no other user can
            // change it.
            let mine = || match disk.stat(&dir) {
                Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(false),
                Err(e) => Err(Error::io("stat", &at, e)),
                Ok(meta) if meta.kind == Kind::Dir && meta.mine => Ok(true),
                Ok(_) => Err(Error::Conflict {
                    path: at.clone(),
                    why: "another user has occupied the names of staging areas there",
                }),
            };
            if !mine()? {
                continue;
            }
            let Some(lock) = lock(disk, &dir).map_err(|e| match e {
                Some(e) => Error::io("lock the staging area", &at, e),
                None => Error::Busy { path: at.clone() },
            })?
            else {
                continue;
            };
            if mine()? {
                return Ok(Stage { dir, _lock: lock });
            }
        }
        Err(Error::Busy { path: at })
    }

    pub(crate) fn dir(&self) -> PathBuf {
        self.dir.clone()
    }

    pub(crate) fn tree(&self) -> PathBuf {
        self.dir.join("tree")
    }

    pub(crate) fn journal(&self) -> PathBuf {
        self.dir.join("journal")
    }

    pub(crate) fn leaves(&self) -> PathBuf {
        self.dir.join("leaves")
    }

    pub(crate) fn spill(&self) -> PathBuf {
        self.dir.join("spill")
    }

    /// A name for files that are being created, before they take their place.
    pub(crate) fn scratch(&self) -> PathBuf {
        self.dir.join("scratch")
    }

    /// A name for exchanging files of different kinds.
    pub(crate) fn aside(&self) -> PathBuf {
        self.dir.join("aside")
    }

    /// Opens a file, making it and its directories if need be.
    pub(crate) fn create(&self, disk: &dyn Disk, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        match disk.open(path, How::Create) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                make_parents(disk, path)?;
                disk.open(path, How::Create)
            }
            other => other,
        }
    }

    /// The directories on the way from a path up to the staging area, inclusive.
    pub(crate) fn parents<'a>(&'a self, path: &'a Path) -> impl Iterator<Item = &'a Path> + 'a {
        path.ancestors().skip(1).take_while(|p| p.starts_with(&self.dir))
    }

    /// Removes its content, then the area itself. The lock is removed last but one. Exchanged names are removed
    /// first: if that fails, everything stays.
    pub(crate) fn remove(&self, disk: &dyn Disk) -> io::Result<()> {
        for name in ["aside", "scratch", "tree", "spill", "leaves", "journal", "lock", ""] {
            disk.remove_tree(&if name.is_empty() { self.dir() } else { self.dir.join(name) })?;
        }
        Ok(())
    }
}

/// Takes the lock; `Ok(None)` if the area was removed meanwhile, `Err(None)` if another holds it.
fn lock(disk: &dyn Disk, dir: &Path) -> Result<Option<Arc<dyn DiskFile>>, Option<io::Error>> {
    let path = dir.join("lock");
    let gone = |e: &io::Error| e.kind() == io::ErrorKind::NotFound;
    let file = match disk.open(&path, How::Create) {
        Err(e) if gone(&e) => return Ok(None),
        other => other?,
    };
    if !file.lock()? {
        return Err(None);
    }
    match disk.stat(&path) {
        Err(e) if gone(&e) => Ok(None),
        Err(e) => Err(Some(e)),
        Ok(meta) => {
            let same = meta.stamp.ino == file.meta()?.stamp.ino;
            Ok(same.then_some(file))
        }
    }
}

/// Makes the directories that a path needs.
pub(crate) fn make_parents(disk: &dyn Disk, path: &Path) -> io::Result<()> {
    let Some(parent) = path.parent().filter(|p| !p.as_os_str().is_empty()) else {
        return Ok(());
    };
    match disk.mkdir(parent, false) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            make_parents(disk, parent)?;
            make_dir(disk, parent)
        }
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        other => other,
    }
}

/// Creates a directory whose parent exists; an existing one is no error.
pub(crate) fn make_dir(disk: &dyn Disk, path: &Path) -> io::Result<()> {
    match disk.mkdir(path, false) {
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => match disk.stat(path)?.kind {
            Kind::Dir => Ok(()),
            Kind::Symlink => Err(rustix::io::Errno::LOOP.into()),
            _ => Err(rustix::io::Errno::NOTDIR.into()),
        },
        other => other,
    }
}
