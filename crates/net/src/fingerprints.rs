//! What the leaves of pieces are known by, for those who have an older version of the data.
//!
//! Who asks lets this node read a thousand times what the answer is long: one request is answered at a time, of all
//! peers of a swarm, and what was said lately is not read again, as many ask for the same.

use std::collections::{HashMap, VecDeque};
use std::ops::Range;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::Mutex as Turn;

/// Answers that are kept, at most 64 KiB each.
const KEPT: usize = 512;

/// What was said, and whose turn it is.
#[derive(Default)]
pub(crate) struct Fingerprints {
    turn: Turn<()>,
    said: Mutex<Said>,
}

/// Answers by their pieces, and in the order in which they came.
#[derive(Default)]
struct Said {
    by_pieces: HashMap<Range<u32>, Bytes>,
    order: VecDeque<Range<u32>>,
}

impl Fingerprints {
    /// Of these pieces, as `read` has them: what was said lately, or read now.
    pub(crate) async fn of(
        &self,
        pieces: Range<u32>,
        read: impl FnOnce(Range<u32>) -> Vec<u8> + Send + 'static,
    ) -> Option<Bytes> {
        let _turn = self.turn.lock().await;
        let said = self.said.lock().by_pieces.get(&pieces).cloned();
        if said.is_some() {
            return said;
        }
        let wanted = pieces.clone();
        let read = tokio::task::spawn_blocking(move || read(wanted)).await.ok()?;
        let bytes = Bytes::from(read);
        self.said.lock().keep(pieces, bytes.clone());
        Some(bytes)
    }
}

impl Said {
    fn keep(&mut self, pieces: Range<u32>, bytes: Bytes) {
        if self.by_pieces.insert(pieces.clone(), bytes).is_none() {
            self.order.push_back(pieces);
        }
        if self.order.len() > KEPT
            && let Some(oldest) = self.order.pop_front()
        {
            self.by_pieces.remove(&oldest);
        }
    }
}
