//! A stream that ends when its place is needed, or its time has expired, before its peer has authenticated: for
//! servers that own their streams, as HTTP servers do, and cannot wait beside them.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::accept::Admitted;
use crate::limited::Limited;

/// An unauthenticated connection; the code that sees the proof reports it here.
#[derive(Clone, Debug)]
pub struct Unauthenticated(Arc<Mutex<Option<Admitted>>>);

impl Unauthenticated {
    /// The peer has authenticated. Calling it again is harmless.
    pub fn prove(&self) {
        if let Some(admitted) = self.0.lock().take() {
            admitted.prove();
        }
    }
}

/// A stream that may be cut off until it is proven: reading then fails with [`io::ErrorKind::ConnectionAborted`].
#[derive(Debug)]
pub struct UntilAuthenticated<S> {
    stream: Limited<S>,
    unauthenticated: Unauthenticated,
    proven: bool,
}

impl<S> UntilAuthenticated<S> {
    /// The stream of a connection that has been admitted.
    #[must_use]
    pub fn new(stream: S, admitted: Admitted) -> Self {
        let stream = admitted.limited(stream);
        Self { stream, unauthenticated: Unauthenticated(Arc::new(Mutex::new(Some(admitted)))), proven: false }
    }

    /// The handle for reporting the proof.
    #[must_use]
    pub fn unauthenticated(&self) -> Unauthenticated {
        self.unauthenticated.clone()
    }

    /// The stream below.
    pub fn get_ref(&self) -> &S {
        self.stream.get_ref()
    }

    fn poll_cut(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        if self.proven {
            return Ok(());
        }
        match self.unauthenticated.0.lock().as_mut() {
            Some(admitted) => match admitted.poll_cut(cx) {
                Poll::Ready(cut) => return Err(io::Error::new(io::ErrorKind::ConnectionAborted, cut)),
                Poll::Pending => {}
            },
            None => self.proven = true,
        }
        Ok(())
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for UntilAuthenticated<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.poll_cut(cx)?;
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for UntilAuthenticated<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;
    use crate::gate::Gate;
    use crate::half_open::Limits;
    use crate::source::Source;

    #[tokio::test(start_paused = true)]
    async fn an_unproven_stream_ends_in_time_and_a_proven_one_does_not() {
        let gate = Gate::new(Limits::default());
        let open = || {
            let (there, here) = tokio::io::duplex(64);
            (there, UntilAuthenticated::new(here, Admitted::new(&gate, Source::User(1))))
        };
        let ((_silent, mut cut), (mut there, mut kept)) = (open(), open());
        kept.unauthenticated().prove();
        assert_eq!(cut.read_u8().await.unwrap_err().kind(), io::ErrorKind::ConnectionAborted);
        tokio::time::sleep(2 * crate::DEADLINE).await;
        there.write_u8(7).await.unwrap();
        assert_eq!(kept.read_u8().await.unwrap(), 7);
        drop(cut);
        assert!(kept.proven && gate.is_empty());
    }
}
