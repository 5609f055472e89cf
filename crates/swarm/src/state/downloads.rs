//! Payload on its way to us, over all peers: asked for, received, settled; and how fast it comes.
//!
//! Promises: `outstanding` is the sum of all peers' outstanding requests (`Engine::check` compares); while
//! more payload awaits its verdict than the limit allows, nothing new is requested, and the end of that pause
//! is reported once.

use std::time::Duration;

use crate::api::Time;
use crate::state::meter::Meter;

/// The rate of all that comes in is measured over at least this long.
const SAMPLE: Duration = Duration::from_millis(250);

/// See the head of the file.
#[derive(Debug, Default)]
pub(crate) struct Downloads {
    /// Bytes requested over all peers, and received without a verdict.
    outstanding: u64,
    unsettled: u64,
    /// All payload that comes in.
    meter: Meter,
    /// Requests wait for the disk.
    paused: bool,
}

impl Downloads {
    /// Bytes requested and not yet received.
    pub(crate) fn outstanding(&self) -> u64 {
        self.outstanding
    }

    /// Bytes received and without a verdict.
    pub(crate) fn unsettled(&self) -> u64 {
        self.unsettled
    }

    /// Bytes per second of all that comes in; 0 when not known.
    pub(crate) fn rate(&self) -> u64 {
        self.meter.rate()
    }

    /// When something came last, or was first asked for after a pause.
    pub(crate) fn last(&self) -> Time {
        self.meter.last()
    }

    /// `bytes` are asked for; a pause before it does not count as slowness.
    pub(crate) fn asked(&mut self, now: Time, bytes: u64) {
        if self.outstanding == 0 {
            self.meter.resume(now);
        }
        self.outstanding += bytes;
    }

    /// `bytes` of requests have come, or are no longer awaited.
    pub(crate) fn gone(&mut self, bytes: u64) {
        debug_assert!(bytes <= self.outstanding, "{bytes} bytes are gone of {} asked for", self.outstanding);
        self.outstanding = self.outstanding.saturating_sub(bytes);
    }

    /// `bytes` have come off a socket, of a request sent at `asked`.
    pub(crate) fn received(&mut self, now: Time, bytes: u32, asked: Time) {
        self.unsettled += u64::from(bytes);
        self.meter.add_asked(now, bytes, SAMPLE, asked);
    }

    /// A verdict has come for `bytes` received; true when a pause ends with it.
    pub(crate) fn settled(&mut self, bytes: u32, most: u64) -> bool {
        self.unsettled = self.unsettled.saturating_sub(u64::from(bytes));
        let resumes = self.paused && self.unsettled < most;
        self.paused &= !resumes;
        resumes
    }

    /// Whether the disk has to catch up before more is asked for; then there is a pause, until `settled` ends it.
    pub(crate) fn pauses(&mut self, most: u64) -> bool {
        let full = self.unsettled >= most;
        self.paused |= full;
        full
    }

    /// How long all that is asked for takes at the rate at which all comes in.
    pub(crate) fn drain_time(&self) -> Duration {
        self.meter.time_for_at_best(self.outstanding, SAMPLE).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_ends_once_when_the_disk_has_caught_up() {
        let mut downloads = Downloads::default();
        assert!(!downloads.pauses(10));
        downloads.received(Time(1), 10, Time(0));
        assert!(downloads.pauses(10) && downloads.pauses(10));
        assert!(downloads.settled(1, 10) && !downloads.settled(1, 10) && !downloads.pauses(10));
        assert_eq!(downloads.unsettled(), 8);
    }

    #[test]
    fn what_comes_back_was_asked_for() {
        let mut downloads = Downloads::default();
        downloads.asked(Time(0), 5);
        downloads.gone(3);
        assert_eq!(downloads.outstanding(), 2);
        downloads.gone(2);
        assert_eq!((downloads.outstanding(), downloads.drain_time()), (0, Duration::ZERO));
    }
}
