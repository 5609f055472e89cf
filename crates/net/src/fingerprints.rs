//! What the leaves of pieces are known by, for those who have an older version of the data.
//!
//! Who asks lets this node read a thousand times what the answer is long: one request is answered at a time, of all
//! peers of a swarm, and what was said lately is not read again, as many ask for the same.

use std::collections::{HashMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use tidecast_hash::{Fingerprint, LEAF};
use tidecast_wire::ext::{FINGERPRINT, MAX_FINGERPRINTS};
use tokio::sync::Mutex as Turn;

use crate::shared::Shared;

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
    /// Of these pieces, from the first on, as many whole ones as one answer holds and as are here.
    pub(crate) async fn of(&self, shared: &Arc<Shared>, pieces: Range<u32>) -> Option<Bytes> {
        let _turn = self.turn.lock().await;
        let pieces = pieces.start..pieces.end.min(shared.manifest.piece_count());
        let said = self.said.lock().by_pieces.get(&pieces).cloned();
        let bytes = match said {
            Some(bytes) => bytes,
            None => {
                let (reading, wanted) = (shared.clone(), pieces.clone());
                let read = tokio::task::spawn_blocking(move || read(&reading, wanted)).await.ok()?;
                let bytes = Bytes::from(read);
                self.said.lock().keep(pieces, bytes.clone());
                bytes
            }
        };
        if let Some(throttle) = &shared.throttle {
            throttle.send(bytes.len() as u64).await;
        }
        Some(bytes).filter(|bytes| !bytes.is_empty())
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

fn read(shared: &Shared, pieces: Range<u32>) -> Vec<u8> {
    let (mut all, mut buffer) = (Vec::new(), Vec::new());
    let aligned = shared.manifest.layout().is_aligned();
    for piece in pieces.filter(|_| aligned) {
        let len = shared.manifest.piece_len(piece) as usize;
        if all.len() / FINGERPRINT + len.div_ceil(LEAF) > MAX_FINGERPRINTS {
            break;
        }
        // The source of a draft is there before it is hashed.
        if !(shared.seed_only && shared.roots.is_some() || shared.settler.is_verified(piece)) {
            break;
        }
        buffer.resize(len, 0);
        if shared.store.read_unverified(piece, 0, &mut buffer).is_err() {
            break;
        }
        all.extend(Fingerprint::of_leaves(&buffer).flat_map(Fingerprint::to_bytes));
    }
    all
}
