//! Incoming connections: one port for all; the first byte tells TLS from BitTorrent.
//!
//! What a connection may cost before its peer has proved that it may be here, `tidecast_admission` says.

use std::net::SocketAddr;
use std::sync::Arc;

use socket2::{Domain, Protocol, Socket, Type};
use tidecast_admission::{Allowance, BACKLOG, Progress, accept};
use tidecast_identity::NodeId;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::LazyConfigAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::server::Acceptor;

use crate::conn::establish::{Established, Opening, establish};
use crate::cpu::Cpu;
use crate::dial::tune;
use crate::driver::Input;
use crate::driver::progress::Notice;
use crate::error::{ConnError, Error};
use crate::intake::Intake;
use crate::security::Security;
use crate::shared::Shared;
use crate::transport::{Booked, Secure, Transport};

/// A TLS record of the handshake starts with this byte; BitTorrent's with the length 19.
const TLS_HANDSHAKE: u8 = 0x16;

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
        let (stream, addr, mut admitted) = accept(&listener, &shared.unproven).await;
        let shared = shared.clone();
        tokio::spawn(async move {
            let (allowance, progress) = (admitted.allowance(), admitted.progress());
            match admitted
                .run(welcome(&shared, stream, allowance, &progress))
                .await
                .unwrap_or_else(|cut| Err(cut.into()))
            {
                Ok(established) => {
                    admitted.prove();
                    crate::conn::run(shared, established, addr, None).await;
                }
                Err(why) => {
                    tracing::debug!(%addr, %why, "incoming connection refused");
                    if let ConnError::NotMember(why) = why
                        && shared.security.is_owner()
                    {
                        // What a busy driver has no room for is not worth waiting for: strangers may send any number.
                        let _ = shared.inbox.try_send(Input::Notice(Notice::TurnedAway { addr, why }));
                    }
                }
            }
        });
    }
}

async fn welcome(
    shared: &Shared,
    stream: TcpStream,
    allowance: Allowance,
    progress: &Progress,
) -> Result<Established, ConnError> {
    tune(&stream);
    let mut first = [0];
    if stream.peek(&mut first).await? == 0 {
        return Err(ConnError::Closed);
    }
    let tls = first[0] == TLS_HANDSHAKE;
    let (transport, node) = secure(shared, stream, tls, (allowance, progress)).await?;
    let opening = Opening::answer(transport, &shared.cpu).await?;
    progress.advance();
    establish(&shared.local(), &shared.security, opening, node).await
}

async fn secure(
    shared: &Shared,
    stream: TcpStream,
    tls: bool,
    (allowance, progress): (Allowance, &Progress),
) -> Result<(Transport, Option<NodeId>), ConnError> {
    let config = match (&shared.security, tls) {
        (Security::Open, false) => return Ok((Transport::Plain(stream, allowance), None)),
        (Security::Open, true) => return Err(ConnError::Protocol("TLS, but the swarm is an open one")),
        (_, false) => return Err(ConnError::Protocol("no TLS, but the swarm demands it")),
        (Security::Private(membership), true) => membership.tls.server(),
        (Security::Known(known), true) => known.tls.server(),
        (Security::Ssl(ssl), true) => ssl.server(),
    };
    let stream = encrypt(config, stream, &shared.cpu, (allowance, progress)).await?;
    let node = shared.security.proven_node(stream.get_ref().1.peer_certificates())?;
    Ok((Transport::Tls(Box::new(stream)), node))
}

/// The callee's side of the TLS handshake. No keys are made before a whole ClientHello has come.
pub(crate) async fn encrypt(
    config: Arc<ServerConfig>,
    stream: TcpStream,
    cpu: &Arc<Cpu>,
    (allowance, progress): (Allowance, &Progress),
) -> Result<Secure, ConnError> {
    let failed = |e: std::io::Error| ConnError::Tls(e.to_string());
    let intake = Intake::below_tls(Booked::socket(stream, cpu), allowance);
    let hello = LazyConfigAcceptor::new(Acceptor::default(), intake).await.map_err(failed)?;
    progress.advance();
    Ok(hello.into_stream(config).await.map_err(failed)?.into())
}
