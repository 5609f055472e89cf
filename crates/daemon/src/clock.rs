//! The time since 1970: by the host's clock, and as a handle for tests that run faster.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Seconds.
pub(crate) fn now() -> u64 {
    since().as_secs()
}

/// Milliseconds.
pub(crate) fn millis() -> u64 {
    Clock::system().millis()
}

fn since() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// A source of the time.
#[derive(Clone)]
pub(crate) struct Clock(Arc<dyn Fn() -> Duration + Send + Sync>);

impl Clock {
    /// The host's.
    pub(crate) fn system() -> Self {
        Self(Arc::new(since))
    }

    /// One that tokio's clock drives, which a test may pause: it begins at the host's time.
    #[cfg(test)]
    pub(crate) fn of_tokio() -> Self {
        let (began, start) = (since(), tokio::time::Instant::now());
        Self(Arc::new(move || began + start.elapsed()))
    }

    pub(crate) fn millis(&self) -> u64 {
        u64::try_from((self.0)().as_millis()).unwrap_or(u64::MAX)
    }
}
