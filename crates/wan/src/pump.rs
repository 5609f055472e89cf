//! The threads of one direction: one reads a device and gets each packet's fate from the line, one writes the
//! packets that are due.

use std::collections::BinaryHeap;
use std::fs::File;
use std::io::{Read, Write};
use std::num::NonZeroU64;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::line::{Config, Counters, Line};
use crate::packet::Unit;

/// Most bytes that one direction holds; packets beyond are dropped.
pub const MAX_HELD: usize = 512 << 20;
/// Larger than any unit: 64 KiB and its headers.
const UNIT: usize = 68 << 10;

/// Packets in transit, soonest first; equal times leave in the order of arrival.
#[derive(Debug, Default)]
struct Flight {
    units: BinaryHeap<InFlight>,
    bytes: usize,
    sequence: u64,
    counters: Counters,
    /// The new configuration of the line.
    change: Option<Config>,
    /// The direction carries no more.
    stopped: bool,
}

#[derive(Debug, PartialEq, Eq)]
struct InFlight {
    due: Duration,
    sequence: u64,
    bytes: Vec<u8>,
}

impl Ord for InFlight {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (other.due, other.sequence).cmp(&(self.due, self.sequence))
    }
}

impl PartialOrd for InFlight {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

/// One direction of the link, running until it is stopped or the process ends.
#[derive(Debug, Clone)]
pub struct Pump(Arc<(Mutex<Flight>, Condvar)>);

impl Pump {
    /// Start carrying packets from `from` to `to`.
    ///
    /// # Errors
    /// The threads cannot be started.
    pub fn start(from: File, to: File, config: Config, seed: u64, ethernet: bool) -> std::io::Result<Self> {
        let pump = Self(Arc::default());
        let clock = Instant::now();
        let (reader, writer) = (pump.clone(), pump.clone());
        let line = Line::new(config, seed);
        std::thread::Builder::new()
            .name("wan-read".into())
            .spawn(move || reader.read(from, line, clock, ethernet))?;
        std::thread::Builder::new().name("wan-write".into()).spawn(move || writer.write(to, clock))?;
        Ok(pump)
    }

    /// The counters of this direction.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.lock().counters
    }

    /// Changes the configuration while packets are in transit.
    pub fn change(&self, config: Config) {
        self.lock().change = Some(config);
    }

    /// Ends this direction: its threads end, and close their devices, once the device that is read is deleted or brings a packet.
    pub fn stop(&self) {
        self.lock().stopped = true;
        self.0.1.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, Flight> {
        self.0.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn read(&self, mut from: File, mut line: Line, clock: Instant, ethernet: bool) {
        let mut buffer = vec![0; UNIT];
        loop {
            let read = from.read(&mut buffer);
            if self.lock().stopped {
                return;
            }
            let Ok(n) = read else {
                std::thread::sleep(Duration::from_millis(1)); // the device is being set up or taken down
                continue;
            };
            let Some(unit) = buffer.get(..n).and_then(|bytes| Unit::new(bytes, ethernet)) else { continue };
            if let Some(config) = self.lock().change.take() {
                line.change(config);
            }
            let now = clock.elapsed();
            let parts = fates(&unit, &mut line, now);
            let mut flight = self.lock();
            flight.counters = line.counters();
            for (due, bytes) in parts {
                flight.push(due, bytes);
            }
            drop(flight);
            self.0.1.notify_one();
        }
    }

    fn write(&self, mut to: File, clock: Instant) {
        // Sleeps end within a microsecond, not the default fifty; without it delays only come out a little long.
        let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1000));
        loop {
            let Some(bytes) = self.next(clock) else { return };
            // A device that is down or full drops, as a line does.
            let _ = to.write(&bytes);
        }
    }

    /// Wait for the next unit to be due and take it out; `None` once the direction is stopped.
    fn next(&self, clock: Instant) -> Option<Vec<u8>> {
        let mut flight = self.lock();
        loop {
            if flight.stopped {
                return None;
            }
            let now = clock.elapsed();
            let wait = flight.units.peek().map(|first| first.due.saturating_sub(now));
            match wait {
                Some(Duration::ZERO) => {
                    if let Some(first) = flight.units.pop() {
                        flight.bytes -= first.bytes.len();
                        return Some(first.bytes);
                    }
                }
                Some(wait) => {
                    flight = self.0.1.wait_timeout(flight, wait).unwrap_or_else(PoisonError::into_inner).0;
                }
                None => flight = self.0.1.wait(flight).unwrap_or_else(PoisonError::into_inner),
            }
        }
    }
}

impl Flight {
    fn push(&mut self, due: Duration, bytes: Vec<u8>) {
        if self.bytes + bytes.len() > MAX_HELD {
            self.counters.dropped += 1;
            return;
        }
        self.bytes += bytes.len();
        self.sequence += 1;
        self.units.push(InFlight { due, sequence: self.sequence, bytes });
    }
}

/// The parts of `unit` that arrive, each with its time: adjacent segments with the same fate stay together.
fn fates(unit: &Unit<'_>, line: &mut Line, now: Duration) -> Vec<(Duration, Vec<u8>)> {
    let all: Vec<_> = (0..unit.segments()).map(|i| line.send(now, unit.segment_len(i))).collect();
    let mut out = Vec::new();
    let mut begin = 0;
    for run in all.chunk_by(|a, b| a.copies == b.copies && !a.late && !b.late) {
        let end = begin + run.len();
        if let Some(last) = run.last() {
            for _ in 0..last.copies {
                out.push((last.due, unit.part(begin..end)));
            }
        }
        begin = end;
    }
    out
}
