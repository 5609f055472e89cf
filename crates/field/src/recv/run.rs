//! A run: everything between one authenticated hello and the next session or shape.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use super::fec::{Blocks, Fec, Shard};
use super::slot::{Area, Part, Slot};
use super::{Missing, Policy, Volumes};
use crate::control::Hello;
use crate::geometry::{Order, Ranks, Shape, Slab};
use crate::layout::head;
use crate::packet::{PAPER_DATAGRAM, Packing, VALUE};
use crate::parity::{Layout, Rate};
use crate::shm::now;

/// How long late packets are accepted after a later step has begun, and after a sender's farewell.
pub(super) const GRACE: u64 = 50_000_000;
/// How much longer, where packets have arrived that the stream's thread has not stored: on a busy host it may not run for a
/// while. Less than a later step waits for a place.
const BACKLOG: u64 = 200_000_000;
/// How often, and how long each time, a step waits for a place.
const WAITS: usize = 50;
const WAIT: Duration = Duration::from_millis(10);
/// After this much silence a stream is not waited for.
const SILENCE: u64 = 2_000_000_000;
/// Steps under way at the same time.
const OPEN: usize = 2;
/// Steps whose parity may still come when they are closed.
const PAST: usize = 4;

/// The description of a session; another description is another run.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Terms {
    pub(super) shape: Shape,
    pub(super) streams: u32,
    pub(super) first: u32,
    pub(super) here: u32,
    pub(super) packing: Packing,
    pub(super) encrypted: bool,
    order: Order,
    /// Values of a unit.
    pub(super) unit: u32,
    first_step: u64,
    steps: u64,
    parity: Option<Rate>,
    /// Of a sender without hellos.
    pub(super) foreign: bool,
}

impl Terms {
    pub(super) fn of(hello: &Hello) -> Self {
        Self {
            shape: hello.shape,
            streams: hello.streams,
            first: hello.first,
            here: hello.here,
            packing: hello.packing,
            encrypted: hello.encrypted,
            order: hello.order,
            unit: hello.values,
            first_step: hello.first_step,
            steps: hello.steps,
            parity: hello.parity,
            foreign: false,
        }
    }

    /// Of a sender of the paper's packets, which sends no description: each value is a unit.
    pub(super) fn foreign(shape: Shape, streams: u32) -> Self {
        let (packing, order) = (Packing::Xyz, Order::Zslab);
        let (first_step, steps) = (0, 1 << 32);
        Self {
            shape,
            streams,
            first: 0,
            here: streams,
            packing,
            encrypted: false,
            order,
            unit: 1,
            first_step,
            steps,
            parity: None,
            foreign: true,
        }
    }

    /// The slabs here, each with its stream's number.
    pub(super) fn slabs(&self) -> Result<Vec<(u32, Slab)>, crate::geometry::Error> {
        (self.first..self.first + self.here).map(|s| Ok((s, self.shape.slab(s, self.streams)?))).collect()
    }

    fn step(&self, batch: u32) -> u64 {
        self.first_step.saturating_add(u64::from(batch) % self.steps.max(1))
    }
}

/// A step under way.
#[derive(Debug, Clone)]
pub(super) struct Open {
    pub(super) batch: u32,
    pub(super) step: u64,
    pub(super) volume: usize,
    pub(super) blocks: Option<Arc<Blocks>>,
    /// When its first packet came, ns.
    pub(super) began: u64,
    /// Since when a later step needs its place, ns.
    wanted: Option<u64>,
}

#[derive(Debug, Default)]
struct Steps {
    /// By batch.
    open: Vec<Open>,
    /// Volumes that are neither read nor written.
    spare: Vec<usize>,
    /// Of the steps closed last: the batch, and the received packets of its blocks.
    past: VecDeque<(u32, Arc<Blocks>)>,
}

/// See the head of this file.
pub(super) struct Run {
    pub(super) id: u64,
    pub(super) session: u64,
    pub(super) terms: Terms,
    /// Name of the field.
    pub(super) title: String,
    pub(super) area: Arc<Area>,
    pub(super) ranks: Vec<Ranks>,
    pub(super) units: Vec<u32>,
    pub(super) fec: Option<Fec>,
    pub(super) policy: Policy,
    steps: Mutex<Steps>,
    room: Condvar,
    /// Batches below are closed.
    closed: AtomicU64,
    /// One at a time closes steps.
    pub(super) closing: Mutex<()>,
    began: u64,
    silence: u64,
    /// The time of the sender's farewell; 0: not yet.
    pub(super) farewell: AtomicU64,
    /// When a step was closed last, ns; 0: none yet.
    ended: AtomicU64,
    /// Values in the largest packet of a foreign sender.
    pub(super) largest: AtomicU32,
    pub(super) retired: AtomicBool,
}

impl Run {
    pub(super) fn new(
        id: u64,
        session: u64,
        terms: Terms,
        (rate, title): (u64, &str),
        area: Arc<Area>,
        policy: Policy,
    ) -> Result<Self, crate::geometry::Error> {
        let slabs = terms.slabs()?;
        let ranks: Vec<Ranks> = slabs.iter().map(|(_, slab)| Ranks::new(*slab, terms.order)).collect();
        let units: Vec<u32> = slabs.iter().map(|(_, slab)| slab.values().div_ceil(terms.unit)).collect();
        let fec = match terms.parity {
            None => None,
            Some(rate) => Some(Fec::new(
                Layout::new(terms.shape, terms.streams, terms.first, terms.here, terms.unit, rate)?,
                terms.unit as usize * VALUE,
            )),
        };
        let front = area.shared.get(head::FRONT) as usize;
        let spare = (0..area.shared.volumes()).filter(|volume| *volume != front).collect();
        let live = policy.volumes == Volumes::Live;
        for (slot, units) in area.slots.iter().zip(&units) {
            *slot.lock() = Slot::new(id, *units, live);
        }
        if live {
            // Values that an earlier session has left there belong to no step of this one.
            area.shared.map_all(0, false);
        }
        // Where packets come seldom, silence is longer.
        let bits = terms.packing.datagram(terms.unit, true) as u64 * 8 * u64::from(terms.streams);
        let pause =
            Duration::from_secs(60).min(Duration::from_secs_f64(8.0 * bits as f64 / rate.max(1) as f64));
        let silence = if rate == 0 { SILENCE } else { SILENCE.max(pause.as_nanos() as u64) };
        Ok(Self {
            id,
            session,
            terms,
            title: title.to_owned(),
            area,
            ranks,
            units,
            fec,
            policy,
            steps: Mutex::new(Steps { spare, ..Steps::default() }),
            room: Condvar::new(),
            closed: AtomicU64::new(0),
            closing: Mutex::new(()),
            began: now(),
            silence,
            farewell: AtomicU64::new(0),
            ended: AtomicU64::new(0),
            largest: AtomicU32::new(Packing::Xyz.capacity(PAPER_DATAGRAM, false)),
            retired: AtomicBool::new(false),
        })
    }

    /// The slab of stream `index` of this receiver.
    pub(super) fn slot(&self, index: usize) -> Option<&Mutex<Slot>> {
        self.area.slots.get(index)
    }

    /// The rank of a unit's first value, and how many it has.
    pub(super) fn values_of(&self, index: usize, unit: u32) -> (u32, u32) {
        let values = self.ranks.get(index).map_or(0, |ranks| ranks.slab().values());
        let rank = unit.saturating_mul(self.terms.unit);
        (rank, self.terms.unit.min(values.saturating_sub(rank)))
    }

    /// Writes values in their order, from a rank on. The caller holds the slab's lock, or is the only writer
    /// of this volume.
    #[inline]
    pub(super) fn place(&self, index: usize, volume: usize, rank: u32, values: &[u8]) {
        let Some(ranks) = self.ranks.get(index) else { return };
        let (mut at, offset) = (0, ranks.slab().offset() as usize);
        ranks.runs(rank, (values.len() / VALUE) as u32, |place, length| {
            let end = at + length * VALUE;
            self.area.shared.write(volume, offset + place, values.get(at..end).unwrap_or_default());
            at = end;
        });
    }

    /// Marks units as being of the step that a volume has, or not.
    pub(super) fn map(&self, index: usize, volume: usize, (first, count): (u32, u32), of_step: bool) {
        let Some(ranks) = self.ranks.get(index) else { return };
        let offset = ranks.slab().offset() as usize;
        let (rank, _) = self.values_of(index, first);
        let (last, values) = self.values_of(index, first + count - 1);
        ranks.runs(rank, last + values - rank, |place, length| {
            self.area.shared.map_values(volume, offset + place, length, of_step);
        });
    }

    /// Whether a later step has a unit already, in the slab that is held: then there is no place for it. Else
    /// it counts as received.
    pub(super) fn is_covered(&self, slot: &mut Slot, index: usize, batch: u32, unit: u32) -> bool {
        if self.policy.volumes != Volumes::Live {
            return false;
        }
        if slot.is_newer(batch, unit) {
            return true;
        }
        if slot.renew(unit) {
            self.map(index, 0, (unit, 1), true);
        }
        false
    }

    pub(super) fn is_closed(&self, batch: u32) -> bool {
        u64::from(batch) < self.closed.load(Ordering::Acquire)
    }

    /// The newest batch that is closed.
    pub(super) fn newest_closed(&self) -> Option<u32> {
        self.closed.load(Ordering::Acquire).checked_sub(1).and_then(|batch| u32::try_from(batch).ok())
    }

    /// The packets that a slab's step is expected to have.
    pub(super) fn expected(&self, index: usize) -> u64 {
        let units = self.units.get(index).copied().unwrap_or_default();
        let each = if self.terms.foreign { self.largest.load(Ordering::Relaxed).max(1) } else { 1 };
        units.div_ceil(each).into()
    }

    /// The step of this batch, begun if it is new; waits a while for a place. `None`: it is closed, or there
    /// is no place.
    pub(super) fn enter(&self, batch: u32, kick: &crossbeam_channel::Sender<()>) -> Option<Open> {
        let mut steps = self.steps.lock();
        for _ in 0..WAITS {
            if self.is_closed(batch) || self.retired.load(Ordering::Acquire) {
                return None;
            }
            if let Some(open) = steps.open.iter().find(|open| open.batch == batch) {
                return Some(open.clone());
            }
            if steps.open.len() < OPEN {
                // A step that is just closing has left them, but its volume is not yet given back.
                if self.policy.volumes == Volumes::Live || !steps.spare.is_empty() {
                    return self.begin(&mut steps, batch);
                }
            } else {
                let oldest = steps.open.first_mut()?;
                if batch < oldest.batch {
                    return None;
                }
                oldest.wanted.get_or_insert_with(now);
                let _ = kick.try_send(());
            }
            self.room.wait_for(&mut steps, WAIT);
        }
        None
    }

    fn begin(&self, steps: &mut Steps, batch: u32) -> Option<Open> {
        let shared = &self.area.shared;
        let volume = match self.policy.volumes {
            Volumes::Live => 0,
            Volumes::Steps => steps.spare.pop()?,
        };
        shared.mark(volume, true);
        let step = self.terms.step(batch);
        let blocks = self.fec.as_ref().map(Fec::blocks);
        let open = Open { batch, step, volume, blocks, began: now(), wanted: None };
        if self.policy.volumes == Volumes::Live && steps.open.last().is_none_or(|last| last.batch < batch) {
            shared.set(head::STEP, step);
        }
        steps.open.push(open.clone());
        steps.open.sort_by_key(|open| open.batch);
        Some(open)
    }

    /// Puts a part for this batch into a slot, unless it has been closed meanwhile.
    pub(super) fn insert<'a>(&self, slot: &'a mut Slot, open: &Open, index: usize) -> Option<&'a mut Part> {
        if slot.run != self.id || self.is_closed(open.batch) {
            return None;
        }
        if slot.part(open.batch).is_none() {
            let units = self.units.get(index).copied().unwrap_or_default();
            slot.parts.push(Part::new(open.batch, open.step, open.volume, units, open.blocks.clone()));
            if slot.newest.is_none_or(|(newest, _)| newest < open.batch) {
                slot.newest = Some((open.batch, now()));
            }
        }
        slot.part(open.batch)
    }

    /// The oldest step under way.
    pub(super) fn oldest(&self) -> Option<Open> {
        self.steps.lock().open.first().cloned()
    }

    /// The volume of a step under way.
    pub(super) fn is_open(&self, batch: u32) -> bool {
        self.steps.lock().open.iter().any(|open| open.batch == batch)
    }

    /// From now on nothing more comes into this step.
    pub(super) fn seal(&self, batch: u32) {
        let mut steps = self.steps.lock();
        self.closed.fetch_max(u64::from(batch) + 1, Ordering::AcqRel);
        let (closed, open): (Vec<_>, Vec<_>) = steps.open.drain(..).partition(|open| open.batch <= batch);
        steps.open = open;
        for Open { batch, blocks, .. } in closed {
            steps.past.truncate(PAST - 1);
            if let Some(blocks) = blocks {
                steps.past.push_front((batch, blocks));
            }
        }
        self.ended.store(now(), Ordering::Relaxed);
    }

    /// Whether a packet of a closed step is one of those that follow a block that was complete without them.
    pub(super) fn is_spare(&self, batch: u32, shard: Shard) -> bool {
        let steps = self.steps.lock();
        let past = steps.past.iter().find(|(past, _)| *past == batch);
        past.zip(self.fec.as_ref()).is_some_and(|((_, blocks), fec)| fec.is_spare(blocks, shard))
    }

    /// Returns a volume that is no longer to be read.
    pub(super) fn give_back(&self, volume: usize) {
        let mut steps = self.steps.lock();
        if self.policy.volumes == Volumes::Steps && !steps.spare.contains(&volume) {
            steps.spare.push(volume);
        }
        self.room.notify_all();
    }

    /// Whether no stream is waited for any longer: each has all of it, is well into a later step, or is
    /// silent. Where a later step needs the place, a stream that has begun a later one is not waited for, and others only as
    /// long as their packets may have come later than those of the others, or are not stored yet. `last`: when values or parity,
    /// and anything, came from a stream last, ns; `unread`: whether it may have packets that are not stored.
    pub(super) fn is_over(
        &self,
        open: &Open,
        last: impl Fn(usize) -> (u64, u64),
        unread: impl Fn(usize) -> bool,
    ) -> bool {
        let now = now();
        let past = |since: u64, pause: u64| now.saturating_sub(since) > pause;
        let farewell = self.farewell.load(Ordering::Relaxed);
        let over = |index: usize| {
            let Some(mut slot) = self.slot(index).map(Mutex::lock) else { return true };
            let units = self.units.get(index).copied().unwrap_or_default();
            if slot.part(open.batch).is_some_and(|part| part.filled == units) {
                return true;
            }
            if slot.newest.is_some_and(|(batch, since)| {
                batch > open.batch && (open.wanted.is_some() || past(since, GRACE))
            }) {
                return true;
            }
            let (data, any) = last(index);
            let heard = if data < self.began { open.began } else { data };
            let read = |since: u64| past(since, GRACE + BACKLOG) || !unread(index);
            if open.wanted.is_some_and(|wanted| past(wanted.min(heard), GRACE) && read(wanted)) {
                return true;
            }
            let since = data.max(open.began);
            let gone = farewell > 0 && past(since.max(farewell), GRACE) && read(farewell);
            gone || past(any.max(self.began), self.silence) || past(since, self.silence)
        };
        (0..self.ranks.len()).all(over)
    }

    /// Whether a stream is to be shown as open, by when anything last came from it.
    pub(super) fn is_alive(&self, last: u64) -> bool {
        self.farewell.load(Ordering::Relaxed) == 0 && now().saturating_sub(last) <= self.silence
    }

    /// Since when no step is under way; `None` if one is, or none has been.
    pub(super) fn quiet_since(&self) -> Option<u64> {
        match self.ended.load(Ordering::Relaxed) {
            0 => None,
            ended => self.oldest().is_none().then_some(ended),
        }
    }

    /// Whether missing values become NaN.
    pub(super) fn shows_holes(&self) -> bool {
        self.policy.missing == Missing::Nan
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::geometry::Order;
    use crate::shm::{Name, Shared};

    /// A run of two streams, which shows steps.
    fn run_of_two(name: &str) -> Run {
        let name = Name::take(&format!("test-{name}-{}", std::process::id())).unwrap();
        let mut terms = Terms::foreign("4,4,4".parse().unwrap(), 2);
        (terms.foreign, terms.order) = (false, Order::Zslab);
        let slabs = terms.slabs().unwrap();
        let shared = Shared::create(&name, terms.shape, &slabs, 3, "").unwrap();
        let area = Arc::new(Area::new(shared, slabs.len()));
        let policy = Policy { volumes: Volumes::Steps, missing: Missing::Keep, complete: false };
        Run::new(1, 1, terms, (0, ""), area, policy).unwrap()
    }

    #[test]
    fn a_stream_that_has_not_been_read_yet_is_waited_for() {
        let run = run_of_two("wanted");
        let (kick, _kicked) = crossbeam_channel::bounded(1);
        let enter = |index: usize, batch: u32| {
            let open = run.enter(batch, &kick).unwrap();
            let mut slot = run.slot(index).unwrap().lock();
            run.insert(&mut slot, &open, index).unwrap();
        };
        // The first stream has brought its part of two steps before the thread of the second has run.
        for batch in 0..2 {
            enter(0, batch);
            let mut slot = run.slot(0).unwrap().lock();
            let units = run.units[0];
            let part = slot.part(batch).unwrap();
            assert!((0..units).all(|unit| part.claim(unit)));
        }
        assert!(run.enter(2, &kick).is_none(), "there is no place");
        let mut open = run.oldest().unwrap();
        assert!(open.batch == 0 && open.wanted.is_some());
        let far = now() + 3_600_000_000_000;
        open.wanted = Some(far);
        let over = |open: &Open, data: u64, unread: bool| run.is_over(open, |_| (data, far), |_| unread);
        assert!(!over(&open, far, false), "packets of the second stream may be on their way");
        assert!(over(&open, run.began, false), "the second stream has fallen silent");
        assert!(!over(&open, run.began, true), "the second stream has packets that are not stored");
        open.wanted = Some(run.began);
        assert!(over(&open, far, false), "the place has been wanted for too long");
        open.wanted = Some(far);
        enter(1, 1);
        assert!(over(&open, far, true), "the second stream is in the next step");
        open.wanted = None;
        assert!(!over(&open, far, false), "its packets may overtake each other");
        run.area.shared.retire(true);
    }

    #[test]
    fn a_step_waits_for_the_volume_of_one_that_is_closing() {
        let run = run_of_two("run");
        let (kick, _kicked) = crossbeam_channel::bounded(1);
        let volumes: Vec<_> = (0..2).map(|batch| run.enter(batch, &kick).unwrap().volume).collect();
        // Batch 0 is closing: it is sealed, and readers do not have it yet.
        run.seal(0);
        std::thread::scope(|scope| {
            let next = scope.spawn(|| run.enter(2, &kick).map(|open| open.volume));
            let front = (0..3).find(|volume| !volumes.contains(volume)).unwrap();
            run.give_back(front);
            assert_eq!(next.join().unwrap(), Some(front));
        });
        // A volume that is never returned is not waited for without end.
        run.seal(1);
        assert!(run.enter(3, &kick).is_none() && run.enter(1, &kick).is_none());
        run.area.shared.retire(true);
    }
}
