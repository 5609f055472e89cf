//! Eviction: the order of eviction, and the removal of a cache.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use std::path::PathBuf;
use std::sync::Arc;

use crate::capacity::promised;
use crate::db::ALL;
use crate::layout::Layout;
use crate::memory_state::MemoryState;
use crate::object::{ObjectKey, Parts, object_size};
use crate::open_dir::OpenDir;
use crate::{CacheId, CacheRecord, Config, Depot, Error, Size, State};

/// Caches that go in one transaction at most.
const BATCH: usize = 64;

/// The result of an eviction.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Swept {
    /// Freed space: files that no other cache has, and the removed caches' own parts.
    pub freed: Size,
    /// The caches.
    pub gone: Vec<CacheId>,
}

/// Data for the order of eviction.
struct Candidate {
    id: CacheId,
    owner: String,
    /// Damaged caches and interrupted uploads first, then those with an expired lease, by its end.
    first: Option<(bool, u64)>,
    last_used: u64,
    size: Size,
}

/// Candidates in the order in which they go.
struct Queue {
    first: VecDeque<Candidate>,
    by_owner: HashMap<String, VecDeque<Candidate>>,
    usage: HashMap<String, Size>,
    /// Greed is by inodes where only these are short.
    by_inodes: bool,
}

impl Queue {
    fn new(all: Vec<Candidate>, usage: HashMap<String, Size>, by_inodes: bool) -> Self {
        let (mut first, mut rest): (Vec<_>, Vec<_>) = all.into_iter().partition(|c| c.first.is_some());
        first.sort_by_key(|c| (c.first, c.id));
        rest.sort_by_key(|c| (c.last_used, c.id));
        let mut by_owner: HashMap<String, VecDeque<Candidate>> = HashMap::new();
        for c in rest {
            by_owner.entry(c.owner.clone()).or_default().push_back(c);
        }
        Queue { first: first.into(), by_owner, usage, by_inodes }
    }
}

impl Iterator for Queue {
    type Item = Candidate;

    fn next(&mut self) -> Option<Candidate> {
        let next = self.first.pop_front().or_else(|| {
            let greed = |owner: &String| {
                let used = self.usage.get(owner).copied().unwrap_or_default();
                if self.by_inodes { used.inodes } else { used.bytes }
            };
            // Equally greedy ones by name, so that it does not depend on a hash table.
            let (owner, _) =
                self.by_owner.iter().filter(|(_, q)| !q.is_empty()).max_by_key(|(o, _)| (greed(o), *o))?;
            let owner = owner.clone();
            self.by_owner.get_mut(&owner)?.pop_front()
        })?;
        if let Some(used) = self.usage.get_mut(&next.owner) {
            *used = used.minus(next.size);
        }
        Some(next)
    }
}

impl Depot {
    /// Periodic work: removes declared caches without data, ends uses of dead jobs, saves when caches were used,
    /// evicts the excess over quotas (they may have been lowered), and down to the low watermark if the high one is
    /// exceeded.
    ///
    /// # Errors
    /// Errors of disk and database.
    pub fn sweep(&self, now: u64) -> Result<Swept, Error> {
        self.0.memory.write().uses.tidy(&self.0.layout, now)?;
        self.flush_touched()?;
        let stale: Vec<CacheId> = {
            let memory = self.0.memory.read();
            let unborn = memory.caches.values().filter(|r| r.content.is_none() && r.expired(now));
            unborn.filter(|r| !memory.in_use(r.id, now)).map(|r| r.id).collect()
        };
        let mut swept = Swept::default();
        for batch in [stale, self.superseded()].concat().chunks(BATCH) {
            swept.add(self.drop_caches(batch, now)?);
        }
        for (owner, over) in self.over_quota() {
            swept.add(self.evict(over, |r| r.owner == owner, now)?);
        }
        self.shrink_excess(now);
        let surplus = self.usage()?.surplus();
        if surplus != Size::ZERO {
            let config = self.config();
            swept.add(self.evict(surplus, |r| !promised(r, config.origin.as_deref(), now), now)?);
            // Others have filled the disk: that leaves no choice, as a capacity does.
            let disk = Config { max_bytes: None, max_inodes: None, ..config };
            swept.add(self.evict(self.usage_by(&disk)?.surplus(), |_| true, now)?);
        }
        self.0.layout.keep_spare();
        Ok(swept)
    }

    /// Damaged caches that have been replaced since.
    fn superseded(&self) -> Vec<CacheId> {
        let memory = self.0.memory.read();
        let of = |wanted| move |r: &&Arc<CacheRecord>| r.state == wanted && r.content.is_some();
        let mut damaged = memory.caches.values().filter(of(State::Invalid)).peekable();
        if damaged.peek().is_none() {
            return Vec::new();
        }
        let version = |r: &CacheRecord| (r.origin.clone(), r.name.clone(), r.version);
        let whole: HashSet<_> =
            memory.caches.values().filter(of(State::Committed)).map(|r| version(r)).collect();
        damaged.filter(|r| !r.pinned && whole.contains(&version(r))).map(|r| r.id).collect()
    }

    /// Owners above their quota, and by how much.
    fn over_quota(&self) -> Vec<(String, Size)> {
        let (config, memory) = (self.0.config.read(), self.0.memory.read());
        let owners = memory.usage.iter().filter(|(owner, _)| *owner != ALL);
        let over = owners.filter_map(|(o, used)| Some((o.clone(), used.minus(config.quota_of(o)?))));
        over.filter(|(_, over)| *over != Size::ZERO).collect()
    }

    /// Removes a cache.
    ///
    /// # Errors
    /// [`Error::NoCache`]; [`Error::Pinned`]; [`Error::InUse`]; errors of disk and database.
    pub fn remove(&self, id: CacheId, now: u64) -> Result<Swept, Error> {
        {
            let memory = self.0.memory.read();
            let record = memory.get(id).ok_or(Error::NoCache(id))?;
            if record.pinned {
                return Err(Error::Pinned(id));
            }
        }
        let swept = self.drop_caches(&[id], now)?;
        if swept.gone.is_empty() { Err(Error::InUse(id)) } else { Ok(swept) }
    }

    /// Evicts caches that `of` lets through until `want` is freed, or nothing is left that may go.
    pub(crate) fn evict(
        &self,
        want: Size,
        of: impl Fn(&CacheRecord) -> bool,
        now: u64,
    ) -> Result<Swept, Error> {
        let mut swept = Swept::default();
        let mut tried = HashSet::new();
        while !want.fits(swept.freed) {
            let missing = want.minus(swept.freed);
            let queue = {
                let memory = self.0.memory.read();
                let all = memory.caches.values().filter(|r| of(r) && !tried.contains(&r.id));
                let all = all.filter(|r| !r.pinned && !memory.in_use(r.id, now));
                let all = all.filter_map(|r| candidate(r, left_of(&memory, r), now)).collect();
                Queue::new(all, memory.usage.clone(), missing.bytes == 0)
            };
            let mut hoped = Size::ZERO;
            let mut batch = Vec::new();
            for next in queue {
                batch.push(next.id);
                hoped = hoped.plus(next.size);
                if missing.fits(hoped) || batch.len() == BATCH {
                    break;
                }
            }
            if batch.is_empty() {
                break;
            }
            swept.add(self.drop_caches(&batch, now)?);
            tried.extend(batch);
        }
        Ok(swept)
    }

    /// Removes those of these caches that are not in use: first from the database, then from the disk.
    pub(crate) fn drop_caches(&self, ids: &[CacheId], now: u64) -> Result<Swept, Error> {
        let layout = &self.0.layout;
        let _disk = self.0.disk.lock();
        let (mut leaving, mut left) = (BTreeMap::new(), Size::ZERO);
        for id in ids {
            let record = {
                let mut memory = self.0.memory.write();
                let Some(record) = memory.get(*id).cloned() else { continue };
                if memory.in_use(*id, now) {
                    continue;
                }
                memory.leaving.insert(*id);
                left = left.plus(left_of(&memory, &record));
                record
            };
            // The objects of an unreadable manifest are unknown; `fsck` finds leftovers.
            let parts = match record.content {
                Some(_) => {
                    layout.manifest_in(&layout.cache(*id)).and_then(|m| Parts::of(&m)).unwrap_or_default()
                }
                None => Parts::default(),
            };
            leaving.insert(*id, (record, parts));
        }
        let done = self.forget(&leaving, now);
        self.0.memory.write().leaving.retain(|id| !leaving.contains_key(id));
        let (gone, freed) = done?;
        let gone: Vec<_> = gone.iter().map(|key| layout.object(key)).collect();
        let held = remove_files(layout, leaving.keys(), &gone)?;
        Ok(Swept { freed: freed.plus(left).minus(held), gone: leaving.into_keys().collect() })
    }

    /// The transaction that removes caches.
    fn forget(
        &self,
        leaving: &BTreeMap<CacheId, (std::sync::Arc<CacheRecord>, Parts)>,
        now: u64,
    ) -> Result<(Vec<ObjectKey>, Size), Error> {
        self.0.write(|t| {
            let (mut gone, mut freed) = (Vec::new(), Size::ZERO);
            for (id, (record, parts)) in leaving {
                if record.content.is_some() {
                    let (objects, size) = t.release(record, &parts.objects)?;
                    gone.extend(objects);
                    freed = freed.plus(size);
                }
                if let Some(version) = record.version {
                    let past = t.pasts(&record.origin, &record.name)?;
                    if let Some(mut past) = past.into_iter().find(|p| p.version == version) {
                        past.removed = Some(now);
                        t.remember(&record.origin, &record.name, &past)?;
                    }
                }
                t.delete(*id)?;
            }
            Ok((gone, freed))
        })
    }

    /// Writes down when caches were used last.
    fn flush_touched(&self) -> Result<(), Error> {
        let touched = self.0.memory.read().touched.clone();
        if touched.is_empty() {
            return Ok(());
        }
        self.0.write(|t| {
            for record in touched.iter().filter_map(|id| self.cache(*id)) {
                t.put(CacheRecord::clone(&record))?;
            }
            Ok(())
        })?;
        let mut memory = self.0.memory.write();
        memory.touched.retain(|id| !touched.contains(id));
        Ok(())
    }
}

/// Removes views and objects without a record. Manifests are removed last: after a crash they tell which objects
/// remain. Returns the space that hard links outside the store still hold.
fn remove_files<'i>(
    layout: &Layout,
    ids: impl Iterator<Item = &'i CacheId> + Clone,
    objects: &[PathBuf],
) -> Result<Size, Error> {
    for id in ids.clone() {
        let (cache, trash) = (layout.cache(*id), layout.trash().join(id.to_string()));
        if layout.is_dir(&cache) {
            // Moving a directory needs the right to write to it.
            layout.chmod(&cache, 0o700)?;
        }
        let _ = layout.rename(&cache, &trash);
        if layout.is_dir(&trash) {
            layout.chmod(&trash, 0o700)?;
        }
        layout.remove_all(&trash.join("tree"))?;
    }
    let (mut held, mut open_dir) = (Size::ZERO, OpenDir::new(layout));
    let mut dirs = BTreeSet::new();
    for path in objects {
        if let Ok(meta) = open_dir.look(path)
            && meta.links > 1
        {
            held = held.plus(object_size(meta.len));
        }
        open_dir.remove_file(path)?;
        dirs.extend(path.parent());
    }
    dirs.into_iter().for_each(|dir| layout.remove_if_empty(dir));
    for id in ids {
        layout.remove_all(&layout.trash().join(id.to_string()))?;
        layout.remove_all(&layout.staging(*id))?;
    }
    Ok(held)
}

impl Swept {
    fn add(&mut self, more: Swept) {
        self.freed = self.freed.plus(more.freed);
        self.gone.extend(more.gone);
    }
}

/// The size of an interrupted upload.
fn left_of(memory: &MemoryState, r: &CacheRecord) -> Size {
    memory.promises.get(&r.id).map_or(Size::ZERO, |p| p.staged)
}

/// A cache that gives room when it goes.
fn candidate(r: &CacheRecord, left: Size, now: u64) -> Option<Candidate> {
    let broken = r.state == State::Invalid || r.content.is_none();
    let size = if r.content.is_some() { r.size } else { left };
    let first = (broken || r.expired(now)).then_some((!broken, r.lease_until));
    let new = Candidate { id: r.id, owner: r.owner.clone(), first, last_used: r.last_used, size };
    (size != Size::ZERO).then_some(new)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cand(id: u64, owner: &str, first: Option<(bool, u64)>, last_used: u64, bytes: u64) -> Candidate {
        let size = Size { bytes, inodes: 1 };
        Candidate { id: CacheId(id), owner: owner.into(), first, last_used, size }
    }

    fn order(all: Vec<Candidate>, usage: &[(&str, u64)], by_inodes: bool) -> Vec<u64> {
        let usage = usage.iter().map(|(o, n)| ((*o).to_owned(), Size { bytes: *n, inodes: 1000 - *n }));
        Queue::new(all, usage.collect(), by_inodes).map(|c| c.id.0).collect()
    }

    #[test]
    fn the_damaged_the_expired_then_the_greediest_owners_least_recently_used() {
        let all = || {
            vec![
                cand(1, "a", None, 5, 10),
                cand(2, "a", None, 3, 10),
                cand(3, "b", None, 1, 10),
                cand(4, "b", Some((true, 20)), 9, 10),
                cand(5, "b", Some((true, 10)), 9, 10),
                cand(6, "a", Some((false, 99)), 9, 10),
            ]
        };
        // `a` has 100 minus its removed ones, `b` 95 minus two expired ones: `a` uses most until it has less.
        assert_eq!(order(all(), &[("a", 100), ("b", 75)], false), [6, 5, 4, 2, 1, 3]);
        // By inodes `b` is.
        assert_eq!(order(all(), &[("a", 100), ("b", 75)], true), [6, 5, 4, 3, 2, 1]);
    }

    #[test]
    fn greed_falls_with_what_goes() {
        let all = vec![cand(1, "a", None, 1, 30), cand(2, "a", None, 2, 30), cand(3, "b", None, 0, 30)];
        assert_eq!(order(all, &[("a", 60), ("b", 40)], false), [1, 3, 2]);
    }
}
