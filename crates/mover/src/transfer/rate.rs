//! A rate limit, and whether it is the limit that holds a copy up.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::send::TICK;
use crate::part::BLOCK;

/// Holds the streams together to this many bytes a second.
pub(super) struct Rate {
    pub(super) bytes: Option<u64>,
    /// The time at which the data allowed so far is through.
    next: Mutex<Instant>,
}

impl Rate {
    pub(super) fn new(bytes: Option<u64>) -> Self {
        Self { bytes, next: Mutex::new(Instant::now()) }
    }

    /// Waits until this many bytes may be sent, as one of this many senders.
    pub(super) fn wait(&self, len: usize, sharers: u64, stop: impl Fn() -> bool) {
        let Some(rate) = self.bytes.map(|rate| (rate / sharers).max(1)) else { return };
        let until = {
            let mut next = self.next.lock();
            let from = (*next).max(Instant::now());
            *next = from + Duration::from_secs_f64(len as f64 / rate as f64);
            from
        };
        while !stop() {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            std::thread::sleep(left.min(TICK));
        }
    }
}

/// Ticks over which a rate is looked at.
const WINDOW: usize = 16;
/// A throughput this close to the set rate is limited by it.
const NEAR: f64 = 0.9;

/// Detects a throughput close to the set rate.
#[derive(Debug, Default)]
pub(super) struct Allowed {
    bytes: VecDeque<u64>,
    before: u64,
}

impl Allowed {
    /// One tick of this many seconds later, with `bytes` sent in all: whether `rate`, in bytes a second, is
    /// used up. A block is sent at once, whatever the rate.
    pub(super) fn is_used(&mut self, bytes: u64, rate: u64, tick: f64) -> bool {
        self.bytes.push_back(bytes.saturating_sub(self.before));
        self.before = bytes;
        if self.bytes.len() > WINDOW {
            self.bytes.pop_front();
        }
        let went = self.bytes.iter().sum::<u64>() + BLOCK as u64;
        went as f64 >= NEAR * rate as f64 * self.bytes.len() as f64 * tick
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_that_is_set_is_the_limit_when_it_is_used_up() {
        let used = |a_tick: u64| {
            let (mut allowed, mut bytes) = (Allowed::default(), 0);
            let all: Vec<bool> = (0..40)
                .map(|_| {
                    bytes += a_tick;
                    allowed.is_used(bytes, 40 << 20, 0.5)
                })
                .collect();
            all.ends_with(&[true; 10])
        };
        assert!(used(20 << 20) && used(19 << 20) && !used(10 << 20) && !used(16 << 20));
    }
}
