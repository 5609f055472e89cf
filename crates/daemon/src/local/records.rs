//! Caches that are here, as a caller may see them.

use std::sync::Arc;

use tidecast_depot::{CacheId, CacheRecord, Local, State};

use crate::config::{Config, Serves};
use crate::host::caller::Caller;
use crate::model::api_error::ApiError;
use crate::model::attributes::Attributes;
use crate::model::types::CacheInfo;
use crate::storage::store::Store;

/// The read bits of a mode; the depot keeps no others.
pub(crate) const READ: u32 = 0o444;

/// Looks caches up.
pub(crate) struct Records {
    pub(crate) config: Arc<Config>,
    pub(crate) store: Arc<Store>,
}

impl Records {
    /// The local user and group that may read a cache in the file system, if this daemon serves all users.
    pub(crate) fn view_of(&self, caller: &Caller, group: Option<&str>) -> Option<Local> {
        let gid = group.and_then(crate::host::caller::gid_of).unwrap_or(Local::NO_GROUP);
        (self.config.serves == Serves::Everyone).then_some(Local { uid: caller.uid, gid })
    }

    pub(crate) fn readable(&self, caller: &Caller, id: CacheId) -> Result<Arc<CacheRecord>, ApiError> {
        let record = self.store.depot.cache(id).filter(|record| record.readable_by(&caller.reader()));
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
            // Readers of a directory may also enter it.
            mode: mode | (mode & 0o044) >> 2,
            bytes: if record.state == State::Committed { record.bytes } else { record.declared.bytes },
            files: record.files,
            lease: record.lease_until,
            pinned: record.pinned,
            methods: attributes.methods(),
            private: record.private,
            replicas: attributes.replicas,
            used: record.last_used,
            users: u32::try_from(self.store.depot.uses(record.id, crate::clock::now()).len())
                .unwrap_or(u32::MAX),
            uses: None,
            came: attributes.came.unwrap_or_default(),
            path: self.store.depot.view(record.id).ok(),
            inode: None,
            ad: None,
        }
    }

    /// A cache's name for the audit log. A cache that the caller may not read stays an id, for he may read
    /// the log too.
    pub(crate) fn noted(&self, caller: &Caller, id: &str) -> String {
        let record = id.parse().ok().and_then(|id| self.readable(caller, id).ok());
        record.map_or_else(|| id.into(), |record| record.full_name())
    }
}
