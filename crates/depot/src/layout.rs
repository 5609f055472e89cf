//! Where things are on disk.
//!
//! ```text
//! DEPOT/lock                    one process at a time
//!       depot.redb              what is true (`db.rs`)
//!       spare                   room for the database when the disk is full
//!       objects/ab/ROOT-VARIANT inodes, read-only, linked into views
//!       caches/ID/manifest      ID carries the right to read; below it everybody may
//!                 tree/NAME     the view
//!       incoming/ID/data        what a reservation's holder writes
//!                  /reused      objects that it need not bring
//!                  /cache       the view in the making
//!       trash/                  what is being removed
//!       uses/                   a file for each use by a running job
//! ```

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use tidecast_metainfo::Manifest;

use crate::error::{Context, Error};
use crate::object::{ObjectKey, Parts};
use crate::{CacheId, CacheRecord, os};

/// Bytes that are kept for the database.
const SPARE: u64 = 4 << 20;

/// The directories of a store.
#[derive(Clone, Debug)]
pub(crate) struct Layout {
    pub(crate) root: PathBuf,
}

impl Layout {
    /// Makes what is missing.
    pub(crate) fn make(&self) -> Result<(), Error> {
        fs::create_dir_all(&self.root).at("create", &self.root)?;
        // Readers pass through to the caches that they may read, and see nothing on the way.
        for (name, mode) in [
            ("", 0o711),
            ("caches", 0o711),
            ("objects", 0o700),
            ("incoming", 0o700),
            ("trash", 0o700),
            ("uses", 0o700),
        ] {
            let dir = self.root.join(name);
            os::make_dir(&dir)?;
            os::chmod(&dir, mode)?;
        }
        Ok(())
    }

    pub(crate) fn lock(&self) -> PathBuf {
        self.root.join("lock")
    }

    pub(crate) fn db(&self) -> PathBuf {
        self.root.join("depot.redb")
    }

    pub(crate) fn uses(&self) -> PathBuf {
        self.root.join("uses")
    }

    pub(crate) fn objects(&self) -> PathBuf {
        self.root.join("objects")
    }

    pub(crate) fn object(&self, key: &ObjectKey) -> PathBuf {
        self.objects().join(key.path())
    }

    pub(crate) fn caches(&self) -> PathBuf {
        self.root.join("caches")
    }

    pub(crate) fn cache(&self, id: CacheId) -> PathBuf {
        self.caches().join(id.to_string())
    }

    /// The one entry of a cache's view.
    pub(crate) fn view(&self, record: &CacheRecord) -> PathBuf {
        self.cache(record.id).join("tree").join(OsStr::from_bytes(&record.top))
    }

    pub(crate) fn incoming(&self) -> PathBuf {
        self.root.join("incoming")
    }

    pub(crate) fn staging(&self, id: CacheId) -> PathBuf {
        self.incoming().join(id.to_string())
    }

    pub(crate) fn trash(&self) -> PathBuf {
        self.root.join("trash")
    }

    /// Sets a little room aside, which a full disk gives back to the database. That it cannot is no error.
    pub(crate) fn keep_spare(&self) {
        let path = self.root.join("spare");
        if path.metadata().is_ok_and(|m| m.len() == SPARE) {
            return;
        }
        let made = os::remove_file(&path).is_ok().then(|| os::create(&path, 0o600).ok()).flatten();
        if let Some(file) = made
            && rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, SPARE).is_err()
        {
            let _ = os::remove_file(&path);
        }
    }

    /// Gives the room back; false if there was none.
    pub(crate) fn use_spare(&self) -> bool {
        fs::remove_file(self.root.join("spare")).is_ok()
    }
}

/// The manifest in a directory of ours.
pub(crate) fn manifest_in(dir: &Path) -> Result<Manifest, Error> {
    let path = dir.join("manifest");
    let bytes = fs::read(&path).at("read", &path)?;
    Ok(Manifest::parse(&bytes)?)
}

/// Writes the manifest of a cache into its directory, whole or not at all; durable after a sync of that. Trackers say nothing
/// of what is here.
pub(crate) fn write_manifest(dir: &Path, manifest: &Manifest) -> Result<(), Error> {
    let plain = manifest.clone().with_trackers(Vec::new());
    os::write_whole(&dir.join("manifest"), &plain.to_bytes(), 0o444)
}

/// Removes a cache's directory that the database does not know (any more), and first the objects that only its manifest
/// tells of. May be interrupted and called again: the manifest goes last.
pub(crate) fn discard(
    layout: &Layout,
    dir: &Path,
    known: impl Fn(&ObjectKey) -> Result<bool, Error>,
) -> Result<(), Error> {
    // Without a manifest there cannot be objects of it yet.
    let parts = manifest_in(dir).and_then(|m| Parts::of(&m)).unwrap_or_default();
    for key in parts.objects.keys() {
        if !known(key)? {
            os::remove_file(&layout.object(key))?;
        }
    }
    if dir.is_dir() {
        os::chmod(dir, 0o700)?;
    }
    os::remove_all(&dir.join("tree"))?;
    os::remove_all(dir)
}
