//! The progress of a run: written by the run, read by an observer, which may also end it.
//!
//! Nothing in here reaches a decision of the simulation but the wish to stop, which ends it as if its
//! time were over.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use tidecast_swarm::Time;

/// Shared between a run and its watcher.
#[derive(Debug, Default)]
pub struct Progress {
    now: AtomicU64,
    done: AtomicU64,
    of: AtomicU64,
    stopped: AtomicBool,
}

impl Progress {
    /// Of a run that has not begun.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The run's: it is at `now`, and `done` of `of` (bytes, pieces or nodes: one unit a run) are there.
    /// Once in some thousand events is enough. False: stop.
    pub fn tell(&self, now: Time, done: u64, of: u64) -> bool {
        self.now.store(now.0, Relaxed);
        self.of.store(of, Relaxed);
        self.done.store(done, Relaxed);
        !self.stopped.load(Relaxed)
    }

    /// The watcher's: simulated time, how much is there, of how much.
    #[must_use]
    pub fn get(&self) -> (Time, u64, u64) {
        (Time(self.now.load(Relaxed)), self.done.load(Relaxed), self.of.load(Relaxed))
    }

    /// The watcher's: end the run.
    pub fn stop(&self) {
        self.stopped.store(true, Relaxed);
    }

    /// True once the watcher wanted an end.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        self.stopped.load(Relaxed)
    }
}
