//! Fetching files before they are opened: lists in their order, in windows of limited size, or everything.
//!
//! All pieces of a window are requested at once and fetched rarest first, so that nodes with the same list
//! take different pieces from the origin and exchange them. Pieces that a reader waits for have priority.

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
    /// Pieces in the order of the lists, each once, and where each is.
    list: Vec<u32>,
    place: HashMap<u32, u32>,
    /// How much of the list has been asked for, in pieces.
    next: usize,
    out: HashSet<u32>,
    out_bytes: u64,
}

/// See the head of the file.
pub(crate) struct Prefetch {
    manifest: Arc<Manifest>,
    queue: Mutex<Queue>,
}

impl Prefetch {
    /// Of ranges of pieces, in their order.
    pub(crate) fn new(manifest: Arc<Manifest>, ranges: impl IntoIterator<Item = Range<u32>>) -> Prefetch {
        let mut queue = Queue::default();
        queue.put_first(ranges.into_iter().flatten());
        Prefetch { manifest, queue: Mutex::new(queue) }
    }

    /// Pieces in the list.
    pub(crate) fn len(&self) -> usize {
        self.queue.lock().list.len()
    }

    /// Puts ranges of pieces before all that has not been asked for yet.
    pub(crate) fn put_first(&self, ranges: impl IntoIterator<Item = Range<u32>>) {
        self.queue.lock().put_first(ranges.into_iter().flatten());
    }

    /// Asks for as much as the window holds. Not for the engine's thread.
    pub(crate) fn fill(&self, waits: &Waits) {
        let mut ask = Vec::new();
        {
            let mut queue = self.queue.lock();
            while queue.out_bytes < WINDOW
                && let Some(piece) = queue.list.get(queue.next).copied()
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

    /// Requested pieces are not arriving: all missing pieces are requested again.
    pub(crate) fn begin_again(&self) {
        let mut queue = self.queue.lock();
        (queue.next, queue.out_bytes) = (0, 0);
        queue.out.clear();
    }

    /// Asks for one piece of the list, to see whether the cache takes it.
    pub(crate) fn probe(&self, waits: &Waits) {
        let missing = self.queue.lock().list.iter().copied().find(|piece| !waits.has(*piece));
        if let Some(piece) = missing {
            waits.want(piece..piece + 1, Urgency::Later);
        }
    }

    /// A piece is verified: whether there is room for more by now. Never waits.
    pub(crate) fn arrived(&self, piece: u32) -> bool {
        let mut queue = self.queue.lock();
        if !queue.out.remove(&piece) {
            return false;
        }
        queue.out_bytes -= u64::from(self.manifest.piece_len(piece));
        queue.out_bytes < WINDOW / 2 && queue.next < queue.list.len()
    }

    /// A reader waited for these pieces: the following files of the list are likely to be read next.
    pub(crate) fn missed(&self, waits: &Waits, pieces: &Range<u32>) {
        for piece in self.after(pieces) {
            waits.want(piece..piece + 1, Urgency::Soon);
        }
    }

    /// The files of the list that follow these pieces.
    fn after(&self, pieces: &Range<u32>) -> Vec<u32> {
        let queue = self.queue.lock();
        let place = pieces.clone().rev().find_map(|piece| queue.place.get(&piece));
        let follow = place.map_or(&[][..], |at| queue.list.get(*at as usize + 1..).unwrap_or_default());
        let mut left = NEXT;
        let fits = |piece: &&u32| {
            let len = u64::from(self.manifest.piece_len(**piece));
            let fits = len <= left;
            left = left.saturating_sub(len);
            fits
        };
        follow.iter().take_while(fits).copied().collect()
    }
}

impl Queue {
    fn put_first(&mut self, pieces: impl Iterator<Item = u32>) {
        let rest = self.list.split_off(self.next);
        self.place.retain(|_, at| (*at as usize) < self.next);
        for piece in pieces.chain(rest) {
            self.place.entry(piece).or_insert_with(|| {
                self.list.push(piece);
                self.list.len() as u32 - 1
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_put_first_comes_next_and_once() {
        let mut queue = Queue::default();
        queue.put_first([1, 2, 3, 2, 4].into_iter());
        queue.next = 2;
        queue.put_first([9, 4, 1].into_iter());
        assert_eq!(queue.list, [1, 2, 9, 4, 3]);
        for (at, piece) in queue.list.iter().enumerate() {
            assert_eq!(queue.place[piece] as usize, at);
        }
    }
}
