//! Time accounting: how long the threads of one end work and wait, summed up by kind.

use std::io::{self, Read};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Instant;

use serde::{Deserialize, Serialize};

/// The activity of a thread of an end.
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

/// Nanoseconds by activity.
#[derive(Debug, Default)]
pub(crate) struct Meter {
    spent: [AtomicU64; KINDS],
    bytes: AtomicU64,
    came: AtomicU64,
}

/// The meter and other counters at one moment; all counted from the start.
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
    /// Bytes of payload through the streams, in whole blocks.
    pub bytes: u64,
    /// The same of a receiver, with the received bytes of incomplete blocks: on slow streams a block takes
    /// seconds.
    #[serde(default)]
    pub came: u64,
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

    /// Counts the bytes of a block while it is read from `from`. If the block breaks off, they are subtracted
    /// again.
    pub(crate) fn arriving<'m, R: Read>(&'m self, from: &'m mut R) -> Arriving<'m, R> {
        Arriving { from, meter: self, counted: 0 }
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
            came: self.came.load(Relaxed),
            ..Tick::default()
        }
    }
}

/// A block that is under way.
pub(crate) struct Arriving<'m, R> {
    from: &'m mut R,
    meter: &'m Meter,
    counted: u64,
}

impl<R> Arriving<'_, R> {
    /// The block is complete with this many bytes of payload. Its table, which was counted too, is not part of
    /// them.
    pub(crate) fn whole(mut self, payload: usize) {
        self.meter.came.fetch_add(payload as u64, Relaxed);
        self.take_back();
    }

    fn take_back(&mut self) {
        self.meter.came.fetch_sub(std::mem::take(&mut self.counted), Relaxed);
    }
}

impl<R: Read> Read for Arriving<'_, R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let read = self.from.read(buf)?;
        self.counted += read as u64;
        self.meter.came.fetch_add(read as u64, Relaxed);
        Ok(read)
    }
}

impl<R> Drop for Arriving<'_, R> {
    fn drop(&mut self) {
        self.take_back();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_counts_at_once_and_what_breaks_off_not_at_all() {
        let meter = Meter::default();
        let mut from = [0; 100].as_slice();
        let mut whole = meter.arriving(&mut from);
        whole.read_exact(&mut [0; 60]).unwrap();
        assert_eq!(meter.tick().came, 60);
        whole.whole(50);
        assert_eq!(meter.tick().came, 50);
        let mut broken = meter.arriving(&mut from);
        broken.read_exact(&mut [0; 30]).unwrap();
        assert_eq!(meter.tick().came, 80);
        drop(broken);
        assert_eq!(meter.tick().came, 50);
    }
}
