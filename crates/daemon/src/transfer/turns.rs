//! How many caches are taken from one host at once.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tidecast_identity::NodeId;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The turns of each host.
pub(crate) struct Turns {
    per_source: usize,
    sources: Mutex<HashMap<NodeId, Arc<Semaphore>>>,
}

impl Turns {
    pub(crate) fn new(per_source: usize) -> Self {
        Self { per_source, sources: Mutex::default() }
    }

    /// A permit to fetch a cache from this host: the number of concurrent ones is limited.
    pub(crate) async fn turn(&self, source: NodeId) -> Option<OwnedSemaphorePermit> {
        let turns = {
            let mut sources = self.sources.lock();
            // Sources without a permit in use equal new ones.
            sources.retain(|node, turns| *node == source || Arc::strong_count(turns) > 1);
            sources.entry(source).or_insert_with(|| Arc::new(Semaphore::new(self.per_source))).clone()
        };
        turns.acquire_owned().await.ok()
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
        let (turns, [a, b]) = (Turns::new(2), [NodeId([1; 32]), NodeId([2; 32])]);
        let second = Duration::from_secs(1);
        let (_one, two) = (turns.turn(a).await.unwrap(), turns.turn(a).await.unwrap());
        assert!(timeout(second, turns.turn(a)).await.is_err());
        assert!(timeout(second, turns.turn(b)).await.unwrap().is_some());
        drop(two);
        assert!(timeout(second, turns.turn(a)).await.unwrap().is_some());
    }
}
