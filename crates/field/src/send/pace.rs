//! When the next datagrams may go, so that a rate is kept to by the clock. Pure: the time is an argument.

use std::time::Duration;

/// Delayed sending is made up for, except delays older than this.
const DEBT: Duration = Duration::from_millis(100);
/// A thread that wakes up late sends the overdue data at once, up to twice as long as this.
const LATE: Duration = Duration::from_millis(2);

/// Absolute deadlines: however late each burst is, their sum is not.
#[derive(Debug, Clone)]
pub struct Pacer {
    /// Bits a second.
    rate: u64,
    /// When the next burst is due.
    next: Duration,
    /// The same at twice the rate, without a debt: no faster is lost time made up for.
    earliest: Duration,
    /// The remainder of divisions: nanoseconds times the rate.
    rest: u128,
}

impl Pacer {
    /// Begins now.
    #[must_use]
    pub fn new(rate: u64, now: Duration) -> Self {
        Self { rate: rate.max(1), next: now, earliest: now, rest: 0 }
    }

    /// Another rate from now on.
    pub fn set_rate(&mut self, rate: u64) {
        if rate != self.rate {
            (self.rate, self.rest) = (rate.max(1), 0);
        }
    }

    /// Bytes that may be sent at once: those of a millisecond, but not less than `least` nor more than
    /// `most`.
    #[must_use]
    pub fn burst(&self, least: usize, most: usize) -> usize {
        usize::try_from(self.rate / 8000).unwrap_or(most).clamp(least.min(most), most)
    }

    /// How long to wait before the next burst; None: send now.
    #[must_use]
    pub fn wait(&self, now: Duration) -> Option<Duration> {
        self.next.max(self.earliest).checked_sub(now).filter(|wait| !wait.is_zero())
    }

    /// This many bytes were sent now.
    pub fn sent(&mut self, bytes: usize, now: Duration) {
        let work = bytes as u128 * 8_000_000_000 + self.rest;
        let cost = Duration::from_nanos(u64::try_from(work / u128::from(self.rate)).unwrap_or(u64::MAX));
        self.rest = work % u128::from(self.rate);
        self.next = self.next.max(now.saturating_sub(DEBT)).saturating_add(cost);
        self.earliest = self.earliest.max(now.saturating_sub(LATE)).saturating_add(cost / 2);
    }

    /// There was nothing to send until now: that time is not made up for.
    pub fn idle(&mut self, now: Duration) {
        self.next = self.next.max(now);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Sends for this long, each burst late by the microseconds that `late` returns; returns bytes, and the
    /// most within a millisecond or a burst.
    fn run(rate: u64, least: usize, length: Duration, late: &[u64]) -> (u64, u64) {
        let (mut pacer, mut now, mut sum, mut peak) =
            (Pacer::new(rate, Duration::ZERO), Duration::ZERO, 0u64, 0);
        let mut window = std::collections::VecDeque::new();
        for late in late.iter().cycle() {
            if let Some(wait) = pacer.wait(now) {
                now += wait + Duration::from_micros(*late);
            }
            if now > length {
                break;
            }
            let burst = pacer.burst(least, 64_000);
            pacer.sent(burst, now);
            sum += burst as u64;
            window.push_back((now, burst as u64));
            while window.front().is_some_and(|(at, _)| now - *at > Duration::from_millis(1)) {
                window.pop_front();
            }
            peak = peak.max(window.iter().map(|(_, bytes)| bytes).sum());
        }
        (sum, peak)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn the_rate_is_kept_to_whatever_the_clock_does(
            rate in (20u32..35).prop_map(|bits| 1u64 << bits), part in 0u64..1000, least in 500usize..9000,
            late in proptest::collection::vec(0u64..3000, 1..50),
        ) {
            let rate = rate + rate / 1000 * part;
            let length = Duration::from_secs(if rate < 100_000_000 { 20 } else { 1 });
            let (sum, peak) = run(rate, least, length, &late);
            let expected = rate as f64 / 8.0 * length.as_secs_f64();
            // Too few or many are at most the bursts of 3 ms, by which the last may be late.
            let slack = expected * 0.001 + rate as f64 / 8.0 * 0.008 + least as f64 * 2.0;
            prop_assert!((sum as f64 - expected).abs() < slack, "{sum} of {expected}");
            // A millisecond allows twice its data, because a burst may be late by two, plus the bursts at
            // both its ends.
            let most = (rate / 8000).max(least as u64).min(64_000);
            prop_assert!(peak <= 3 * (rate / 4000) + 2 * most, "{peak} in a millisecond at {rate}");
        }
    }

    #[test]
    fn what_nobody_could_send_is_not_made_up_for() {
        let mut pacer = Pacer::new(8_000_000, Duration::ZERO);
        pacer.idle(Duration::from_secs(9));
        pacer.sent(1000, Duration::from_secs(9));
        assert_eq!(pacer.wait(Duration::from_secs(9)), Some(Duration::from_millis(1)));
        // A thread that stood still for long makes up for a tenth of a second.
        let mut pacer = Pacer::new(8_000_000, Duration::ZERO);
        let (mut now, mut sent) = (Duration::from_secs(5), 0);
        while now < Duration::from_secs(6) {
            now += pacer.wait(now).unwrap_or_default();
            pacer.sent(1000, now);
            sent += 1000;
        }
        assert!((1_095_000..=1_105_000).contains(&sent), "{sent}");
    }

    #[test]
    fn rates_change_at_once() {
        let mut pacer = Pacer::new(1, Duration::ZERO);
        pacer.set_rate(8_000);
        pacer.sent(1000, Duration::ZERO);
        assert_eq!(pacer.wait(Duration::ZERO), Some(Duration::from_secs(1)));
        pacer.set_rate(0);
        pacer.sent(usize::MAX, Duration::ZERO);
        assert!(pacer.wait(Duration::ZERO).is_some());
    }
}
