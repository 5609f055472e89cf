//! Room that is kept for a cache, and the directory in which it comes together.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use data_encoding::HEXLOWER;
use parking_lot::Mutex;
use tidecast_hash::Digest;
use tidecast_metainfo::Manifest;

use crate::admit::raw_size;
use crate::commit::{self, Committed};
use crate::error::Error;
use crate::layout::{Layout, discard};
use crate::memory_state::Promise;
use crate::object::{ObjectKey, classes_for};
use crate::{CacheId, Depot, Reader, Size, State, os};

/// Reserved space for a cache. When dropped, the space is released; staged files stay for the next attempt, until
/// the cache is removed or its lease expires.
pub struct Reservation {
    depot: Depot,
    id: CacheId,
    /// Objects that need not be brought, by content.
    reused: Mutex<BTreeMap<Digest, Held>>,
    /// Staged files may have other names, by which no process writes.
    links: AtomicBool,
}

/// An object that a reservation holds by a link of its own: it stays though its caches go.
#[derive(Clone, Debug)]
pub(crate) struct Held {
    pub(crate) path: PathBuf,
    pub(crate) variant: [u8; 8],
}

/// Files that need no transfer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reuse {
    /// The files, by their place in the manifest: not to be staged.
    pub files: Vec<u32>,
    /// Their bytes, equal content counted once.
    pub bytes: u64,
}

impl std::fmt::Debug for Reservation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reservation").field("id", &self.id).finish_non_exhaustive()
    }
}

impl Reservation {
    /// The promise is made already.
    pub(crate) fn new(depot: &Depot, id: CacheId) -> Result<Self, Error> {
        // From here on, dropping it takes the promise back.
        let new =
            Reservation { depot: depot.clone(), id, reused: Mutex::default(), links: AtomicBool::new(false) };
        let staging = depot.0.layout.staging(id);
        for dir in [&staging, &staging.join("data"), &staging.join("reused")] {
            depot.0.layout.make_dir(dir)?;
        }
        depot.change(id, |r| {
            r.state = State::Uploading;
            Ok(())
        })?;
        Ok(new)
    }

    /// The cache.
    #[must_use]
    pub fn id(&self) -> CacheId {
        self.id
    }

    /// Directory for the data: the published file or directory is staged here under its name. Files of an earlier
    /// attempt are still there.
    #[must_use]
    pub fn dir(&self) -> PathBuf {
        self.staging().join("data")
    }

    /// Creates a file in [`Reservation::dir`], with the directories above it, replacing one of an earlier attempt:
    /// open for reading and writing. Links are not followed.
    ///
    /// # Errors
    /// A path that leads out of the directory; the disk's error.
    pub fn create(&self, path: &Path) -> Result<File, Error> {
        let at = self.dir().join(path);
        let make = || {
            let data = self.layout().dir.sub(self.layout().beneath(&self.dir())?)?;
            if let Some(above) = path.parent() {
                data.make_dirs(above, 0o777)?;
            }
            match data.create(path, 0o666) {
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
                    data.remove_all(path)?;
                    data.create(path, 0o666)
                }
                other => other,
            }
        };
        make().map_err(|e| Error::io("create", &at, e))
    }

    /// Removes this path in [`Reservation::dir`], a tree too; a missing one is no error.
    ///
    /// # Errors
    /// A path that leads out of the directory; the disk's error.
    pub fn remove(&self, path: &Path) -> Result<(), Error> {
        let at = self.dir().join(path);
        let remove = || self.layout().dir.sub(self.layout().beneath(&self.dir())?)?.remove_all(path);
        remove().map_err(|e| Error::io("remove", &at, e))
    }

    /// Staged files are hard links from another store of the same user: their inodes become objects, without
    /// copies.
    pub fn take_links(&self) {
        self.links.store(true, Ordering::Relaxed);
    }

    pub(crate) fn takes_links(&self) -> bool {
        self.links.load(Ordering::Relaxed)
    }

    pub(crate) fn staging(&self) -> PathBuf {
        self.depot.0.layout.staging(self.id)
    }

    fn layout(&self) -> &Layout {
        &self.depot.0.layout
    }

    pub(crate) fn depot(&self) -> &Depot {
        &self.depot
    }

    pub(crate) fn reused(&self) -> BTreeMap<Digest, Held> {
        self.reused.lock().clone()
    }

    /// The files of the manifest that need no transfer, because `reader` may read their content here already. They
    /// are held for this reservation from now on. Whether no cache has a content or only other users' caches do
    /// makes no difference, in the answer or in the time that it takes.
    ///
    /// # Errors
    /// Errors of disk and database.
    pub fn reuse(&self, manifest: &Manifest, reader: &Reader) -> Result<Reuse, Error> {
        let objects = self.depot.0.objects()?;
        let classes = classes_for(reader);
        let mut reuse = Reuse::default();
        let mut held = self.reused.lock();
        for file in manifest.files().filter(|f| !f.is_empty()) {
            let Some(key) = ObjectKey::of(file) else { continue };
            if !held.contains_key(&key.root) {
                let Some(found) = objects.readable(&classes, &key.root)? else { continue };
                // The exact inode, if it exists; else one to copy from.
                let exact = objects.get(&key)?.is_some() && objects.may(&classes, &key)?;
                let found = if exact { key } else { found };
                let len = objects.get(&found)?.map(|o| o.len);
                if len != Some(file.len()) || !self.hold(&found, file.len())? {
                    continue;
                }
                let path = self.held_path(&found.root);
                held.insert(found.root, Held { path, variant: found.variant });
                reuse.bytes += file.len();
            } else if manifest.file_of_root(&key.root) == Some(file.index()) {
                reuse.bytes += file.len();
            }
            reuse.files.push(file.index());
        }
        Ok(reuse)
    }

    fn held_path(&self, root: &Digest) -> PathBuf {
        held_in(&self.staging(), root)
    }

    /// Keeps an object by a link of our own; false if it has just gone, or can be seen to be damaged.
    fn hold(&self, key: &ObjectKey, len: u64) -> Result<bool, Error> {
        let (from, to) = (self.depot.0.layout.object(key), self.held_path(&key.root));
        self.layout().remove_file(&to)?;
        let linked = match self.layout().link(&from, &to) {
            Err(e) if os::unlinkable(&e) => self.layout().duplicate(&from, &to, true).map(drop),
            other => other,
        };
        match linked {
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(false),
            Err(e) => Err(Error::io("link", &to, e)),
            Ok(()) => Ok(self.layout().look(&to).is_ok_and(|m| m.is_file() && m.len == len)),
        }
    }

    /// To be called as the staged data grows: all that is there by now, bytes and names.
    ///
    /// # Errors
    /// [`Error::Exceeded`] once it is more than was declared: the cache is INVALID, and the reservation is of no use
    /// any more.
    pub fn grown(&self, staged: Size) -> Result<(), Error> {
        if let Some(promise) = self.depot.0.memory.write().promises.get_mut(&self.id) {
            promise.staged = staged;
        }
        let record = self.depot.cache(self.id).ok_or(Error::NoCache(self.id))?;
        self.depot.within_declared(&record, staged)
    }

    /// Commits the staged and reused files as the cache that the manifest describes; durable when it returns.
    /// `trusted`: every staged byte has been verified against this manifest; else it is verified now.
    ///
    /// If a version of the same name has this content already, the cache *is* that version: its record is returned,
    /// and the declared one removed.
    ///
    /// # Errors
    /// [`Error::Wrong`] for files that do not match the manifest, [`Error::Exceeded`], [`Error::Conflict`],
    /// [`Error::Unfit`], or errors of disk and database. Staged files stay then.
    pub fn commit(self, manifest: &Manifest, trusted: bool, now: u64) -> Result<Committed, Error> {
        let done = self.committed(manifest, trusted, now)?;
        // Files in the staging directory are in the view, or not needed; opening the store would remove them as
        // well.
        let _ = self.layout().remove_all(&self.staging());
        Ok(done)
    }

    /// As [`Reservation::commit`] of verified data, while a swarm still reads the staged names to send it to
    /// others: these last until the second value is dropped, which waits for the disk.
    ///
    /// # Errors
    /// As [`Reservation::commit`].
    pub fn commit_in_use(self, manifest: &Manifest, now: u64) -> Result<(Committed, Staged), Error> {
        let done = self.committed(manifest, true, now)?;
        Ok((done, Staged { depot: self.depot.clone(), id: self.id }))
    }

    fn committed(&self, manifest: &Manifest, trusted: bool, now: u64) -> Result<Committed, Error> {
        let record = self.depot.cache(self.id).ok_or(Error::NoCache(self.id))?;
        if record.state != State::Uploading {
            return Err(Error::State {
                id: self.id,
                state: record.state,
                why: "only a cache that is being uploaded can be committed",
            });
        }
        self.depot.within_declared(&record, raw_size(manifest))?;
        commit::commit(self, &record, manifest, trusted, now)
    }

    /// Releases the space and removes the staged files.
    ///
    /// # Errors
    /// The disk's error.
    pub fn discard(self) -> Result<(), Error> {
        self.clear()
    }

    /// Removes the staged files.
    fn clear(&self) -> Result<(), Error> {
        if let Some(promise) = self.depot.0.memory.write().promises.get_mut(&self.id) {
            promise.staged = Size::ZERO;
        }
        self.layout().remove_all(&self.staging())
    }

    /// After a commit that failed: removes its incomplete view, and objects that only this view had.
    pub(crate) fn undo(&self, view: &Path) -> Result<(), Error> {
        let objects = self.depot.0.objects()?;
        discard(&self.depot.0.layout, view, |key| objects.get(key).map(|o| o.is_some()))
    }
}

/// The staged names of a committed cache ([`Reservation::commit_in_use`]). Dropped, they are removed; opening the store, or
/// removing the cache, does it as well.
#[must_use = "dropped, the staged names are removed"]
pub struct Staged {
    depot: Depot,
    id: CacheId,
}

impl std::fmt::Debug for Staged {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Staged").field("id", &self.id).finish_non_exhaustive()
    }
}

impl Drop for Staged {
    fn drop(&mut self) {
        let layout = &self.depot.0.layout;
        let _ = layout.remove_all(&layout.staging(self.id));
        // Of a cache that turned out to be here already, the names were all that took room.
        self.depot.0.memory.write().promises.remove(&self.id);
    }
}

/// The name of a reused object in the staging directory of a reservation.
pub(crate) fn held_in(staging: &Path, root: &Digest) -> PathBuf {
    staging.join("reused").join(HEXLOWER.encode(root))
}

impl Depot {
    /// Removes the staged files of an ended reservation of a cache that was never committed.
    ///
    /// # Errors
    /// [`Error::State`] for a committed cache; the disk's error.
    pub fn clear_staged(&self, id: CacheId) -> Result<(), Error> {
        if let Some(record) = self.cache(id).filter(|r| r.is_committed()) {
            return Err(Error::State { id, state: record.state, why: "the cache has no staged files" });
        }
        self.0.layout.remove_all(&self.0.layout.staging(id).join("data"))
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        let state = self.depot.cache(self.id).map(|r| r.state);
        if state == Some(State::Invalid) {
            // Nothing will come of it.
            let _ = self.clear();
        }
        // Leftover files occupy space, reported or not; those of a commit belong to the cache.
        let promised = self.depot.0.memory.read().promises.contains_key(&self.id);
        if promised {
            let left = self.layout().measure(&self.staging()).unwrap_or_default();
            let mut memory = self.depot.0.memory.write();
            if let Some(promise) = memory.promises.get_mut(&self.id) {
                *promise = Promise { promised: left, staged: left, held: false };
                if left == Size::ZERO {
                    memory.promises.remove(&self.id);
                }
            }
        }
        if state == Some(State::Uploading) {
            // Opening the store would do it as well.
            let _ = self.depot.change(self.id, |r| {
                r.state = State::Uncommitted;
                Ok(())
            });
        }
    }
}
