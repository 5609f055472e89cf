//! Opening a store: reads the database, and clears leftovers of operations that a crash interrupted.

use std::collections::HashSet;

use crate::db::View;
use crate::layout::discard;
use crate::memory_state::Promise;
use crate::uses::Uses;
use crate::{CacheId, CacheRecord, Depot, Error, State};

impl Depot {
    pub(crate) fn recover(&self) -> Result<(), Error> {
        let layout = &self.0.layout;
        let view = self.0.db.lock().read()?;
        let foreign = self.load(&view)?;
        let objects = view.objects()?;
        let known = |key: &_| objects.get(key).map(|o| o.is_some());
        self.check_views(&foreign, |dir| discard(layout, dir, known))?;
        for name in layout.names(&layout.incoming())? {
            let dir = layout.incoming().join(&name);
            if !layout.is_dir(&dir) {
                layout.remove_file(&dir)?;
                continue;
            }
            let id = name.to_str().and_then(|n| n.parse().ok());
            let record = id.and_then(|id| self.cache(id));
            discard(layout, &dir.join("cache"), known)?;
            match record {
                Some(r) if matches!(r.state, State::Uncommitted | State::Uploading) => {
                    let staged = layout.measure(&dir)?;
                    let promise = Promise { promised: staged, staged, held: false };
                    self.0.memory.write().promises.insert(r.id, promise);
                }
                _ if id.is_some_and(|id| foreign.contains(&id)) => {}
                _ => layout.remove_all(&dir)?,
            }
        }
        for name in layout.names(&layout.trash())? {
            discard(layout, &layout.trash().join(name), known)?;
        }
        // Empty directories of objects from older programs or a crash.
        for name in layout.names(&layout.objects())? {
            layout.remove_if_empty(&layout.objects().join(name));
        }
        Ok(())
    }

    /// Reads the records; an upload that was in progress can be continued. Returns the numbers of caches that only
    /// a newer program understands: these are left unchanged.
    fn load(&self, view: &View) -> Result<HashSet<CacheId>, Error> {
        let (records, foreign) = view.caches()?;
        let uploading: Vec<CacheRecord> =
            records.iter().filter(|r| r.state == State::Uploading).cloned().collect();
        {
            let mut memory = self.0.memory.write();
            memory.caches = records.into_iter().map(|r| (r.id, r.into())).collect();
            memory.usage = view.usage()?;
            memory.uses = Uses::load(&self.0.layout)?;
        }
        if !uploading.is_empty() {
            self.0.write(|t| {
                for record in &uploading {
                    t.put(CacheRecord { state: State::Uncommitted, ..record.clone() })?;
                }
                Ok(())
            })?;
        }
        Ok(foreign.into_iter().collect())
    }

    /// Removes views without a record; records without a view (a user removed it) become INVALID.
    fn check_views(
        &self,
        foreign: &HashSet<CacheId>,
        discard: impl Fn(&std::path::Path) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let caches = self.0.layout.caches();
        let mut there = HashSet::new();
        for name in self.0.layout.names(&caches)? {
            let id: Option<CacheId> = name.to_str().and_then(|n| n.parse().ok());
            let wanted = |id: &CacheId| {
                let state = self.cache(*id).map(|r| r.state);
                foreign.contains(id) || matches!(state, Some(State::Committed | State::Invalid))
            };
            match id.filter(wanted) {
                Some(id) => drop(there.insert(id)),
                None => discard(&caches.join(name))?,
            }
        }
        let mut lost = self.caches(&crate::Filter { state: Some(State::Committed), ..Default::default() });
        let is_there = |r: &CacheRecord| there.contains(&r.id);
        for record in lost.extract_if(.., |r| is_there(r)) {
            // Older programs gave a cache's directory to its owner, who could put another tree there.
            if !self.reclaim(&record)? {
                self.conceal(record.id)?;
                self.invalidate(record.id, "another user or program changed its directory in the store")?;
            }
        }
        lost.into_iter().try_for_each(|r| self.invalidate(r.id, "its files are missing from the store"))
    }
}
