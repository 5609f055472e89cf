//! A stream of which only this many bytes are read until its peer is proven.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// No limit.
const ALL: usize = usize::MAX;

/// The number of bytes that may still be read; shared by the stream and the code that lifts the limit.
#[derive(Clone, Debug)]
pub struct Allowance(Arc<AtomicUsize>);

impl Default for Allowance {
    /// Without limit.
    fn default() -> Self {
        Self::of(ALL)
    }
}

impl Allowance {
    /// This many bytes.
    #[must_use]
    pub fn of(bytes: usize) -> Self {
        Self(Arc::new(AtomicUsize::new(bytes)))
    }

    /// The peer is proven: all may be read.
    pub fn lift(&self) {
        self.0.store(ALL, Relaxed);
    }

    /// Bytes that may be read now, `most` at most; None if some were wanted and none are left.
    ///
    /// # Errors
    /// The peer has sent more than it may before it is proven.
    pub fn left(&self, most: usize) -> io::Result<usize> {
        match self.0.load(Relaxed) {
            0 if most > 0 => Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "the peer sent too much data before authentication",
            )),
            left => Ok(left.min(most)),
        }
    }

    /// This many were read.
    pub fn took(&self, bytes: usize) {
        // A limit that was lifted meanwhile stays lifted.
        let _ =
            self.0.fetch_update(Relaxed, Relaxed, |left| (left != ALL).then(|| left.saturating_sub(bytes)));
    }

    /// Whether there is a limit.
    #[must_use]
    pub fn is_limited(&self) -> bool {
        self.0.load(Relaxed) != ALL
    }
}

/// A stream with an [`Allowance`].
#[derive(Debug)]
pub struct Limited<S> {
    inner: S,
    allowance: Allowance,
}

impl<S> Limited<S> {
    /// Reads of `inner` are limited to the allowance, until it is lifted.
    pub fn new(inner: S, allowance: Allowance) -> Self {
        Self { inner, allowance }
    }

    /// How much may be read.
    pub fn allowance(&self) -> &Allowance {
        &self.allowance
    }

    /// The stream below.
    pub fn get_ref(&self) -> &S {
        &self.inner
    }
}

impl<T: ?Sized, S: AsRef<T>> AsRef<T> for Limited<S> {
    fn as_ref(&self) -> &T {
        self.inner.as_ref()
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Limited<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let Self { inner, allowance } = &mut *self;
        if !allowance.is_limited() {
            return Pin::new(inner).poll_read(cx, buf);
        }
        let left = allowance.left(buf.remaining())?;
        let mut room = [0; 2048];
        let room = room.get_mut(..left.min(2048)).unwrap_or_default();
        let mut some = ReadBuf::new(room);
        ready!(Pin::new(inner).poll_read(cx, &mut some))?;
        allowance.took(some.filled().len());
        buf.put_slice(some.filled());
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Limited<S> {
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
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    #[tokio::test]
    async fn no_more_is_read_than_allowed_until_the_limit_is_lifted() {
        let (mut there, here) = tokio::io::duplex(1 << 16);
        let mut here = Limited::new(here, Allowance::of(5000));
        there.write_all(&[7; 20_000]).await.unwrap();
        let mut out = vec![0; 5000];
        here.read_exact(&mut out).await.unwrap();
        let error = here.read(&mut out).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
        here.allowance().lift();
        let mut rest = vec![0; 15_000];
        here.read_exact(&mut rest).await.unwrap();
        assert!(rest.iter().all(|b| *b == 7));
        drop(there);
        assert_eq!(here.read(&mut out).await.unwrap(), 0);
    }
}
