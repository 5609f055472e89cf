//! Layout of the store on disk.
//!
//! ```text
//! DEPOT/lock                    one process at a time
//!       depot.redb              the database (`db.rs`)
//!       spare                   space for the database when the disk is full
//!       objects/ab/ROOT-VARIANT inodes, read-only, linked into views
//!       caches/ID/manifest      ID carries the right to read; below it every user may
//!                 tree/NAME     the view
//!       incoming/ID/data        staged files of a reservation
//!                  /reused      objects that need no transfer
//!                  /cache       the incomplete view
//!       trash/                  files that are being removed
//!       uses/                   a file for each use by a running job
//! ```

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tidecast_metainfo::Manifest;
use tidecast_paths::Root;

use crate::error::{Context, Error};
use crate::object::{ObjectKey, Parts};
use crate::open_dir::OpenDir;
use crate::{CacheId, CacheRecord};

/// Bytes that are kept for the database.
const SPARE: u64 = 4 << 20;

/// The directories of a store.
#[derive(Clone, Debug)]
pub(crate) struct Layout {
    pub(crate) root: PathBuf,
    /// The same, open: all that is done to the store is done beneath it.
    pub(crate) dir: Arc<Root>,
}

impl Layout {
    /// Opens the store's directory, and makes it if it is missing.
    pub(crate) fn open_root(root: PathBuf) -> Result<Self, Error> {
        let dir = Root::make(&root).at("open", &root)?;
        Ok(Layout { root, dir: Arc::new(dir) })
    }

    /// Creates missing directories. A link or a file in place of one is rejected.
    pub(crate) fn make(&self) -> Result<(), Error> {
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
            if !name.is_empty() {
                self.make_dir(&dir)?;
            }
            // The owner of one of them could replace it.
            let there = self.look(&dir).at("stat", &dir)?;
            if !there.is_mine() {
                return Err(Error::Foreign { path: dir, owner: there.uid });
            }
            self.chmod(&dir, mode)?;
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

    /// Reserves a little space, which is released for the database when the disk is full. A failure is no error.
    pub(crate) fn keep_spare(&self) {
        let path = self.root.join("spare");
        if self.look(&path).is_ok_and(|m| m.is_file() && m.len == SPARE) {
            return;
        }
        let made = self.remove_file(&path).is_ok().then(|| self.create(&path, 0o600).ok()).flatten();
        if let Some(file) = made
            && rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, SPARE).is_err()
        {
            let _ = self.remove_file(&path);
        }
    }

    /// Releases the reserved space; false if no space was reserved.
    pub(crate) fn use_spare(&self) -> bool {
        self.dir.remove("spare").is_ok()
    }

    /// The manifest in a directory of the store.
    pub(crate) fn manifest_in(&self, dir: &Path) -> Result<Manifest, Error> {
        Ok(Manifest::parse(&self.read(&dir.join("manifest"))?)?)
    }

    /// Writes the manifest of a cache into its directory, whole or not at all; durable after a sync of the
    /// directory. Trackers are removed: they are no part of the content.
    pub(crate) fn write_manifest(&self, dir: &Path, manifest: &Manifest) -> Result<(), Error> {
        let plain = manifest.clone().with_trackers(Vec::new());
        self.write_whole(&dir.join("manifest"), &plain.to_bytes(), 0o444)
    }
}

/// Removes a cache's directory that the database does not know (any more), and first the objects that only its manifest
/// tells of. May be interrupted and called again: the manifest goes last.
pub(crate) fn discard(
    layout: &Layout,
    dir: &Path,
    known: impl Fn(&ObjectKey) -> Result<bool, Error>,
) -> Result<(), Error> {
    // Without a manifest there cannot be objects of it yet.
    let parts = layout.manifest_in(dir).and_then(|m| Parts::of(&m)).unwrap_or_default();
    let mut open_dir = OpenDir::new(layout);
    let mut dirs = BTreeSet::new();
    for key in parts.objects.keys() {
        if !known(key)? {
            let object = layout.object(key);
            open_dir.remove_file(&object)?;
            dirs.extend(object.parent().map(Path::to_owned));
        }
    }
    dirs.iter().for_each(|dir| layout.remove_if_empty(dir));
    if layout.is_dir(dir) {
        layout.chmod(dir, 0o700)?;
    }
    layout.remove_all(&dir.join("tree"))?;
    layout.remove_all(dir)
}
