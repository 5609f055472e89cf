//! Closes steps: fills and counts missing values, makes the step visible to readers, notifies listeners.

use std::sync::atomic::Ordering;

use tidecast_event::field::receive::{Closed, Loss};

use super::run::{Open, Run};
use super::slot::Part;
use super::socket::Backlog;
use super::{Event, Hub, Volumes};
use crate::layout::{head, slab};
use crate::shm::now;

/// Values that are filled under one hold of a slab's lock.
const STRIDE: u32 = 1 << 16;

impl Run {
    /// Closes the steps that are over; with `all`, those that are not, too.
    pub(super) fn close_due(&self, hub: &Hub, all: bool) {
        let _one = self.closing.lock();
        let last = |index: usize| hub.counts.get(index).map_or((0, 0), |c| (c.last_data.get(), c.last.get()));
        let unread = |index: usize| hub.backlogs.get(index).is_some_and(Backlog::is_any);
        while let Some(open) = self.oldest().filter(|open| all || self.is_over(open, last, unread)) {
            self.close(hub, &open);
        }
    }

    fn close(&self, hub: &Hub, open: &Open) {
        self.seal(open.batch);
        let shared = &self.area.shared;
        let front = shared.get(head::FRONT) as usize;
        let mut closed = Closed {
            step: open.step,
            batch: open.batch,
            seconds: now().saturating_sub(open.began) as f64 / 1e9,
            ..Closed::default()
        };
        let mut gaps = Vec::new();
        for index in 0..self.ranks.len() {
            let units = self.units.get(index).copied().unwrap_or_default();
            let part = self.slot(index).and_then(|slot| slot.lock().take(open.batch));
            let part = part.unwrap_or_else(|| Part::new(open.batch, open.step, open.volume, units, None));
            self.count(hub, index, &part, &mut closed);
            let missing = part.missing(units);
            closed.missing += missing.iter().map(|gap| self.values_between(index, *gap)).sum::<u64>();
            gaps.push(missing);
        }
        closed.shown = closed.missing == 0 || !self.policy.complete;
        if closed.shown {
            self.map_step(open.volume, closed.missing);
            for (index, gaps) in gaps.iter().enumerate() {
                for gap in gaps {
                    self.fill(index, open, *gap, front);
                }
            }
        }
        let sequence = self.show(&closed, open.volume, front);
        if closed.shown {
            hub.record(self, &closed, (open.volume, sequence));
        }
        hub.report(Event::Step(closed));
    }

    /// Adds one slab's counts to those of the step, and of the stream.
    fn count(&self, hub: &Hub, index: usize, part: &Part, closed: &mut Closed) {
        let units = self.units.get(index).copied().unwrap_or_default();
        let (expected, whole) = (self.expected(index), part.filled == units);
        closed.expected += expected;
        closed.received += part.received;
        closed.recovered += part.recovered;
        closed.bytes += part.bytes;
        closed.values += self.ranks.get(index).map_or(0, |ranks| u64::from(ranks.slab().values()));
        let lost = expected.saturating_sub(part.received);
        let stream = self.terms.first + index as u32;
        if lost > 0 && !(self.terms.foreign && whole) {
            let (received, recovered) = (part.received, part.recovered);
            closed.losses.push(Loss { stream, expected, received, recovered });
            if let Some(counts) = hub.counts.get(index) {
                counts.lost.add(lost);
            }
        }
        let Some(counts) = hub.counts.get(index) else { return };
        if whole {
            counts.complete.add(1)
        } else {
            counts.incomplete.add(1)
        }
        hub.publish(self, index, Some(part));
    }

    /// Values of a stretch of units.
    fn values_between(&self, index: usize, (first, count): (u32, u32)) -> u64 {
        let (rank, _) = self.values_of(index, first);
        let (last, values) = self.values_of(index, first + count - 1);
        u64::from(last + values - rank)
    }

    /// Begins the map of a step that readers are to see: all values have arrived, except the gaps that are
    /// filled next.
    fn map_step(&self, volume: usize, missing: u64) {
        let shared = &self.area.shared;
        if self.policy.volumes == Volumes::Live {
            return;
        }
        shared.set_holes(volume, missing);
        if let Some(holed) = self.area.holed.lock().get_mut(volume) {
            if *holed {
                shared.map_all(volume, true);
            }
            *holed = missing > 0;
        }
    }

    /// Fills missing units: with NaN, or with the values of the step before. The map marks them.
    fn fill(&self, index: usize, open: &Open, gap: (u32, u32), front: usize) {
        let (Some(slot), Some(ranks)) = (self.slot(index), self.ranks.get(index)) else { return };
        let (shared, offset) = (&self.area.shared, ranks.slab().offset() as usize);
        let live = self.policy.volumes == Volumes::Live;
        if !live {
            self.map(index, open.volume, gap, false);
            if !self.shows_holes() {
                let (rank, _) = self.values_of(index, gap.0);
                let values = self.values_between(index, gap) as u32;
                ranks.runs(rank, values, |place, length| {
                    shared.carry(front, open.volume, offset + place, length)
                });
                return;
            }
        }
        // Where there is one volume, values of a later step may come at the same time.
        let (first, count) = gap;
        let stride = (STRIDE / self.terms.unit).max(1);
        let nan: Vec<u8> = f32::NAN.to_le_bytes().repeat(self.terms.unit as usize);
        for begin in (first..first + count).step_by(stride as usize) {
            let mut slot = slot.lock();
            for unit in begin..(begin + stride).min(first + count) {
                if live && slot.is_newer(open.batch, unit) {
                    continue;
                }
                if live {
                    slot.age(unit);
                    self.map(index, open.volume, (unit, 1), false);
                }
                if self.shows_holes() {
                    let (rank, values) = self.values_of(index, unit);
                    self.place(index, open.volume, rank, nan.get(..values as usize * 4).unwrap_or_default());
                }
            }
        }
    }

    /// Gives the step to the readers; answers the volume's sequence: as long as it stays, the volume is this step.
    fn show(&self, closed: &Closed, volume: usize, front: usize) -> u64 {
        let shared = &self.area.shared;
        if self.policy.volumes == Volumes::Steps {
            if closed.shown {
                shared.mark(volume, false);
                shared.set(head::FRONT, volume as u64);
                shared.set(head::STEP, closed.step);
            }
            self.give_back(if closed.shown { front } else { volume });
        } else {
            self.give_back(0);
        }
        let sequence = shared.sequence(volume);
        shared.record([
            closed.step,
            closed.batch.into(),
            now(),
            closed.expected,
            closed.received,
            closed.recovered,
            closed.missing,
            closed.bytes,
        ]);
        shared.set(head::CLOSED, shared.get(head::CLOSED) + 1);
        sequence
    }

    /// Marks silent streams: a silent stream cannot report it itself.
    pub(super) fn note_silence(&self, hub: &Hub) {
        for (index, counts) in hub.counts.iter().enumerate().take(self.ranks.len()) {
            if !self.is_alive(counts.last.get()) {
                self.area.shared.set_slab(index, slab::IS_OPEN, 0);
            }
        }
    }

    /// Ends the run: open steps are closed as they are.
    pub(super) fn retire(&self, hub: &Hub) {
        self.retired.store(true, Ordering::Release);
        self.close_due(hub, true);
    }
}
