//! Fetching what will be opened before it is: a list in its order, so many bytes at a time, or everything.
//!
//! All of a window is asked for at once and comes rarest first, so that nodes with the same list take different pieces
//! from the origin and give them to each other. What somebody waits for goes before all of it.

use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::sync::Arc;

use parking_lot::Mutex;
use tidecast_metainfo::Manifest;
use tidecast_net::Urgency;

use crate::waits::Waits;

/// Bytes of the list that are asked for and not here yet.
const WINDOW: u64 = 64 << 20;
/// Bytes of the list that follow a miss and come soon.
const NEXT: u64 = 8 << 20;

#[derive(Default)]
struct Queue {
    /// How much of the list has been asked for, in pieces.
    next: usize,
    out: HashSet<u32>,
    out_bytes: u64,
}

/// See the head of the file.
pub(crate) struct Prefetch {
    manifest: Arc<Manifest>,
    /// Pieces in the order of the list, each once, and where each is.
    list: Vec<u32>,
    place: HashMap<u32, u32>,
    queue: Mutex<Queue>,
}

impl Prefetch {
    /// Of ranges of pieces, in their order.
    pub(crate) fn new(manifest: Arc<Manifest>, ranges: impl IntoIterator<Item = Range<u32>>) -> Prefetch {
        let (mut list, mut place) = (Vec::new(), HashMap::new());
        for piece in ranges.into_iter().flatten() {
            place.entry(piece).or_insert_with(|| {
                list.push(piece);
                list.len() as u32 - 1
            });
        }
        Prefetch { manifest, list, place, queue: Mutex::default() }
    }

    /// Pieces in the list.
    pub(crate) fn len(&self) -> usize {
        self.list.len()
    }

    /// Asks for as much as the window holds. Not for the engine's thread.
    pub(crate) fn fill(&self, waits: &Waits) {
        let mut ask = Vec::new();
        {
            let mut queue = self.queue.lock();
            while queue.out_bytes < WINDOW
                && let Some(piece) = self.list.get(queue.next).copied()
            {
                queue.next += 1;
                if !waits.has(piece) && queue.out.insert(piece) {
                    queue.out_bytes += u64::from(self.manifest.piece_len(piece));
                    ask.push(piece);
                }
            }
        }
        for piece in ask {
            waits.want(piece..piece + 1, Urgency::Later);
            // It may have come in between, unseen by `arrived`.
            if waits.has(piece) {
                self.arrived(piece);
            }
        }
    }

    /// A piece is verified: whether there is room for more by now. Never waits.
    pub(crate) fn arrived(&self, piece: u32) -> bool {
        let mut queue = self.queue.lock();
        if !queue.out.remove(&piece) {
            return false;
        }
        queue.out_bytes -= u64::from(self.manifest.piece_len(piece));
        queue.out_bytes < WINDOW / 2 && queue.next < self.list.len()
    }

    /// Somebody waited for these pieces: what the list has next will be wanted next.
    pub(crate) fn missed(&self, waits: &Waits, pieces: &Range<u32>) {
        let Some(place) = pieces.clone().rev().find_map(|piece| self.place.get(&piece)) else { return };
        let mut left = NEXT;
        for piece in self.list.iter().skip(*place as usize + 1).copied() {
            let len = u64::from(self.manifest.piece_len(piece));
            if len > left {
                return;
            }
            left -= len;
            waits.want(piece..piece + 1, Urgency::Soon);
        }
    }
}
