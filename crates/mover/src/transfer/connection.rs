//! A connection: TCP, TLS over it, or the pipes of another program. After its opening it is used in one direction only, so
//! blocking reads and writes need no second thread to go round each other.

use std::io::{self, IoSlice, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustls::{CertificateError, OtherError};
use serde::{Deserialize, Serialize};
use socket2::{Domain, Protocol, SockRef, Socket, Type};
use tidecast_identity::{NodeId, Tls, peer_node_id, placeholder_name};
use tidecast_tls::Session;

use super::limit::Limit;
use super::pipe::{Interrupt, Pipe};
use super::tls::Stream;
use crate::error::Error;

/// The protocol's names for TLS (ALPN), the preferred one first. A listener of the second proves itself able to read a proof that is bound
/// to the session and comes with the first message; one of the first asks for it by a challenge.
const PROTOCOLS: [&[u8]; 2] = [PROVES_FIRST, b"tidecast-copy/1"];
const PROVES_FIRST: &[u8] = b"tidecast-copy/2";
/// Most time for a connection to be opened, of each side.
pub(crate) const OPENING: Duration = Duration::from_secs(10);
/// A side from which something must come every second is taken for lost after this long a silence.
pub(crate) const SILENCE: Duration = Duration::from_secs(30);
/// A longer round trip is not that of a local network.
pub(crate) const FAR: Duration = Duration::from_millis(5);
/// Most bytes that the kernel may queue of a stream beyond those in flight: more would wait behind a stream
/// that has become slow.
const UNSENT: u32 = 1 << 20;

/// How connections are protected.
#[derive(Clone, Debug)]
pub enum Guard {
    /// TLS 1.3, both sides known by their keys.
    Tls(Arc<Tls>),
    /// Not at all.
    Plain,
}

/// The purpose of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Purpose {
    /// Carries blocks; of each number there is one.
    Stream(u32),
    /// Carries the receiver's messages.
    Return,
    /// A question to a server: messages both ways, in turns.
    Request,
    /// Tests that the address can be reached, and ends.
    Probe,
}

/// Whether this host has a congestion control of that name, and lets this process use it.
///
/// # Errors
/// [`Error::Usage`] if not.
pub fn congestion(name: &str) -> Result<(), Error> {
    let tried = Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::TCP))
        .and_then(|socket| socket.set_tcp_congestion(name.as_bytes()));
    tried.map_err(|error| {
        let all = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_available_congestion_control");
        let all = all.unwrap_or_default();
        match error.kind() {
            io::ErrorKind::NotFound => {
                Error::Usage(format!("congestion control {name} is not available on this host; available: {}", all.trim()))
            }
            io::ErrorKind::PermissionDenied => {
                Error::Usage(format!("congestion control {name} needs privileges on this host; allow it in net.ipv4.tcp_allowed_congestion_control"))
            }
            _ => Error::Usage(format!("cannot use congestion control {name}: {error}")),
        }
    })
}

/// A connection.
#[derive(Debug)]
pub(crate) struct Connection {
    transport: Transport,
    /// The peer's node, if TLS has authenticated it.
    pub(crate) peer: Option<NodeId>,
    /// How long it took to be connected: a round trip. Zero where that is not known.
    pub(crate) round_trip: Duration,
}

#[derive(Debug)]
enum Transport {
    /// With the limit for a peer that is not authenticated yet.
    Tcp(TcpStream, Option<Limit>),
    Tls(Box<Stream>),
    Pipe(Pipe),
}

impl Connection {
    /// Connects and authenticates. `node`: the node that must answer.
    pub(crate) fn dial(
        to: SocketAddr,
        from: Option<SocketAddr>,
        guard: &Guard,
        node: Option<NodeId>,
        wait: Duration,
    ) -> Result<Self, Error> {
        Self::connect(to, from, wait)?.secure(to, guard, node)
    }

    /// Connects, and proves nothing yet.
    pub(crate) fn connect(to: SocketAddr, from: Option<SocketAddr>, wait: Duration) -> Result<Self, Error> {
        let failed = |error| Error::Network { doing: format!("cannot connect to {to}"), error };
        let began = Instant::now();
        let tcp = connect(to, from, wait).map_err(failed)?;
        let round_trip = began.elapsed();
        opening(&tcp).map_err(failed)?;
        Ok(Self { transport: Transport::Tcp(tcp, None), peer: None, round_trip })
    }

    /// Does the TLS handshake on a connection to `to` if `guard` requires it. `node`: the node that must
    /// answer.
    pub(crate) fn secure(self, to: SocketAddr, guard: &Guard, node: Option<NodeId>) -> Result<Self, Error> {
        let round_trip = self.round_trip;
        let (tls, tcp) = match (guard, self.transport) {
            (Guard::Tls(tls), Transport::Tcp(tcp, _)) => (tls, tcp),
            (_, transport) => return Ok(Self { transport, peer: self.peer, round_trip }),
        };
        let failed = |error| Error::Network { doing: format!("cannot connect to {to}"), error };
        let mut config = tls.client_speaking(PROVES_FIRST, node)?;
        Arc::make_mut(&mut config).alpn_protocols = PROTOCOLS.map(<[u8]>::to_vec).into();
        let session =
            Session::bound_client(config, placeholder_name()).map_err(|e| failed(io::Error::other(e)))?;
        let stream = Stream::open(session, tcp, None).map_err(|e| handshake(to, e))?;
        let peer = Some(peer_node_id(stream.certificates())?);
        Ok(Self { transport: Transport::Tls(Box::new(stream)), peer, round_trip })
    }

    /// The other side of [`Connection::dial`]. The peer is held to `limit` until [`Connection::prove`].
    pub(crate) fn accept(
        tcp: TcpStream,
        from: SocketAddr,
        guard: &Guard,
        limit: Limit,
    ) -> Result<Self, Error> {
        let failed =
            |error| Error::Network { doing: format!("cannot accept the connection from {from}"), error };
        opening(&tcp).map_err(failed)?;
        let Guard::Tls(tls) = guard else {
            return Ok(Self {
                transport: Transport::Tcp(tcp, Some(limit)),
                peer: None,
                round_trip: Duration::ZERO,
            });
        };
        let config = tls.server_speaking(&PROTOCOLS);
        let session = Session::bound_server(config).map_err(|e| failed(io::Error::other(e)))?;
        let stream = Stream::open(session, tcp, Some(limit)).map_err(|e| handshake(from, e))?;
        let peer = Some(peer_node_id(stream.certificates())?);
        Ok(Self { transport: Transport::Tls(Box::new(stream)), peer, round_trip: Duration::ZERO })
    }

    /// A connection to another program by pipes.
    pub(crate) fn pipe(pipe: Pipe) -> Self {
        Self { transport: Transport::Pipe(pipe), peer: None, round_trip: Duration::ZERO }
    }

    /// The binding of a proof that comes with the first message; None where a challenge asks for the proof:
    /// without TLS, and where the peer supports no other way.
    pub(crate) fn binding(&self) -> Option<[u8; 32]> {
        let Transport::Tls(stream) = &self.transport else { return None };
        stream.binding(PROVES_FIRST)
    }

    /// The peer has proved that it may speak here: its messages may be long from now on.
    pub(crate) fn prove(&mut self) -> io::Result<()> {
        match &mut self.transport {
            Transport::Tcp(_, limit) => *limit = None,
            Transport::Tls(stream) => stream.prove(),
            Transport::Pipe(_) => {}
        }
        self.tcp().map_or(Ok(()), |tcp| tcp.set_read_timeout(Some(OPENING)))
    }

    /// The opening is over: from now on only silence ends it.
    pub(crate) fn opened(&self) -> io::Result<()> {
        let Some(tcp) = self.tcp() else { return Ok(()) };
        tcp.set_read_timeout(Some(SILENCE))?;
        tcp.set_write_timeout(None)
    }

    /// Reads and writes wait for this long at most; None: nothing but its breaking ends it.
    pub(crate) fn set_patience(&self, patience: Option<Duration>) -> io::Result<()> {
        let Some(tcp) = self.tcp() else { return Ok(()) };
        tcp.set_read_timeout(patience)?;
        tcp.set_write_timeout(patience)
    }

    /// Selects this congestion control; where the system does not have it, or does not permit it, the default
    /// stays.
    pub(crate) fn congestion(&self, name: &str) {
        if let Some(tcp) = self.tcp()
            && let Err(e) = SockRef::from(tcp).set_tcp_congestion(name.as_bytes())
        {
            tracing::debug!("cannot use congestion control {name}: {e}");
        }
    }

    /// Sends at most this many bytes a second, evenly.
    pub(crate) fn pace(&self, rate: u64) {
        if let Some(tcp) = self.tcp()
            && let Err(e) = tidecast_pace::pace(tcp, Some(rate))
        {
            tracing::debug!("cannot pace the connection: {e}");
        }
    }

    /// Whether the other end is far away: where the time between them, not the processors, sets the pace.
    pub(crate) fn is_far(&self) -> bool {
        self.round_trip > FAR
    }

    /// A handle that ends the connection from another thread, and with it every wait on it.
    pub(crate) fn handle(&self) -> Option<Handle> {
        match &self.transport {
            Transport::Pipe(pipe) => Some(Handle::Pipe(pipe.cutter())),
            _ => self.tcp().and_then(|tcp| tcp.try_clone().ok()).map(Handle::Tcp),
        }
    }

    /// The socket below it.
    pub(crate) fn tcp(&self) -> Option<&TcpStream> {
        match &self.transport {
            Transport::Tcp(tcp, _) => Some(tcp),
            Transport::Tls(stream) => Some(&stream.tcp),
            Transport::Pipe(_) => None,
        }
    }

    /// Closes the connection with a notice, so that the peer can tell an end from a failure.
    pub(crate) fn close(mut self) {
        // A peer that has disconnected already needs no goodbye.
        let _ = match &mut self.transport {
            Transport::Tls(stream) => stream.close(),
            _ => Ok(()),
        };
        let _ = self.tcp().map(|tcp| tcp.shutdown(Shutdown::Write));
    }
}

/// Ends a connection.
#[derive(Debug)]
pub(crate) enum Handle {
    Tcp(TcpStream),
    Pipe(Arc<Interrupt>),
}

impl Handle {
    /// At once: data that was not sent is lost.
    pub(crate) fn cut(&self) {
        match self {
            Self::Tcp(tcp) => drop(tcp.shutdown(Shutdown::Both)),
            Self::Pipe(pipe) => pipe.cut(),
        }
    }
}

impl Read for Connection {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        match &mut self.transport {
            Transport::Tcp(tcp, None) => tcp.read(buf),
            Transport::Tcp(tcp, Some(limit)) => limit.read(tcp, buf),
            Transport::Tls(stream) => stream.read(buf),
            Transport::Pipe(pipe) => pipe.read(buf),
        }
    }
}

impl Write for Connection {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        match &mut self.transport {
            Transport::Tcp(tcp, _) => tcp.write(buf),
            Transport::Tls(stream) => stream.write(buf),
            Transport::Pipe(pipe) => pipe.write(buf),
        }
    }

    fn write_vectored(&mut self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        match &mut self.transport {
            Transport::Tcp(tcp, _) => tcp.write_vectored(bufs),
            Transport::Tls(stream) => stream.write_vectored(bufs),
            Transport::Pipe(pipe) => pipe.write_vectored(bufs),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match &mut self.transport {
            Transport::Tcp(..) => Ok(()),
            Transport::Tls(stream) => stream.flush(),
            Transport::Pipe(pipe) => pipe.flush(),
        }
    }
}

fn connect(to: SocketAddr, from: Option<SocketAddr>, wait: Duration) -> io::Result<TcpStream> {
    let socket = Socket::new(Domain::for_address(to), Type::STREAM, Some(Protocol::TCP))?;
    if let Some(from) = from {
        socket.bind(&from.into())?;
    }
    socket.connect_timeout(&to.into(), wait)?;
    Ok(socket.into())
}

fn opening(tcp: &TcpStream) -> io::Result<()> {
    tcp.set_nodelay(true)?;
    tcp.set_read_timeout(Some(OPENING))?;
    tcp.set_write_timeout(Some(OPENING))?;
    SockRef::from(tcp).set_tcp_notsent_lowat(UNSENT)
}

fn handshake(with: SocketAddr, error: io::Error) -> Error {
    // The reason for rejecting a key is our own text, which rustls would show in Debug form.
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    if let Some(rustls::Error::InvalidCertificate(CertificateError::Other(OtherError(why)))) = inner {
        return Error::Network {
            doing: format!("certificate of {with} was rejected"),
            error: io::Error::other(why.to_string()),
        };
    }
    if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) {
        return Error::Network { doing: format!("no answer from {with}"), error };
    }
    let doing = format!(
        "TLS handshake with {with} failed (use --plain on both sides or on neither, and check the key)"
    );
    Error::Network { doing, error }
}
