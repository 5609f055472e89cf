//! Synchronisation as in the paper: a controller tells all senders to go to the next batch, finished or not.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rustix::net::RecvFlags;

use crate::control::{Go, Message};
use crate::key::{ControlKey, Secret};

/// A go is repeated so often, because UDP may lose it.
const TIMES: usize = 3;
/// And this long apart.
const APART: Duration = Duration::from_millis(5);

/// Receives the controller's messages.
#[derive(Debug)]
pub(super) struct SyncListener {
    socket: UdpSocket,
    key: Option<ControlKey>,
    last: Option<(u64, u32)>,
}

impl SyncListener {
    pub(super) fn bind(at: SocketAddr, key: Option<ControlKey>) -> io::Result<Self> {
        Ok(Self { socket: UdpSocket::bind(at)?, key, last: None })
    }

    /// The newest requested batch, if any was requested since the last call. A request older than another one
    /// that was received is ignored.
    pub(super) fn newest_batch(&mut self) -> Option<u32> {
        let (mut bytes, mut found) = ([0; 2048], None);
        // A flood of packets must not keep the caller here.
        for _ in 0..64 {
            let Ok((length, _)) = rustix::net::recv(&self.socket, &mut bytes[..], RecvFlags::DONTWAIT) else {
                break;
            };
            let said = bytes.get(..length).and_then(|bytes| Message::read(bytes, self.key.as_ref()).ok());
            if let Some(Message::Go(Go { token, batch })) = said
                && self.last.is_none_or(|last| (token, batch) > last)
            {
                self.last = Some((token, batch));
                found = Some(batch);
            }
        }
        found
    }

    pub(super) fn poll(&self) -> rustix::event::PollFd<'_> {
        rustix::event::PollFd::new(&self.socket, rustix::event::PollFlags::IN)
    }
}

/// Sends "go" to senders.
#[derive(Debug)]
pub struct Controller {
    socket: UdpSocket,
    to: Vec<SocketAddr>,
    key: Option<ControlKey>,
    token: u64,
}

impl Controller {
    /// Of the senders that listen at `to`; without a secret, plain.
    ///
    /// # Errors
    /// No socket can be opened.
    pub fn new(to: Vec<SocketAddr>, secret: Option<&Secret>) -> io::Result<Self> {
        let any = if to.iter().all(SocketAddr::is_ipv4) { "0.0.0.0:0" } else { "[::]:0" };
        // Rises from controller to controller, so that messages of an earlier one are ignored.
        let token = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64);
        Ok(Self { socket: UdpSocket::bind(any)?, to, key: secret.map(Secret::control), token })
    }

    /// Tells all senders to go to this batch; it takes 10 ms.
    ///
    /// # Errors
    /// When nothing can be sent to any of them.
    pub fn go(&self, batch: u32) -> io::Result<()> {
        let message = Message::Go(Go { token: self.token, batch }).write(self.key.as_ref());
        let (mut error, mut said) = (None, 0);
        for time in 0..TIMES {
            if time > 0 {
                std::thread::sleep(APART);
            }
            for to in &self.to {
                match self.socket.send_to(&message, to) {
                    Ok(_) => said += 1,
                    Err(found) => error = Some(found),
                }
            }
        }
        error.filter(|_| said == 0).map_or(Ok(()), Err)
    }

    /// Sends a go for `batches`, one `every` this long by the clock, while `stay` returns true; `tell` is
    /// called for each.
    ///
    /// # Errors
    /// As [`Controller::go`].
    pub fn run(
        &self,
        batches: std::ops::Range<u32>,
        every: Duration,
        stay: impl Fn() -> bool,
        mut tell: impl FnMut(u32),
    ) -> io::Result<()> {
        let began = Instant::now();
        for (count, batch) in (0u32..).zip(batches) {
            let due = began + every.saturating_mul(count);
            while stay() && Instant::now() < due {
                std::thread::sleep(
                    due.saturating_duration_since(Instant::now()).min(Duration::from_millis(50)),
                );
            }
            if !stay() {
                return Ok(());
            }
            self.go(batch)?;
            tell(batch);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_go_counts_and_only_with_the_key() {
        let secret = Secret::random();
        let mut sync = SyncListener::bind("127.0.0.1:0".parse().unwrap(), Some(secret.control())).unwrap();
        let to = vec![sync.socket.local_addr().unwrap()];
        let controller = Controller::new(to.clone(), Some(&secret)).unwrap();
        let later =
            Controller { token: controller.token + 1, ..Controller::new(to.clone(), Some(&secret)).unwrap() };
        let stranger = Controller::new(to, Some(&Secret::random())).unwrap();
        assert_eq!(sync.newest_batch(), None);
        let mut all = Vec::new();
        controller.run(4..8, Duration::from_millis(1), || true, |batch| all.push(batch)).unwrap();
        assert_eq!((all, sync.newest_batch()), (vec![4, 5, 6, 7], Some(7)));
        controller.go(7).unwrap();
        assert_eq!(sync.newest_batch(), None, "again");
        stranger.go(9).unwrap();
        assert_eq!(sync.newest_batch(), None, "another key");
        later.go(2).unwrap();
        assert_eq!(sync.newest_batch(), Some(2), "another controller");
        controller.go(99).unwrap();
        assert_eq!(sync.newest_batch(), None, "a replaced controller");
    }
}
