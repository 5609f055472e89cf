//! The event queue: by time, in order of entry within one instant.
//!
//! A radix heap (Ahuja, Mehlhorn, Orlin, Tarjan 1990): times never go backwards, so an entry waits in the
//! bucket of the highest bit in which its time differs from the last one taken out, and moves to lower
//! buckets as its time comes near. Entries move in order, so equal times stay in order. Their payload stays
//! in place.

use tidecast_swarm::Time;

/// An entry: when, and in which slot its thing is.
type Entry = (u64, u32);

/// See the head of the file.
#[derive(Debug)]
pub(crate) struct EventQueue<T> {
    /// The time last taken out; nothing is earlier.
    last: u64,
    /// Entries at `last`, from `taken` on.
    ready: Vec<u32>,
    taken: usize,
    /// By highest bit that differs, and the earliest time of each.
    buckets: [Vec<Entry>; 64],
    earliest: [u64; 64],
    /// Which are not empty.
    full: u64,
    slots: Vec<Option<T>>,
    free: Vec<u32>,
}

impl<T> Default for EventQueue<T> {
    fn default() -> Self {
        EventQueue {
            last: 0,
            ready: Vec::new(),
            taken: 0,
            buckets: [const { Vec::new() }; 64],
            earliest: [u64::MAX; 64],
            full: 0,
            slots: Vec::new(),
            free: Vec::new(),
        }
    }
}

impl<T> EventQueue<T> {
    /// When the next thing happens.
    pub(crate) fn next(&self) -> Option<Time> {
        if self.taken < self.ready.len() {
            return Some(Time(self.last));
        }
        self.earliest.get(self.full.trailing_zeros() as usize).map(|at| Time(*at))
    }

    /// Something happens at this time, not before the last that was taken out.
    pub(crate) fn push(&mut self, at: Time, thing: T) {
        debug_assert!(at.0 >= self.last, "it is too late for this");
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            self.slots.len() as u32 - 1
        });
        self.slots[slot as usize] = Some(thing);
        self.put((at.0.max(self.last), slot));
    }

    /// The next thing.
    pub(crate) fn pop(&mut self) -> Option<T> {
        if self.taken == self.ready.len() {
            self.refill();
        }
        let slot = *self.ready.get(self.taken)?;
        self.taken += 1;
        self.free.push(slot);
        self.slots[slot as usize].take()
    }

    fn put(&mut self, entry: Entry) {
        let differs = entry.0 ^ self.last;
        if differs == 0 {
            self.ready.push(entry.1);
            return;
        }
        let bucket = differs.ilog2() as usize;
        self.buckets[bucket].push(entry);
        self.earliest[bucket] = self.earliest[bucket].min(entry.0);
        self.full |= 1 << bucket;
    }

    /// Advances to the next time: the first non-empty bucket is spread over those before it.
    fn refill(&mut self) {
        self.ready.clear();
        self.taken = 0;
        let bucket = self.full.trailing_zeros() as usize;
        if bucket == 64 {
            return;
        }
        self.full &= !(1 << bucket);
        self.last = std::mem::replace(&mut self.earliest[bucket], u64::MAX);
        let mut entries = std::mem::take(&mut self.buckets[bucket]);
        for entry in entries.drain(..) {
            self.put(entry);
        }
        self.buckets[bucket] = entries;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn sorted_and_stable(gaps in proptest::collection::vec((0u64..2000, 0usize..4), 1..300)) {
            let mut queue = EventQueue::default();
            let mut model: Vec<(u64, u32)> = Vec::new();
            for (i, (gap, pops)) in gaps.into_iter().enumerate() {
                let at = queue.last + gap / 3;
                queue.push(Time(at), i as u32);
                model.insert(model.partition_point(|(time, _)| *time <= at), (at, i as u32));
                for _ in 0..pops.min(model.len()) {
                    let (at, message) = model.remove(0);
                    prop_assert_eq!(queue.next(), Some(Time(at)));
                    prop_assert_eq!(queue.pop(), Some(message));
                }
                prop_assert_eq!(queue.next(), model.first().map(|(at, _)| Time(*at)));
            }
        }
    }
}
