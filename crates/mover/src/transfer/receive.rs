//! The receiving end: streams, writers, and the return connection.

use std::collections::{BTreeSet, HashSet};
use std::io::Write;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::thread::Scope;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use super::connection::Purpose;
use super::connections::{Arrival, Link};
use super::control::{HillClimber, Limits, PoolSize};
use super::frame::{Forward, FrameKind, Header, Return, read_block, read_message, skip_block, write_message};
use super::meter::{Doing, Meter, Tick};
use super::send::{TICK, cores};
use super::session::{Failure, LastReceived, Monitor, Options, Outcome};
use super::wire::is_far;
use crate::block::{Leased, Pool};
use crate::error::Error;
use crate::job::{Sink, Walked, Want, Written};
use crate::queue::Queue;

/// Acknowledgements wait so long for others to go with them.
const GATHER: Duration = Duration::from_millis(2);
/// Time for the sender to confirm that it knows of the end.
const FAREWELL: Duration = Duration::from_secs(10);

/// Receives all that the other end of `link` sends, into `sink`.
///
/// # Errors
/// Errors that end the copy early, at either end; problems of single names are in the outcome.
pub fn receive<S: Sink>(
    sink: &S,
    link: &Link,
    options: &Options,
    monitor: &Monitor,
) -> Result<Outcome, Error> {
    let writers = options.fronts.unwrap_or_else(cores);
    let room = PoolSize::new(options.pool, writers + link.wanted());
    let end = Receiver {
        sink,
        link,
        monitor,
        pool: Pool::new(room.blocks()),
        full: Queue::new(usize::MAX),
        state: Mutex::new(State::default()),
        changed: Condvar::new(),
        meter: Meter::default(),
        heard: LastReceived::new(options.timeout),
        failure: Failure::default(),
        writers: AtomicUsize::new(writers),
    };
    end.run(options, writers, room)
}

struct Receiver<'s, S: Sink> {
    sink: &'s S,
    link: &'s Link,
    monitor: &'s Monitor,
    pool: Pool,
    full: Queue<Leased>,
    state: Mutex<State>,
    changed: Condvar,
    meter: Meter,
    heard: LastReceived,
    failure: Failure,
    /// Writers that should be.
    writers: AtomicUsize,
}

#[derive(Default)]
struct State {
    done: Done,
    /// Numbers of blocks that have arrived and are not written: when one is repeated, because its stream
    /// broke, it need not be.
    held: HashSet<u64>,
    /// The messages to send next.
    acks: Vec<u64>,
    wants: Vec<(u64, Want)>,
    /// The sender has announced the end.
    end: Option<Walked>,
    last: Last,
    finished: Option<Written>,
    /// The time of that announcement.
    said: Option<Instant>,
    /// The sender knows.
    bye: bool,
    /// Return connections that have arrived. Only the newest is written to: data buffered in the kernel for a
    /// broken one is lost.
    returns: u64,
}

/// Blocks that are written, answers to blocks that ask, and the end.
type Results = (Vec<u64>, Vec<(u64, Want)>, Option<Written>);

/// The sender's results, received before everything was written.
#[derive(Default)]
enum Last {
    #[default]
    Unsaid,
    /// This was found, in this many blocks.
    Said(Walked, u64),
    /// The results are revoked, even if they arrive later.
    Void,
}

impl State {
    /// The sender's number of all blocks, unless it has revoked it since.
    fn set_last(&mut self, walked: Walked, blocks: u64) {
        if matches!(self.last, Last::Unsaid) {
            self.last = Last::Said(walked, blocks);
            self.reach_last();
        }
    }

    /// All blocks of the announced number are written.
    fn reach_last(&mut self) {
        if let Last::Said(walked, blocks) = &self.last
            && self.done.count() == *blocks
        {
            self.end.get_or_insert_with(|| walked.clone());
        }
    }
}

/// Numbers of blocks that are written.
#[derive(Debug, Default)]
struct Done {
    /// All below are.
    below: u64,
    above: BTreeSet<u64>,
}

impl Done {
    fn has(&self, number: u64) -> bool {
        number < self.below || self.above.contains(&number)
    }

    fn count(&self) -> u64 {
        self.below + self.above.len() as u64
    }

    fn add(&mut self, number: u64) {
        if number >= self.below {
            self.above.insert(number);
        }
        while self.above.remove(&self.below) {
            self.below += 1;
        }
    }
}

impl<S: Sink> Receiver<'_, S> {
    fn run(&self, options: &Options, writers: usize, room: PoolSize) -> Result<Outcome, Error> {
        let began = Instant::now();
        std::thread::scope(|scope| {
            for n in 0..writers {
                scope.spawn(move || self.write(n));
            }
            scope.spawn(|| self.finish());
            self.attend(scope, options, room);
            self.stop();
        });
        if let Some(error) = self.failure.take() {
            return Err(error);
        }
        let mut state = self.state.lock();
        let (walked, written) = state.end.take().zip(state.finished.take()).ok_or(Error::Cancelled)?;
        Ok(Outcome {
            walked,
            written,
            seconds: began.elapsed().as_secs_f64(),
            limits: Limits::default(),
            again: 0,
            wire: self.monitor.progress().wire,
        })
    }

    fn attend<'scope>(&'scope self, scope: &'scope Scope<'scope, '_>, options: &Options, mut room: PoolSize) {
        let mut climber = HillClimber::threads(self.writers.load(SeqCst), 4 * self.writers.load(SeqCst));
        let (mut next, mut before) = (Instant::now() + TICK, Tick::default());
        while !self.is_over() {
            if let Some(arrival) = self.link.next(Duration::from_millis(50)) {
                match arrival.purpose {
                    Purpose::Stream(_) => scope.spawn(move || self.stream(arrival)),
                    _ => {
                        let serial = self.supersede();
                        scope.spawn(move || self.answer(arrival, serial))
                    }
                };
            }
            if Instant::now() < next {
                continue;
            }
            next += TICK;
            if self.heard.stalls() {
                self.link.revive();
            }
            let now = self.tick();
            if options.fronts.is_none() {
                let had = self.writers.load(SeqCst);
                let starves = now.pool - before.pool > now.network - before.network;
                let wanted = climber.tick(now.came.saturating_sub(before.came), starves);
                self.writers.store(wanted, SeqCst);
                for n in had..wanted {
                    scope.spawn(move || self.write(n));
                }
                self.full.wake();
            }
            let is_far = is_far(self.link.wires().into_iter());
            let came = now.came.saturating_sub(before.came);
            self.pool.set_limit(room.tick(now, came, is_far, |tick| tick.front_idle));
            before = now;
            let written = self.sink.written();
            let ending = self.state.lock().end.is_some();
            self.monitor
                .note(|p| (p.here, p.bytes, p.done, p.ending) = (now, now.bytes, written.entries, ending));
        }
    }

    fn is_over(&self) -> bool {
        if let Some(error) = self.monitor.end_reason() {
            self.failure.set(error);
        }
        if self.state.lock().said.is_some_and(|said| said.elapsed() > FAREWELL) {
            return true;
        }
        if self.state.lock().bye {
            return true;
        }
        if let Err(e) = self.link.check().and_then(|()| self.heard.check(|| self.link.trouble())) {
            self.failure.set(e);
        }
        self.failure.is_set()
    }

    fn tick(&self) -> Tick {
        Tick {
            fronts: self.writers.load(SeqCst) as u32,
            streams: self.link.streams() as u32,
            blocks: self.pool.used() as u32,
            kept: self.sink.written().kept,
            ..self.meter.tick()
        }
    }

    fn stop(&self) {
        self.sink.stop();
        self.full.abandon();
        self.pool.close();
        self.changed.notify_all();
        self.link.finish();
    }

    /// Takes blocks from a stream.
    fn stream(&self, mut arrival: Arrival) {
        if let Err(e) = self.take(&mut arrival) {
            tracing::info!("a stream broke: {e}");
            if matches!(e, Error::Damaged(_)) {
                self.failure.set(e);
            }
        }
        if !self.state.lock().bye {
            self.link.lost();
        }
    }

    fn take(&self, arrival: &mut Arrival) -> Result<(), Error> {
        let from = &mut self.heard.reading(&mut arrival.connection);
        loop {
            let header = self.meter.time(Doing::Stream, || Header::read(from))?;
            if header.kind == FrameKind::Message {
                if self.on_message(read_message(from, &header)?) {
                    return Ok(());
                }
            } else if self.is_known(header.number) {
                skip_block(from, &header)?;
            } else {
                let Some(mut block) = self.meter.time(Doing::Pool, || self.pool.take()) else {
                    return Ok(());
                };
                let mut arriving = self.meter.arriving(from);
                self.meter.time(Doing::Network, || read_block(&mut arriving, &header, &mut block))?;
                arriving.whole(block.len);
                self.meter.moved(block.len);
                // It may have arrived on two streams at once.
                if !self.is_known(block.number) && self.state.lock().held.insert(block.number) {
                    self.full.push(block);
                }
            }
        }
    }

    /// Whether a block need not arrive: it is written, which is acknowledged again, or waits for its writer.
    fn is_known(&self, number: u64) -> bool {
        let state = self.state.lock();
        if !state.done.has(number) {
            return state.held.contains(&number);
        }
        drop(state);
        self.acknowledge(number);
        true
    }

    /// True when the sender has announced the end.
    fn on_message(&self, message: Forward) -> bool {
        match message {
            Forward::Alive | Forward::Unknown => {}
            Forward::Streams(n) => self.link.want(n),
            Forward::Failed(why) => self.failure.set(Error::Remote(why)),
            Forward::End(walked) => {
                let mut state = self.state.lock();
                state.end.get_or_insert(walked);
                // It knows of the end, and still has work to do.
                state.said.iter_mut().for_each(|said| *said = Instant::now());
                drop(state);
                self.changed.notify_all();
            }
            Forward::Last(walked, blocks) => {
                self.state.lock().set_last(walked, blocks);
                self.changed.notify_all();
            }
            Forward::NotLast => self.state.lock().last = Last::Void,
            Forward::Bye(walked) => {
                let mut state = self.state.lock();
                (state.end, state.bye) = (Some(walked), true);
                drop(state);
                self.link.wake();
                return true;
            }
        }
        false
    }

    fn write(&self, number: usize) {
        loop {
            let stay = || number < self.writers.load(SeqCst);
            let Some(block) = self.meter.time(Doing::FrontIdle, || self.full.pop_while(stay)) else { return };
            match self.meter.time(Doing::Front, || self.sink.write(number, &block)) {
                Ok(None) => self.acknowledge(block.number),
                Ok(Some(want)) => {
                    let mut state = self.state.lock();
                    state.held.remove(&block.number);
                    state.wants.push((block.number, want));
                    drop(state);
                    self.changed.notify_all();
                }
                Err(e) => return self.failure.set(e),
            }
        }
    }

    fn acknowledge(&self, number: u64) {
        let mut state = self.state.lock();
        state.held.remove(&number);
        state.done.add(number);
        state.acks.push(number);
        state.reach_last();
        drop(state);
        self.changed.notify_all();
    }

    /// The announced end is final: the sender announces it only when all blocks are acknowledged, or all
    /// blocks of the announced number are written.
    fn finish(&self) {
        let mut state = self.state.lock();
        while state.end.is_none() {
            if self.failure.is_set() {
                return;
            }
            self.changed.wait_for(&mut state, TICK);
        }
        let Some(walked) = state.end.clone() else { return };
        drop(state);
        match self.sink.finish(&walked) {
            Ok(written) => self.state.lock().finished = Some(written),
            Err(e) => self.failure.set(e),
        }
        self.changed.notify_all();
    }

    /// The serial number of a new return connection. The ones before it end.
    fn supersede(&self) -> u64 {
        let mut state = self.state.lock();
        state.returns += 1;
        self.changed.notify_all();
        state.returns
    }

    /// Sends the pending messages on a return connection.
    fn answer(&self, mut arrival: Arrival, serial: u64) {
        if let Err(e) = self.report(&mut arrival, serial) {
            tracing::debug!("return connection failed: {e}");
        }
        if !self.state.lock().bye {
            self.link.lost();
        }
    }

    fn report(&self, arrival: &mut Arrival, serial: u64) -> std::io::Result<()> {
        let to = &mut arrival.connection;
        let ready = {
            let state = self.state.lock();
            let above = state.done.above.iter().copied().collect();
            Return::Ready { fresh: self.sink.fresh(), below: state.done.below, above, last: true }
        };
        write_message(to, &ready)?;
        let mut next = Instant::now() + TICK;
        loop {
            let Some((acks, wants, finished)) = self.news(serial, next) else { return Ok(()) };
            self.answers(to, acks, wants)?;
            if let Some(text) = self.failure.text() {
                return write_message(to, &Return::Failed(text));
            }
            if let Some(written) = finished {
                write_message(to, &Return::Finished(written))?;
                self.state.lock().said.get_or_insert_with(Instant::now);
            }
            if Instant::now() >= next {
                write_message(to, &Return::Tick(self.tick()))?;
                next = Instant::now() + TICK;
            }
            if self.state.lock().bye {
                return Ok(());
            }
        }
    }

    /// Acknowledges and answers. Messages that this connection does not accept are sent on the next one.
    fn answers(&self, to: &mut impl Write, acks: Vec<u64>, wants: Vec<(u64, Want)>) -> std::io::Result<()> {
        let done = (!acks.is_empty()).then_some(Return::Done(acks));
        let wants = wants.into_iter().map(|(number, want)| Return::Want(number, want));
        let mut messages = done.into_iter().chain(wants);
        while let Some(message) = messages.next() {
            if let Err(e) = write_message(to, &message) {
                let mut state = self.state.lock();
                for unsaid in std::iter::once(message).chain(messages) {
                    match unsaid {
                        Return::Done(numbers) => state.acks.extend(numbers),
                        Return::Want(number, want) => state.wants.push((number, want)),
                        _ => {}
                    }
                }
                return Err(e);
            }
        }
        Ok(())
    }

    /// The messages to send, at that time at the latest. None when a newer return connection has arrived.
    fn news(&self, serial: u64, until: Instant) -> Option<Results> {
        let mut state = self.state.lock();
        let silent = |s: &State| s.acks.is_empty() && s.wants.is_empty() && !s.bye && s.returns == serial;
        while silent(&state) && !self.failure.is_set() {
            let fresh_end = state.finished.is_some() && state.said.is_none();
            if fresh_end || self.changed.wait_until(&mut state, until).timed_out() {
                break;
            }
        }
        if !state.acks.is_empty() && !self.failure.is_set() {
            drop(state);
            std::thread::sleep(GATHER);
            state = self.state.lock();
        }
        if state.returns != serial {
            return None;
        }
        let finished = state.finished.clone();
        Some((std::mem::take(&mut state.acks), std::mem::take(&mut state.wants), finished))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_done_is_kept_short() {
        let mut done = Done::default();
        [1, 0, 3, 5, 4, 3].into_iter().for_each(|n| done.add(n));
        assert!(done.has(0) && done.has(1) && !done.has(2) && done.has(5));
        assert_eq!((done.below, done.above.len()), (2, 3));
        assert_eq!(done.count(), 5);
        done.add(2);
        assert_eq!((done.below, done.above.len()), (6, 0));
    }
    #[test]
    fn the_end_is_when_all_that_is_the_last_is_written() {
        let mut state = State::default();
        state.done.add(7);
        state.set_last(Walked::default(), 2);
        assert!(state.end.is_none());
        // Numbers between them are of blocks that ask.
        state.done.add(9);
        state.reach_last();
        assert!(state.end.is_some());
    }

    #[test]
    fn what_is_taken_back_is_not_the_last_whenever_it_comes() {
        let mut state = State { last: Last::Void, ..State::default() };
        state.set_last(Walked::default(), 0);
        assert!(state.end.is_none());
    }
}
