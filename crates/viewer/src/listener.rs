//! Where the viewer listens: TCP, or a unix socket of its user alone. What has not shown the token yet costs little.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::extract::connect_info::Connected;
use axum::serve::{IncomingStream, Listener};
use parking_lot::Mutex;
use tidecast_admission::{Admitted, Gate, Limited, accept, accept_local};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};

/// What accepts connections.
#[derive(Debug)]
pub(crate) enum Socket {
    Tcp(TcpListener),
    Unix(UnixListener),
}

/// A socket, and its connections that have not shown the token yet.
pub(crate) struct Doorway {
    socket: Socket,
    gate: Gate,
}

impl Doorway {
    pub(crate) fn new(socket: Socket) -> Self {
        Self { socket, gate: Gate::default() }
    }
}

impl Listener for Doorway {
    type Io = Connection;
    type Addr = ();

    async fn accept(&mut self) -> (Connection, ()) {
        loop {
            let (stream, admitted) = match &self.socket {
                Socket::Tcp(listener) => {
                    let (stream, _, admitted) = accept(listener, &self.gate).await;
                    let _ = stream.set_nodelay(true);
                    (Stream::Tcp(admitted.limited(stream)), admitted)
                }
                Socket::Unix(listener) => {
                    let (stream, cred, admitted) = accept_local(listener, &self.gate).await;
                    // The mode of a socket's file says so too, where the file system keeps to it.
                    let user = cred.map(|cred| cred.uid());
                    if user != Some(0) && user != Some(rustix::process::geteuid().as_raw()) {
                        continue;
                    }
                    (Stream::Unix(admitted.limited(stream)), admitted)
                }
            };
            let unproven = Unproven(Arc::new(Mutex::new(Some(admitted))));
            return (Connection { stream, unproven, proven: false }, ());
        }
    }

    fn local_addr(&self) -> io::Result<()> {
        Ok(())
    }
}

/// A connection that has not shown the token; empty when it has.
#[derive(Clone, Debug)]
pub(crate) struct Unproven(Arc<Mutex<Option<Admitted>>>);

impl Unproven {
    /// It has shown it.
    pub(crate) fn prove(&self) {
        if let Some(admitted) = self.0.lock().take() {
            admitted.prove();
        }
    }
}

impl Connected<IncomingStream<'_, Doorway>> for Unproven {
    fn connect_info(stream: IncomingStream<'_, Doorway>) -> Self {
        stream.io().unproven.clone()
    }
}

enum Stream {
    Tcp(Limited<TcpStream>),
    Unix(Limited<UnixStream>),
}

/// A stream that ends with an error when its place is needed, or its time is over, before it has shown the token.
pub(crate) struct Connection {
    stream: Stream,
    unproven: Unproven,
    proven: bool,
}

impl Connection {
    fn poll_cut(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        if self.proven {
            return Ok(());
        }
        match self.unproven.0.lock().as_mut() {
            Some(admitted) => match admitted.poll_cut(cx) {
                Poll::Ready(cut) => return Err(io::Error::new(io::ErrorKind::ConnectionAborted, cut)),
                Poll::Pending => {}
            },
            None => self.proven = true,
        }
        Ok(())
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.poll_cut(cx)?;
        match &mut self.stream {
            Stream::Tcp(stream) => Pin::new(stream).poll_read(cx, buf),
            Stream::Unix(stream) => Pin::new(stream).poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for Connection {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        match &mut self.stream {
            Stream::Tcp(stream) => Pin::new(stream).poll_write(cx, buf),
            Stream::Unix(stream) => Pin::new(stream).poll_write(cx, buf),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.stream {
            Stream::Tcp(stream) => Pin::new(stream).poll_flush(cx),
            Stream::Unix(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.stream {
            Stream::Tcp(stream) => Pin::new(stream).poll_shutdown(cx),
            Stream::Unix(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}
