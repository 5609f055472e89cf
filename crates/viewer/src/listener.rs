//! The listening socket: TCP, or a unix socket of one user. A connection that has not shown the token yet
//! costs little.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use axum::extract::connect_info::Connected;
use axum::serve::{IncomingStream, Listener};
use tidecast_admission::{Gate, Unauthenticated, UntilAuthenticated, accept, accept_local};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};

/// The listening socket.
#[derive(Debug)]
pub(crate) enum Socket {
    Tcp(TcpListener),
    Unix(UnixListener),
}

/// A socket, and its connections that have not shown the token yet.
pub(crate) struct GatedListener {
    socket: Socket,
    gate: Gate,
}

impl GatedListener {
    pub(crate) fn new(socket: Socket) -> Self {
        Self { socket, gate: Gate::default() }
    }
}

impl Listener for GatedListener {
    type Io = Connection;
    type Addr = ();

    async fn accept(&mut self) -> (Connection, ()) {
        loop {
            let connection = match &self.socket {
                Socket::Tcp(listener) => {
                    let (stream, _, admitted) = accept(listener, &self.gate).await;
                    let _ = stream.set_nodelay(true);
                    Connection::Tcp(UntilAuthenticated::new(stream, admitted))
                }
                Socket::Unix(listener) => {
                    let (stream, cred, admitted) = accept_local(listener, &self.gate).await;
                    // The mode of a socket's file has the same effect, where the file system supports it.
                    let user = cred.map(|cred| cred.uid());
                    if user != Some(0) && user != Some(rustix::process::geteuid().as_raw()) {
                        continue;
                    }
                    Connection::Unix(UntilAuthenticated::new(stream, admitted))
                }
            };
            return (connection, ());
        }
    }

    fn local_addr(&self) -> io::Result<()> {
        Ok(())
    }
}

/// A connection that has not shown the token, or has.
#[derive(Clone, Debug)]
pub(crate) struct Client(Unauthenticated);

impl Client {
    /// It has shown it.
    pub(crate) fn prove(&self) {
        self.0.prove();
    }
}

impl Connected<IncomingStream<'_, GatedListener>> for Client {
    fn connect_info(stream: IncomingStream<'_, GatedListener>) -> Self {
        Self(stream.io().unauthenticated())
    }
}

/// A stream that ends with an error when its place is needed, or its time is over, before it has shown the token.
pub(crate) enum Connection {
    Tcp(UntilAuthenticated<TcpStream>),
    Unix(UntilAuthenticated<UnixStream>),
}

impl Connection {
    fn unauthenticated(&self) -> Unauthenticated {
        match self {
            Self::Tcp(stream) => stream.unauthenticated(),
            Self::Unix(stream) => stream.unauthenticated(),
        }
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match &mut *self {
            Self::Tcp(stream) => Pin::new(stream).poll_read(cx, buf),
            Self::Unix(stream) => Pin::new(stream).poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for Connection {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        match &mut *self {
            Self::Tcp(stream) => Pin::new(stream).poll_write(cx, buf),
            Self::Unix(stream) => Pin::new(stream).poll_write(cx, buf),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut *self {
            Self::Tcp(stream) => Pin::new(stream).poll_flush(cx),
            Self::Unix(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut *self {
            Self::Tcp(stream) => Pin::new(stream).poll_shutdown(cx),
            Self::Unix(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}
