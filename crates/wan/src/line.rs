//! One direction of the link, as a pure model: given the arrivals, it decides when each packet leaves, if at
//! all.

use std::time::Duration;

/// The properties of a line. Probabilities are per packet of the MTU.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Bits per second; 0 for no limit.
    pub rate: u64,
    /// Bytes that may wait for the line at this rate; packets beyond are dropped.
    pub queue: u64,
    /// From the end of sending to arrival, one way.
    pub delay: Duration,
    /// Chance of a packet to vanish, 0 to 1.
    pub loss: f64,
    /// Chance to arrive twice.
    pub dup: f64,
    /// Chance to be held back by [`Config::held_back`], so that later packets overtake.
    pub reorder: f64,
}

impl Config {
    /// How long a reordered packet is held back: a quarter of the delay, at least half a millisecond.
    #[must_use]
    pub fn held_back(&self) -> Duration {
        (self.delay / 4).max(Duration::from_micros(500))
    }
}

/// The fate of one packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fate {
    /// When it arrives at the other end, on the clock of [`Line::send`]; equal for packets that may stay together.
    pub due: Duration,
    /// The number of copies: 0 if it is lost or dropped, 2 if duplicated.
    pub copies: u8,
    /// Whether it was held back; such a packet travels alone.
    pub late: bool,
}

/// Counters of a line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Packets of the MTU that came.
    pub packets: u64,
    /// Of these, lost by chance.
    pub lost: u64,
    /// Dropped because the queue was full.
    pub dropped: u64,
    /// Sent twice.
    pub duplicated: u64,
    /// Held back.
    pub reordered: u64,
}

/// One direction of the link.
#[derive(Debug)]
pub struct Line {
    config: Config,
    /// When the line will have sent all it has accepted.
    free: Duration,
    rng: Rng,
    counters: Counters,
}

impl Line {
    /// An idle line; equal seeds and arrivals give equal fates.
    #[must_use]
    pub fn new(config: Config, seed: u64) -> Self {
        Self { config, free: Duration::ZERO, rng: Rng(seed), counters: Counters::default() }
    }

    /// A packet of `bytes` arrives at `now` (which never goes back): its fate.
    pub fn send(&mut self, now: Duration, bytes: usize) -> Fate {
        self.counters.packets += 1;
        let start = self.free.max(now);
        if self.waiting(start - now) + bytes as u64 > self.config.queue {
            self.counters.dropped += 1;
            return Fate { due: start, copies: 0, late: false };
        }
        self.free = start + self.time(bytes as u64);
        // Drawn in a fixed order whatever the outcome, so that one draw does not shift another.
        let (loss, dup, reorder) = (self.rng.unit(), self.rng.unit(), self.rng.unit());
        let late = reorder < self.config.reorder;
        let mut fate = Fate { due: self.free + self.config.delay, copies: 1, late };
        if loss < self.config.loss {
            self.counters.lost += 1;
            fate.copies = 0;
        } else if dup < self.config.dup {
            self.counters.duplicated += 1;
            fate.copies = 2;
        }
        if late && fate.copies > 0 {
            self.counters.reordered += 1;
            fate.due += self.config.held_back();
        }
        fate
    }

    /// From the next packet on the line has this configuration; packets in transit arrive as before.
    pub fn change(&mut self, config: Config) {
        self.config = config;
    }

    /// The counters.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// Bytes that the line sends in `span`.
    fn waiting(&self, span: Duration) -> u64 {
        if self.config.rate == 0 {
            return 0;
        }
        u64::try_from(span.as_nanos() * u128::from(self.config.rate) / 8_000_000_000).unwrap_or(u64::MAX)
    }

    /// How long the line takes to send `bytes`.
    fn time(&self, bytes: u64) -> Duration {
        match (bytes * 8_000_000_000).checked_div(self.config.rate) {
            Some(nanos) => Duration::from_nanos(nanos),
            None => Duration::ZERO,
        }
    }
}

/// SplitMix64 (Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators, 2014): seeded and small.
#[derive(Debug)]
struct Rng(u64);

impl Rng {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// Uniform in [0, 1).
    fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: Config = Config {
        rate: 8_000_000,
        queue: 10_000,
        delay: Duration::from_millis(25),
        loss: 0.0,
        dup: 0.0,
        reorder: 0.0,
    };

    #[test]
    fn a_packet_takes_its_time_on_the_line_and_the_delay() {
        let mut line = Line::new(PLAIN, 1);
        let ms = Duration::from_millis;
        assert_eq!(line.send(ms(0), 1000), Fate { due: ms(26), copies: 1, late: false });
        assert_eq!(line.send(ms(0), 1000).due, ms(27), "the second waits for the first");
        assert_eq!(line.send(ms(100), 1000).due, ms(126), "an idle line has no debt");
    }

    #[test]
    fn the_queue_holds_its_bytes_and_drops_the_rest() {
        let mut line = Line::new(PLAIN, 1);
        let sent = (0..20).filter(|_| line.send(Duration::ZERO, 1000).copies == 1).count();
        assert_eq!(sent, 10);
        assert_eq!(line.counters().dropped, 10);
        assert_eq!(
            line.send(Duration::from_millis(1), 1000).copies,
            1,
            "a millisecond makes room for one more"
        );
    }

    #[test]
    fn without_a_rate_only_the_delay_counts() {
        let mut line = Line::new(Config { rate: 0, ..PLAIN }, 1);
        assert!((0..100).all(|_| line.send(Duration::ZERO, 1500).due == PLAIN.delay));
    }

    #[test]
    fn chances_come_out_as_asked() {
        let config = Config { rate: 0, loss: 0.01, dup: 0.02, reorder: 0.05, ..PLAIN };
        let mut line = Line::new(config, 7);
        for _ in 0..100_000 {
            line.send(Duration::ZERO, 1500);
        }
        let c = line.counters();
        assert!((900..1100).contains(&c.lost), "{c:?}");
        assert!((1800..2200).contains(&c.duplicated), "{c:?}");
        assert!((4600..5400).contains(&c.reordered), "{c:?}");
    }

    #[test]
    fn a_seed_repeats_its_fates_and_another_does_not() {
        let config = Config { rate: 0, loss: 0.5, ..PLAIN };
        let run = |seed| {
            let mut line = Line::new(config, seed);
            (0..64).map(|_| line.send(Duration::ZERO, 100).copies).collect::<Vec<_>>()
        };
        assert_eq!(run(3), run(3));
        assert_ne!(run(3), run(4));
    }

    #[test]
    fn a_reordered_packet_is_overtaken() {
        let mut line = Line::new(Config { rate: 0, reorder: 0.3, ..PLAIN }, 1);
        let fates: Vec<_> = (0..50).map(|i| line.send(Duration::from_micros(i), 100)).collect();
        assert!(fates.iter().any(|f| f.late));
        assert!(fates.iter().all(|f| f.late == (f.due > PLAIN.delay + PLAIN.held_back())));
    }
}
