//! The reading side of a socket, woken once for many segments.
//!
//! A reader sets how many bytes of a block are missing, and the kernel wakes it when these have arrived
//! (SO_RCVLOWAT), not at every segment: on a node with many slow connections wake-ups cost more than reading.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll};

use nix::sys::socket::SetSockOpt;
use nix::{libc, setsockopt_impl, sockopt_impl};
use tidecast_admission::{Allowance, Limited};
use tidecast_tls::RECORD;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

/// The most that is waited for: with more, the sender would have filled the window before the reader is awake.
const MOST: usize = 32 << 10;
sockopt_impl!(
    /// Bytes that must be there before a reader is woken.
    ReceiveLow, SetOnly, libc::SOL_SOCKET, libc::SO_RCVLOWAT, u32
);

/// The bytes that a reader needs; shared with the socket below, which reports whether the reader had to wait.
#[derive(Clone, Debug, Default)]
pub(crate) struct Missing(Arc<Told>);

#[derive(Debug, Default)]
struct Told {
    bytes: AtomicUsize,
    waited: AtomicBool,
    allowance: Allowance,
}

impl Missing {
    /// The reader can use nothing less than this number of bytes.
    pub(crate) fn set(&self, bytes: usize) {
        self.0.bytes.store(bytes, Ordering::Relaxed);
    }

    /// Whether the peer has proved nothing yet, and little of it is read.
    pub(crate) fn is_limited(&self) -> bool {
        self.0.allowance.is_limited()
    }

    /// Whether there was nothing to read at any time since this was asked last.
    pub(crate) fn has_waited(&self) -> bool {
        self.0.waited.swap(false, Ordering::Relaxed)
    }
}

/// A socket, or its reading half.
pub(crate) struct Intake<S> {
    inner: Limited<S>,
    /// The socket buffers have the size for authenticated peers.
    tuned: bool,
    missing: Missing,
    /// The value set in the kernel.
    low: usize,
    /// Bytes of the missing ones that a layer above may have.
    above: usize,
}

impl<S> Intake<S> {
    /// Without TLS. `allowance`: the bytes that may be read.
    pub(crate) fn plain(inner: S, allowance: Allowance) -> Intake<S> {
        let missing = Missing(Arc::new(Told { allowance: allowance.clone(), ..Told::default() }));
        let tuned = !allowance.is_limited();
        let inner = Limited::new(inner, allowance);
        Intake { inner, tuned, missing, low: 1, above: 0 }
    }

    /// Below a TLS layer, which may hold the most of a record that is not whole.
    pub(crate) fn below_tls(inner: S, allowance: Allowance) -> Intake<S> {
        Intake { above: RECORD, ..Intake::plain(inner, allowance) }
    }

    pub(crate) fn missing(&self) -> Missing {
        self.missing.clone()
    }
}

impl<S: AsRef<TcpStream>> AsRef<TcpStream> for Intake<S> {
    fn as_ref(&self) -> &TcpStream {
        self.inner.as_ref()
    }
}

impl<S: AsyncRead + AsRef<TcpStream> + Unpin> AsyncRead for Intake<S> {
    /// Reads available data. If there is none, sets the wake-up condition; the kernel checks at once whether it
    /// holds already.
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if !self.tuned && !self.missing.is_limited() {
            self.tuned = true;
            crate::tune::widen(self.inner.as_ref());
        }
        let read = Pin::new(&mut self.inner).poll_read(cx, buf);
        if read.is_pending() {
            self.missing.0.waited.store(true, Ordering::Relaxed);
            let missing = self.missing.0.bytes.load(Ordering::Relaxed);
            let low = missing.saturating_sub(self.above).clamp(1, MOST);
            if low != self.low && ReceiveLow.set(self.inner.as_ref(), &(low as u32)).is_ok() {
                self.low = low;
            }
        }
        read
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Intake<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::time::Duration;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::{TcpListener, TcpStream};
    use tokio::task::yield_now;

    use super::*;
    use crate::cpu::Cpu;
    use crate::transport::Booked;

    async fn pair() -> (Booked<TcpStream>, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let theirs = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        theirs.set_nodelay(true).unwrap();
        (Booked::socket(listener.accept().await.unwrap().0, &Arc::new(Cpu::default())), theirs)
    }

    #[tokio::test]
    async fn a_reader_sleeps_until_what_it_misses_is_there() {
        for make in [Intake::plain, Intake::below_tls] {
            let (ours, mut theirs) = pair().await;
            let mut intake = make(ours, Allowance::default());
            intake.missing().set(20_000 + intake.above);
            let reading = tokio::spawn(async move {
                let mut out = vec![0; 40_000];
                intake.read(&mut out).await.unwrap()
            });
            yield_now().await;
            for _ in 0..2 {
                tokio::time::sleep(Duration::from_millis(30)).await;
                assert!(!reading.is_finished(), "half of it wakes nobody");
                theirs.write_all(&[7; 10_000]).await.unwrap();
            }
            assert_eq!(reading.await.unwrap(), 20_000);
        }
    }

    #[tokio::test]
    async fn of_an_unproven_peer_little_is_read() {
        for make in [Intake::plain, Intake::below_tls] {
            let ((ours, mut theirs), allowance) = (pair().await, Allowance::of(10_000));
            let mut intake = make(ours, allowance.clone());
            theirs.write_all(&[7; 40_000]).await.unwrap();
            let mut out = vec![0; 40_000];
            intake.read_exact(&mut out[..10_000]).await.unwrap();
            assert!(intake.read(&mut out).await.is_err());
            allowance.lift();
            intake.read_exact(&mut out[..30_000]).await.unwrap();
        }
    }

    #[tokio::test]
    async fn who_wants_less_has_what_is_there() {
        let (ours, mut theirs) = pair().await;
        let (mut intake, mut out) = (Intake::plain(ours, Allowance::default()), vec![0; 30_000]);
        let missing = intake.missing();
        missing.set(30_000);
        let soon = Duration::from_millis(30);
        assert!(tokio::time::timeout(soon, intake.read(&mut out)).await.is_err());
        theirs.write_all(&[7; 10]).await.unwrap();
        assert!(tokio::time::timeout(soon, intake.read(&mut out)).await.is_err());
        missing.set(1);
        assert_eq!(intake.read(&mut out).await.unwrap(), 10);
        drop(theirs);
        missing.set(30_000);
        assert_eq!(intake.read(&mut out).await.unwrap(), 0, "an end wakes always");
    }
}
