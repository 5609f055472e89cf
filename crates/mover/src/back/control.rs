//! The controller: sees which side starves, says so, and changes the number of threads, streams and blocks while it runs.
//!
//! It climbs: where an end is the limit it gets one thread (or twice the streams) more, and keeps them if more bytes came through.

use serde::{Deserialize, Serialize};

use super::meter::Tick;

/// What holds a copy up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Limit {
    /// The walk and the readers: the streams have nothing to send.
    DiskIn,
    /// The way between: the streams are busy, and the receiver has room.
    Network,
    /// The writers: the receiver's pool is full.
    DiskOut,
}

/// Seconds by what was the limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Limits {
    /// See [`Limit::DiskIn`].
    pub disk_in: f64,
    /// See [`Limit::Network`].
    pub network: f64,
    /// See [`Limit::DiskOut`].
    pub disk_out: f64,
}

impl Limits {
    pub(crate) fn add(&mut self, limit: Limit, seconds: f64) {
        *match limit {
            Limit::DiskIn => &mut self.disk_in,
            Limit::Network => &mut self.network,
            Limit::DiskOut => &mut self.disk_out,
        } += seconds;
    }

    /// What was the limit for most of the time.
    #[must_use]
    pub fn main(&self) -> Limit {
        let all =
            [(self.disk_in, Limit::DiskIn), (self.network, Limit::Network), (self.disk_out, Limit::DiskOut)];
        all.into_iter().max_by(|a, b| a.0.total_cmp(&b.0)).map_or(Limit::Network, |(_, limit)| limit)
    }
}

/// What happened between two ticks.
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

/// What held it up, from what both ends did meanwhile.
fn limit(sender: &Tick, receiver: &Tick) -> Limit {
    if sender.stream_idle > sender.network {
        Limit::DiskIn
    } else if receiver.pool > receiver.network {
        Limit::DiskOut
    } else {
        Limit::Network
    }
}

/// Judges the course of a session.
#[derive(Debug, Default)]
pub(crate) struct Judge {
    sender: Tick,
    receiver: Tick,
}

impl Judge {
    /// What was the limit since the last time.
    pub(crate) fn judge(&mut self, sender: Tick, receiver: Tick) -> Limit {
        let (s, r) = (since(&sender, &self.sender), since(&receiver, &self.receiver));
        (self.sender, self.receiver) = (sender, receiver);
        limit(&s, &r)
    }
}

/// Ticks between two steps: a change must have time to show.
const STEP: u32 = 3;
/// A step that brings less is taken back.
const GAIN: f64 = 1.05;
/// Steps that were no use before it rests, and for how many ticks.
const REST: u32 = 20;

/// Finds the best number of something by trying.
#[derive(Debug)]
pub(crate) struct Climber {
    now: usize,
    most: usize,
    doubles: bool,
    /// What there was before the step that is on trial, and the rate then.
    trial: Option<(usize, f64)>,
    ticks: u32,
    rest: u32,
    bytes: u64,
}

impl Climber {
    pub(crate) fn new(now: usize, most: usize, doubles: bool) -> Self {
        Self { now, most: most.max(now), doubles, trial: None, ticks: 0, rest: 0, bytes: 0 }
    }

    /// One tick later: `bytes` came through, and whether this is what holds it up. How many there should be.
    pub(crate) fn tick(&mut self, bytes: u64, starves: bool) -> usize {
        self.bytes += bytes;
        self.ticks += 1;
        self.rest = self.rest.saturating_sub(1);
        if self.ticks < STEP {
            return self.now;
        }
        let rate = self.bytes as f64 / f64::from(self.ticks);
        (self.bytes, self.ticks) = (0, 0);
        match self.trial.take() {
            Some((before, old)) if rate < old * GAIN => {
                self.now = before;
                self.rest = REST;
            }
            _ if starves && self.rest == 0 && self.now < self.most => {
                self.trial = Some((self.now, rate));
                self.now = if self.doubles { self.now * 2 } else { self.now + 1 }.min(self.most);
            }
            // It was the limit once and is no more: what is not needed goes, slowly.
            _ if !starves && self.rest == 0 && self.now > 1 => {
                self.trial = Some((self.now, rate / GAIN / GAIN));
                self.now -= 1;
            }
            _ => {}
        }
        self.now
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs a climber against a model: so many bytes a tick with so many.
    fn climb(climber: &mut Climber, ticks: u32, model: impl Fn(usize) -> u64) -> usize {
        let mut now = climber.now;
        for _ in 0..ticks {
            now = climber.tick(model(now), true);
        }
        now
    }

    #[test]
    fn it_climbs_as_long_as_it_pays() {
        // Each brings 100 until 8 are there.
        let mut climber = Climber::new(1, 64, true);
        let now = climb(&mut climber, 60, |n| 100 * n.min(8) as u64);
        assert!((8..=16).contains(&now), "{now}");
        // The way has become narrower: it does not grow.
        let now = climb(&mut climber, 60, |_| 100);
        assert!(now <= 16, "{now}");
    }

    #[test]
    fn what_is_of_no_use_is_taken_back() {
        let mut climber = Climber::new(2, 16, false);
        assert!(climb(&mut climber, 100, |_| 1000) <= 3);
    }

    #[test]
    fn the_limit_is_where_the_others_wait() {
        let idle = Tick { stream_idle: 1.0, network: 0.1, ..Tick::default() };
        let busy = Tick { stream_idle: 0.1, network: 1.0, ..Tick::default() };
        let full = Tick { pool: 1.0, network: 0.1, ..Tick::default() };
        assert_eq!(limit(&idle, &busy), Limit::DiskIn);
        assert_eq!(limit(&busy, &full), Limit::DiskOut);
        assert_eq!(limit(&busy, &busy), Limit::Network);
        let mut limits = Limits::default();
        limits.add(Limit::DiskOut, 2.0);
        limits.add(Limit::Network, 1.0);
        assert_eq!(limits.main(), Limit::DiskOut);
    }
}
