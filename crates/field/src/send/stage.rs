//! Staging: steps are read ahead of sending, by threads of their own, into buffers that go round. How much is ahead is bounded by the
//! number of buffers; a buffer has one slab of one step.
//!
//! A *frame* is a step in progress: opened by one thread, its slabs read by several, its parity made when the
//! last slab of a receiver is read. The sending threads take slab after slab, and a dropped frame is free
//! again.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded};
use parking_lot::{Condvar, Mutex, MutexGuard};

use super::parity::{Parity, ParityGroup};
use super::source::{LOOK, Source, SourceError, Step};
use crate::geometry::Slab;

/// The last batch of a session.
const LAST: u32 = u32::MAX - 2;

/// The values of a slab, as they travel. When it is dropped, its buffer is free.
#[derive(Debug)]
pub struct Values {
    bytes: Vec<u8>,
    home: Sender<Vec<u8>>,
}

impl std::ops::Deref for Values {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Values {
    fn drop(&mut self) {
        // There is room for every buffer.
        let _ = self.home.try_send(std::mem::take(&mut self.bytes));
    }
}

/// A slab that can be sent.
#[derive(Clone, Debug)]
pub struct Staged {
    /// Which sending of which step.
    pub batch: u32,
    /// The number of the step.
    pub step: u64,
    /// Its values.
    pub values: Arc<Values>,
    /// The parity of its receiver's slabs, if there is any.
    pub parity: Option<Arc<Parity>>,
}

/// The staged data of a stream.
#[derive(Debug)]
pub enum Next {
    /// A slab.
    Ready(Staged),
    /// Nothing yet.
    Wait,
    /// Nothing, and nothing will come.
    Over,
}

/// Which steps are sent, in which order.
#[derive(Debug, Clone, Copy)]
pub struct Plan {
    /// The first step.
    pub first: u64,
    /// How many; None: as many as there are.
    pub count: Option<u64>,
    /// Begin again when they are over.
    pub again: bool,
    /// The first batch: not 0 when it continues in a new session.
    pub begin: u32,
}

struct Frame {
    batch: u32,
    step: u64,
    slabs: Vec<Option<Arc<Values>>>,
    parity: Vec<Option<Arc<Parity>>>,
}

#[derive(Default)]
struct State {
    frames: VecDeque<Frame>,
    /// The first batch that each stream has not finished yet. It is kept under the lock: two streams that end
    /// a step at the same moment must not both miss the other's end, or the step stays in front for ever.
    at: Vec<u32>,
    /// Frames before this batch are given up: the least of `at`, or the one of [`Stage::skip_to`].
    wanted: u32,
    /// No frame will come behind those that are there.
    over: bool,
    error: Option<SourceError>,
    stop: bool,
}

/// Steps in transit from a source to the sending threads.
pub struct Stage {
    slabs: Vec<Slab>,
    groups: Vec<ParityGroup>,
    state: Mutex<State>,
    changed: Condvar,
    free: (Sender<Vec<u8>>, Receiver<Vec<u8>>),
}

/// A slab of a step to be read.
struct Job {
    batch: u32,
    slab: usize,
    step: Arc<dyn Step>,
    buffer: Vec<u8>,
}

impl Stage {
    /// For these slabs, of these groups of streams (one a receiver), with at most `memory` bytes, but at least a buffer a slab.
    /// `begin` is the first batch: that of the plan.
    #[must_use]
    pub fn new(slabs: Vec<Slab>, groups: Vec<ParityGroup>, memory: u64, begin: u32) -> Self {
        let largest = slabs.iter().map(|slab| u64::from(slab.values()) * 4).max().unwrap_or(0);
        let ahead = usize::try_from(memory / largest.max(1)).unwrap_or(usize::MAX);
        let buffers = ahead.clamp(slabs.len(), slabs.len() * 2);
        let free = bounded(buffers);
        (0..buffers).for_each(|_| drop(free.0.send(Vec::new())));
        let state = State { at: vec![begin; slabs.len()], wanted: begin, ..State::default() };
        Self { slabs, groups, state: Mutex::new(state), changed: Condvar::new(), free }
    }

    /// Stages steps until they are over or it is told to stop, by this thread and `readers` more.
    pub fn run(&self, source: &mut dyn Source, plan: Plan, readers: usize) {
        // A job holds a buffer, so there are never more than buffers.
        let (give, take) = bounded::<Job>(self.slabs.len());
        std::thread::scope(|scope| {
            for _ in 0..readers.max(1) {
                let take = take.clone();
                scope.spawn(move || take.iter().for_each(|job| self.read(job)));
            }
            if let Err(error) = self.open(source, plan, &give) {
                self.state.lock().error.get_or_insert(error);
            }
            drop(give);
        });
        self.state.lock().over = true;
        self.changed.notify_all();
    }

    /// Opens step after step.
    fn open(&self, source: &mut dyn Source, plan: Plan, give: &Sender<Job>) -> Result<(), SourceError> {
        let mut count = plan.count.or_else(|| source.steps().map(|all| all.saturating_sub(plan.first)));
        let mut batch = plan.begin;
        loop {
            batch = batch.max(self.state.lock().wanted);
            let place = u64::from(batch) % count.unwrap_or(u64::MAX).max(1);
            if !plan.again && count.is_some_and(|count| u64::from(batch) >= count) {
                return Ok(());
            }
            let step = plan.first + place;
            let Some(open) = source.open(step, &|| !self.is_stopped())? else {
                if batch == 0 && plan.first > 0 && !source.is_live() {
                    let what = format!("the source ends before step {step}, the start of --steps");
                    return Err(SourceError::wrong(source.name(), what));
                }
                // A source of unknown length has ended: these were all steps; they repeat if requested.
                if !plan.again || place == 0 || count.is_some() {
                    return Ok(());
                }
                count = Some(place);
                continue;
            };
            // A simulation may have left steps out.
            let skipped = u32::try_from(open.number().saturating_sub(step)).unwrap_or(u32::MAX);
            batch = batch.saturating_add(skipped);
            if batch > LAST {
                return Err(SourceError::wrong(source.name(), format!("a session has {LAST} steps at most")));
            }
            if !self.share(batch, &open, give) {
                return Ok(());
            }
            batch += 1;
        }
    }

    /// Gives the slabs of a step to the readers, as buffers become free; false when it was stopped.
    fn share(&self, batch: u32, step: &Arc<dyn Step>, give: &Sender<Job>) -> bool {
        let empty = |n: usize| (0..n).map(|_| None).collect();
        let frame = Frame {
            batch,
            step: step.number(),
            slabs: empty(self.slabs.len()),
            parity: (0..self.groups.len()).map(|_| None).collect(),
        };
        self.state.lock().frames.push_back(frame);
        for slab in 0..self.slabs.len() {
            let buffer = loop {
                match self.free.1.recv_timeout(LOOK) {
                    Ok(buffer) => break buffer,
                    Err(RecvTimeoutError::Timeout) if !self.is_stopped() => {}
                    Err(_) => return false,
                }
            };
            let job = Job { batch, slab, step: Arc::clone(step), buffer };
            if self.is_stopped() || give.send(job).is_err() {
                return false;
            }
        }
        true
    }

    /// Reads a slab; with the last one of its group, makes parity.
    fn read(&self, job: Job) {
        let Job { batch, slab, step, mut buffer } = job;
        let home = self.free.0.clone();
        let Some(place) = self.slabs.get(slab) else { return };
        // A frame that was given up meanwhile need not be read.
        if self.state.lock().frames.iter().all(|frame| frame.batch != batch) {
            drop(Values { bytes: buffer, home });
            return;
        }
        buffer.resize(place.values() as usize * 4, 0);
        let read = step.read(place.begin as usize..place.end as usize, &mut buffer);
        drop(step);
        let values = Arc::new(Values { bytes: buffer, home });
        if let Err(error) = read {
            // The buffer has values of an earlier step: no receiver may get them.
            return self.fail(error);
        }
        let mut state = self.state.lock();
        let whole = state.frames.iter_mut().find(|frame| frame.batch == batch).and_then(|frame| {
            *frame.slabs.get_mut(slab)? = Some(values);
            let (number, group) =
                self.groups.iter().enumerate().find(|(_, group)| group.streams().contains(&slab))?;
            let all: Option<Vec<_>> = frame.slabs.get(group.streams())?.iter().cloned().collect();
            Some((number, group, all?))
        });
        drop(state);
        if let Some((number, group, slabs)) = whole {
            let parity = group.encode(&slabs).map(Arc::new);
            if parity.is_none() && group.has_parity() {
                return self.fail(SourceError::wrong("parity", "cannot be computed for these slabs"));
            }
            let mut state = self.state.lock();
            let frame = state.frames.iter_mut().find(|frame| frame.batch == batch);
            if let Some(place) = frame.and_then(|frame| frame.parity.get_mut(number)) {
                *place = parity;
            }
        }
        self.changed.notify_all();
    }

    fn fail(&self, error: SourceError) {
        self.state.lock().error.get_or_insert(error);
        self.stop();
    }

    /// The slab that stream `slab` may send, of batches `from` to `until`. It is leased: the last holder
    /// frees it. No stream begins a step before all have finished the last, or parity across slabs would come
    /// too late.
    #[must_use]
    pub fn next(&self, slab: usize, from: u32, until: u32) -> Next {
        let mut state = self.state.lock();
        let (over, stop) = (state.over || state.stop, state.stop);
        if !state.frames.iter().any(|frame| frame.batch >= from) {
            return if over { Next::Over } else { Next::Wait };
        }
        let first = state.frames.front_mut().filter(|frame| (from..=until).contains(&frame.batch));
        let Some(frame) = first else {
            return if stop { Next::Over } else { Next::Wait };
        };
        let group = self.groups.iter().position(|group| group.streams().contains(&slab));
        let parity = group.and_then(|group| frame.parity.get(group).cloned()).flatten();
        let needs = group.and_then(|group| self.groups.get(group)).is_some_and(ParityGroup::has_parity);
        let Some(place) = frame.slabs.get_mut(slab) else { return Next::Over };
        if place.is_none() || needs && parity.is_none() {
            return if stop { Next::Over } else { Next::Wait };
        }
        let Some(values) = place.take() else { return Next::Wait };
        Next::Ready(Staged { batch: frame.batch, step: frame.step, values, parity })
    }

    /// Stream `slab` has finished all batches before `batch`. Frames that no stream needs any longer are
    /// dropped.
    pub fn done(&self, slab: usize, batch: u32) {
        let mut state = self.state.lock();
        if let Some(at) = state.at.get_mut(slab) {
            *at = batch.max(*at);
        }
        let all = state.at.iter().min().copied().unwrap_or(batch);
        self.give_up(state, all);
    }

    /// Frames before `batch` are no longer needed, whether streams are through with them or not.
    pub fn skip_to(&self, batch: u32) {
        self.give_up(self.state.lock(), batch);
    }

    fn give_up(&self, mut state: MutexGuard<'_, State>, batch: u32) {
        state.wanted = state.wanted.max(batch);
        while state.frames.front().is_some_and(|frame| frame.batch < batch) {
            state.frames.pop_front();
        }
        drop(state);
        self.changed.notify_all();
    }

    /// The batch under way: the first that is not given up, nor sent by all streams.
    #[must_use]
    pub fn batch(&self) -> u32 {
        self.state.lock().wanted
    }

    /// Waits until something has changed, for this long at most.
    pub fn wait(&self, at_most: Duration) {
        let until = Instant::now() + at_most;
        self.changed.wait_until(&mut self.state.lock(), until);
    }

    /// Nothing more is staged or handed out.
    pub fn stop(&self) {
        self.state.lock().stop = true;
        self.changed.notify_all();
    }

    fn is_stopped(&self) -> bool {
        self.state.lock().stop
    }

    /// The error, if any.
    #[must_use]
    pub fn error(&self) -> Option<SourceError> {
        self.state.lock().error.take().filter(|error| !matches!(error, SourceError::Stopped))
    }
}

#[cfg(test)]
mod tests {
    use std::ops::Range;
    use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

    use super::*;
    use crate::geometry::{Order, Ranks, Shape};
    use crate::parity::{Layout, Packet, Rate};

    /// Each value is its step; counts how many are open.
    struct Counting {
        shape: Shape,
        steps: u64,
        known: bool,
        every: u64,
        open: Arc<AtomicUsize>,
    }

    struct Counted(u64, Arc<AtomicUsize>);

    impl Source for Counting {
        fn shape(&self) -> Shape {
            self.shape
        }

        fn name(&self) -> &str {
            "counting"
        }

        fn steps(&self) -> Option<u64> {
            self.known.then_some(self.steps)
        }

        fn open(
            &mut self,
            step: u64,
            _: &super::super::source::Wait<'_>,
        ) -> Result<Option<Arc<dyn Step>>, SourceError> {
            let step = step.next_multiple_of(self.every);
            self.open.fetch_add(1, Ordering::Relaxed);
            Ok((step < self.steps).then(|| Arc::new(Counted(step, Arc::clone(&self.open))) as Arc<dyn Step>))
        }
    }

    impl Step for Counted {
        fn number(&self) -> u64 {
            self.0
        }

        fn read(&self, _: Range<usize>, into: &mut [u8]) -> Result<(), SourceError> {
            if self.0 == 77 {
                return Err(SourceError::wrong("step 77", "cannot be read"));
            }
            into.fill(self.0 as u8);
            Ok(())
        }
    }

    impl Drop for Counted {
        fn drop(&mut self) {
            self.1.fetch_sub(1, Ordering::Relaxed);
        }
    }

    fn source(steps: u64, known: bool, every: u64) -> Counting {
        Counting { shape: "4,3,7".parse().unwrap(), steps, known, every, open: Arc::default() }
    }

    fn stage(memory: u64) -> Stage {
        let shape: Shape = "4,3,7".parse().unwrap();
        let slabs = (0..3).map(|s| shape.slab(s, 3).unwrap()).collect();
        Stage::new(slabs, vec![ParityGroup::plain(0..3)], memory, 0)
    }

    /// The batches given to stream `slab`, until it is over or `most` have come.
    fn take(stage: &Stage, slab: usize, most: usize) -> Vec<(u32, u64, u8)> {
        let (mut from, mut all) = (0, Vec::new());
        while all.len() < most {
            match stage.next(slab, from, u32::MAX) {
                Next::Ready(staged) => {
                    all.push((staged.batch, staged.step, staged.values[staged.values.len() - 1]));
                    assert!(stage.batch() >= from, "stream {slab} is ahead of the others");
                    from = staged.batch + 1;
                    stage.done(slab, from);
                }
                Next::Wait => stage.wait(Duration::from_millis(100)),
                Next::Over => break,
            }
        }
        all
    }

    fn run(stage: &Stage, source: &mut Counting, plan: Plan, most: usize) -> Vec<Vec<(u32, u64, u8)>> {
        std::thread::scope(|scope| {
            scope.spawn(|| stage.run(source, plan, 2));
            let streams: Vec<_> = (0..3).map(|slab| scope.spawn(move || take(stage, slab, most))).collect();
            let all = streams.into_iter().map(|stream| stream.join().unwrap()).collect();
            stage.stop();
            all
        })
    }

    #[test]
    fn every_stream_has_every_step_in_order_whatever_the_memory() {
        for memory in [0, 1 << 30] {
            let mut from = source(50, true, 1);
            let plan = Plan { first: 7, count: Some(20), again: false, begin: 0 };
            let expected: Vec<_> = (0..20).map(|n| (n, u64::from(n) + 7, n as u8 + 7)).collect();
            let stage = stage(memory);
            assert_eq!(run(&stage, &mut from, plan, usize::MAX), [&expected[..]; 3]);
            assert!(stage.error().is_none());
            assert_eq!(from.open.load(Ordering::Relaxed), 0, "steps are closed again");
        }
    }

    #[test]
    fn a_step_is_over_when_the_last_stream_is_through_in_whatever_order() {
        for order in [[0, 1, 2], [2, 1, 0], [1, 2, 0]] {
            let stage = stage(0);
            for (n, slab) in order.into_iter().enumerate() {
                assert_eq!(stage.batch(), 0);
                stage.done(slab, 1);
                assert_eq!(stage.batch(), u32::from(n == 2));
            }
            // A go may be ahead of all, and a late stream changes nothing.
            stage.skip_to(7);
            order.iter().for_each(|slab| stage.done(*slab, 2));
            assert_eq!(stage.batch(), 7);
        }
    }

    #[test]
    fn streams_that_end_a_step_at_the_same_moment_do_not_miss_each_other() {
        const ROUNDS: u32 = 20_000;
        let (stage, arrived) = (&stage(0), &AtomicU32::new(0));
        // Spins, so that both are as close as can be; works on a busy machine all the same.
        let gate = |all: u32| {
            arrived.fetch_add(1, Ordering::SeqCst);
            for spin in 0.. {
                if arrived.load(Ordering::SeqCst) >= all {
                    return;
                }
                if spin > 200 {
                    std::thread::yield_now();
                }
            }
        };
        stage.done(2, ROUNDS);
        std::thread::scope(|scope| {
            for slab in 0..2 {
                scope.spawn(move || {
                    for round in 1..=ROUNDS {
                        gate(round * 4 - 2);
                        stage.done(slab, round);
                        gate(round * 4);
                        assert_eq!(stage.batch(), round, "neither saw that both are through");
                    }
                });
            }
        });
    }

    #[test]
    fn steps_come_round_whether_their_number_is_known_or_not() {
        for known in [true, false] {
            let plan = Plan { first: 2, count: None, again: true, begin: 0 };
            let found = run(&stage(0), &mut source(6, known, 1), plan, 10);
            let expected: Vec<_> = (0..10).map(|n| (n, 2 + u64::from(n) % 4, 2 + n as u8 % 4)).collect();
            assert_eq!(found, [&expected[..]; 3]);
        }
    }

    #[test]
    fn a_simulation_may_leave_steps_out() {
        let plan = Plan { first: 0, count: None, again: false, begin: 0 };
        let found = run(&stage(0), &mut source(10, false, 3), plan, usize::MAX);
        assert_eq!(found, [[(0, 0, 0), (3, 3, 3), (6, 6, 6), (9, 9, 9)]; 3]);
    }

    #[test]
    fn what_cannot_be_read_ends_it() {
        let stage = stage(0);
        let plan = Plan { first: 70, count: None, again: false, begin: 0 };
        let found = run(&stage, &mut source(100, true, 1), plan, usize::MAX);
        assert!(found.iter().all(|stream| stream.len() <= 7), "{found:?}");
        assert!(found.iter().flatten().all(|(_, step, value)| u64::from(*value) == *step), "{found:?}");
        assert!(stage.error().unwrap().to_string().contains("step 77"));
    }

    #[test]
    fn batches_are_given_up() {
        let (stage, mut from) = (stage(0), source(100, true, 1));
        std::thread::scope(|scope| {
            scope.spawn(|| stage.run(&mut from, Plan { first: 0, count: None, again: false, begin: 0 }, 2));
            assert_eq!(take(&stage, 0, 1), [(0, 0, 0)]);
            stage.skip_to(40);
            let next = loop {
                match stage.next(1, 40, 40) {
                    Next::Ready(staged) => break staged,
                    _ => stage.wait(Duration::from_millis(100)),
                }
            };
            assert_eq!((next.batch, next.step), (40, 40));
            drop(next);
            stage.stop();
        });
    }

    #[test]
    fn parity_is_there_when_a_slab_is_given_out() {
        let shape: Shape = "4,3,7".parse().unwrap();
        let ranks: Vec<_> =
            (0..3).map(|s| Arc::new(Ranks::new(shape.slab(s, 3).unwrap(), Order::Morton))).collect();
        let rate = Rate { data: 5, parity: 2 };
        let group = |streams| ParityGroup::with_parity(streams, shape, &ranks, 6, rate).unwrap();
        let stage =
            Stage::new(ranks.iter().map(|r| *r.slab()).collect(), vec![group(0..2), group(2..3)], 0, 0);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                stage.run(&mut source(3, true, 1), Plan { first: 0, count: None, again: false, begin: 0 }, 2);
            });
            for slab in 0..3 {
                let staged = loop {
                    match stage.next(slab, 0, 0) {
                        Next::Ready(staged) => break staged,
                        _ => stage.wait(Duration::from_millis(100)),
                    }
                };
                // All values of step 0 are 0, so the parity is too; its length is that of the layout.
                let parity = staged.parity.unwrap();
                let packets: u32 = if slab < 2 { 4 + 4 } else { 6 };
                let blocks = packets.div_ceil(5);
                assert_eq!(parity.shard(blocks * 2 - 1), Some(&[0; 24][..]));
                assert_eq!(parity.shard(blocks * 2), None);
            }
            stage.stop();
        });
    }

    #[test]
    fn parity_follows_its_block() {
        let shape: Shape = "4,3,7".parse().unwrap();
        let ranks: Vec<_> =
            (0..3).map(|s| Arc::new(Ranks::new(shape.slab(s, 3).unwrap(), Order::Zslab))).collect();
        let rate = Rate { data: 5, parity: 3 };
        let group = ParityGroup::with_parity(0..3, shape, &ranks, 6, rate).unwrap();
        let layout = Layout::new(shape, 3, 0, 3, 6, rate).unwrap();
        let mut seen = Vec::new();
        for stream in 0..3 {
            let due = group.due(stream);
            assert!(due.is_sorted_by_key(|due| due.behind));
            for due in due {
                let (block, _) = layout.parity_shard(due.number).unwrap();
                let next = layout.packet(block + 1, 0).unwrap_or(Packet { stream: 0, number: u32::MAX });
                assert!(due.behind <= next.number && due.behind < layout.packets()[stream as usize]);
                seen.push(due.number);
            }
        }
        seen.sort_unstable();
        assert_eq!(seen, (0..layout.blocks() as u32 * 3).collect::<Vec<_>>());
    }
}
