//! CPU time by stage, read from the thread's own CPU clock, to report the cost of a run.

use std::cell::Cell;
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

/// One call in this many is measured, and counts for all of them: to ask for a thread's CPU time costs more than most of
/// these calls do. A prime, so that calls which follow each other in a pattern all have their turn.
const EVERY: u32 = 31;

/// The stages of the current calls on this thread.
#[derive(Clone, Copy)]
enum Within {
    Nothing {
        calls: u32,
    },
    Unmeasured,
    /// Nanoseconds of the calls made within it so far.
    Measured {
        inner: u64,
    },
}

thread_local! {
    static WITHIN: Cell<Within> = const { Cell::new(Within::Nothing { calls: 0 }) };
}

impl Cpu {
    /// Runs `work` and adds its CPU time to `stage`, except for nested calls, which count for their own stage.
    pub(crate) fn measure<T>(&self, stage: Stage, work: impl FnOnce() -> T) -> T {
        let outer = WITHIN.get();
        let calls = match outer {
            Within::Unmeasured => return work(),
            Within::Nothing { calls } => calls,
            Within::Measured { .. } => 0,
        };
        if calls != 0 {
            WITHIN.set(Within::Unmeasured);
            let result = work();
            WITHIN.set(Within::Nothing { calls: (calls + 1) % EVERY });
            return result;
        }
        WITHIN.set(Within::Measured { inner: 0 });
        let start = thread_nanos();
        let result = work();
        let all = thread_nanos().saturating_sub(start);
        let Within::Measured { inner } = WITHIN.get() else { return result };
        let own = all.saturating_sub(inner).saturating_mul(EVERY.into());
        self.nanos[stage as usize].fetch_add(own, Ordering::Relaxed);
        WITHIN.set(match outer {
            Within::Measured { inner } => Within::Measured { inner: inner + all },
            _ => Within::Nothing { calls: 1 },
        });
        result
    }

    /// CPU time booked to `stage` so far.
    pub fn get(&self, stage: Stage) -> Duration {
        Duration::from_nanos(self.nanos[stage as usize].load(Ordering::Relaxed))
    }
}

/// CPU time of the calling thread, nanoseconds.
fn thread_nanos() -> u64 {
    let t = clock_gettime(ClockId::ThreadCPUTime);
    u64::try_from(t.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(t.tv_nsec).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn burn() {
        let start = thread_nanos();
        while thread_nanos() - start < 100_000 {}
    }

    #[test]
    fn what_is_within_is_booked_once_and_the_sum_is_about_right() {
        let (cpu, start) = (Cpu::default(), thread_nanos());
        for _ in 0..EVERY * 10 {
            cpu.measure(Stage::Tls, || {
                burn();
                cpu.measure(Stage::Socket, burn);
                cpu.measure(Stage::Socket, burn);
            });
        }
        let all = Duration::from_nanos(thread_nanos() - start).as_secs_f64();
        let (tls, socket) = (cpu.get(Stage::Tls).as_secs_f64(), cpu.get(Stage::Socket).as_secs_f64());
        assert!((0.8..1.2).contains(&((tls + socket) / all)), "{tls} + {socket} of {all}");
        assert!((1.6..2.4).contains(&(socket / tls)), "{tls}, {socket}");
    }
}
