//! The sending end: a walker, readers, streams, and the return connection.
//!
//! A block is known by its number from the moment a reader has filled it until the receiver has written it. Only its job is kept
//! meanwhile: if the stream breaks on which it went, it is read again and sent with the same number.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::thread::{Scope, available_parallelism};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use super::connection::Purpose;
use super::connections::{Arrival, Link};
use super::control::{HillClimber, Limit, LimitDetector, Limits, PoolSize};
use super::frame::{Forward, Return, expect_message, write_block, write_message};
use super::in_flight::{Last, Sent, State, Task};
use super::meter::{Doing, Meter, Tick};
use super::rate::{Allowed, Rate};
use super::session::{Failure, LastReceived, Monitor, Options, Outcome};
use super::wire::{Wires, is_far};
use crate::block::{Leased, Pool};
use crate::error::Error;
use crate::job::{Source, Want};
use crate::queue::{Popped, Queue};

/// How often the controller looks.
pub(super) const TICK: Duration = Duration::from_millis(500);
/// The interval of keep-alive messages on an idle stream.
const ALIVE: Duration = Duration::from_secs(1);
/// Jobs that wait for readers.
const JOBS: usize = 32;
/// Blocks that ask and have no answer yet.
const ASKED: usize = 64;
/// The weight of a question among the open blocks of [`Source::most_open`]: the receiver may want everything
/// that it asks about.
const ANSWER: u64 = 4;
/// Blocks that are sent and not acknowledged, at least: their jobs are in memory.
const UNDER_WAY: usize = 192;
/// The same for each block of the pool, which grows on long paths: blocks in the kernel, in flight, and in
/// the receiver's memory.
const FOR_EACH: usize = 4;

/// Sends all that `source` has, to the end that `link` leads to.
///
/// # Errors
/// Errors that end the copy early, at either end; problems of single names are in the outcome.
pub fn send<S: Source>(
    source: &S,
    link: &Link,
    options: &Options,
    monitor: &Monitor,
) -> Result<Outcome, Error> {
    let fronts = options.fronts.unwrap_or_else(cores);
    let room = PoolSize::new(options.pool, fronts + link.wanted());
    let fresh = link.fresh();
    let last = if fresh.is_some() { Last::Open } else { Last::Unknown };
    let end = Sender {
        source,
        link,
        monitor,
        pool: Pool::new(room.blocks()),
        tasks: Queue::new(JOBS),
        full: Queue::new(usize::MAX),
        state: Mutex::new(State { fresh, last, ..State::default() }),
        changed: Condvar::new(),
        meter: Meter::default(),
        there: Mutex::default(),
        heard: LastReceived::new(options.timeout),
        failure: Failure::default(),
        readers: AtomicUsize::new(fronts),
        rate: Rate::new(options.rate),
    };
    end.run(options, fronts, room)
}

/// Threads to begin with.
pub(super) fn cores() -> usize {
    available_parallelism().map_or(2, usize::from).clamp(1, 8)
}

struct Sender<'s, S: Source> {
    source: &'s S,
    link: &'s Link,
    monitor: &'s Monitor,
    pool: Pool,
    tasks: Queue<Task<S::Job>>,
    full: Queue<Leased>,
    state: Mutex<State<S::Job>>,
    /// The state has changed; wakes the threads that may wait for it.
    changed: Condvar,
    meter: Meter,
    there: Mutex<Tick>,
    heard: LastReceived,
    failure: Failure,
    /// Readers that should be.
    readers: AtomicUsize,
    rate: Rate,
}

impl<S: Source> Sender<'_, S> {
    fn run(&self, options: &Options, fronts: usize, room: PoolSize) -> Result<Outcome, Error> {
        let began = Instant::now();
        let limits = std::thread::scope(|scope| {
            scope.spawn(|| self.walk());
            for n in 0..fronts {
                scope.spawn(move || self.read(n));
            }
            let limits = self.attend(scope, options, room);
            self.stop();
            limits
        });
        if let Some(error) = self.failure.take() {
            return Err(error);
        }
        let mut state = self.state.lock();
        let written = state.finished.take().ok_or(Error::Cancelled)?;
        let seconds = began.elapsed().as_secs_f64();
        Ok(Outcome {
            walked: self.source.walked(),
            written,
            seconds,
            limits,
            again: state.again,
            wire: self.monitor.progress().wire,
        })
    }

    /// Takes connections in and looks after all, until it is over.
    fn attend<'scope>(
        &'scope self,
        scope: &'scope Scope<'scope, '_>,
        options: &Options,
        room: PoolSize,
    ) -> Limits {
        let mut control = Control::new(options, self.link, self.readers.load(SeqCst), room);
        let mut serial = 0;
        loop {
            if let Some(arrival) = self.link.next(control.wait()) {
                serial += 1;
                let number = serial;
                match arrival.purpose {
                    Purpose::Stream(_) => scope.spawn(move || self.stream(arrival, number)),
                    _ => scope.spawn(move || self.read_return(arrival)),
                };
            }
            if self.is_over() {
                return control.limits;
            }
            if control.is_due() {
                self.tick(scope, &mut control, options);
            }
        }
    }

    fn is_over(&self) -> bool {
        if let Some(error) = self.monitor.end_reason() {
            self.failure.set(error);
        }
        if let Err(e) = self.link.check().and_then(|()| self.heard.check(|| self.link.trouble())) {
            self.failure.set(e);
        }
        self.failure.is_set() || self.state.lock().finished.is_some()
    }

    fn tick<'scope>(
        &'scope self,
        scope: &'scope Scope<'scope, '_>,
        control: &mut Control,
        options: &Options,
    ) {
        if self.heard.stalls() {
            self.link.revive();
        }
        let here = Tick {
            fronts: self.readers.load(SeqCst) as u32,
            streams: self.link.streams() as u32,
            blocks: self.pool.used() as u32,
            ..self.meter.tick()
        };
        let there = *self.there.lock();
        let mut limit = control.judge.judge(here, there);
        let allowed = self.rate.bytes.map(|rate| rate / self.source.sharers());
        if allowed.is_some_and(|rate| control.allowed.is_used(here.bytes, rate, TICK.as_secs_f64()))
            && limit == Limit::Network
        {
            limit = Limit::Rate;
        }
        let wires = self.link.wires();
        let is_far = is_far(wires.iter().copied());
        let wire = control.wires.sum(wires.into_iter());
        let bytes = there.came.saturating_sub(control.bytes);
        control.bytes = there.came;
        let (ending, is_through) = {
            let state = self.state.lock();
            (state.walked && self.tasks.is_empty(), state.walked && state.open == 0)
        };
        if !ending {
            control.limits.add(limit, TICK.as_secs_f64());
        }
        self.monitor.note(|p| {
            (p.here, p.there, p.limit) = (here, there, Some(limit));
            p.wire = wire;
            p.walked = self.source.walked();
            p.ending = is_through;
        });
        if ending {
            return;
        }
        if options.fronts.is_none() {
            let had = self.readers.load(SeqCst);
            let wanted = control.readers.tick(bytes, limit == Limit::DiskIn && !self.tasks.is_empty());
            self.readers.store(wanted, SeqCst);
            for n in had..wanted {
                scope.spawn(move || self.read(n));
            }
            self.tasks.wake();
        }
        self.pool.set_limit(control.room.tick(here, bytes, is_far, |tick| tick.stream_idle));
        if options.streams.is_none() {
            self.link.want(control.streams.tick(bytes, limit == Limit::Network));
        }
    }

    /// Ends all threads; the streams may send a last message.
    fn stop(&self) {
        self.tasks.abandon();
        self.full.abandon();
        self.pool.close();
        self.changed.notify_all();
        self.link.finish();
    }

    fn walk(&self) {
        let mut state = self.state.lock();
        while state.fresh.is_none() && !self.failure.is_set() {
            self.changed.wait_for(&mut state, TICK);
        }
        let fresh = state.fresh.unwrap_or(false);
        drop(state);
        let walked = self.source.walk(fresh, &mut |job| self.emit(job));
        if let Err(e) = walked {
            self.failure.set(e);
        }
        self.state.lock().walked = true;
        self.check_end();
    }

    /// Gives the readers a job of the walk, when there is room.
    fn emit(&self, job: S::Job) -> bool {
        let asks = self.source.asks(&job);
        let under_way = UNDER_WAY.max(FOR_EACH * self.pool.limit());
        let mut state = self.state.lock();
        while (asks && state.asked >= ASKED)
            || state.sent.len() >= under_way
            || state.open.saturating_add(ANSWER * state.asked as u64) >= self.source.most_open()
        {
            if self.failure.is_set() || state.finished.is_some() {
                return false;
            }
            self.changed.wait_for(&mut state, TICK);
        }
        state.open += 1;
        state.asked += usize::from(asks);
        drop(state);
        self.tasks.push(Task { job: Arc::new(job), number: None })
    }

    fn read(&self, number: usize) {
        loop {
            let stay = || number < self.readers.load(SeqCst);
            let Some(task) = self.meter.time(Doing::FrontIdle, || self.tasks.pop_while(stay)) else { return };
            let Some(mut block) = self.meter.time(Doing::Pool, || self.pool.take()) else { return };
            match self.meter.time(Doing::Front, || self.source.fill(&task.job, &mut block)) {
                Ok(rest) => self.filled(task, block, rest),
                Err(e) => return self.failure.set(e),
            }
        }
    }

    /// A block is filled: it gets its number and waits for a stream.
    fn filled(&self, task: Task<S::Job>, mut block: Leased, rest: Option<S::Job>) {
        let asks = self.source.asks(&task.job);
        let mut state = self.state.lock();
        if let Some(rest) = rest {
            // It has a number only once: data that is read again may be cut elsewhere, and the receiver knows
            // parts, not blocks.
            state.open += 1;
            state.asked += usize::from(self.source.asks(&rest));
            self.tasks.push_front(Task { job: Arc::new(rest), number: None });
        }
        if block.table.is_empty() {
            state.open -= 1;
            state.asked -= usize::from(asks);
            if let Some(number) = task.number {
                state.sent.remove(&number);
            }
            drop(state);
            return self.check_end();
        }
        if task.number.is_some_and(|number| !state.sent.contains_key(&number)) {
            // It was acknowledged while it was read again.
            return;
        }
        let number = task.number.unwrap_or(state.next);
        state.next = state.next.max(number + 1);
        block.number = number;
        let again = task.number.is_some();
        state.blocks += u64::from(!asks && !again);
        state.sent.insert(number, Sent { job: task.job, via: None, asks, again, bytes: block.len });
        // Before it is pushed: the stream that takes it sends that message right after it.
        state.is_last();
        drop(state);
        self.full.push(block);
    }

    /// When everything is read, sent and acknowledged, the end is announced on the streams.
    fn check_end(&self) {
        let mut state = self.state.lock();
        if state.walked && state.open == 0 {
            self.full.close();
        } else if state.is_last() {
            self.full.wake();
        }
        if state.finished.is_some() || self.failure.is_set() {
            self.link.wake();
        }
        self.changed.notify_all();
    }

    fn stream(&self, mut arrival: Arrival, serial: usize) {
        let ended = self.feed(&mut arrival, serial);
        if let Err(e) = ended {
            tracing::info!("a stream broke: {e}");
        }
        self.broke(serial);
        if self.state.lock().finished.is_some() || self.failure.is_set() {
            arrival.connection.close();
        } else {
            self.link.lost();
        }
    }

    /// Sends blocks on a stream until no block is left.
    fn feed(&self, arrival: &mut Arrival, serial: usize) -> std::io::Result<()> {
        let to = &mut arrival.connection;
        // `rate` holds the streams together to it; within a block this does, which else would go at the speed of the network card.
        if let Some(rate) = self.rate.bytes {
            to.pace(rate);
        }
        let mut told = self.link.wanted();
        loop {
            // If several streams send the same message the receiver gets it several times.
            let wanted = self.link.wanted();
            if std::mem::replace(&mut told, wanted) != wanted {
                write_message(to, &Forward::Streams(wanted))?;
            }
            if matches!(arrival.purpose, Purpose::Stream(n) if n as usize >= wanted) {
                if self.is_through(serial) {
                    return Ok(());
                }
                continue;
            }
            match self.meter.time(Doing::Stream, || self.full.pop_for(ALIVE)) {
                Popped::Item(block) => {
                    let Some(voids) = self.mark_sent(block.number, serial) else { continue };
                    if voids {
                        write_message(to, &Forward::NotLast)?;
                    }
                    self.rate.wait(block.len, self.source.sharers(), || self.failure.is_set());
                    self.meter.time(Doing::Network, || write_block(to, &block))?;
                    self.meter.moved(block.len);
                    self.announce_last(to)?;
                }
                Popped::Nothing if self.announce_last(to)? => {}
                Popped::Nothing => write_message(to, &Forward::Alive)?,
                Popped::Closed => return self.end(to),
            }
        }
    }

    /// Whether all that went by a stream is acknowledged, at the latest after a while; then one that is too many may go.
    fn is_through(&self, serial: usize) -> bool {
        let mut state = self.state.lock();
        let is_open = |state: &State<S::Job>| state.sent.values().any(|sent| sent.via == Some(serial));
        if is_open(&state) && state.finished.is_none() && !self.failure.is_set() {
            self.changed.wait_for(&mut state, ALIVE);
        }
        !is_open(&state) || state.finished.is_some() || self.failure.is_set()
    }

    /// Announces the end until it is answered.
    fn end(&self, to: &mut super::connection::Connection) -> std::io::Result<()> {
        loop {
            if let Some(text) = self.failure.text() {
                return write_message(to, &Forward::Failed(text));
            }
            let mut state = self.state.lock();
            if state.finished.is_some() {
                drop(state);
                return write_message(to, &Forward::Bye(self.source.walked()));
            }
            if !(state.walked && state.open == 0) {
                return Ok(());
            }
            drop(state);
            write_message(to, &Forward::End(self.source.walked()))?;
            state = self.state.lock();
            if state.finished.is_none() {
                self.changed.wait_for(&mut state, ALIVE);
            }
        }
    }

    /// Announces the last block when it is due and all blocks are in flight; whether it did.
    fn announce_last(&self, to: &mut super::connection::Connection) -> std::io::Result<bool> {
        let mut state = self.state.lock();
        if state.last != Last::Due || state.again > 0 || !self.full.is_empty() {
            return Ok(false);
        }
        state.last = Last::Said;
        let blocks = state.blocks;
        drop(state);
        write_message(to, &Forward::Last(self.source.walked(), blocks)).map(|()| true)
    }

    /// Marks a block as sent by this stream. True if it is sent again after [`Forward::Last`], which does not hold then; None if the receiver
    /// has acknowledged it already.
    fn mark_sent(&self, number: u64, serial: usize) -> Option<bool> {
        let mut state = self.state.lock();
        let is_said = state.last == Last::Said;
        let sent = state.sent.get_mut(&number)?;
        sent.via = Some(serial);
        Some(is_said && sent.again)
    }

    /// Unacknowledged blocks of this stream are read again.
    fn broke(&self, serial: usize) {
        self.repeat(|_, sent| sent.via == Some(serial));
    }

    fn repeat(&self, which: impl Fn(u64, &Sent<S::Job>) -> bool) {
        let mut state = self.state.lock();
        if state.finished.is_some() {
            return;
        }
        let mut again = 0;
        for (number, sent) in &mut state.sent {
            if which(*number, sent) {
                sent.via = None;
                again += 1;
                self.tasks.push_front(Task { job: sent.job.clone(), number: Some(*number) });
            }
        }
        state.again += again;
    }

    /// Reads the receiver's messages.
    fn read_return(&self, mut arrival: Arrival) {
        loop {
            match expect_message::<Return>(&mut arrival.connection) {
                Ok(message) => {
                    self.heard.now();
                    self.on_message(message);
                }
                Err(e) => {
                    tracing::debug!("return connection failed: {e}");
                    if !self.is_done() {
                        self.link.lost();
                    }
                    return;
                }
            }
        }
    }

    fn is_done(&self) -> bool {
        self.failure.is_set() || self.state.lock().finished.is_some()
    }

    fn on_message(&self, message: Return) {
        match message {
            Return::Ready { fresh, below, above, last } => {
                let mut state = self.state.lock();
                state.fresh.get_or_insert(fresh);
                if last {
                    state.knows_last();
                }
                drop(state);
                let done: Vec<u64> = {
                    let state = self.state.lock();
                    let known = |n: &u64| *n < below || above.binary_search(n).is_ok();
                    state.sent.iter().filter(|(n, sent)| !sent.asks && known(n)).map(|(n, _)| *n).collect()
                };
                done.into_iter().for_each(|number| self.done(number, None));
                // Answers may have been lost with the last connection: blocks with questions in flight are
                // asked again.
                self.repeat(|_, sent| sent.asks && sent.via.is_some());
            }
            Return::Done(numbers) => numbers.into_iter().for_each(|number| self.done(number, None)),
            Return::Want(number, want) => self.done(number, Some(&want)),
            Return::Tick(tick) => *self.there.lock() = tick,
            Return::Finished(written) => {
                // Only questions that were asked can be answered.
                let is_all = |state: &State<S::Job>| state.walked && state.open == 0;
                if is_all(&self.state.lock()) {
                    // Until that is done the streams send keep-alives.
                    self.source.finished(&written, &|| self.heard.now());
                    self.state.lock().finished = Some(written);
                }
            }
            Return::Failed(why) => self.failure.set(Error::Remote(why)),
            Return::Unknown => {}
        }
        self.check_end();
    }

    /// A block is written, or answered.
    fn done(&self, number: u64, want: Option<&Want>) {
        let mut state = self.state.lock();
        if state.sent.get(&number).is_none_or(|sent| sent.asks != want.is_some()) {
            return;
        }
        let Some(sent) = state.sent.remove(&number) else { return };
        if let Some(want) = want {
            state.asked -= 1;
            // Each goes before all others: the first of them last, so that a file is read from its beginning.
            for job in self.source.wanted(&sent.job, want).into_iter().rev() {
                state.open += 1;
                state.asked += usize::from(self.source.asks(&job));
                self.tasks.push_front(Task { job: Arc::new(job), number: None });
            }
        }
        state.open -= 1;
        state.acknowledged += sent.bytes as u64;
        let bytes = state.acknowledged;
        drop(state);
        self.monitor.note(|p| p.bytes = bytes);
        self.changed.notify_all();
    }
}

/// The state of this end's controller.
struct Control {
    judge: LimitDetector,
    allowed: Allowed,
    limits: Limits,
    readers: HillClimber,
    streams: HillClimber,
    room: PoolSize,
    wires: Wires,
    bytes: u64,
    next: Instant,
}

impl Control {
    fn new(options: &Options, link: &Link, readers: usize, room: PoolSize) -> Self {
        let streams = options.streams.unwrap_or_else(|| link.wanted());
        Self {
            judge: LimitDetector::default(),
            allowed: Allowed::default(),
            limits: Limits::default(),
            readers: HillClimber::threads(readers, 4 * readers),
            streams: HillClimber::streams(streams, super::MAX_STREAMS),
            room,
            wires: Wires::default(),
            bytes: 0,
            next: Instant::now() + TICK,
        }
    }

    /// How long to wait for connections.
    fn wait(&self) -> Duration {
        self.next
            .saturating_duration_since(Instant::now())
            .clamp(Duration::from_millis(1), Duration::from_millis(50))
    }

    fn is_due(&mut self) -> bool {
        let due = Instant::now() >= self.next;
        if due {
            self.next += TICK;
        }
        due
    }
}
