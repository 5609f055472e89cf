//! How work is asked to end.

use tokio::sync::watch;

/// Hears when the work is to end cleanly. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Stop(watch::Receiver<bool>);

/// Asks it to end.
#[derive(Debug, Clone)]
pub struct Stopper(watch::Sender<bool>);

impl Stop {
    /// Both ends.
    #[must_use]
    pub fn new() -> (Stopper, Stop) {
        let (sender, receiver) = watch::channel(false);
        (Stopper(sender), Stop(receiver))
    }

    /// Waits until the work is to end; forever if the request can no longer come.
    pub async fn wait(&self) {
        let mut receiver = self.0.clone();
        if receiver.wait_for(|stop| *stop).await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// Whether it is to end.
    #[must_use]
    pub fn is_asked(&self) -> bool {
        *self.0.borrow()
    }
}

impl Stopper {
    /// Asks.
    pub fn stop(&self) {
        self.0.send_replace(true);
    }
}

impl From<watch::Receiver<bool>> for Stop {
    fn from(receiver: watch::Receiver<bool>) -> Self {
        Self(receiver)
    }
}
