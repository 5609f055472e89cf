//! Addresses that have failed, and are left alone for a while.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// A source that failed is left alone for this long, then twice as long, up to an hour.
const BACKOFF: Duration = Duration::from_secs(30);
/// One that is not even reached may just be starting.
const UNREACHED: Duration = Duration::from_secs(10);
const MAX_BACKOFF: Duration = Duration::from_secs(3600);
/// Failures remembered.
const REMEMBERED: usize = 10_000;

/// Until when each is left alone, and for how long it was the last time.
#[derive(Default)]
pub(crate) struct Backoff(Mutex<HashMap<SocketAddr, (Instant, Duration)>>);

impl Backoff {
    /// A source has failed.
    pub(crate) fn add(&self, addr: SocketAddr) {
        let mut backoff = self.0.lock();
        if backoff.len() >= REMEMBERED {
            backoff.retain(|_, (until, _)| *until > Instant::now());
        }
        let last = backoff.get(&addr).map_or(BACKOFF / 2, |(_, last)| *last);
        let time = (last * 2).min(MAX_BACKOFF);
        backoff.insert(addr, (Instant::now() + time, time));
    }

    /// An address does not answer.
    pub(crate) fn unreached(&self, addr: SocketAddr) {
        let mut backoff = self.0.lock();
        if backoff.len() >= REMEMBERED {
            backoff.retain(|_, (until, _)| *until > Instant::now());
        }
        let until = Instant::now() + UNREACHED;
        let (shunned_until, _) = backoff.entry(addr).or_insert((until, BACKOFF / 2));
        *shunned_until = until.max(*shunned_until);
    }

    /// A source has done well.
    pub(crate) fn forgive(&self, addr: SocketAddr) {
        self.0.lock().remove(&addr);
    }

    /// Whether a source is to be left alone.
    pub(crate) fn has(&self, addr: SocketAddr) -> bool {
        self.left(addr).is_some()
    }

    /// For how long it is.
    pub(crate) fn left(&self, addr: SocketAddr) -> Option<Duration> {
        let until = self.0.lock().get(&addr)?.0;
        until.checked_duration_since(Instant::now()).filter(|left| !left.is_zero())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(port: u16) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], port))
    }

    #[tokio::test(start_paused = true)]
    async fn each_failure_doubles_the_time_up_to_an_hour_and_success_forgives() {
        let backoff = Backoff::default();
        let mut expected = BACKOFF;
        for _ in 0..12 {
            backoff.add(at(1));
            tokio::time::advance(expected - Duration::from_millis(1)).await;
            assert!(backoff.has(at(1)) && !backoff.has(at(2)), "{expected:?}");
            tokio::time::advance(Duration::from_millis(1)).await;
            assert!(!backoff.has(at(1)), "{expected:?}");
            expected = (expected * 2).min(MAX_BACKOFF);
        }
        backoff.forgive(at(1));
        backoff.add(at(1));
        tokio::time::advance(BACKOFF).await;
        assert!(!backoff.has(at(1)), "the wait starts again at its first length");
    }

    #[tokio::test(start_paused = true)]
    async fn an_address_that_does_not_answer_is_tried_sooner_than_one_that_failed() {
        let backoff = Backoff::default();
        backoff.unreached(at(1));
        tokio::time::advance(UNREACHED).await;
        assert!(!backoff.has(at(1)));
        // Not reached since: it is left alone for as long as it was to be.
        backoff.add(at(1));
        backoff.unreached(at(1));
        tokio::time::advance(UNREACHED + Duration::from_secs(1)).await;
        assert!(backoff.has(at(1)));
    }
}
