//! Connects to the addresses of one node, each started shortly after the previous one (RFC 8305), so that an
//! unreachable address costs only this delay.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::sleep;

/// The delay between connection attempts to two addresses of a control channel.
pub const ATTEMPT_DELAY: Duration = Duration::from_millis(100);

/// Connection attempts to several addresses; each starts after a delay, and earlier attempts continue meanwhile.
pub struct ConnectAttempts<T, D> {
    waiting: std::vec::IntoIter<SocketAddr>,
    in_flight: JoinSet<(SocketAddr, T)>,
    connect: D,
}

impl<T, D, F> ConnectAttempts<T, D>
where
    T: Send + 'static,
    D: FnMut(SocketAddr) -> F,
    F: Future<Output = T> + Send + 'static,
{
    /// No attempt starts before [`ConnectAttempts::next`] is called.
    pub fn new(addresses: Vec<SocketAddr>, connect: D) -> Self {
        Self { waiting: addresses.into_iter(), in_flight: JoinSet::new(), connect }
    }

    /// The result of the next attempt to end; `None` when all have ended. The next attempt starts after each `pause`,
    /// and as soon as one has ended. Dropping this aborts all attempts.
    pub async fn next<P: Future<Output = ()>>(
        &mut self,
        mut pause: impl FnMut() -> P,
    ) -> Option<(SocketAddr, T)> {
        loop {
            if let Some(addr) = self.waiting.next() {
                let connecting = (self.connect)(addr);
                self.in_flight.spawn(async move { (addr, connecting.await) });
            }
            tokio::select! {
                ended = self.in_flight.join_next() => match ended {
                    Some(Ok(ended)) => return Some(ended),
                    // The attempt panicked, which was reported by the panic hook.
                    Some(Err(_)) => {}
                    None => return None,
                },
                () = pause(), if self.waiting.len() > 0 => {}
            }
        }
    }

    /// [`ConnectAttempts::next`] with [`ATTEMPT_DELAY`] between the addresses.
    pub async fn next_delayed(&mut self) -> Option<(SocketAddr, T)> {
        self.next(|| sleep(ATTEMPT_DELAY)).await
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::sync::{Arc, Mutex};

    use tokio::time::Instant;

    use super::*;

    fn addresses(ports: impl IntoIterator<Item = u16>) -> Vec<SocketAddr> {
        ports.into_iter().map(|port| SocketAddr::from(([10, 0, 0, 1], port))).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn each_begins_after_a_pause_and_the_first_that_answers_is_first() {
        let (start, times) = (Instant::now(), Arc::new(Mutex::new(Vec::new())));
        let noted = times.clone();
        // The number of a port is when it answers, milliseconds after the connection was started.
        let mut attempts = ConnectAttempts::new(addresses([5000, 4000, 20]), move |addr| {
            noted.lock().unwrap().push(start.elapsed());
            async move { sleep(Duration::from_millis(addr.port().into())).await }
        });
        let mut order = Vec::new();
        while let Some((addr, ())) = attempts.next_delayed().await {
            order.push(addr.port());
        }
        assert_eq!(order, [20, 4000, 5000]);
        assert_eq!(*times.lock().unwrap(), [Duration::ZERO, ATTEMPT_DELAY, 2 * ATTEMPT_DELAY]);
    }

    #[tokio::test(start_paused = true)]
    async fn one_that_ends_makes_room_at_once_and_nothing_is_dialled_after_the_last_wish() {
        let start = Instant::now();
        let mut attempts = ConnectAttempts::new(addresses(1..=3), |addr| async move { addr.port() == 2 });
        assert_eq!(attempts.next_delayed().await.map(|(_, came)| came), Some(false));
        assert_eq!(attempts.next_delayed().await.map(|(_, came)| came), Some(true));
        assert!(start.elapsed() < ATTEMPT_DELAY);
        assert_eq!(attempts.waiting.len(), 1, "the third was not started");
        assert!(ConnectAttempts::new(Vec::new(), |_| async {}).next_delayed().await.is_none());
    }

    #[tokio::test]
    async fn one_that_panics_does_not_end_the_others() {
        let mut attempts =
            ConnectAttempts::new(addresses(1..=2), |addr| async move { assert_ne!(addr.port(), 1) });
        assert_eq!(attempts.next_delayed().await.map(|(addr, ())| addr.port()), Some(2));
    }
}
