//! One stream's slab: which packets of the open steps have arrived. A thread that writes values into the slab
//! holds its lock.

use std::sync::Arc;

use parking_lot::Mutex;

use super::fec::Blocks;
use crate::shm::Shared;

/// The shared memory, and the slabs in it. It stays when a session follows another with the same shape and streams.
#[derive(Debug)]
pub(super) struct Area {
    pub(super) shared: Shared,
    pub(super) slots: Vec<Mutex<Slot>>,
    /// Of each volume, whether its map has values that are not of its step. One at a time closes steps.
    pub(super) holed: Mutex<Vec<bool>>,
}

impl Area {
    pub(super) fn new(shared: Shared, slabs: usize) -> Self {
        let holed = Mutex::new(vec![true; shared.volumes()]);
        Self { shared, slots: (0..slabs).map(|_| Mutex::default()).collect(), holed }
    }
}

/// The open steps of one slab: at most two, for packets of the last one that arrive after the next has begun.
#[derive(Debug, Default)]
pub(super) struct Slot {
    /// The run whose packets may be written.
    pub(super) run: u64,
    pub(super) parts: Vec<Part>,
    /// The newest batch with a received packet, and since when (ns).
    pub(super) newest: Option<(u32, u64)>,
    /// With one volume: a bit for each unit that the map marks as not of the step closed last, nor of a later
    /// one.
    stale: Vec<u64>,
}

impl Slot {
    /// For the packets of a run, none of which is received yet; `live`: where there is one volume.
    pub(super) fn new(run: u64, units: u32, live: bool) -> Self {
        let words = if live { units.div_ceil(64) as usize } else { 0 };
        Self { run, stale: vec![u64::MAX; words], ..Self::default() }
    }

    /// Notes that a unit is of no step that counts any more.
    pub(super) fn age(&mut self, unit: u32) {
        if let Some(word) = self.stale.get_mut(unit as usize / 64) {
            *word |= 1 << (unit % 64);
        }
    }

    /// Marks a unit as received; true if the map has it as an old one.
    #[inline]
    pub(super) fn renew(&mut self, unit: u32) -> bool {
        let Some(word) = self.stale.get_mut(unit as usize / 64) else { return false };
        let bit = 1 << (unit % 64);
        let old = *word & bit != 0;
        *word &= !bit;
        old
    }

    pub(super) fn part(&mut self, batch: u32) -> Option<&mut Part> {
        self.parts.iter_mut().find(|part| part.batch == batch)
    }

    /// Whether a later step has this unit already: its values are not to be overwritten where there is one volume.
    pub(super) fn is_newer(&self, batch: u32, unit: u32) -> bool {
        self.parts.iter().any(|part| part.batch > batch && part.has(unit))
    }

    pub(super) fn take(&mut self, batch: u32) -> Option<Part> {
        let at = self.parts.iter().position(|part| part.batch == batch)?;
        Some(self.parts.swap_remove(at))
    }
}

/// The received units of one step of one slab. Units are packets; of a foreign sender, whose packets are not
/// known beforehand, values.
#[derive(Debug)]
pub(super) struct Part {
    pub(super) batch: u32,
    pub(super) step: u64,
    pub(super) volume: usize,
    have: Vec<u64>,
    /// Units that are there.
    pub(super) filled: u32,
    /// The highest unit so far, to detect packets out of order.
    pub(super) highest: u32,
    /// Packets with something new.
    pub(super) received: u64,
    /// Packets that parity has brought back.
    pub(super) recovered: u64,
    /// Bytes of its datagrams.
    pub(super) bytes: u64,
    pub(super) blocks: Option<Arc<Blocks>>,
}

impl Part {
    pub(super) fn new(batch: u32, step: u64, volume: usize, units: u32, blocks: Option<Arc<Blocks>>) -> Self {
        let have = vec![0; units.div_ceil(64) as usize];
        Self { batch, step, volume, have, filled: 0, highest: 0, received: 0, recovered: 0, bytes: 0, blocks }
    }

    pub(super) fn has(&self, unit: u32) -> bool {
        self.have.get(unit as usize / 64).is_some_and(|word| word >> (unit % 64) & 1 == 1)
    }

    /// Notes a unit; false if it was there.
    #[inline]
    pub(super) fn claim(&mut self, unit: u32) -> bool {
        let Some(word) = self.have.get_mut(unit as usize / 64) else { return false };
        let bit = 1 << (unit % 64);
        let new = *word & bit == 0;
        *word |= bit;
        self.filled += u32::from(new);
        new
    }

    /// Stretches of units, of `units`, that are not there: first, and how many.
    pub(super) fn missing(&self, units: u32) -> Vec<(u32, u32)> {
        let mut stretches: Vec<(u32, u32)> = Vec::new();
        if self.filled == units {
            return stretches;
        }
        for unit in (0..units).filter(|unit| !self.has(*unit)) {
            match stretches.last_mut() {
                Some((first, count)) if *first + *count == unit => *count += 1,
                _ => stretches.push((unit, 1)),
            }
        }
        stretches
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing() {
        let mut part = Part::new(3, 3, 0, 130, None);
        assert_eq!(part.missing(130), [(0, 130)]);
        for unit in (0..130).filter(|unit| ![5, 6, 7, 64, 129].contains(unit)) {
            assert!(part.claim(unit) && !part.claim(unit));
        }
        assert_eq!(part.missing(130), [(5, 3), (64, 1), (129, 1)]);
        assert_eq!(part.filled, 125);
        assert!(!part.claim(1000), "there is no such unit");
        assert!(part.claim(5) && part.claim(6) && part.claim(7) && part.claim(64) && part.claim(129));
        assert_eq!(part.missing(130), []);
    }

    #[test]
    fn a_later_step_stays_on_top() {
        let mut slot = Slot::default();
        let mut newer = Part::new(5, 5, 0, 10, None);
        newer.claim(3);
        slot.parts = vec![newer, Part::new(4, 4, 0, 10, None)];
        assert!(slot.is_newer(4, 3) && !slot.is_newer(4, 2) && !slot.is_newer(5, 3));
        assert_eq!(slot.take(4).unwrap().batch, 4);
        assert!(slot.take(4).is_none() && slot.part(5).is_some());
    }
}
