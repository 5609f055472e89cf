//! How fast bytes move: of one peer, or of all together.
//!
//! Integers only: nanoseconds, bytes, bytes per second.

use std::time::Duration;

use crate::api::Time;

/// Idleness that is a pause.
const PAUSE: Duration = Duration::from_millis(20);

/// Bytes per second over recent time: follows a rise at once, a fall by a quarter a sample.
#[derive(Clone, Debug, Default)]
pub(crate) struct Meter {
    rate: u64,
    since: Time,
    last: Time,
    bytes: u64,
}

impl Meter {
    /// Bytes per second; 0 when nothing is known.
    pub(crate) fn rate(&self) -> u64 {
        self.rate
    }

    /// The time that `bytes` take at this rate, or at the rate that the current sample already shows, which
    /// is at least `span` long when it is over; `None` while neither is known.
    pub(crate) fn time_for_at_best(&self, bytes: u64, span: Duration) -> Option<Duration> {
        let sample = self.bytes * 1000 / (span.as_millis() as u64).max(1);
        Meter { rate: self.rate.max(sample), ..Meter::default() }.time_for(bytes)
    }

    /// Bytes of the sample that is being taken.
    pub(crate) fn moved(&self) -> u64 {
        self.bytes
    }

    /// When something has moved, or begun to.
    pub(crate) fn last(&self) -> Time {
        self.last
    }

    /// How long `bytes` take at this rate; `None` while it is not known.
    pub(crate) fn time_for(&self, bytes: u64) -> Option<Duration> {
        let nanos = u128::from(bytes) * 1_000_000_000 / u128::from(self.rate).max(1);
        let nanos = u64::try_from(nanos).unwrap_or(u64::MAX);
        (self.rate > 0).then(|| Duration::from_nanos(nanos))
    }

    /// Work begins again at `now`. A pause is not slowness, so the running sample is dropped; but the moment
    /// between an answer and the next request is not a pause, or a small window would never be measured.
    pub(crate) fn resume(&mut self, now: Time) {
        if now.since(self.last) > PAUSE {
            self.since = now;
            self.bytes = 0;
        }
        self.last = now;
    }

    /// Likewise for data that comes from several peers, requested at `asked`. Where nothing has come from any
    /// peer since then, the wait was due to a long path, or to the silence of peers asked before: taken for
    /// slowness of our own it would make us wait as long for the next silent peer.
    pub(crate) fn add_asked(&mut self, now: Time, bytes: u32, span: Duration, asked: Time) {
        match asked >= self.last && now.since(self.last) > PAUSE {
            true => (self.since, self.last, self.bytes) = (now, now, 0),
            false => self.add(now, bytes, span),
        }
    }

    /// `bytes` have moved; a sample is at least `span` long.
    pub(crate) fn add(&mut self, now: Time, bytes: u32, span: Duration) {
        self.bytes += u64::from(bytes);
        self.last = now;
        let nanos = now.since(self.since).as_nanos();
        if nanos < span.as_nanos().max(1) {
            return;
        }
        let new = u128::from(self.bytes) * 1_000_000_000 / nanos;
        let new = u64::try_from(new).unwrap_or(u64::MAX);
        self.rate = if new > self.rate { new } else { (self.rate / 4) * 3 + new / 4 };
        self.since = now;
        self.bytes = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;
    const SAMPLE: Duration = Duration::from_millis(20);

    #[test]
    fn pauses_are_not_slowness() {
        let mut m = Meter::default();
        m.add(Time(100 * MS), 1_000_000, SAMPLE);
        assert_eq!(m.rate(), 10_000_000);
        m.resume(Time(10_000 * MS));
        m.add(Time(10_100 * MS), 1_000_000, SAMPLE);
        assert_eq!(m.rate(), 10_000_000);
        // Without the word that work begins again, the pause counts.
        m.add(Time(20_000 * MS), 1_000_000, SAMPLE);
        assert!(m.rate() < 8_000_000);
    }
}
