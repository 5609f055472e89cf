//! Operations of this host's users on its caches.

use std::sync::Arc;

use tidecast_depot::{CacheId, Declare, Filter, Reader};
use tidecast_metainfo::Manifest;

use super::records::{READ, Records};
use super::update_attributes::AttributeUpdate;
use super::upload::Uploads;
use super::uses::Uses;
use crate::host::caller::Caller;
use crate::model::api_error::{ApiError, ErrorKind};
use crate::model::attributes::Attributes;
use crate::model::error::Error;
use crate::model::files::size_of;
use crate::model::name::{CacheName, is_name};
use crate::model::types::{CacheInfo, Create, Created};
use crate::policy::ads;
use crate::storage::run_mode::{Mode, RunMode};
use crate::transfer::swarms::Swarms;

/// The caches of this host, and operations of their owners.
pub(crate) struct Caches {
    pub(crate) records: Arc<Records>,
    pub(crate) uses: Arc<Uses>,
    pub(crate) uploads: Arc<Uploads>,
    pub(crate) update: AttributeUpdate,
    pub(crate) swarms: Arc<Swarms>,
    pub(crate) mode: Arc<RunMode>,
}

impl Caches {
    /// The caches that `caller` may read.
    pub(crate) async fn list(
        &self,
        caller: &Caller,
        name: Option<CacheName>,
        owner: Option<String>,
    ) -> Result<Vec<CacheInfo>, ApiError> {
        let (origin, cache, version) =
            name.map_or((None, None, None), |n| (n.origin, Some(n.name), n.version));
        let filter =
            Filter { origin, name: cache, owner, reader: Some(caller.reader()), ..Filter::default() };
        let mut records = self.records.store.depot.caches(&filter);
        records.retain(|r| version.is_none_or(|v| r.version == Some(v)));
        records.sort_by(|a, b| (&a.origin, &a.name, a.version).cmp(&(&b.origin, &b.name, b.version)));
        Ok(records.iter().map(|record| self.records.info(record)).collect())
    }

    /// One cache, with its ad.
    pub(crate) async fn show(&self, caller: &Caller, id: CacheId) -> Result<CacheInfo, ApiError> {
        let record = self.records.readable(caller, id)?;
        let ad = ads::cache(&record).map_err(Error::from)?;
        let uses = Some(self.uses.uses_of(caller, &record));
        Ok(CacheInfo { ad: Some(ad.to_string()), uses, ..self.records.info(&record) })
    }

    /// Checks a declaration before its manifest is received; the group of its readers.
    pub(crate) fn check(&self, caller: &Caller, create: &Create) -> Result<Option<String>, ApiError> {
        if self.mode.now() != Mode::Running {
            return Err(ApiError::new(
                axum::http::StatusCode::SERVICE_UNAVAILABLE,
                ErrorKind::Paused,
                "this daemon accepts no new caches: its administrator has paused or drained it",
            ));
        }
        if !is_name(&create.name) {
            return Err(ApiError::malformed(crate::model::name::NameError::New(create.name.clone())));
        }
        if let Some(why) = create.contradiction() {
            return Err(ApiError::malformed(why));
        }
        for (what, text) in [("the policy", &create.policy), ("the requirements", &create.requirements)] {
            if let Some(text) = text {
                ads::check(what, text).map_err(Error::from)?;
            }
        }
        if create.mode.is_some_and(|mode| mode & 0o022 != 0) {
            return Err(ApiError::malformed("caches are read-only: use mode 0o700, 0o750 or 0o755"));
        }
        let group = create.group.clone().or_else(|| caller.groups.first().cloned());
        if let Some(other) = group.as_ref().filter(|group| !caller.groups.contains(group) && !caller.rules())
        {
            return Err(ApiError::forbidden(format!("you are not in the group {other}")));
        }
        Ok(group)
    }

    /// Declares a cache, and reserves space for it. Files that its owner may read already need not be
    /// uploaded. `group`: of [`Caches::check`]; `len`: bytes of the manifest.
    pub(crate) async fn create(
        &self,
        caller: &Caller,
        create: Create,
        group: Option<String>,
        (manifest, len): (Manifest, usize),
    ) -> Result<Created, ApiError> {
        // A mode that was derived from the files does not change an existing cache.
        let said = match create.found {
            true => Create { mode: None, group: None, ..create.clone() },
            false => create.clone(),
        };
        self.update.update(caller, &said, &manifest).await?;
        let declare = Declare {
            origin: self.records.config.name.clone(),
            name: create.name.clone(),
            version: None,
            owner: caller.name.clone(),
            local: self.records.view_of(caller, group.as_deref()),
            group,
            mode: create.mode.unwrap_or_else(|| if create.private { 0o700 } else { allowed(&manifest) })
                & READ,
            private: create.private,
            lease: create.lease,
            size: size_of(&manifest),
            attributes: Attributes::new(&create).to_map(),
        };
        self.uploads.begin(declare, Arc::new(manifest), len, Reader::owner(&caller.name)).await
    }

    /// A longer lease; the owner's to ask for.
    pub(crate) async fn extend(
        &self,
        caller: &Caller,
        id: CacheId,
        lease: u64,
    ) -> Result<CacheInfo, ApiError> {
        self.change(caller, id, move |depot| depot.extend(id, lease, crate::clock::now()).map(|_| ())).await
    }

    /// Kept until it is unpinned, whatever comes; the owner's to ask for.
    pub(crate) async fn pin(
        &self,
        caller: &Caller,
        id: CacheId,
        pinned: bool,
    ) -> Result<CacheInfo, ApiError> {
        self.change(caller, id, move |depot| if pinned { depot.pin(id) } else { depot.unpin(id) }).await
    }

    /// Takes it away from this host; the owner's to ask for.
    pub(crate) async fn remove(&self, caller: &Caller, id: CacheId) -> Result<(), ApiError> {
        let record = self.records.owned(caller, id)?;
        if let Some(content) = record.content {
            self.swarms.stop(&content).await;
        }
        self.uses.end_terminals(caller, id).await?;
        let done = self.records.store.on_disk(move |depot| depot.remove(id, crate::clock::now())).await;
        self.records.store.changed();
        done.map(|_| ()).map_err(|error| self.uses.by_whom(error, caller, &record))
    }

    async fn change(
        &self,
        caller: &Caller,
        id: CacheId,
        change: impl FnOnce(&tidecast_depot::Depot) -> Result<(), tidecast_depot::Error> + Send + 'static,
    ) -> Result<CacheInfo, ApiError> {
        self.records.owned(caller, id)?;
        self.records.store.on_disk(change).await?;
        let changed = self.records.readable(caller, id)?;
        Ok(self.records.info(&changed))
    }
}

/// The mode of a cache if none is given: readable by all if all its files and directories are, else by its
/// owner only.
fn allowed(manifest: &Manifest) -> u32 {
    let files = manifest.files().filter(|file| !file.is_symlink()).map(|file| (file.mode(), 0o044));
    let dirs = manifest.dirs().map(|dir| (dir.mode(), 0o055));
    // Without a mode in the manifest the readers of the file are unknown.
    let is_open = |(mode, needs): (Option<u32>, u32)| mode.is_some_and(|mode| mode & needs == needs);
    if files.chain(dirs).all(is_open) { 0o755 } else { 0o700 }
}
