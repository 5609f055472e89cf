//! Automatic rate control: the rate rises while packets arrive, and falls when they are lost. Pure.

/// Bits a second to begin with.
const START: u64 = 200_000_000;
/// Never below, nor above.
const BOUNDS: (f64, f64) = (1e6, 400e9);
/// The loss rate that counts as normal.
const LOSS: f64 = 0.01;

/// The measurements since the last call.
#[derive(Debug, Clone, Copy)]
pub(super) struct Look {
    /// Packets sent, and of those lost, as receivers report.
    pub(super) sent: u64,
    pub(super) lost: u64,
    /// Bits a second that were sent.
    pub(super) rate: f64,
}

/// Doubles until packets are lost, then varies in small steps around the rate that arrives.
#[derive(Debug)]
pub(super) struct Auto {
    rate: f64,
    /// True until the first loss.
    climbing: bool,
    /// Loss that parity makes up for, and a little.
    borne: f64,
}

impl Auto {
    /// `parity`: the share of packets whose loss is made up for.
    pub(super) fn new(parity: f64) -> Self {
        Self { rate: START as f64, climbing: true, borne: LOSS.max(parity * 0.8) }
    }

    pub(super) fn rate(&self) -> u64 {
        self.rate as u64
    }

    /// The rate after a look.
    pub(super) fn look(&mut self, look: &Look) -> u64 {
        let loss = look.lost as f64 / look.sent.max(1) as f64;
        if loss > self.borne {
            // The rate that arrived, and a little less, so that queues empty.
            self.rate = (look.rate.min(self.rate) * (1.0 - loss) * 0.95).max(self.rate / 4.0);
            self.climbing = false;
        } else if look.sent > 0 && look.rate > self.rate * 0.8 {
            // A sender that does not use its rate need not have more.
            self.rate *= if self.climbing { 2.0 } else { 1.03 };
        }
        self.rate = self.rate.clamp(BOUNDS.0, BOUNDS.1);
        self.rate()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A way that lets this much through.
    fn through(auto: &mut Auto, limit: f64, can: f64, looks: usize) {
        for _ in 0..looks {
            let rate = (auto.rate() as f64).min(can);
            let sent = (rate / 1e5) as u64;
            let lost = ((rate - limit).max(0.0) / 1e5) as u64;
            auto.look(&Look { sent, lost, rate });
        }
    }

    #[test]
    fn it_finds_what_goes_through() {
        let mut auto = Auto::new(0.0);
        through(&mut auto, 7e9, 1e12, 40);
        let found = auto.rate() as f64;
        assert!((0.85..1.1).contains(&(found / 7e9)), "{found}");
        // Another way: it falls at once, and rises again.
        through(&mut auto, 1e9, 1e12, 10);
        assert!((0.85..1.1).contains(&(auto.rate() as f64 / 1e9)), "{}", auto.rate());
        through(&mut auto, 7e9, 1e12, 100);
        assert!((0.85..1.1).contains(&(auto.rate() as f64 / 7e9)), "{}", auto.rate());
    }

    #[test]
    fn it_does_not_run_away_from_who_cannot_send_more() {
        let mut auto = Auto::new(0.0);
        through(&mut auto, 1e12, 1e9, 100);
        assert!((1e9..3e9).contains(&(auto.rate() as f64)), "{}", auto.rate());
        auto.look(&Look { sent: 0, lost: 0, rate: 0.0 });
        assert!(auto.rate() >= 1_000_000_000);
    }

    #[test]
    fn loss_that_parity_makes_up_for_is_borne() {
        for (parity, falls) in [(0.0, true), (0.05, false)] {
            let mut auto = Auto::new(parity);
            let before = auto.rate();
            auto.look(&Look { sent: 1000, lost: 30, rate: before as f64 });
            assert_eq!(auto.rate() < before, falls);
        }
    }
}
