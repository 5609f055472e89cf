//! The store as its users see it.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::{Mutex, RwLock};
use rustix::fs::fstatvfs;
use tidecast_metainfo::Manifest;
use tidecast_paths::{Lock, Root};

use crate::db::{Db, Name, Objects, Tables};
use crate::error::Context;
use crate::layout::Layout;
use crate::memory_state::MemoryState;
use crate::record::{Past, check_account, check_name};
use crate::{CacheId, CacheRecord, Config, Declare, Error, Filter, Reader, Size, State, Usage, Use, UseId};

/// The host's store. Clones are the same store; any thread may call, and every call may wait for the disk.
#[derive(Clone)]
pub struct Depot(pub(crate) Arc<Inner>);

/// Locks are taken in this order: `disk`, `db`, `memory`.
pub(crate) struct Inner {
    pub(crate) layout: Layout,
    pub(crate) config: RwLock<Config>,
    /// Held while objects are added or removed: database and directory agree for all other threads.
    pub(crate) disk: Mutex<()>,
    pub(crate) db: Mutex<Db>,
    pub(crate) memory: RwLock<MemoryState>,
    /// Never read: holding it open holds the lock.
    _lock: Lock,
}

impl Depot {
    /// Opens the store in `dir`, creates it if need be, and clears leftovers of a crash.
    ///
    /// # Errors
    /// [`Error::Busy`]; [`Error::Format`]; errors of disk and database.
    pub fn open(dir: &Path, config: Config) -> Result<Self, Error> {
        let layout = Layout::open_root(std::path::absolute(dir).at("find", dir)?)?;
        layout.make()?;
        let busy = || Error::Busy { path: layout.root.clone() };
        let lock = layout.lock_file(&layout.lock())?.ok_or_else(busy)?;
        let db = open_db(&layout)?;
        layout.keep_spare();
        let depot = Depot(Arc::new(Inner {
            layout,
            config: RwLock::new(config),
            disk: Mutex::new(()),
            db: Mutex::new(db),
            memory: RwLock::default(),
            _lock: lock,
        }));
        depot.recover()?;
        Ok(depot)
    }

    /// Changes the limits. Nothing is evicted before the next admission or sweep.
    pub fn configure(&self, config: Config) {
        *self.0.config.write() = config;
    }

    /// The limits.
    #[must_use]
    pub fn config(&self) -> Config {
        self.0.config.read().clone()
    }

    /// The store's directory.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.0.layout.root
    }

    /// Declares a cache without data. If it exists (same version and owner), that one is returned.
    ///
    /// # Errors
    /// [`Error::Name`]; [`Error::Taken`]; [`Error::Declared`]; the database's error.
    pub fn declare(&self, new: Declare, now: u64) -> Result<Arc<CacheRecord>, Error> {
        let group = new.group.as_deref();
        [&*new.origin, &*new.name].into_iter().try_for_each(check_name)?;
        [&*new.owner].into_iter().chain(group).try_for_each(check_account)?;
        let lease_until = self.0.config.read().lease_until(new.lease, now);
        let id = self.0.write(|t| {
            let taken = || Error::Taken { origin: new.origin.clone(), name: new.name.clone() };
            // An owner without a cache of this name, committed or in progress, has no claim to it.
            let name = t.name(&new.origin, &new.name)?.filter(|n| n.last > 0 || self.0.comes(&new, &n.owner));
            if name.as_ref().is_some_and(|n| n.owner != new.owner) {
                return Err(taken());
            }
            if let Some(known) = self.0.same(&new) {
                return Ok(known);
            }
            self.0.may_declare(&new.owner)?;
            let blank = || Name { owner: new.owner.clone(), last: 0, other: Default::default() };
            t.set_name(&new.origin, &new.name, &name.unwrap_or_else(blank))?;
            let id = t.next_id()?;
            t.put(blank_record(id, &new, lease_until, now))?;
            Ok(id)
        })?;
        self.cache(id).ok_or(Error::NoCache(id))
    }

    /// A cache.
    #[must_use]
    pub fn cache(&self, id: CacheId) -> Option<Arc<CacheRecord>> {
        self.0.memory.read().get(id).cloned()
    }

    /// The caches that a filter lets through, by number.
    #[must_use]
    pub fn caches(&self, filter: &Filter) -> Vec<Arc<CacheRecord>> {
        let memory = self.0.memory.read();
        memory
            .caches
            .values()
            .filter(|r| !memory.leaving.contains(&r.id) && filter.matches(r))
            .cloned()
            .collect()
    }

    /// A version of a name, or the highest committed one.
    #[must_use]
    pub fn find(&self, origin: &str, name: &str, version: Option<u64>) -> Option<Arc<CacheRecord>> {
        let memory = self.0.memory.read();
        let named = memory.caches.values().filter(|r| r.name == name && r.origin == origin);
        let wanted = named.filter(|r| match version {
            Some(v) => r.version == Some(v),
            None => r.is_committed(),
        });
        wanted
            .filter(|r| !memory.leaving.contains(&r.id))
            .max_by_key(|r| (r.version, r.is_committed()))
            .cloned()
    }

    /// The committed caches with this content.
    #[must_use]
    pub fn with_content(&self, content: &[u8; 32]) -> Vec<Arc<CacheRecord>> {
        let mut all = self.caches(&Filter { state: Some(State::Committed), ..Filter::default() });
        all.retain(|r| r.content.as_ref() == Some(content));
        all
    }

    /// The versions of a name that this store remembers, lowest first, removed ones too.
    ///
    /// # Errors
    /// The database's error.
    pub fn history(&self, origin: &str, name: &str) -> Result<Vec<Past>, Error> {
        let view = self.0.db.lock().read()?;
        view.past(origin, name)
    }

    /// The manifest of a committed cache, without trackers and comments.
    ///
    /// # Errors
    /// [`Error::NoCache`], [`Error::State`], [`Error::Manifest`], or the disk's error.
    pub fn manifest(&self, id: CacheId) -> Result<Manifest, Error> {
        let record = self.committed(id)?;
        self.0.layout.manifest_in(&self.0.layout.cache(record.id))
    }

    /// The encoded manifest of a committed cache, open for reading.
    ///
    /// # Errors
    /// As [`Depot::manifest`].
    pub fn open_manifest(&self, id: CacheId) -> Result<File, Error> {
        let record = self.committed(id)?;
        let path = self.0.layout.cache(record.id).join("manifest");
        self.0.layout.open(&path).at("open", &path)
    }

    /// Where a committed cache is to be read: its published file or directory. It stays there while the cache is used
    /// ([`Depot::begin_use`]), pinned, or not evicted.
    ///
    /// # Errors
    /// [`Error::NoCache`] or [`Error::State`]; [`Error::Changed`]: another program has changed the store.
    pub fn view(&self, id: CacheId) -> Result<PathBuf, Error> {
        let record = self.committed(id)?;
        let view = self.0.layout.view(&record);
        if self.is_ours(&record)? {
            return Ok(view);
        }
        Err(Error::Changed { path: view, why: "not created by this store" })
    }

    /// Opens a directory of the store, given by its whole path ([`Depot::view`],
    /// [`Reservation::dir`](crate::Reservation::dir)): operations beneath it stay in it, even if its name is
    /// changed.
    ///
    /// # Errors
    /// The system's error; a link in the path is rejected.
    pub fn open_dir(&self, path: &Path) -> Result<Root, Error> {
        let layout = &self.0.layout;
        layout.beneath(path).and_then(|p| layout.dir.sub(p)).at("open", path)
    }

    /// Device and inode of [`Depot::view`].
    ///
    /// # Errors
    /// As [`Depot::view`].
    pub fn inode(&self, id: CacheId) -> Result<(u64, u64), Error> {
        let view = self.view(id)?;
        Ok(self.0.layout.look(&view).at("stat", &view)?.id)
    }

    /// The INVALID caches that are the same version of the same cache.
    pub(crate) fn damaged(&self, of: &CacheRecord) -> Vec<Arc<CacheRecord>> {
        let same = |r: &CacheRecord| {
            r.state == State::Invalid
                && r.content.is_some()
                && (&r.origin, &r.name, &r.owner, r.version) == (&of.origin, &of.name, &of.owner, of.version)
        };
        let memory = self.0.memory.read();
        memory.caches.values().filter(|r| same(r) && !memory.leaving.contains(&r.id)).cloned().collect()
    }

    pub(crate) fn committed(&self, id: CacheId) -> Result<Arc<CacheRecord>, Error> {
        let record = self.cache(id).ok_or(Error::NoCache(id))?;
        if !record.is_committed() {
            return Err(Error::State { id, state: record.state, why: "the cache must be committed first" });
        }
        Ok(record)
    }

    /// Records that a job uses a committed cache: until it ends, the cache stays. Counts as use.
    ///
    /// # Errors
    /// [`Error::NoCache`], also for one that `reader` may not read; [`Error::State`]; the disk's error.
    pub fn begin_use(&self, id: CacheId, what: Use, reader: &Reader, now: u64) -> Result<UseId, Error> {
        let record = self.committed(id)?;
        if !record.readable_by(reader) {
            return Err(Error::NoCache(id));
        }
        let mut memory = self.0.memory.write();
        memory.get(id).ok_or(Error::NoCache(id))?;
        memory.touch(id, now);
        memory.uses.begin(&self.0.layout, id, what, now)
    }

    /// Ends a use; one that has ended already is no error.
    ///
    /// # Errors
    /// The disk's error.
    pub fn end_use(&self, id: UseId) -> Result<(), Error> {
        self.0.memory.write().uses.end(&self.0.layout, id)
    }

    /// The uses of a cache that last.
    #[must_use]
    pub fn uses(&self, id: CacheId, now: u64) -> Vec<(UseId, Use)> {
        self.0.memory.read().uses.lasting(id, now)
    }

    /// The uses of all caches that last.
    #[must_use]
    pub fn all_uses(&self, now: u64) -> Vec<(UseId, Use)> {
        self.0.memory.read().uses.all_lasting(now)
    }

    /// Whether a job uses any cache; an interactive shell does not count.
    #[must_use]
    pub fn has_jobs(&self, now: u64) -> bool {
        self.0.memory.read().uses.any_job(now)
    }

    /// Whether any cache is in use.
    #[must_use]
    pub fn in_use(&self, now: u64) -> bool {
        self.0.memory.read().uses.any_at_all(now)
    }

    /// Extends the lease to at least `seconds` from now, within the cap. Returns its end.
    ///
    /// # Errors
    /// [`Error::NoCache`]; the database's error.
    pub fn extend(&self, id: CacheId, seconds: u64, now: u64) -> Result<u64, Error> {
        let until = self.0.config.read().lease_until(Some(seconds), now);
        let record = self.change(id, |r| {
            r.lease_until = r.lease_until.max(until);
            Ok(())
        })?;
        Ok(record.lease_until)
    }

    /// Pins a cache: it is not evicted, and its lease does not expire.
    ///
    /// # Errors
    /// [`Error::NoCache`]; the database's error.
    pub fn pin(&self, id: CacheId) -> Result<(), Error> {
        self.change(id, |r| {
            r.pinned = true;
            Ok(())
        })?;
        Ok(())
    }

    /// Unpins a cache: it may be evicted again.
    ///
    /// # Errors
    /// [`Error::NoCache`]; the database's error.
    pub fn unpin(&self, id: CacheId) -> Result<(), Error> {
        self.change(id, |r| {
            r.pinned = false;
            Ok(())
        })?;
        Ok(())
    }

    /// Changes the caller's attributes of a cache.
    ///
    /// # Errors
    /// [`Error::NoCache`]; the database's error.
    pub fn set_attributes(
        &self,
        id: CacheId,
        attributes: std::collections::BTreeMap<String, serde_json::Value>,
    ) -> Result<(), Error> {
        self.change(id, |r| {
            r.attributes = attributes.clone();
            Ok(())
        })?;
        Ok(())
    }

    /// Stores a number under this name for the caller, who alone interprets it.
    ///
    /// # Errors
    /// The database's error.
    pub fn keep(&self, name: &str, number: u64) -> Result<(), Error> {
        self.0.write(|t| t.keep(name, number))
    }

    /// The number stored under this name; 0 if none was.
    ///
    /// # Errors
    /// The database's error.
    pub fn kept(&self, name: &str) -> Result<u64, Error> {
        let view = self.0.db.lock().read()?;
        view.kept(name)
    }

    /// Marks a cache as INVALID: it is never handed out again, and evicted first.
    ///
    /// # Errors
    /// [`Error::NoCache`]; the database's error.
    pub fn invalidate(&self, id: CacheId, reason: &str) -> Result<(), Error> {
        self.change(id, |r| {
            r.state = State::Invalid;
            r.reason = Some(reason.to_owned());
            Ok(())
        })?;
        Ok(())
    }

    /// Changes a record, durably.
    pub(crate) fn change(
        &self,
        id: CacheId,
        f: impl Fn(&mut CacheRecord) -> Result<(), Error>,
    ) -> Result<Arc<CacheRecord>, Error> {
        self.0.write(|t| {
            let mut record = CacheRecord::clone(&*self.cache(id).ok_or(Error::NoCache(id))?);
            f(&mut record)?;
            t.put(record)
        })?;
        self.cache(id).ok_or(Error::NoCache(id))
    }

    /// Total, used and free space.
    ///
    /// # Errors
    /// The file system's error.
    pub fn usage(&self) -> Result<Usage, Error> {
        self.usage_by(&self.config())
    }

    /// As [`Depot::usage`], by other limits.
    pub(crate) fn usage_by(&self, config: &Config) -> Result<Usage, Error> {
        let free = self.0.free()?;
        let memory = self.0.memory.read();
        let (staged, promised) = memory.promised();
        Ok(Usage::new(config, memory.kept(), staged, promised, free))
    }

    /// The space of an owner's caches; files shared among them count once, files shared with other owners count for
    /// each owner.
    #[must_use]
    pub fn used_by(&self, owner: &str) -> Size {
        self.0.memory.read().used_by(owner)
    }
}

impl Inner {
    /// Changes the database, then the copy in memory.
    pub(crate) fn write<R>(
        &self,
        mut f: impl FnMut(&mut Tables<'_>) -> Result<R, Error>,
    ) -> Result<R, Error> {
        let mut db = self.db.lock();
        let mut done = db.write(&mut f);
        if done.as_ref().is_err_and(Error::is_full) && self.layout.use_spare() {
            done = db.write(&mut f);
        }
        let (result, changes) = done?;
        // Still under the database's lock: the next writer sees this.
        self.memory.write().apply(changes);
        Ok(result)
    }

    /// The objects as they are now.
    pub(crate) fn objects(&self) -> Result<Objects, Error> {
        let view = self.db.lock().read()?;
        view.objects()
    }

    /// Limits declared caches without data, so that no owner can fill the database.
    fn may_declare(&self, owner: &str) -> Result<(), Error> {
        let most = self.config.read().declared;
        let memory = self.memory.read();
        let declared = memory.caches.values().filter(|r| r.content.is_none() && r.owner == owner).count();
        if declared < most { Ok(()) } else { Err(Error::Declared { owner: owner.to_owned(), most }) }
    }

    /// Whether an owner has a cache of this name in progress.
    fn comes(&self, new: &Declare, owner: &str) -> bool {
        let memory = self.memory.read();
        let named = memory.caches.values().filter(|r| r.name == new.name && r.origin == new.origin);
        named.into_iter().any(|r| r.owner == owner && r.state != State::Invalid)
    }

    /// The cache that this declares again.
    fn same(&self, new: &Declare) -> Option<CacheId> {
        let version = new.version?;
        let memory = self.memory.read();
        let same = |r: &CacheRecord| {
            r.origin == new.origin
                && r.name == new.name
                && r.version == Some(version)
                && r.owner == new.owner
                && r.state != State::Invalid
        };
        memory.caches.values().find(|r| same(r) && !memory.leaving.contains(&r.id)).map(|r| r.id)
    }

    /// The free and the total space of the file system.
    fn free(&self) -> Result<(Size, Size), Error> {
        let v = fstatvfs(&*self.layout.dir).at("stat", &self.layout.root)?;
        // A file system that does not report it has enough.
        let known = |all, n| if all == 0 { u64::MAX / 4 } else { n };
        let bytes = |blocks: u64| known(v.f_blocks, blocks.saturating_mul(v.f_frsize));
        let free = Size { bytes: bytes(v.f_bavail), inodes: known(v.f_files, v.f_favail) };
        Ok((free, Size { bytes: bytes(v.f_blocks), inodes: known(v.f_files, v.f_files) }))
    }
}

fn open_db(layout: &Layout) -> Result<Db, Error> {
    // With a new database every cache would be one that a crash has left, and would be removed.
    let path = layout.db();
    let is_gone = match layout.look(&path) {
        Ok(meta) => meta.len == 0,
        Err(e) => e.kind() == io::ErrorKind::NotFound,
    };
    if is_gone && !layout.names(&layout.caches())?.is_empty() {
        return Err(Error::NoDatabase { path, store: layout.root.clone() });
    }
    match Db::open(layout) {
        // Opening after a crash writes; a full disk must not keep us from making room.
        Err(e) if e.is_full() && layout.use_spare() => Db::open(layout),
        Err(Error::Db(e)) if matches!(*e, redb::Error::Corrupted(_)) => {
            Err(Error::DamagedDatabase { path, store: layout.root.clone(), why: e.to_string() })
        }
        other => other,
    }
}

fn blank_record(id: CacheId, new: &Declare, lease_until: u64, now: u64) -> CacheRecord {
    CacheRecord {
        id,
        origin: new.origin.clone(),
        name: new.name.clone(),
        version: new.version,
        owner: new.owner.clone(),
        group: new.group.clone(),
        mode: new.mode & 0o444,
        private: new.private,
        state: State::Uncommitted,
        reason: None,
        withdrawn: false,
        content: None,
        top: Vec::new(),
        declared: new.size,
        size: Size::ZERO,
        own: Size::ZERO,
        files: 0,
        bytes: 0,
        created: now,
        committed: None,
        last_used: now,
        lease_until,
        pinned: false,
        local: new.local,
        attributes: new.attributes.clone(),
        other: Default::default(),
    }
}
