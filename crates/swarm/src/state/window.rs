//! How many bytes to have requested from one peer: its measured rate x the delay from a request to
//! its first byte, twice.
//!
//! While the peer is not the limit, rate x delay is the window itself, so that twice of it doubles
//! the window per round trip: slow start. When the peer or the path is the limit, the rate stops
//! growing and the window stays at two bandwidth-delay products. The delay is the smallest seen since
//! it was last measured on an idle connection: queues that we make ourselves do not count.
//!
//! Integers only: nanoseconds, bytes, bytes per second.

use std::time::Duration;

use crate::api::Time;
use crate::state::meter::Meter;
use crate::state::upload::block_size;

/// A rate is measured over at least this long, and at least over one delay.
const SAMPLE: Duration = Duration::from_millis(20);
/// ... and at most over this long.
const SAMPLE_MOST: Duration = Duration::from_millis(500);
/// An idle connection measures its delay again after this long.
const DELAY_AGE: Duration = Duration::from_secs(10);
/// The least window lasts for this part of a second: an eighth.
const LEAST_TIME: u64 = 8;
/// The window of the slowest peer, and of one whose rate is not known, bytes.
const SLOWEST: u64 = 64 << 10;
const FIRST: u64 = 256 << 10;
/// A delay below this is taken for this: timers and batches are not finer.
const DELAY_FLOOR: Duration = Duration::from_millis(1);

/// The request window of one peer.
#[derive(Clone, Debug)]
pub(crate) struct Window {
    least: u64,
    most: u64,
    meter: Meter,
    delay: Option<Duration>,
    measured: Time,
}

impl Window {
    /// A window of `limits` (least, most) bytes.
    pub(crate) fn new(limits: (u32, u32)) -> Self {
        let least = u64::from(limits.0.min(limits.1));
        Window { least, most: u64::from(limits.1), meter: Meter::default(), delay: None, measured: Time(0) }
    }

    /// Bytes that may be requested and not yet received.
    ///
    /// A slow peer, that would take longer than `LEAST_TIME` over the least window, has a smaller one: its
    /// requests are not sent to others, and other peers cannot see them.
    pub(crate) fn size(&self) -> u64 {
        let rate = u128::from(self.meter.rate());
        let delay = self.delay.unwrap_or_default().max(DELAY_FLOOR).as_nanos();
        let product = rate * delay * 2 / 1_000_000_000;
        let product = u64::try_from(product).unwrap_or(u64::MAX);
        let slow = match self.meter.rate() {
            0 => FIRST,
            rate => (rate / LEAST_TIME).max(SLOWEST),
        };
        let least = self.least.min(slow).max(2 * block_size(self.meter.rate()));
        product.clamp(least.min(self.most), self.most)
    }

    /// Bytes per second that the peer delivers; 0 when not known.
    pub(crate) fn rate(&self) -> u64 {
        self.meter.rate()
    }

    /// Bytes that are on their way at any time: a cancel comes too late for them.
    pub(crate) fn on_the_way(&self) -> u64 {
        let delay = self.delay.unwrap_or_default().as_nanos();
        let bytes = u128::from(self.meter.rate()) * delay / 1_000_000_000;
        u64::try_from(bytes).unwrap_or(u64::MAX)
    }

    /// From a request to its first bytes, at best.
    pub(crate) fn delay(&self) -> Option<Duration> {
        self.delay
    }

    /// The first request after a pause is going out.
    pub(crate) fn wake(&mut self, now: Time) {
        self.meter.resume(now);
    }

    /// The first bytes of a request have come `delay` after it was sent; `idle`: there were no other requests
    /// then.
    pub(crate) fn answered(&mut self, now: Time, delay: Duration, idle: bool) {
        let stale = idle && now.since(self.measured) > DELAY_AGE;
        if stale || self.delay.is_none_or(|old| delay < old) {
            self.delay = Some(delay);
            self.measured = now;
        }
    }

    /// Requested bytes have come.
    pub(crate) fn received(&mut self, now: Time, bytes: u32) {
        let span = self.delay.unwrap_or(SAMPLE).clamp(SAMPLE, SAMPLE_MOST);
        self.meter.add(now, bytes, span);
    }

    /// How long `bytes` take at the measured rate; `None` while it is not known.
    pub(crate) fn time_for(&self, bytes: u64) -> Option<Duration> {
        self.meter.time_for(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// A path of `rate` bytes per second and `delay`: the resulting window.
    fn settle(rate: u64, delay: u64) -> u64 {
        let mut w = Window::new((1 << 20, 64 << 20));
        let mut now = Time(0);
        for _ in 0..200 {
            let size = w.size();
            // A window per round trip, or the capacity of the path, whichever takes longer.
            let nanos = delay.max(size * 1_000_000_000 / rate);
            w.answered(now, Duration::from_nanos(delay), false);
            now = Time(now.0 + nanos);
            w.received(now, size as u32);
        }
        w.size()
    }

    #[test]
    fn grows_to_twice_the_product_and_stays() {
        let size = settle(1_250_000_000, 20 * MS);
        assert!((45 << 20..=52 << 20).contains(&size), "{size}");
    }

    #[test]
    fn stays_within_its_bounds() {
        assert_eq!(settle(12_500_000_000, 100 * MS), 64 << 20);
        assert_eq!(settle(20_000_000, MS), 1 << 20);
        assert_eq!(settle(4_000_000, MS), 500_000);
        assert_eq!(settle(1_000, MS), SLOWEST);
        assert_eq!(Window::new((1 << 20, 64 << 20)).size(), FIRST);
        assert_eq!(Window::new((1 << 14, 1 << 15)).size(), 1 << 15);
    }

    #[test]
    fn a_window_that_runs_empty_each_time_is_measured_all_the_same() {
        let mut w = Window::new((1 << 20, 64 << 20));
        let mut now = Time(1000 * MS);
        for _ in 0..2000 {
            w.wake(now);
            let size = w.size();
            w.answered(now, Duration::from_nanos(MS), true);
            now = Time(now.0 + MS);
            w.received(now, size as u32);
        }
        assert_eq!(w.size(), 64 << 20);
    }

    #[test]
    fn our_own_queue_does_not_count_as_delay() {
        let mut w = Window::new((1 << 20, 64 << 20));
        w.answered(Time(MS), Duration::from_millis(2), true);
        w.answered(Time(2 * MS), Duration::from_millis(50), false);
        assert_eq!(w.delay(), Some(Duration::from_millis(2)));
        w.answered(Time(20_000 * MS), Duration::from_millis(5), true);
        assert_eq!(w.delay(), Some(Duration::from_millis(5)));
    }
}
