//! CPU time by stage, read from the thread's own CPU clock, so that a run can say what it cost.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// Where CPU time goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// System calls on sockets: reads, writes, sendfile.
    Socket,
    /// TLS records: encryption and decryption.
    Tls,
    /// SHA-256 and SHA-1.
    Hash,
    /// System calls on files.
    Disk,
    /// Decisions.
    Engine,
}

/// Nanoseconds of CPU spent in each stage; shared by all tasks of one swarm.
#[derive(Debug, Default)]
pub struct Cpu {
    nanos: [AtomicU64; 5],
}

impl Cpu {
    /// Runs `work` and books its CPU time to `stage`.
    pub(crate) fn measure<T>(&self, stage: Stage, work: impl FnOnce() -> T) -> T {
        let start = thread_nanos();
        let result = work();
        self.add(stage, thread_nanos().saturating_sub(start));
        result
    }

    /// Books `nanos` to `stage`.
    pub(crate) fn add(&self, stage: Stage, nanos: u64) {
        self.nanos[stage as usize].fetch_add(nanos, Ordering::Relaxed);
    }

    /// CPU time booked to `stage` so far.
    pub fn get(&self, stage: Stage) -> Duration {
        Duration::from_nanos(self.nanos[stage as usize].load(Ordering::Relaxed))
    }
}

/// CPU time of the calling thread, nanoseconds.
pub(crate) fn thread_nanos() -> u64 {
    let t = clock_gettime(ClockId::ThreadCPUTime);
    u64::try_from(t.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(t.tv_nsec).unwrap_or(0)
}
