//! Whether there is room for a cache, before any of it moves.

use std::collections::BTreeSet;
use std::sync::Arc;

use tidecast_metainfo::Manifest;
use tidecast_text::count;

use crate::memory_state::Promise;
use crate::object::{Parts, classes_for, object_size};
use crate::{CacheId, CacheRecord, Depot, Error, Reader, Reservation, Size, State};

/// The answer to a request for room.
#[derive(Debug)]
pub enum Admission {
    /// Room is kept for it.
    Ok(Reservation),
    /// Not now; the obstacle will end by itself.
    Wait(Reason),
    /// Not while things are as they are.
    Denied(Reason),
}

/// Why there is no room.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Reason {
    /// Running jobs use caches that would have to be evicted.
    #[error("the space is occupied by caches that running jobs use")]
    InUse,
    /// Other transfers are in progress.
    #[error("the remaining space is reserved for transfers in progress")]
    Promised,
    /// A transfer of this cache is in progress.
    #[error("a transfer of this cache is already in progress")]
    Underway,
    /// Larger than the store.
    #[error("it needs {}; the store can hold at most {}", amount(need), amount(room))]
    TooLarge {
        /// The size of the cache.
        need: Size,
        /// All that the store may hold.
        room: Size,
    },
    /// More than the owner may have.
    #[error("it needs {}; its owner uses {} of a quota of {}", amount(need), amount(used), amount(quota))]
    Quota {
        /// The size of the cache.
        need: Size,
        /// The size of the owner's caches.
        used: Size,
        /// The owner's quota.
        quota: Size,
    },
    /// Caches that would have to be evicted are pinned.
    #[error("the space is occupied by pinned caches")]
    Pinned,
    /// Others have filled the file system, and nothing is left to evict.
    #[error("the disk is full: it needs {} more", amount(missing))]
    DiskFull {
        /// The missing space.
        missing: Size,
    },
}

/// An amount as text; of a limit, without the unlimited part.
fn amount(of: &Size) -> String {
    match (tidecast_text::Size(of.bytes), of.inodes) {
        (bytes, u64::MAX) => bytes.to_string(),
        (tidecast_text::Size(u64::MAX), files) => count(files, "file"),
        (bytes, files) => format!("{bytes} and {}", count(files, "file")),
    }
}

/// Caches that are never evicted.
#[derive(Default)]
struct Held {
    pinned: Size,
    all: Size,
}

impl Depot {
    /// Reserves space for a declared cache, evicting others if need be. With the manifest, exactly the space of
    /// files that `reader` must transfer; else the declared size.
    ///
    /// # Errors
    /// [`Error::NoCache`]; [`Error::State`]; [`Error::Unfit`]; [`Error::Exceeded`] (the cache is INVALID then);
    /// errors of disk and database.
    pub fn admit(
        &self,
        id: CacheId,
        manifest: Option<&Manifest>,
        reader: &Reader,
        now: u64,
    ) -> Result<Admission, Error> {
        let record = self.cache(id).ok_or(Error::NoCache(id))?;
        if !matches!(record.state, State::Uncommitted | State::Uploading) {
            return Err(Error::State { id, state: record.state, why: "only a declared cache accepts data" });
        }
        if let Some(m) = manifest {
            self.within_declared(&record, raw_size(m))?;
        }
        // A disk that was full may have taken it.
        self.0.layout.keep_spare();
        let need = match manifest {
            Some(m) => self.to_bring(&Parts::of(m)?, reader)?,
            None => worst(record.declared),
        };
        if let Some(answer) = self.make_room(&record, need, now)? {
            return Ok(answer);
        }
        self.reserve(&record, need)
    }

    /// Evicts until `need` fits; an answer if that cannot be.
    fn make_room(&self, record: &CacheRecord, need: Size, now: u64) -> Result<Option<Admission>, Error> {
        let owner = &record.owner;
        if let Some(quota) = self.0.config.read().quota_of(owner) {
            let of = |r: &CacheRecord| r.owner == *owner;
            let used = || {
                let memory = self.0.memory.read();
                memory.used_by(owner).plus(memory.promised_to(owner).minus(mine(&memory, record.id)))
            };
            let short = || used().plus(need).minus(quota);
            if short() != Size::ZERO {
                let held = self.held(of, now);
                let denied = Reason::Quota { need, used: used(), quota };
                if !held.pinned.plus(need).fits(quota) {
                    return Ok(Some(Admission::Denied(denied)));
                }
                self.evict(short(), of, now)?;
                if short() != Size::ZERO {
                    return Ok(Some(Admission::Wait(Reason::InUse)));
                }
            }
        }
        let short = || -> Result<Size, Error> {
            let usage = self.usage()?;
            let freed = mine(&self.0.memory.read(), record.id);
            Ok(usage.shortage(need.minus(freed)))
        };
        if short()? == Size::ZERO {
            return Ok(None);
        }
        let usage = self.usage()?;
        let promised = usage.promised.minus(mine(&self.0.memory.read(), record.id));
        let held = self.held(|_| true, now);
        if !need.fits(usage.high) && self.0.config.read().max_bytes.is_some_and(|max| need.bytes > max) {
            return Ok(Some(Admission::Denied(Reason::TooLarge { need, room: usage.high })));
        }
        if !held.all.plus(promised).plus(need).fits(usage.high) {
            return Ok(Some(refuse(need, &held, promised, usage.high)));
        }
        self.evict(short()?, |_| true, now)?;
        Ok((short()? != Size::ZERO).then_some(Admission::Wait(Reason::InUse)))
    }

    /// Caches that cannot be evicted.
    fn held(&self, of: impl Fn(&CacheRecord) -> bool, now: u64) -> Held {
        let fixed: Vec<_> = {
            let memory = self.0.memory.read();
            let caches = memory.caches.values().filter(|r| of(r) && r.content.is_some());
            caches.filter(|r| r.pinned || memory.in_use(r.id, now)).cloned().collect()
        };
        let pinned: Vec<_> = fixed.iter().filter(|r| r.pinned).cloned().collect();
        Held { pinned: self.extent(&pinned), all: self.extent(&fixed) }
    }

    /// The exact space of these caches; files that they share count once.
    pub(crate) fn extent(&self, caches: &[Arc<CacheRecord>]) -> Size {
        let (mut size, mut seen) = (Size::ZERO, BTreeSet::new());
        for record in caches {
            let manifest = self.0.layout.manifest_in(&self.0.layout.cache(record.id));
            let Ok(parts) = manifest.and_then(|m| Parts::of(&m)) else { continue };
            size = size.plus(parts.own);
            for (key, len) in parts.objects {
                if seen.insert(key) {
                    size = size.plus(object_size(len));
                }
            }
        }
        size
    }

    /// The space of a manifest's files that `reader` must transfer, and its own part.
    fn to_bring(&self, parts: &Parts, reader: &Reader) -> Result<Size, Error> {
        let objects = self.0.objects()?;
        let classes = classes_for(reader);
        let mut need = parts.own;
        for (key, len) in &parts.objects {
            let spared = match objects.readable(&classes, &key.root)? {
                // Another variant of it needs an inode and, where blocks cannot be shared, a copy.
                Some(found) => {
                    found.variant == key.variant && objects.get(&found)?.is_some_and(|o| o.len == *len)
                }
                None => false,
            };
            if !spared {
                need = need.plus(object_size(*len));
            }
        }
        Ok(need)
    }

    /// More than was declared ends a cache.
    pub(crate) fn within_declared(&self, record: &CacheRecord, found: Size) -> Result<(), Error> {
        let declared = record.declared;
        if found.fits(declared) {
            return Ok(());
        }
        self.invalidate(record.id, "received more data than declared")?;
        Err(Error::Exceeded { declared, found })
    }

    fn reserve(&self, record: &CacheRecord, need: Size) -> Result<Admission, Error> {
        {
            let mut memory = self.0.memory.write();
            let record = memory.get(record.id).ok_or(Error::NoCache(record.id))?.id;
            let promise = memory.promises.entry(record).or_default();
            if promise.held {
                return Ok(Admission::Wait(Reason::Underway));
            }
            *promise = Promise { promised: need, held: true, ..*promise };
        }
        Reservation::new(self, record.id).map(Admission::Ok)
    }
}

/// Space reserved for this cache already, or occupied by its staged files.
fn mine(memory: &crate::memory_state::MemoryState, id: CacheId) -> Size {
    memory.promises.get(&id).map_or(Size::ZERO, |p| p.promised.max(p.staged))
}

/// Which of the reasons it is.
fn refuse(need: Size, held: &Held, promised: Size, high: Size) -> Admission {
    if !need.fits(high) {
        // Others on the same disk, or the store itself, leave less than it needs.
        return Admission::Denied(Reason::TooLarge { need, room: high });
    }
    if !held.pinned.plus(need).fits(high) {
        return Admission::Denied(Reason::Pinned);
    }
    if !promised.plus(held.pinned).plus(need).fits(high) {
        return Admission::Wait(Reason::Promised);
    }
    Admission::Wait(Reason::InUse)
}

/// The size of a manifest as users see it: bytes of distinct files, and every name.
pub(crate) fn raw_size(manifest: &Manifest) -> Size {
    Size {
        bytes: manifest.unique_len(),
        inodes: u64::from(manifest.file_count()) + manifest.dirs().len() as u64,
    }
}

/// The maximum of space for a cache of this declared size.
fn worst(declared: Size) -> Size {
    let parts = declared.inodes.saturating_add(4);
    Size { bytes: declared.bytes.saturating_add(parts.saturating_mul(4096)), inodes: parts }
}
