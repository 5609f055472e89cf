//! Incoming connections: one port for all; the first byte tells TLS from BitTorrent.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use socket2::{Domain, Protocol, Socket, Type};
use tidecast_identity::NodeId;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;

use crate::conn::establish::{LIMIT, Opening, establish};
use crate::cpu::Cpu;
use crate::dial::tune;
use crate::error::{ConnError, Error};
use crate::intake::Intake;
use crate::security::Security;
use crate::shared::Shared;
use crate::transport::{Booked, Secure, Transport};

/// A TLS record of the handshake starts with this byte; BitTorrent's with the length 19.
const TLS_HANDSHAKE: u8 = 0x16;
/// Connections shaking hands at once; further ones wait in the kernel's queue.
pub(crate) const HANDSHAKES: usize = 256;
/// Connections waiting in the kernel.
const BACKLOG: i32 = 1024;
/// After a failure to accept (no descriptors left), some are hoped to be free again.
pub(crate) const PAUSE: Duration = Duration::from_millis(100);

/// Opens a listening socket; an unspecified IPv6 address serves IPv4 too.
///
/// # Errors
/// [`Error::Listen`]: the address is taken, or not of this host.
pub fn listen(addr: SocketAddr) -> Result<std::net::TcpListener, Error> {
    let open = || {
        let socket = Socket::new(Domain::for_address(addr), Type::STREAM, Some(Protocol::TCP))?;
        if addr.is_ipv6() && addr.ip().is_unspecified() {
            socket.set_only_v6(false)?;
        }
        socket.set_reuse_address(true)?;
        socket.set_nonblocking(true)?;
        socket.bind(&addr.into())?;
        socket.listen(BACKLOG)?;
        Ok(socket.into())
    };
    open().map_err(|source| Error::Listen { addr, source })
}

/// Accepts until the task is ended.
pub(crate) async fn run(shared: Arc<Shared>, listener: TcpListener) {
    loop {
        let Ok(permit) = shared.handshakes.clone().acquire_owned().await else { return };
        match listener.accept().await {
            Ok((stream, addr)) => {
                let shared = shared.clone();
                tokio::spawn(async move {
                    let established = welcome(&shared, stream).await;
                    drop(permit);
                    match established {
                        Ok(established) => crate::conn::run(shared, established, unmapped(addr), None).await,
                        Err(why) => tracing::debug!(%addr, %why, "incoming connection refused"),
                    }
                });
            }
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection");
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}

/// IPv4 peers of a socket that serves both families, as IPv4.
pub(crate) fn unmapped(addr: SocketAddr) -> SocketAddr {
    SocketAddr::new(addr.ip().to_canonical(), addr.port())
}

async fn welcome(
    shared: &Shared,
    stream: TcpStream,
) -> Result<crate::conn::establish::Established, ConnError> {
    tune(&stream);
    let late = |_| ConnError::Late { what: "say a word", seconds: LIMIT.as_secs() };
    let mut first = [0];
    if timeout(LIMIT, stream.peek(&mut first)).await.map_err(late)?? == 0 {
        return Err(ConnError::Closed);
    }
    let (transport, node) = secure(shared, stream, first[0] == TLS_HANDSHAKE).await?;
    let opening = Opening::answer(transport, &shared.cpu).await?;
    establish(&shared.local(), &shared.security, opening, node).await
}

async fn secure(
    shared: &Shared,
    stream: TcpStream,
    tls: bool,
) -> Result<(Transport, Option<NodeId>), ConnError> {
    let config = match (&shared.security, tls) {
        (Security::Open, false) => return Ok((Transport::Plain(stream), None)),
        (Security::Open, true) => return Err(ConnError::Protocol("TLS, but the swarm is an open one")),
        (_, false) => return Err(ConnError::Protocol("no TLS, but the swarm demands it")),
        (Security::Private(membership), true) => membership.tls.server(),
        (Security::Known(known), true) => known.tls.server(),
        (Security::Ssl(ssl), true) => ssl.server(),
    };
    let stream = encrypt(&TlsAcceptor::from(config), stream, &shared.cpu).await?;
    let node = shared.security.proven_node(stream.get_ref().1.peer_certificates())?;
    Ok((Transport::Tls(Box::new(stream)), node))
}

/// The callee's side of the TLS handshake.
pub(crate) async fn encrypt(
    acceptor: &TlsAcceptor,
    stream: TcpStream,
    cpu: &Arc<Cpu>,
) -> Result<Secure, ConnError> {
    let accepting = acceptor.accept(Intake::below_tls(Booked::socket(stream, cpu)));
    let late = |_| ConnError::Late { what: "finish the TLS handshake", seconds: LIMIT.as_secs() };
    let stream = timeout(LIMIT, accepting).await.map_err(late)?.map_err(|e| ConnError::Tls(e.to_string()))?;
    Ok(stream.into())
}
