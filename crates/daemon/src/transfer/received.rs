//! Statistics of received data, by source.

use std::sync::Arc;

use parking_lot::Mutex;
use tidecast_depot::CacheId;

use crate::model::attributes::Attributes;
use crate::model::types::ReceivedBytes;
use crate::storage::store::Store;

/// Bytes of caches that came since the start.
pub(crate) struct ReceivedTotals {
    store: Arc<Store>,
    came: Mutex<ReceivedBytes>,
}

impl ReceivedTotals {
    pub(crate) fn new(store: Arc<Store>) -> Self {
        Self { store, came: Mutex::default() }
    }

    /// All that came since the start.
    pub(crate) fn all(&self) -> ReceivedBytes {
        *self.came.lock()
    }

    /// A cache has come.
    pub(crate) async fn arrived(&self, id: CacheId, came: ReceivedBytes) {
        {
            let mut all = self.came.lock();
            all.origin += came.origin;
            all.peers += came.peers;
            all.parent += came.parent;
            all.link += came.link;
        }
        let Some(record) = self.store.depot.cache(id) else { return };
        let mut attributes = Attributes::of(&record);
        attributes.came = Some(came);
        let noted = self.store.on_disk(move |depot| depot.set_attributes(id, attributes.to_map())).await;
        if let Err(error) = noted {
            tracing::warn!(why = error.why, "cannot record the source of a cache");
        }
    }
}
