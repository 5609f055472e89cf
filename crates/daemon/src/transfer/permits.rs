//! How many caches are taken from one host at once.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tidecast_identity::NodeId;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The turns of each host.
pub(crate) struct SourcePermits {
    per_source: usize,
    sources: Mutex<HashMap<NodeId, Arc<Semaphore>>>,
}

impl SourcePermits {
    pub(crate) fn new(per_source: usize) -> Self {
        Self { per_source, sources: Mutex::default() }
    }

    /// A permit to fetch a cache from this host: the number of concurrent ones is limited.
    pub(crate) async fn acquire(&self, source: NodeId) -> Option<OwnedSemaphorePermit> {
        let permits = {
            let mut sources = self.sources.lock();
            // Sources without a permit in use equal new ones.
            sources.retain(|node, permits| *node == source || Arc::strong_count(permits) > 1);
            sources.entry(source).or_insert_with(|| Arc::new(Semaphore::new(self.per_source))).clone()
        };
        permits.acquire_owned().await.ok()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn one_host_gives_so_many_at_once_and_another_has_its_own() {
        let (permits, [a, b]) = (SourcePermits::new(2), [NodeId([1; 32]), NodeId([2; 32])]);
        let second = Duration::from_secs(1);
        let (_one, two) = (permits.acquire(a).await.unwrap(), permits.acquire(a).await.unwrap());
        assert!(timeout(second, permits.acquire(a)).await.is_err());
        assert!(timeout(second, permits.acquire(b)).await.unwrap().is_some());
        drop(two);
        assert!(timeout(second, permits.acquire(a)).await.unwrap().is_some());
    }
}
