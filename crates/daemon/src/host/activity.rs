//! Idle detection: a daemon that was started on demand ends when it is no longer needed.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

/// Time of the last request.
pub(crate) struct Activity {
    asked: Mutex<Instant>,
    idle: Notify,
}

impl Activity {
    pub(crate) fn new() -> Self {
        Self { asked: Mutex::new(Instant::now()), idle: Notify::new() }
    }

    /// A request is made, or work is in progress.
    pub(crate) fn asked(&self) {
        *self.asked.lock() = Instant::now();
    }

    /// No transfer is running: wakes [`Activity::ended`] if there was no request for this long.
    pub(crate) fn rest(&self, patience: Duration) {
        if self.asked.lock().elapsed() > patience {
            self.idle.notify_one();
        }
    }

    /// Waits until the daemon is idle for long enough.
    pub(crate) async fn ended(&self) {
        self.idle.notified().await;
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::timeout;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_daemon_ends_when_nobody_has_asked_for_long_enough() {
        let (activity, minute) = (Activity::new(), Duration::from_secs(60));
        activity.rest(minute);
        assert!(timeout(minute / 2, activity.ended()).await.is_err());
        activity.asked();
        assert!(timeout(minute / 2, async { activity.rest(minute) }).await.is_ok());
        tokio::time::advance(minute * 2).await;
        activity.rest(minute);
        assert!(timeout(minute, activity.ended()).await.is_ok());
    }
}
