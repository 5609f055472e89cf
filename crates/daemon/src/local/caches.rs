//! What users of this host do with caches that are here.

use std::sync::Arc;

use bytes::Bytes;
use tidecast_depot::{CacheId, CacheRecord, Declare, Filter, Local, Reader, State};
use tidecast_metainfo::Manifest;

use crate::assembly::{Daemon, Mode};
use crate::config::Serves;
use crate::host::caller::Caller;
use crate::model::api_error::ApiError;
use crate::model::attributes::Attributes;
use crate::model::files::size_of;
use crate::model::name::{CacheName, is_name};
use crate::model::types::{CacheInfo, Create, Created};
use crate::policy::ads;

/// Bits of a mode that say who may read; the depot keeps no others.
pub(crate) const READ: u32 = 0o444;

impl Daemon {
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
        let mut records = self.depot.caches(&filter);
        records.retain(|r| version.is_none_or(|v| r.version == Some(v)));
        records.sort_by(|a, b| (&a.origin, &a.name, a.version).cmp(&(&b.origin, &b.name, b.version)));
        Ok(records.iter().map(|record| self.info(record)).collect())
    }

    /// One cache, with its ad.
    pub(crate) async fn show(&self, caller: &Caller, id: CacheId) -> Result<CacheInfo, ApiError> {
        let record = self.readable(caller, id)?;
        let ad = ads::cache(&record).map_err(crate::model::error::Error::from)?;
        let uses = Some(self.uses_of(caller, &record));
        Ok(CacheInfo { ad: Some(ad.to_string()), uses, ..self.info(&record) })
    }

    /// Makes a cache known, and room for it. What its owner may read already need not be uploaded.
    pub(crate) async fn create(
        &self,
        caller: &Caller,
        create: Create,
        manifest: Bytes,
    ) -> Result<Created, ApiError> {
        if self.mode() != Mode::Running {
            return Err(ApiError::new(
                axum::http::StatusCode::SERVICE_UNAVAILABLE,
                "paused",
                "this daemon takes nothing new: its administrator has paused or drained it",
            ));
        }
        if !is_name(&create.name) {
            return Err(ApiError::malformed(crate::model::name::NameError::Name(create.name.clone())));
        }
        if let Some(why) = create.contradiction() {
            return Err(ApiError::malformed(why));
        }
        for (what, text) in [("the policy", &create.policy), ("the requirements", &create.requirements)] {
            if let Some(text) = text {
                ads::check(what, text).map_err(crate::model::error::Error::from)?;
            }
        }
        if create.mode.is_some_and(|mode| mode & 0o022 != 0) {
            return Err(ApiError::malformed("nobody writes to a cache: its mode is 0o700, 0o750 or 0o755"));
        }
        let group = create.group.clone().or_else(|| caller.groups.first().cloned());
        if let Some(other) = group.as_ref().filter(|group| !caller.groups.contains(group) && !caller.rules())
        {
            return Err(ApiError::forbidden(format!("you are not in the group {other}")));
        }
        let manifest = Manifest::parse(&manifest).map_err(ApiError::malformed)?;
        // What was found and not asked for changes nothing of a cache that is there.
        let said = match create.found {
            true => Create { mode: None, group: None, ..create.clone() },
            false => create.clone(),
        };
        self.say_anew(caller, &said, &manifest).await?;
        let declare = Declare {
            origin: self.config.name.clone(),
            name: create.name.clone(),
            version: None,
            owner: caller.name.clone(),
            local: self.view_of(caller, group.as_deref()),
            group,
            mode: create.mode.unwrap_or_else(|| if create.private { 0o700 } else { allowed(&manifest) })
                & READ,
            private: create.private,
            lease: create.lease,
            size: size_of(&manifest),
            attributes: Attributes::new(&create).to_map(),
        };
        self.begin_upload(declare, Arc::new(manifest), Reader::owner(&caller.name)).await
    }

    /// The local user and group whom the file system lets read a cache, where this daemon serves all users.
    pub(crate) fn view_of(&self, caller: &Caller, group: Option<&str>) -> Option<Local> {
        let gid = group.and_then(crate::host::caller::gid_of).unwrap_or(Local::NO_GROUP);
        (self.config.serves == Serves::Everyone).then_some(Local { uid: caller.uid, gid })
    }

    /// A longer lease; the owner's to ask for.
    pub(crate) async fn extend(
        &self,
        caller: &Caller,
        id: CacheId,
        lease: u64,
    ) -> Result<CacheInfo, ApiError> {
        self.change(caller, id, move |depot| depot.extend(id, lease, crate::now()).map(|_| ())).await
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
        let record = self.owned(caller, id)?;
        if let Some(content) = record.content {
            self.swarms.stop(&content).await;
        }
        self.end_terminals(caller, id).await?;
        let done = self.on_disk(move |depot| depot.remove(id, crate::now())).await;
        self.changed.notify_one();
        done.map(|_| ()).map_err(|error| self.by_whom(error, caller, &record))
    }

    async fn change(
        &self,
        caller: &Caller,
        id: CacheId,
        change: impl FnOnce(&tidecast_depot::Depot) -> Result<(), tidecast_depot::Error> + Send + 'static,
    ) -> Result<CacheInfo, ApiError> {
        self.owned(caller, id)?;
        self.on_disk(change).await?;
        let changed = self.readable(caller, id)?;
        Ok(self.info(&changed))
    }

    pub(crate) fn readable(&self, caller: &Caller, id: CacheId) -> Result<Arc<CacheRecord>, ApiError> {
        let record = self.depot.cache(id).filter(|record| record.readable_by(&caller.reader()));
        record.ok_or_else(|| ApiError::absent(&id.to_string()))
    }

    pub(crate) fn owned(&self, caller: &Caller, id: CacheId) -> Result<Arc<CacheRecord>, ApiError> {
        let record = self.readable(caller, id)?;
        if record.owner == caller.name || caller.rules() {
            return Ok(record);
        }
        Err(ApiError::forbidden(format!("{} belongs to {}", record.full_name(), record.owner)))
    }

    /// As people and programs see it.
    pub(crate) fn info(&self, record: &CacheRecord) -> CacheInfo {
        let attributes = Attributes::of(record);
        let mode = 0o700 | (record.mode & 0o040) | (record.mode & 0o004);
        CacheInfo {
            name: record.full_name(),
            cache: record.id.to_string(),
            state: record.state.to_string().to_lowercase(),
            owner: record.owner.clone(),
            group: record.group.clone(),
            // Who may read a directory may enter it.
            mode: mode | (mode & 0o044) >> 2,
            bytes: if record.state == State::Committed { record.bytes } else { record.declared.bytes },
            files: record.files,
            lease: record.lease_until,
            pinned: record.pinned,
            methods: attributes.methods(),
            private: record.private,
            replicas: attributes.replicas,
            used: record.last_used,
            users: u32::try_from(self.depot.uses(record.id, crate::now()).len()).unwrap_or(u32::MAX),
            uses: None,
            came: attributes.came.unwrap_or_default(),
            path: self.depot.view(record.id).ok(),
            inode: None,
            ad: None,
        }
    }
}

/// The mode of a cache for which none is said: open to all if all its files and directories were, else to its owner alone.
fn allowed(manifest: &Manifest) -> u32 {
    let files = manifest.files().filter(|file| !file.is_symlink()).map(|file| (file.mode(), 0o044));
    let dirs = manifest.dirs().map(|dir| (dir.mode(), 0o055));
    // Of what carries no mode nobody knows whom it was open to.
    let is_open = |(mode, needs): (Option<u32>, u32)| mode.is_some_and(|mode| mode & needs == needs);
    if files.chain(dirs).all(is_open) { 0o755 } else { 0o700 }
}
