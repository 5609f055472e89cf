//! Time of the last payload on one connection: shared by the tasks that move it and the engine's thread, which
//! detects stalls.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Times are milliseconds since the connection began, plus one; 0: never.
#[derive(Debug)]
struct Times {
    start: Instant,
    came: AtomicU64,
    went: AtomicU64,
    /// Since when the kernel accepts no data to send.
    stuck: AtomicU64,
}

/// Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct LastPayload(Arc<Times>);

impl Default for LastPayload {
    fn default() -> Self {
        let never = AtomicU64::default;
        Self(Arc::new(Times { start: Instant::now(), came: never(), went: never(), stuck: never() }))
    }
}

impl LastPayload {
    fn now(&self) -> u64 {
        u64::try_from(self.0.start.elapsed().as_millis()).unwrap_or(u64::MAX - 1).saturating_add(1)
    }

    fn at(&self, time: &AtomicU64) -> Option<Instant> {
        let ms = time.load(Ordering::Relaxed).checked_sub(1)?;
        Some(self.0.start + Duration::from_millis(ms))
    }

    /// Some payload has come.
    pub(crate) fn came(&self) {
        self.0.came.store(self.now(), Ordering::Relaxed);
    }

    /// Bytes are offered to the kernel, which has to take some of them before anything else is sent.
    pub(crate) fn offer(&self) {
        let _ = self.0.stuck.compare_exchange(0, self.now(), Ordering::Relaxed, Ordering::Relaxed);
    }

    /// The kernel has taken some.
    pub(crate) fn went(&self) {
        self.0.went.store(self.now(), Ordering::Relaxed);
        self.0.stuck.store(0, Ordering::Relaxed);
    }

    /// When payload came last.
    pub(crate) fn last_came(&self) -> Option<Instant> {
        self.at(&self.0.came)
    }

    /// When the kernel took something last.
    pub(crate) fn last_went(&self) -> Option<Instant> {
        self.at(&self.0.went)
    }

    /// When bytes moved last, either way.
    pub(crate) fn last(&self) -> Option<Instant> {
        self.last_came().max(self.last_went())
    }

    /// Since when the peer accepts no data.
    pub(crate) fn stuck(&self) -> Option<Instant> {
        self.at(&self.0.stuck)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sender_is_stuck_from_its_first_offer_until_something_goes() {
        let last_payload = LastPayload::default();
        assert_eq!((last_payload.last(), last_payload.stuck()), (None, None));
        last_payload.offer();
        let first = last_payload.stuck();
        assert!(first.is_some());
        last_payload.offer();
        assert_eq!(last_payload.stuck(), first, "one offer after the other is one wait");
        last_payload.went();
        assert!(
            last_payload.stuck().is_none()
                && last_payload.last().is_some()
                && last_payload.last_came().is_none()
        );
        last_payload.came();
        assert_eq!(last_payload.last(), last_payload.last_came());
    }
}
