//! When each of many slots is due: a 4-ary heap that knows where each slot stands in it, so that a time
//! is changed in place. Equal times come out by slot number.

/// A slot that is not in the heap.
const NOWHERE: u32 = u32::MAX;

#[derive(Debug, Default)]
pub(super) struct Wakes {
    heap: Vec<(u64, u32)>,
    /// Of each slot.
    place: Vec<u32>,
}

impl Wakes {
    /// The earliest time and its slot.
    pub(super) fn first(&self) -> Option<(u64, u32)> {
        self.heap.first().copied()
    }

    /// The slot is due at this time; `u64::MAX` is never.
    pub(super) fn set(&mut self, slot: u32, at: u64) {
        if self.place.len() <= slot as usize {
            self.place.resize(slot as usize + 1, NOWHERE);
        }
        let place = self.place[slot as usize];
        if at == u64::MAX {
            self.remove(slot);
        } else if place == NOWHERE {
            self.heap.push((at, slot));
            self.up(self.heap.len() - 1, (at, slot));
        } else if (at, slot) < self.heap[place as usize] {
            self.up(place as usize, (at, slot));
        } else {
            self.down(place as usize, (at, slot));
        }
    }

    /// The slot is not due any more.
    pub(super) fn remove(&mut self, slot: u32) {
        let Some(place) = self.place.get_mut(slot as usize) else { return };
        let hole = std::mem::replace(place, NOWHERE);
        if hole == NOWHERE {
            return;
        }
        let Some(last) = self.heap.pop() else { return };
        if let Some(&gone) = self.heap.get(hole as usize) {
            if last < gone { self.up(hole as usize, last) } else { self.down(hole as usize, last) }
        }
    }

    fn put(&mut self, place: usize, entry: (u64, u32)) {
        self.heap[place] = entry;
        self.place[entry.1 as usize] = place as u32;
    }

    /// Moves the hole at `place` up to where `entry` belongs.
    fn up(&mut self, mut place: usize, entry: (u64, u32)) {
        while place > 0 {
            let parent = (place - 1) / 4;
            if self.heap[parent] <= entry {
                break;
            }
            self.put(place, self.heap[parent]);
            place = parent;
        }
        self.put(place, entry);
    }

    /// ... or down.
    fn down(&mut self, mut place: usize, entry: (u64, u32)) {
        loop {
            let first = 4 * place + 1;
            let children = first..(first + 4).min(self.heap.len());
            let Some(least) = children.min_by_key(|child| self.heap[*child]) else { break };
            if self.heap[least] >= entry {
                break;
            }
            self.put(place, self.heap[least]);
            place = least;
        }
        self.put(place, entry);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn like_a_sorted_set(ops in proptest::collection::vec((0u32..20, 0u64..50), 1..200)) {
            let mut wakes = Wakes::default();
            let mut times = [u64::MAX; 20];
            for (slot, at) in ops {
                let at = if at == 0 { u64::MAX } else { at };
                wakes.set(slot, at);
                times[slot as usize] = at;
                let set: BTreeSet<(u64, u32)> =
                    times.iter().enumerate().filter(|(_, t)| **t != u64::MAX).map(|(s, t)| (*t, s as u32)).collect();
                prop_assert_eq!(wakes.first(), set.first().copied());
            }
        }
    }
}
