//! Serves the caches of this host to peers.

use std::path::PathBuf;
use std::sync::Arc;

use tidecast_depot::CacheRecord;

use super::swarms::Swarms;
use crate::model::error::Error;
use crate::storage::store::{Store, open_view};

/// Has swarms run of caches that are here.
pub(crate) struct Seeding {
    store: Arc<Store>,
    swarms: Arc<Swarms>,
    /// Data that was verified before need not be read again.
    seen: PathBuf,
}

impl Seeding {
    /// `dir`: the daemon's own.
    pub(crate) fn new(store: Arc<Store>, swarms: Arc<Swarms>, dir: &std::path::Path) -> Self {
        Self { store, swarms, seen: dir.join("seen") }
    }

    /// Has the swarm of a cache run that is here.
    pub(crate) async fn serve_on(&self, record: &CacheRecord) -> Result<(), String> {
        let (id, content) = (record.id, record.content.ok_or("the cache has no content yet")?);
        let (store, swarms, seen) = (self.store.clone(), self.swarms.clone(), self.seen.clone());
        let serve = move || {
            let manifest = store.manifest(id, content)?;
            let (root, home) = open_view(&store.depot, id, &manifest)?;
            swarms.seed(&manifest, (root, &home), &seen).map_err(|e| Error::Start(e.to_string()))
        };
        let served = tokio::task::spawn_blocking(serve).await.map_err(|e| e.to_string())?;
        served.map_err(|e| e.to_string())
    }
}
