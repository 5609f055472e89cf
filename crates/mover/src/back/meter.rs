//! Where the time goes: what the threads of one end do and wait for, summed up by kind.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Instant;

use serde::{Deserialize, Serialize};

/// What a thread of an end does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Doing {
    /// A front works: reads or writes files, and hashes.
    Front,
    /// A front waits for the other fronts or the walker: there is nothing to do.
    FrontIdle,
    /// A front, or a stream that receives, waits for an empty block: the pool is used up.
    Pool,
    /// A stream waits for a full block (sender), or for the network (receiver).
    Stream,
    /// A stream sends or receives.
    Network,
}

const KINDS: usize = 5;

/// Nanoseconds by what was done.
#[derive(Debug, Default)]
pub(crate) struct Meter {
    spent: [AtomicU64; KINDS],
    bytes: AtomicU64,
}

/// The meter, and what else is worth knowing, at one moment; all counted from the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Tick {
    /// Seconds that fronts worked.
    pub front: f64,
    /// Seconds that fronts had nothing to do.
    pub front_idle: f64,
    /// Seconds spent in wait for an empty block.
    pub pool: f64,
    /// Seconds that streams had nothing to do.
    pub stream_idle: f64,
    /// Seconds that streams sent or received.
    pub network: f64,
    /// Bytes of payload through the streams.
    pub bytes: u64,
    /// Threads of the front now.
    pub fronts: u32,
    /// Streams now.
    pub streams: u32,
    /// Blocks of the pool now.
    pub blocks: u32,
    /// Files of which a receiver has found that it has them.
    #[serde(default)]
    pub kept: u64,
}

impl Meter {
    /// Counts the time that `work` takes.
    pub(crate) fn time<T>(&self, doing: Doing, work: impl FnOnce() -> T) -> T {
        let began = Instant::now();
        let out = work();
        let nanos = began.elapsed().as_nanos() as u64;
        self.spent[doing as usize].fetch_add(nanos, Relaxed);
        out
    }

    /// Counts payload.
    pub(crate) fn moved(&self, bytes: usize) {
        self.bytes.fetch_add(bytes as u64, Relaxed);
    }

    /// All that was counted.
    pub(crate) fn tick(&self) -> Tick {
        let seconds = |doing: Doing| self.spent[doing as usize].load(Relaxed) as f64 / 1e9;
        Tick {
            front: seconds(Doing::Front),
            front_idle: seconds(Doing::FrontIdle),
            pool: seconds(Doing::Pool),
            stream_idle: seconds(Doing::Stream),
            network: seconds(Doing::Network),
            bytes: self.bytes.load(Relaxed),
            ..Tick::default()
        }
    }
}
