//! Outgoing connections: the addresses of a node one after the other, until one answers.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use rustls_pki_types::ServerName;
use socket2::{SockRef, TcpKeepalive};
use tidecast_admission::Allowance;
use tidecast_identity::{NodeId, placeholder_name, ssl_torrent};
use tidecast_swarm::Candidate;
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use crate::conn::establish::{Established, LIMIT, Local, Opening, establish};
use crate::cpu::Cpu;
use crate::driver::Input;
use crate::driver::progress::Notice;
use crate::error::ConnError;
use crate::intake::Intake;
use crate::security::Security;
use crate::shared::Shared;
use crate::transport::{Booked, Transport};

/// A control channel ends when nothing was acknowledged for so long.
const GONE: Duration = Duration::from_secs(5);
/// One address gets so long to accept.
const CONNECT: Duration = Duration::from_secs(5);
/// What a peer that does not answer at all is late with; it may be down, which is no offence.
pub(crate) const CONNECTING: &str = "accept the connection";
/// Socket buffers are set only where the system allows this much; below it the kernel's own
/// tuning goes further than we could.
const BUFFER: usize = 8 << 20;
/// What the kernel may hold of a connection beyond what is on its way (TCP_NOTSENT_LOWAT). Without
/// this bound a slow receiver's megabytes sit in its buffer and count as sent, and whoever shares out
/// pieces by who has room would be told lies. Less would let fast lines run dry between two wake-ups:
/// it is a millisecond at 1 Gbit/s.
const UNSENT: u32 = 128 << 10;

/// Dials a candidate in the background; the driver hears how it went.
pub(crate) fn spawn(shared: &Arc<Shared>, candidate: Candidate, addresses: Vec<SocketAddr>) {
    let shared = shared.clone();
    shared.runtime.clone().spawn(async move {
        let mut last = None;
        for addr in addresses {
            let source = shared.source_for(addr.ip());
            let local = shared.local();
            match dial(&local, &shared.security, addr, source, &shared.cpu).await {
                Ok(established) => return crate::conn::run(shared, established, addr, Some(candidate)).await,
                Err(error) => {
                    if let ConnError::Denied(why) = &error {
                        let notice = Notice::Refused { addr, why: why.clone() };
                        let _ = shared.inbox.send(Input::Notice(notice)).await;
                    }
                    last = Some((addr, error));
                }
            }
        }
        let _ = shared.inbox.send(Input::DialFailed { candidate, last }).await;
    });
}

/// Connects to one address and shakes hands.
pub(crate) async fn dial(
    local: &Local,
    security: &Security,
    addr: SocketAddr,
    source: Option<IpAddr>,
    cpu: &Arc<Cpu>,
) -> Result<Established, ConnError> {
    let late = |_| ConnError::Late { what: CONNECTING, seconds: CONNECT.as_secs() };
    let stream = timeout(CONNECT, connect(addr, source)).await.map_err(late)??;
    let first = local.hashes.first().copied().unwrap_or_default();
    let (transport, node) = secure(stream, security, first, cpu).await?;
    let opening = Opening::call(local, transport, cpu).await.map_err(|error| turned_away(security, error))?;
    establish(local, security, opening, node).await
}

/// Where nodes are known by their keys, whoever ends the connection after TLS has judged ours.
fn turned_away(security: &Security, error: ConnError) -> ConnError {
    match (security, &error) {
        (Security::Known(_), ConnError::Closed | ConnError::Io(_)) => ConnError::TurnedAway,
        _ => error,
    }
}

async fn connect(addr: SocketAddr, source: Option<IpAddr>) -> std::io::Result<TcpStream> {
    let socket = if addr.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    if let Some(source) = source {
        socket.bind(SocketAddr::new(source, 0))?;
    }
    let stream = socket.connect(addr).await?;
    tune(&stream);
    widen(&stream);
    Ok(stream)
}

/// Settings that every connection gets; none is vital, so failures are passed over.
pub(crate) fn tune(stream: &TcpStream) {
    let _ = stream.set_nodelay(true);
    let socket = SockRef::from(stream);
    let _ = socket.set_tcp_notsent_lowat(UNSENT);
}

/// A connection that only talks ends within seconds when its other end, or the link, is gone: what was sent is acknowledged
/// within [`GONE`], and so is a probe of the kernel's on an idle one. Otherwise TCP would wait longer and longer between
/// two tries, and go on long after the link is back.
pub fn end_when_gone(stream: &TcpStream) {
    let socket = SockRef::from(stream);
    let _ = socket.set_tcp_user_timeout(Some(GONE));
    let _ = socket.set_tcp_keepalive(&TcpKeepalive::new().with_time(2 * GONE).with_interval(GONE / 5));
}

/// Buffers for a peer that is proven, or that we have dialled.
pub(crate) fn widen(stream: &TcpStream) {
    let socket = SockRef::from(stream);
    if system_limit("rmem_max") >= BUFFER {
        let _ = socket.set_recv_buffer_size(BUFFER);
    }
    if system_limit("wmem_max") >= BUFFER {
        let _ = socket.set_send_buffer_size(BUFFER);
    }
}

fn system_limit(name: &str) -> usize {
    let text = std::fs::read_to_string(format!("/proc/sys/net/core/{name}")).unwrap_or_default();
    text.trim().parse().unwrap_or(0)
}

/// TLS as the swarm demands it.
async fn secure(
    stream: TcpStream,
    security: &Security,
    info_hash: [u8; 20],
    cpu: &Arc<Cpu>,
) -> Result<(Transport, Option<NodeId>), ConnError> {
    let (config, name): (_, ServerName<'static>) = match security {
        Security::Open => return Ok((Transport::Plain(stream, Allowance::default()), None)),
        Security::Private(membership) => (membership.tls.client(), placeholder_name()),
        Security::Known(known) => (known.tls.client(), placeholder_name()),
        Security::Ssl(ssl) => (ssl.client(), ssl_torrent::server_name(&info_hash)),
    };
    let intake = Intake::below_tls(Booked::socket(stream, cpu), Allowance::default());
    let connecting = TlsConnector::from(config).connect(name, intake);
    let late = |_| ConnError::Late { what: "finish the TLS handshake", seconds: LIMIT.as_secs() };
    let stream =
        timeout(LIMIT, connecting).await.map_err(late)?.map_err(|e| ConnError::Tls(e.to_string()))?;
    let node = security.proven_node(stream.get_ref().1.peer_certificates())?;
    Ok((Transport::Tls(Box::new(stream.into())), node))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn little_is_held_back_on_either_side_of_a_connection() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let dialled = connect(listener.local_addr().unwrap(), None).await.unwrap();
        let (accepted, _) = listener.accept().await.unwrap();
        tune(&accepted);
        for stream in [&dialled, &accepted] {
            assert!(stream.nodelay().unwrap());
            assert_eq!(SockRef::from(stream).tcp_notsent_lowat().unwrap(), UNSENT);
        }
    }
}
