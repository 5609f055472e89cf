//! When a download is given up.

use std::time::Duration;

use tokio::time::Instant;

/// When to give up.
#[derive(Clone, Copy)]
pub(super) struct Deadline {
    at: Option<Instant>,
    pub(super) after: Duration,
}

impl Deadline {
    pub(super) fn new(timeout: Option<Duration>) -> Self {
        Self { at: timeout.map(|after| Instant::now() + after), after: timeout.unwrap_or_default() }
    }

    pub(super) async fn wait(self) {
        match self.at {
            Some(at) => tokio::time::sleep_until(at).await,
            None => std::future::pending().await,
        }
    }
}
