//! How many peers are served at once: as few as keep the uplink busy.
//!
//! A piece of which thirty peers have half is of no use to any of them; a piece that one of them has complete
//! is forwarded while the next one is served. But the number of peers that fill an uplink is unknown: one on
//! a switch of equals, twenty where the uplink is twenty times as fast as theirs. So it is probed: while
//! peers wait, half as many slots again are opened now and then, kept if throughput rises, and closed if not.
//! When throughput falls (the served peers are slow, or have left), more are opened at once.

use std::time::Duration;

use crate::api::Time;

/// The fewest slots, and the most. Among equals some served peers are served by many others too and take
/// little: with four slots uplinks of 10 Mbit were idle a third of the time at first, until enough were
/// tried.
const LEAST: u32 = 8;
const MOST: u32 = 1 << 12;
/// The rate is measured over this long, and over this many bytes, if they take no longer than a second.
const WINDOW: Duration = Duration::from_millis(100);
const WINDOW_BYTES: u64 = 256 << 10;
const WINDOW_MOST: Duration = Duration::from_secs(1);
/// Windows between two trials.
const CALM: u32 = 16;

/// See the head of the file.
#[derive(Debug)]
pub(crate) struct UploadSlots {
    used: u32,
    most: u32,
    /// A peer had to wait in this window.
    wanted: bool,
    since: Time,
    bytes: u64,
    /// Bytes per second in the last window.
    rate: u64,
    /// The last window had more slots than the one before.
    trial: bool,
    calm: u32,
}

impl UploadSlots {
    pub(crate) fn new() -> Self {
        UploadSlots {
            used: 0,
            most: LEAST,
            wanted: false,
            since: Time(0),
            bytes: 0,
            rate: 0,
            trial: false,
            calm: 0,
        }
    }

    /// Whether one more peer has to wait; it is noted that one does.
    pub(crate) fn full(&mut self) -> bool {
        self.wanted |= self.used >= self.most;
        self.used >= self.most
    }

    /// Whether half the slots are taken; records that a peer waits.
    pub(crate) fn half_full(&mut self) -> bool {
        let half = self.used >= self.most / 2;
        self.wanted |= half;
        half
    }

    pub(crate) fn enter(&mut self) {
        self.used += 1;
    }

    pub(crate) fn leave(&mut self) {
        self.used -= 1;
    }

    pub(crate) fn sent(&mut self, bytes: u64) {
        self.bytes += bytes;
    }

    /// The time to call `regulate` if nothing is sent before: all served peers may have left.
    pub(crate) fn due(&self) -> Option<Time> {
        self.wanted.then(|| self.since.after(WINDOW_MOST))
    }

    /// Opens and closes slots.
    pub(crate) fn regulate(&mut self, now: Time) {
        let span = now.since(self.since);
        if span < WINDOW || (self.bytes < WINDOW_BYTES && span < WINDOW_MOST) {
            return;
        }
        let rate = u128::from(self.bytes) * 1_000_000_000 / span.as_nanos();
        let rate = u64::try_from(rate).unwrap_or(u64::MAX);
        let (more, less) = (rate > self.rate / 8 * 9, rate < self.rate / 8 * 7);
        if std::mem::take(&mut self.wanted) {
            self.calm += 1;
            let gain = self.trial && more;
            let open = gain || less || (!self.trial && self.calm >= CALM);
            if open {
                self.most = (self.most + self.most / 2).min(MOST);
                self.calm = 0;
            } else if self.trial {
                self.most = (self.most / 3 * 2).max(LEAST);
            }
            self.trial = open;
        }
        self.rate = rate;
        self.since = now;
        self.bytes = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The slots after a minute in which `slots` used give `rate(slots)` bytes per second.
    fn regulated(rate: impl Fn(u64) -> u64) -> u32 {
        let mut slots = UploadSlots::new();
        for i in 1..=600 {
            while !slots.full() {
                slots.enter();
            }
            while slots.used > slots.most {
                slots.leave();
            }
            slots.sent(rate(u64::from(slots.used)) / 10);
            slots.regulate(Time(i * 100_000_000));
        }
        slots.most
    }

    #[test]
    fn as_many_as_fill_the_uplink() {
        assert!(regulated(|_| 125_000_000) <= 12, "one peer would do");
        let many = regulated(|n| (n * 10_000_000).min(1_000_000_000));
        assert!((80..=300).contains(&many), "{many}");
    }

    #[test]
    fn those_who_are_gone_do_not_hold_up_the_others() {
        let mut slots = UploadSlots::new();
        for i in 1..=15 {
            while !slots.full() {
                slots.enter();
            }
            slots.sent(12_500_000);
            slots.regulate(Time(i * 100_000_000));
        }
        let before = slots.most;
        assert!(slots.full());
        assert_eq!(slots.due(), Some(Time(2_500_000_000)));
        slots.regulate(Time(2_500_000_000));
        assert!(slots.most > before && !slots.full());
    }
}
