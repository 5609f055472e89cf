//! The controller: determines which side is idle, reports it, and changes the number of threads, streams and
//! blocks while it runs.
//!
//! It climbs: where an end is the limit it gets one thread (or twice the streams) more, and keeps them if more bytes came through. It
//! tries with less as well, and keeps that if as many did.

use serde::{Deserialize, Serialize};

use super::meter::Tick;
use crate::part::BLOCK;

/// The limit of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Limit {
    /// The walk and the readers: the streams have nothing to send.
    DiskIn,
    /// The network: the streams are busy, and the receiver has space.
    Network,
    /// The writers: the receiver's pool is full.
    DiskOut,
    /// The rate that was set.
    Rate,
}

/// Seconds by limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Limits {
    /// See [`Limit::DiskIn`].
    pub disk_in: f64,
    /// See [`Limit::Network`].
    pub network: f64,
    /// See [`Limit::DiskOut`].
    pub disk_out: f64,
    /// See [`Limit::Rate`].
    pub rate: f64,
}

impl Limits {
    pub(crate) fn add(&mut self, limit: Limit, seconds: f64) {
        *match limit {
            Limit::DiskIn => &mut self.disk_in,
            Limit::Network => &mut self.network,
            Limit::DiskOut => &mut self.disk_out,
            Limit::Rate => &mut self.rate,
        } += seconds;
    }
}

/// The measurements between two ticks.
fn since(now: &Tick, before: &Tick) -> Tick {
    Tick {
        front: now.front - before.front,
        front_idle: now.front_idle - before.front_idle,
        pool: now.pool - before.pool,
        stream_idle: now.stream_idle - before.stream_idle,
        network: now.network - before.network,
        bytes: now.bytes.saturating_sub(before.bytes),
        ..*now
    }
}

/// The limit, from the measurements of both ends. Streams may be idle because there are more of them than
/// blocks: then readers wait for blocks, and are not the limit.
fn limit(sender: &Tick, receiver: &Tick) -> Limit {
    if sender.stream_idle > sender.network && sender.front + sender.front_idle > sender.pool {
        Limit::DiskIn
    } else if receiver.pool > receiver.network {
        Limit::DiskOut
    } else {
        Limit::Network
    }
}

/// Judges the course of a session.
#[derive(Debug, Default)]
pub(crate) struct LimitDetector {
    sender: Tick,
    receiver: Tick,
}

impl LimitDetector {
    /// The limits since the last call.
    pub(crate) fn judge(&mut self, sender: Tick, receiver: Tick) -> Limit {
        let (s, r) = (since(&sender, &self.sender), since(&receiver, &self.receiver));
        (self.sender, self.receiver) = (sender, receiver);
        limit(&s, &r)
    }
}

/// Ticks between two steps of threads, and of streams: a change must have time to show.
const STEP: u32 = 3;
/// See [`STEP`]; a stream takes round trips to reach its rate.
const STREAM_STEP: u32 = 6;
/// More is kept if it brings that much more, less if it costs no more than that.
const GAIN: f64 = 1.05;
const COST: f64 = 1.03;
/// Rates that differ by no more than that are equal: a trial proves nothing while the rate changes anyway.
const STEADY: f64 = 1.1;
/// A way whose rate has changed this much is another way.
const OTHER: f64 = 1.5;
/// Ticks of rest after an unsuccessful trial.
const REST: u32 = 20;

/// Finds the best number of something by trying.
#[derive(Debug)]
pub(crate) struct HillClimber {
    now: usize,
    least: usize,
    most: usize,
    doubles: bool,
    step: u32,
    /// The number before the step that is on trial, and the rate then.
    trial: Option<(usize, f64)>,
    /// The rate of the last step.
    last: Option<f64>,
    /// Whether the next trial is with less.
    down: bool,
    ticks: u32,
    rest: u32,
    bytes: u64,
}

impl HillClimber {
    /// Threads: one more or less at a time.
    pub(crate) fn threads(now: usize, most: usize) -> Self {
        Self::new(now, 1, most, false, STEP)
    }

    /// Streams: twice as many, or half.
    pub(crate) fn streams(now: usize, most: usize) -> Self {
        Self::new(now, now.div_ceil(4), most, true, STREAM_STEP)
    }

    fn new(now: usize, least: usize, most: usize, doubles: bool, step: u32) -> Self {
        let (trial, last, down) = (None, None, false);
        Self {
            now,
            least,
            most: most.max(now),
            doubles,
            step,
            trial,
            last,
            down,
            ticks: 0,
            rest: 0,
            bytes: 0,
        }
    }

    /// One tick later: `bytes` came through; `holds_up` tells whether this is the limit. Returns the number
    /// that there should be.
    pub(crate) fn tick(&mut self, bytes: u64, starves: bool) -> usize {
        self.bytes += bytes;
        self.ticks += 1;
        self.rest = self.rest.saturating_sub(1);
        if self.ticks >= self.step {
            let rate = self.bytes as f64 / f64::from(self.ticks);
            (self.bytes, self.ticks) = (0, 0);
            self.judge(rate, starves);
        }
        self.now
    }

    fn judge(&mut self, rate: f64, starves: bool) {
        let last = self.last.replace(rate);
        if let Some((before, old)) = self.trial.take() {
            let wanted = if self.now > before { old * GAIN } else { old / COST };
            if rate < wanted {
                self.now = before;
                self.rest = REST;
                self.down = !self.down;
                self.last = None;
            }
            return;
        }
        let Some(last) = last else { return };
        let change = (rate / last.max(1.0)).max(last / rate.max(1.0));
        if change > OTHER {
            self.rest = 0;
        }
        if change > STEADY || self.rest > 0 {
            return;
        }
        let down = self.down || !starves || self.now == self.most;
        let next = match (down, self.doubles) {
            (false, true) => self.now * 2,
            (false, false) => self.now + 1,
            (true, true) => self.now / 2,
            (true, false) => self.now - 1,
        }
        .clamp(self.least, self.most);
        if next == self.now {
            self.down = !self.down;
        } else {
            self.trial = Some((self.now, rate));
            self.now = next;
        }
    }
}

/// Blocks in memory at most, unless set otherwise: 64 MiB.
const POOL: usize = 16;
/// On long paths there may be more, one for each thread: a stream with a long round trip keeps its block for
/// long, and a stream without a block sends nothing. At most a sixteenth of the memory that is free on this
/// host when the session begins, and 512 MiB.
const FAR_POOL: usize = 128;
const FAR_SHARE: u64 = 16;
/// Blocks beyond one for each thread, to begin with.
const SPARE: usize = 2;
/// Seconds of a tick for which some must wait for blocks while others wait for work, so that more blocks may help.
const BOTH_WAIT: f64 = 0.05;

/// Finds the number of blocks of an end: one for each of its threads, and few spare ones, because few stay in
/// the processors' caches.
#[derive(Debug)]
pub(crate) struct PoolSize {
    /// None: the number is fixed.
    spare: Option<HillClimber>,
    now: usize,
    /// How many there may be on a long way.
    most: usize,
    before: Tick,
}

impl PoolSize {
    /// The given number, else as many as these threads need.
    pub(crate) fn new(said: Option<usize>, threads: usize) -> Self {
        let spare = said.is_none().then(|| HillClimber::new(SPARE, SPARE, POOL, true, STEP));
        let now = said.unwrap_or((threads + SPARE).min(POOL));
        Self { spare, now, most: far_pool(), before: Tick::default() }
    }

    /// How many blocks there should be.
    pub(crate) fn blocks(&self) -> usize {
        self.now
    }

    /// One tick later, after which `bytes` more came through; `idle` is the time that consumers of full
    /// blocks waited meanwhile.
    pub(crate) fn tick(
        &mut self,
        tick: Tick,
        bytes: u64,
        is_far: bool,
        idle: impl Fn(&Tick) -> f64,
    ) -> usize {
        let meanwhile = since(&tick, &self.before);
        self.before = tick;
        if let Some(spare) = &mut self.spare {
            let starves = meanwhile.pool.min(idle(&meanwhile)) > BOTH_WAIT;
            let most = if is_far { self.most } else { POOL };
            self.now = ((tick.fronts + tick.streams) as usize + spare.tick(bytes, starves)).min(most);
        }
        self.now
    }
}

/// The most blocks on a long way, by the memory that can be had without swapping.
fn far_pool() -> usize {
    let told = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let bytes = tidecast_text::meminfo(&told, "MemAvailable").unwrap_or(0);
    usize::try_from(bytes / FAR_SHARE / BLOCK as u64).unwrap_or(FAR_POOL).clamp(POOL, FAR_POOL)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs a climber against a model: a number of bytes per tick for each count. Returns the count that it
    /// settles on, trials aside.
    fn climb(climber: &mut HillClimber, ticks: u32, model: impl Fn(usize) -> u64) -> usize {
        let mut now = climber.now;
        for _ in 0..ticks {
            now = climber.tick(model(now), true);
        }
        climber.trial.map_or(now, |(before, _)| before)
    }

    #[test]
    fn it_climbs_as_long_as_it_pays() {
        // Each brings 100 until 8 are there.
        let mut climber = HillClimber::streams(1, 64);
        assert_eq!(climb(&mut climber, 200, |n| 100 * n.min(8) as u64), 8);
        // The path has become wider, and narrower than ever.
        assert_eq!(climb(&mut climber, 200, |n| 100 * n.min(32) as u64), 32);
        assert_eq!(climb(&mut climber, 400, |_| 100), 1);
    }

    #[test]
    fn what_comes_by_itself_is_no_merit_of_a_trial() {
        // Slow start: the rate doubles for a while, however many there are.
        let mut climber = HillClimber::streams(8, 64);
        let mut rate = 10;
        for _ in 0..60 {
            climber.tick(rate, true);
            rate = (rate * 5 / 4).min(1000);
        }
        assert!(climb(&mut climber, 60, |_| 1000) <= 8);
    }

    #[test]
    fn what_is_of_no_use_is_taken_back() {
        let mut climber = HillClimber::threads(2, 16);
        assert!(climb(&mut climber, 100, |_| 1000) <= 2);
        assert!(climb(&mut climber, 100, |n| 100 * n.min(4) as u64) >= 3);
    }

    #[test]
    fn there_are_blocks_for_all_threads_and_more_where_that_pays() {
        let mut room = PoolSize::new(None, 4);
        assert_eq!(room.blocks(), 6);
        let mut tick = Tick { fronts: 2, streams: 2, ..Tick::default() };
        let pass = |room: &mut PoolSize, tick: &mut Tick, both_wait: bool, rate: fn(usize) -> u64| {
            for _ in 0..60 {
                tick.pool += 0.5;
                tick.stream_idle += if both_wait { 0.5 } else { 0.0 };
                room.tick(*tick, rate(room.blocks()), false, |t| t.stream_idle);
            }
        };
        // If threads wait for blocks only because their consumers are slow, the number is not raised.
        pass(&mut room, &mut tick, false, |_| 1000);
        assert_eq!(room.blocks(), 6);
        pass(&mut room, &mut tick, true, |n| 100 * n.min(12) as u64);
        assert_eq!(room.blocks(), 12);
        // Streams want blocks at once; there is an end to it.
        tick.streams = 8;
        pass(&mut room, &mut tick, false, |_| 1000);
        assert!(room.blocks() >= 12);
        tick.streams = 64;
        pass(&mut room, &mut tick, true, |n| 100 * n as u64);
        assert_eq!(room.blocks(), POOL);
        // On a long way each has one, as far as memory goes.
        room.most = 128;
        assert_eq!(
            room.tick(tick, 1000, true, |t| t.stream_idle),
            2 + 64 + room.spare.as_ref().map_or(0, |spare| spare.now)
        );
        room.most = 40;
        assert_eq!(room.tick(tick, 1000, true, |t| t.stream_idle), 40);
        assert_eq!(room.tick(tick, 1000, false, |t| t.stream_idle), POOL);
        let mut said = PoolSize::new(Some(3), 4);
        pass(&mut said, &mut tick, true, |n| 100 * n as u64);
        assert_eq!(said.blocks(), 3);
    }

    #[test]
    fn the_limit_is_where_the_others_wait() {
        let idle = Tick { stream_idle: 1.0, network: 0.1, front: 0.9, ..Tick::default() };
        let busy = Tick { stream_idle: 0.1, network: 1.0, ..Tick::default() };
        let crowd = Tick { pool: 1.0, ..idle };
        let full = Tick { pool: 1.0, network: 0.1, ..Tick::default() };
        assert_eq!(limit(&idle, &busy), Limit::DiskIn);
        assert_eq!(limit(&crowd, &busy), Limit::Network);
        assert_eq!(limit(&busy, &full), Limit::DiskOut);
        assert_eq!(limit(&busy, &busy), Limit::Network);
    }
}
