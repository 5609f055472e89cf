//! Fingerprints of the leaves of pieces, for peers that have an older version of the data.
//!
//! A request makes this node read a thousand times the length of the answer: one request is answered at a time, of
//! all peers of a swarm, and recent answers are cached, as many peers send the same request.

use std::num::NonZeroUsize;
use std::ops::Range;

use bytes::Bytes;
use lru::LruCache;
use parking_lot::Mutex;
use tokio::sync::Mutex as Turn;

/// Answers that are kept, at most 64 KiB each.
const KEPT: NonZeroUsize = NonZeroUsize::new(512).unwrap();

/// Recent answers, and the queue of requests.
pub(crate) struct Fingerprints {
    turn: Turn<()>,
    said: Mutex<LruCache<Range<u32>, Bytes>>,
}

impl Default for Fingerprints {
    fn default() -> Self {
        Self { turn: Turn::default(), said: Mutex::new(LruCache::new(KEPT)) }
    }
}

impl Fingerprints {
    /// Fingerprints of these pieces: recent ones, or computed now by `read`.
    pub(crate) async fn of(
        &self,
        pieces: Range<u32>,
        read: impl FnOnce(Range<u32>) -> Vec<u8> + Send + 'static,
    ) -> Option<Bytes> {
        let _turn = self.turn.lock().await;
        let said = self.said.lock().get(&pieces).cloned();
        if said.is_some() {
            return said;
        }
        let wanted = pieces.clone();
        let read = tokio::task::spawn_blocking(move || read(wanted)).await.ok()?;
        let bytes = Bytes::from(read);
        self.said.lock().put(pieces, bytes.clone());
        Some(bytes)
    }
}
