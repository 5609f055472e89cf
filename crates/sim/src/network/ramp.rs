//! How fast TCP lets a stream be: a window that doubles each round trip, forgets when idle, and is held
//! down by loss.
//!
//! The start is RFC 6928's window of 10 segments. The model leaves a stream uncapped once its window fills
//! the path: the fair shares stand for congestion avoidance.

/// Segments of the initial window (RFC 6928).
const INITIAL: u64 = 10;

/// Least time without an answer after which TCP sends again, nanoseconds (Linux).
const RTO: u64 = 200_000_000;

/// Longest wait of a sender without acknowledgements, nanoseconds (Linux).
const RTO_MAX: u64 = 120_000_000_000;

/// The window, bytes, of a new start.
pub(super) fn initial(segment: u64) -> u64 {
    INITIAL * segment
}

/// Bytes per second of a window.
pub(super) fn rate(window: u64, rtt: u64) -> u64 {
    let rate = u128::from(window) * 1_000_000_000 / u128::from(rtt.max(1));
    u64::try_from(rate).unwrap_or(u64::MAX)
}

/// The rest of a window after an idle time: half for each RTO, not less than the initial one (RFC 2861,
/// Linux's `tcp_slow_start_after_idle`).
pub(super) fn after_idle(window: u64, idle: u64, rtt: u64, segment: u64) -> u64 {
    let halvings = (idle / (RTO + rtt)).min(63);
    (window >> halvings).max(initial(segment).min(window))
}

/// The window that loss allows on average: segment x sqrt(3/2 / p) (Mathis et al. 1997, delayed
/// acknowledgements off); `u64::MAX` without loss.
pub(super) fn with_loss(segment: u64, loss_ppm: u32) -> u64 {
    if loss_ppm == 0 {
        return u64::MAX;
    }
    (segment * segment * 1_500_000 / u64::from(loss_ppm)).isqrt().max(segment)
}

/// When a sender that has been stalled since `since` tries again, not before `now`: after one RTO, then
/// after twice as long each time.
pub(super) fn retry(since: u64, now: u64, rtt: u64) -> u64 {
    let mut wait = RTO + rtt;
    let mut at = since.saturating_add(wait);
    while at < now {
        wait = (2 * wait).min(RTO_MAX);
        at = at.saturating_add(wait);
    }
    at
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_windows_halve_down_to_the_initial_one() {
        let window = 64 * initial(1448);
        assert_eq!(after_idle(window, RTO / 2, 0, 1448), window);
        assert_eq!(after_idle(window, RTO, 0, 1448), window / 2);
        assert_eq!(after_idle(window, 1000 * RTO, 0, 1448), initial(1448));
        assert_eq!(after_idle(5000, 1000 * RTO, 0, 1448), 5000);
    }

    #[test]
    fn loss_follows_mathis() {
        assert_eq!(with_loss(1448, 0), u64::MAX);
        assert_eq!(with_loss(1000, 10_000) / 1000, 12);
        assert_eq!(with_loss(1000, 100) / 1000, 122);
    }

    #[test]
    fn retries_back_off() {
        assert_eq!(retry(0, 1, 0), RTO);
        assert_eq!(retry(0, RTO + 1, 0), 3 * RTO);
        assert_eq!(retry(0, 6 * RTO, 0), 7 * RTO);
    }
}
