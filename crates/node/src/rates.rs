//! Averages over the last few seconds; instantaneous rates jump too much to read.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use tidecast_event::Progress;

/// How far back the rates look.
const WINDOW: Duration = Duration::from_secs(4);
/// At most one sample in this time is kept.
const APART: Duration = Duration::from_millis(50);

/// See the head of the file.
#[derive(Debug, Default)]
pub struct Rates {
    samples: VecDeque<(Instant, [u64; 3])>,
}

impl Rates {
    /// Notes how far the work is `at` this time, and writes the rates into it.
    pub fn note(&mut self, at: Instant, now: &mut Progress) {
        let traffic = now.traffic.as_ref().map_or((0, 0), |traffic| (traffic.received, traffic.sent));
        // Bounded: see the constants.
        let before = self.samples.len().checked_sub(2).and_then(|i| self.samples.get(i));
        if before.is_some_and(|(t, _)| at - *t < APART) {
            self.samples.pop_back();
        }
        self.samples.push_back((at, [now.bytes, traffic.0, traffic.1]));
        while self.samples.get(1).is_some_and(|(t, _)| at - *t > WINDOW) {
            self.samples.pop_front();
        }
        let [work, received, sent] = self.get();
        now.rate = work;
        if let Some(traffic) = &mut now.traffic {
            (traffic.rate_in, traffic.rate_out) = (received, sent);
        }
    }

    /// Bytes per second of work, in, and out.
    fn get(&self) -> [u64; 3] {
        let (Some((first, a)), Some((last, b))) = (self.samples.front(), self.samples.back()) else {
            return [0; 3];
        };
        let seconds = (*last - *first).as_secs_f64();
        let rate = |from: u64, to: u64| {
            if seconds > 0.0 { (to.saturating_sub(from) as f64 / seconds).round() as u64 } else { 0 }
        };
        let ([a0, a1, a2], [b0, b1, b2]) = (*a, *b);
        [rate(a0, b0), rate(a1, b1), rate(a2, b2)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_remember_a_few_seconds_only() {
        let t = Instant::now();
        let (mut rates, mut now) = (Rates::default(), Progress::default());
        for i in 0..10_000u64 {
            now.bytes = i * 10;
            rates.note(t + Duration::from_millis(i), &mut now);
        }
        assert!(rates.samples.len() < 200, "{}", rates.samples.len());
        assert!(now.rate.abs_diff(10_000) < 500, "{}", now.rate);
    }
}
