//! Addresses of one node that are dialled beside one another shake hands in turn.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{Notify, Semaphore, SemaphorePermit};
use tokio::time::sleep;

/// A handshake that takes longer than this lets the next one begin.
pub(crate) const MAX_TURN: Duration = Duration::from_secs(1);

/// An address's turn to shake hands.
pub(crate) struct HandshakeTurn<'a> {
    turns: &'a Semaphore,
    /// None before it, `Some(None)` when it has ended.
    had: Mutex<Option<Option<SemaphorePermit<'a>>>>,
    begun: Notify,
}

impl<'a> HandshakeTurn<'a> {
    /// One of the dials that share `turns`.
    pub(crate) fn new(turns: &'a Semaphore) -> HandshakeTurn<'a> {
        HandshakeTurn { turns, had: Mutex::new(None), begun: Notify::new() }
    }

    /// Waits for the turn. A second try of the same address (encrypted, say) continues in it, or without.
    pub(crate) async fn take(&self) {
        if self.had.lock().is_some() {
            return;
        }
        let permit = self.turns.acquire().await.ok();
        *self.had.lock() = Some(permit);
        self.begun.notify_one();
    }

    /// Ends the turn.
    pub(crate) async fn over(&self) {
        self.begun.notified().await;
        sleep(MAX_TURN).await;
        *self.had.lock() = Some(None);
    }
}
