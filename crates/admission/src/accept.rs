//! Accepting with tokio: a loop that never waits for a peer, and handshakes that end.

use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::net::unix::UCred;
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::sync::oneshot;
use tokio::time::{Instant, Sleep, sleep, sleep_until};

use crate::MAX_READ;
use crate::gate::{Gate, Pass, Progress};
use crate::limited::{Allowance, Limited};
use crate::source::Source;

/// Pause after a failure to accept when nothing could be closed; else long enough that sockets are closed.
const PAUSE: Duration = Duration::from_millis(50);
const SHORT_PAUSE: Duration = Duration::from_millis(2);
/// Unauthenticated connections that are closed when accepting fails: descriptors have run out.
const SHED: usize = 16;

/// Why a handshake was cut off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HandshakeAborted {
    /// Its time has expired.
    #[error("handshake not complete after {} s", .0.as_secs())]
    Late(Duration),
    /// Later connections of the same source took its place.
    #[error("too many unauthenticated connections from its address")]
    Crowded,
}

/// An unauthenticated connection of a tokio listener.
#[derive(Debug)]
pub struct Admitted {
    pass: Pass,
    closed: oneshot::Receiver<()>,
    deadline: Duration,
    end: Pin<Box<Sleep>>,
    allowance: Allowance,
}

impl Admitted {
    /// Takes a place in the gate.
    #[must_use]
    pub fn new(gate: &Gate, source: Source) -> Self {
        let (close, closed) = oneshot::channel();
        let close = move || {
            // Without a receiver the handshake has ended already.
            let _ = close.send(());
        };
        let pass = gate.admit(source, close);
        let end = Box::pin(sleep_until(Instant::from_std(pass.until())));
        Self { pass, closed, deadline: gate.deadline(), end, allowance: Allowance::of(MAX_READ) }
    }

    /// Runs a part of the handshake, within the remaining time of all parts.
    ///
    /// # Errors
    /// [`HandshakeAborted`]: the connection is to be closed.
    pub async fn run<T>(&mut self, part: impl Future<Output = T>) -> Result<T, HandshakeAborted> {
        tokio::select! {
            biased;
            cut = std::future::poll_fn(|cx| self.poll_cut(cx)) => Err(cut),
            done = part => Ok(done),
        }
    }

    /// Ready when the connection is to be closed, for a stream that polls it itself.
    pub fn poll_cut(&mut self, cx: &mut Context<'_>) -> Poll<HandshakeAborted> {
        // A message and the end of the channel both mean that the place was taken.
        if self.closed.is_terminated() || Pin::new(&mut self.closed).poll(cx).is_ready() {
            return Poll::Ready(HandshakeAborted::Crowded);
        }
        self.end.as_mut().poll(cx).map(|()| HandshakeAborted::Late(self.deadline))
    }

    /// To note how far the handshake has come, from within a part of it.
    #[must_use]
    pub fn progress(&self) -> Progress {
        self.pass.progress()
    }

    /// The bytes that may be read of the peer before it authenticates, in total.
    #[must_use]
    pub fn allowance(&self) -> Allowance {
        self.allowance.clone()
    }

    /// The stream, limited to these bytes.
    #[must_use]
    pub fn limited<S>(&self, stream: S) -> Limited<S> {
        Limited::new(stream, self.allowance())
    }

    /// The peer has authenticated: its connection is no longer closed in favour of others, and has no limit of
    /// bytes.
    pub fn prove(self) {
        self.allowance.lift();
    }
}

/// Accepts the next connection. Failures are logged and waited out: where descriptors have run out, unauthenticated
/// connections are closed.
pub async fn accept(listener: &TcpListener, gate: &Gate) -> (TcpStream, SocketAddr, Admitted) {
    loop {
        match listener.accept().await {
            Ok((stream, from)) => {
                let from = SocketAddr::new(from.ip().to_canonical(), from.port());
                let source = Source::from(from.ip());
                if gate.is_full_for(source) {
                    // Handshakes whose bytes have arrived are processed before one is displaced.
                    tokio::task::yield_now().await;
                }
                return (stream, from, Admitted::new(gate, source));
            }
            Err(error) => failed(gate, &error).await,
        }
    }
}

/// Accepts the next connection at a unix socket; its sources are users. With the caller's credentials from the
/// kernel.
pub async fn accept_local(listener: &UnixListener, gate: &Gate) -> (UnixStream, Option<UCred>, Admitted) {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                let cred = stream.peer_cred().ok();
                let source = Source::User(cred.as_ref().map_or(u32::MAX, UCred::uid));
                if gate.is_full_for(source) {
                    tokio::task::yield_now().await;
                }
                return (stream, cred, Admitted::new(gate, source));
            }
            Err(error) => failed(gate, &error).await,
        }
    }
}

/// Deals with a failure to accept.
async fn failed(gate: &Gate, error: &std::io::Error) {
    let closed = gate.shed(SHED);
    if closed == 0 {
        tracing::warn!(%error, "cannot accept a connection");
    } else {
        tracing::debug!(%error, closed, "cannot accept a connection; closed unauthenticated connections");
    }
    sleep(if closed > 0 { SHORT_PAUSE } else { PAUSE }).await;
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::half_open::Limits;

    const HERE: Source = Source::User(1);

    #[tokio::test(start_paused = true)]
    async fn all_parts_of_a_handshake_have_one_time() {
        let gate = Gate::new(Limits::default());
        let mut admitted = Admitted::new(&gate, HERE);
        let began = Instant::now();
        for _ in 0..3 {
            assert_eq!(admitted.run(sleep(Duration::from_secs(3))).await, Ok(()));
        }
        assert_eq!(
            admitted.run(sleep(Duration::from_secs(3))).await,
            Err(HandshakeAborted::Late(crate::DEADLINE))
        );
        assert!(began.elapsed() < Duration::from_secs(11));
    }

    #[tokio::test]
    async fn a_displaced_handshake_ends_at_once() {
        let gate = Gate::new(Limits { per_source: 1, ..Limits::default() });
        let mut first = Admitted::new(&gate, HERE);
        let second = Admitted::new(&gate, HERE);
        assert_eq!(first.run(std::future::pending::<()>()).await, Err(HandshakeAborted::Crowded));
        assert_eq!(first.run(async {}).await, Err(HandshakeAborted::Crowded));
        second.prove();
        assert!(gate.is_empty());
    }
}
