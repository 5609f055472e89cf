//! What the leaves of pieces are known by, for those who have an older version of the data.
//!
//! Who asks lets this node read a thousand times what the answer is long: one request is answered at a time, of all
//! peers of a swarm, and what was said lately is not read again, as many ask for the same.

use std::num::NonZeroUsize;
use std::ops::Range;

use bytes::Bytes;
use lru::LruCache;
use parking_lot::Mutex;
use tokio::sync::Mutex as Turn;

/// Answers that are kept, at most 64 KiB each.
const KEPT: NonZeroUsize = NonZeroUsize::new(512).unwrap();

/// What was said, and whose turn it is.
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
    /// Of these pieces, as `read` has them: what was said lately, or read now.
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
