//! State in memory: records, usage, reserved space, uses.
//!
//! The database is authoritative; this is changed only after it (except for state of this run only).

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use crate::db::{ALL, Changes};
use crate::uses::Uses;
use crate::{CacheId, CacheRecord, Size};

/// Reserved space of a transfer in progress.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Promise {
    /// Reserved size.
    pub(crate) promised: Size,
    /// Staged size, as far as reported.
    pub(crate) staged: Size,
    /// A transfer holds the reservation.
    pub(crate) held: bool,
}

#[derive(Default)]
pub(crate) struct MemoryState {
    pub(crate) caches: BTreeMap<CacheId, Arc<CacheRecord>>,
    pub(crate) usage: HashMap<String, Size>,
    pub(crate) promises: BTreeMap<CacheId, Promise>,
    /// Caches that are being read by us.
    pub(crate) busy: HashMap<CacheId, u32>,
    /// Caches that are being removed: they count as removed.
    pub(crate) leaving: HashSet<CacheId>,
    /// Caches of which `last_used` is newer here than in the database.
    pub(crate) touched: HashSet<CacheId>,
    pub(crate) uses: Uses,
}

impl MemoryState {
    pub(crate) fn apply(&mut self, changes: Changes) {
        for mut record in changes.put {
            if let Some(old) = self.caches.get(&record.id) {
                // Another task may have used it meanwhile.
                record.last_used = record.last_used.max(old.last_used);
            }
            self.caches.insert(record.id, Arc::new(record));
        }
        for id in changes.gone {
            self.caches.remove(&id);
            self.promises.remove(&id);
            self.leaving.remove(&id);
            self.touched.remove(&id);
        }
        for (owner, size) in changes.usage {
            match size {
                Size::ZERO => self.usage.remove(&owner),
                size => self.usage.insert(owner, size),
            };
        }
    }

    /// A cache that is not being removed.
    pub(crate) fn get(&self, id: CacheId) -> Option<&Arc<CacheRecord>> {
        self.caches.get(&id).filter(|_| !self.leaving.contains(&id))
    }

    /// The space of an owner's caches.
    pub(crate) fn used_by(&self, owner: &str) -> Size {
        self.usage.get(owner).copied().unwrap_or_default()
    }

    /// The space of all caches.
    pub(crate) fn kept(&self) -> Size {
        self.used_by(ALL)
    }

    /// The staged space, and the larger of reserved and staged space.
    pub(crate) fn promised(&self) -> (Size, Size) {
        let all = self.promises.values();
        all.fold((Size::ZERO, Size::ZERO), |(staged, promised), p| {
            (staged.plus(p.staged), promised.plus(p.promised.max(p.staged)))
        })
    }

    /// The reserved space of an owner.
    pub(crate) fn promised_to(&self, owner: &str) -> Size {
        let of = self.promises.iter().filter(|(id, _)| self.caches.get(id).is_some_and(|r| r.owner == owner));
        of.fold(Size::ZERO, |sum, (_, p)| sum.plus(p.promised.max(p.staged)))
    }

    /// Used by a job, read by the store, or being added or removed.
    pub(crate) fn in_use(&self, id: CacheId, now: u64) -> bool {
        self.busy.contains_key(&id)
            || self.leaving.contains(&id)
            || self.promises.get(&id).is_some_and(|p| p.held)
            || self.uses.any(id, now)
    }

    /// Notes that a cache was used.
    pub(crate) fn touch(&mut self, id: CacheId, now: u64) {
        if let Some(record) = self.caches.get_mut(&id)
            && record.last_used < now
        {
            Arc::make_mut(record).last_used = now;
            self.touched.insert(id);
        }
    }
}
