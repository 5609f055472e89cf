//! A session over a tokio stream.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use rustls::pki_types::ServerName;
use rustls::server::ClientHello;
use rustls::{ClientConfig, ServerConfig};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};

use crate::hello::{PartialHello, ReceivedHello};
use crate::session::{Read, Session};
use crate::{Error, FIRST};

/// A TLS connection.
///
/// A write counts encrypted data as written once the kernel has a part of it; [`AsyncWriteExt::flush`] waits
/// for the rest. Shutting down tells the peer that nothing follows. An end of the stream below without that
/// is [`io::ErrorKind::UnexpectedEof`].
#[derive(Debug)]
pub struct Stream<S> {
    io: S,
    session: Session,
}

/// A connection whose ClientHello has arrived, and is not answered yet.
#[derive(Debug)]
pub struct Accepting<S> {
    io: S,
    client_hello: ReceivedHello,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Accepting<S> {
    /// Waits for a ClientHello. No keys are made for it.
    ///
    /// # Errors
    /// Errors of the stream; [`io::ErrorKind::InvalidData`] if it is not TLS.
    pub async fn read(mut io: S) -> io::Result<Self> {
        let (mut hello, mut room) = (PartialHello::default(), [0; FIRST / 2]);
        loop {
            let read = match io.read(&mut room).await? {
                0 => return Err(handshake_eof()),
                read => read,
            };
            match hello.receive(&room[..read]) {
                Ok(Some(client_hello)) => return Ok(Self { io, client_hello }),
                Ok(None) => {}
                Err(rejected) => {
                    // A failure to send the alert is not the error to report.
                    let _ = io.write_all(&rejected.alert).await;
                    let _ = io.flush().await;
                    return Err(rejected.error.into());
                }
            }
        }
    }

    /// The client's message.
    pub fn client_hello(&self) -> ClientHello<'_> {
        self.client_hello.client_hello()
    }

    /// Shakes hands.
    ///
    /// # Errors
    /// Errors of the stream; or rustls's error, within an [`io::Error`].
    pub async fn answer(self, config: Arc<ServerConfig>) -> io::Result<Stream<S>> {
        Stream::open(self.client_hello.answer(config)?, self.io).await
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Stream<S> {
    /// Does the handshake as a client, with a server of the given `name`.
    ///
    /// # Errors
    /// Errors of the stream; or rustls's error, within an [`io::Error`].
    pub async fn connect(config: Arc<ClientConfig>, name: ServerName<'static>, io: S) -> io::Result<Self> {
        Self::open(Session::client(config, name)?, io).await
    }

    async fn open(session: Session, io: S) -> io::Result<Self> {
        let mut stream = Self { io, session };
        loop {
            let shaken = stream.session.shake_hands();
            if let Err(error) = shaken {
                let _ = stream.flush().await;
                return Err(error.into());
            }
            // The peer may need the waiting data, to continue or to know that the handshake is done.
            stream.flush().await?;
            if shaken? {
                return Ok(stream);
            }
            let received = stream.io.read(stream.session.room()?).await?;
            if received == 0 {
                return Err(handshake_eof());
            }
            stream.session.received(received);
        }
    }
}

impl<S> Stream<S> {
    /// The stream below.
    pub fn get_ref(&self) -> &S {
        &self.io
    }

    /// The negotiated parameters, and the peer's certificates.
    pub fn session(&self) -> &Session {
        &self.session
    }
}

impl<S: AsyncRead + Unpin> Stream<S> {
    /// Receives the available data, as much as fits.
    fn poll_receive(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut room = ReadBuf::new(self.session.room()?);
        ready!(Pin::new(&mut self.io).poll_read(cx, &mut room))?;
        match room.filled().len() {
            0 => Poll::Ready(Err(io::Error::new(
                io::ErrorKind::UnexpectedEof,
                "peer closed connection without sending TLS close_notify",
            ))),
            received => {
                self.session.received(received);
                Poll::Ready(Ok(()))
            }
        }
    }
}

impl<S: AsyncWrite + Unpin> Stream<S> {
    /// Sends all that waits.
    fn poll_send(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.session.waiting().is_empty() {
            match ready!(Pin::new(&mut self.io).poll_write(cx, self.session.waiting()))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                sent => self.session.sent(sent),
            }
        }
        Poll::Ready(Ok(()))
    }

    /// Encrypts and sends alternately, until `write` takes no more or the stream below does not. Encrypted
    /// data counts as written: it is sent before later writes.
    fn poll_writing(
        &mut self,
        cx: &mut Context<'_>,
        mut write: impl FnMut(&mut Session, usize) -> Result<usize, Error>,
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_send(cx))?;
        let mut written = 0;
        loop {
            match write(&mut self.session, written)? {
                0 => return Poll::Ready(Ok(written)),
                some => written += some,
            }
            if self.poll_send(cx)?.is_pending() {
                return Poll::Ready(Ok(written));
            }
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for Stream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            match self.session.read(buf.remaining(), |plain| buf.put_slice(plain)) {
                Ok(Read::Plain(_) | Read::End) => return Poll::Ready(Ok(())),
                Ok(Read::Wanting) => ready!(self.poll_receive(cx))?,
                Err(error) => {
                    // An alert is sent if possible; the caller needs to know the error.
                    let _ = self.poll_send(cx);
                    return Poll::Ready(Err(error.into()));
                }
            }
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Stream<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_writing(cx, |session, written| session.write(&buf[written..]))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.poll_writing(cx, |session, written| session.write_vectored(bufs, written))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_send(cx))?;
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        // A session that has failed has no end to tell of.
        let _ = self.session.close();
        ready!(self.poll_send(cx))?;
        match ready!(Pin::new(&mut self.io).poll_shutdown(cx)) {
            Err(error) if error.kind() == io::ErrorKind::NotConnected => Poll::Ready(Ok(())),
            done => Poll::Ready(done),
        }
    }
}

fn handshake_eof() -> io::Error {
    io::Error::new(io::ErrorKind::UnexpectedEof, "tls handshake eof")
}
