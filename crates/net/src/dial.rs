//! One outgoing connection: from the socket to a peer that is established. `dial_addresses.rs` dials the addresses of a node.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::ServerName;
use tidecast_admission::Allowance;
use tidecast_identity::{NodeId, placeholder_name, ssl_torrent};
use tidecast_tls::Stream;
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::timeout;

use crate::cpu::Cpu;
use crate::error::ConnError;
use crate::handshake::{Established, HandshakeKind, LIMIT, Local, Opening, establish};
use crate::handshake_kinds::HandshakeKinds;
use crate::handshake_turn::HandshakeTurn;
use crate::intake::Intake;
use crate::security::Security;
use crate::transport::{Booked, Transport};
use crate::tune::{tune, widen};

/// One address gets this long to accept.
const CONNECT: Duration = Duration::from_secs(5);
/// A waiting user is told after this time that a peer does not answer.
const SILENT: Duration = Duration::from_secs(3);
/// The step at which an unreachable peer times out; it may be down, which is no fault.
pub(crate) const CONNECTING: &str = "accept the connection";

/// Connects to one address and does the handshake. A peer of an open swarm that does not answer the plain handshake
/// may require encryption: it is dialled again with MSE, or the other way round if MSE has worked with it before.
/// Plain first is free with all other peers: the MSE handshake takes a round trip and two modular powers of 768
/// bits. `report_silence` is told of each step without an answer in [`SILENT`]. The handshake waits for its `turn`, if
/// several addresses are dialled in parallel.
pub(crate) async fn dial_by(
    (local, security): (&Local, &Security),
    (addr, source): (SocketAddr, Option<IpAddr>),
    handshake_kinds: &HandshakeKinds,
    cpu: &Arc<Cpu>,
    report_silence: &impl Fn(String),
    turn: Option<&HandshakeTurn<'_>>,
) -> Result<Established, ConnError> {
    let [usual, other] = match security {
        Security::Open => handshake_kinds.of(addr).map(Some),
        _ => [Some(HandshakeKind::Direct), None],
    };
    let mut unanswered = None;
    for kind in [usual, other].into_iter().flatten() {
        let late = |_| ConnError::Late { what: CONNECTING, seconds: CONNECT.as_secs() };
        let connecting = timeout(CONNECT, connect(addr, source));
        let stream = match with_silence_report("", report_silence, connecting).await.map_err(late) {
            Ok(Ok(stream)) => stream,
            Ok(Err(error)) => return Err(unanswered.unwrap_or(error.into())),
            Err(error) => return Err(unanswered.unwrap_or(error)),
        };
        if let Some(turn) = turn {
            turn.take().await;
        }
        let first = local.hashes.first().copied().unwrap_or_default();
        let securing = secure(stream, security, first, cpu);
        let (transport, node) =
            with_silence_report(" to the TLS handshake", report_silence, securing).await?;
        let calling = Opening::call(local, transport, kind, cpu);
        match with_silence_report(" to the handshake", report_silence, calling).await {
            Ok(opening) => {
                if !security.is_encrypted() {
                    handshake_kinds.worked(addr, kind);
                }
                let establishing = establish(local, security, opening, node);
                return with_silence_report(" to the handshake", report_silence, establishing).await;
            }
            Err(error) if unanswered.is_none() => unanswered = Some(error),
            Err(_) => {}
        }
        if !unanswered.as_ref().is_some_and(may_need_other_kind) {
            break;
        }
    }
    Err(or_rejected(security, unanswered.unwrap_or(ConnError::Closed)))
}

/// [`dial_by`] for an address that is dialled alone.
pub(crate) async fn dial(
    of: (&Local, &Security),
    at: (SocketAddr, Option<IpAddr>),
    handshake_kinds: &HandshakeKinds,
    cpu: &Arc<Cpu>,
    report_silence: &impl Fn(String),
) -> Result<Established, ConnError> {
    dial_by(of, at, handshake_kinds, cpu, report_silence, None).await
}

/// Whether the error may mean that the peer rejects this kind of handshake only.
fn may_need_other_kind(error: &ConnError) -> bool {
    matches!(error, ConnError::Closed | ConnError::Io(_) | ConnError::Late { .. } | ConnError::Mse(_))
}

/// Waits for a step, which has its own time limit; reports if it is slow.
pub(crate) async fn with_silence_report<T>(
    what: &str,
    report_silence: &impl Fn(String),
    step: impl Future<Output = T>,
) -> T {
    let mut step = std::pin::pin!(step);
    if let Ok(done) = timeout(SILENT, &mut step).await {
        return done;
    }
    report_silence(format!("no answer{what} in {} s", SILENT.as_secs()));
    step.await
}

/// In swarms with node keys, a connection that ends after TLS was rejected because of this node's key.
fn or_rejected(security: &Security, error: ConnError) -> ConnError {
    match (security, &error) {
        (Security::Known(_), ConnError::Closed | ConnError::Io(_)) => ConnError::Rejected,
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
    let connecting = Stream::connect(config, name, intake);
    let late = |_| ConnError::Late { what: "finish the TLS handshake", seconds: LIMIT.as_secs() };
    let stream = timeout(LIMIT, connecting).await.map_err(late)?.map_err(|e| failed(&e))?;
    let node = security.proven_node(stream.session().agreed().peer_certificates())?;
    Ok((Transport::Tls(Box::new(stream)), node))
}

/// Why TLS failed, for people: a reply that is not TLS most likely comes from another program.
fn failed(error: &std::io::Error) -> ConnError {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    match inner {
        Some(rustls::Error::InvalidMessage(_)) => ConnError::Tls(
            "the peer does not use TLS: another program listens there, or a seed of an open swarm".to_owned(),
        ),
        _ => ConnError::Tls(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

    use tidecast_mse::Swarms;
    use tokio::net::TcpListener;

    use super::*;

    const HASH: [u8; 20] = [7; 20];

    /// A peer that takes one way only, and counts how it is called.
    #[derive(Default)]
    struct Particular {
        demands: AtomicBool,
        plainly: AtomicUsize,
        encrypted: AtomicUsize,
    }

    impl Particular {
        async fn run(self: Arc<Self>, listener: TcpListener) {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                // The first byte alone tells nothing: a key of MSE may begin with any.
                let mut first = [0; 20];
                while stream.peek(&mut first).await.unwrap() < first.len() {
                    tokio::task::yield_now().await;
                }
                let plain = first == *b"\x13BitTorrent protocol";
                let count = if plain { &self.plainly } else { &self.encrypted };
                count.fetch_add(1, Ordering::Relaxed);
                if plain == self.demands.load(Ordering::Relaxed) {
                    continue;
                }
                let (swarms, cpu) = (Swarms::new([HASH]), Arc::default());
                let transport = Transport::Plain(stream, Allowance::default());
                let opening = Opening::answer(transport, &swarms, &cpu).await.unwrap();
                let _ = establish(&Local::asking(vec![HASH]), &Security::Open, opening, None).await;
            }
        }

        fn calls(&self) -> (usize, usize) {
            (self.plainly.swap(0, Ordering::Relaxed), self.encrypted.swap(0, Ordering::Relaxed))
        }
    }

    #[tokio::test]
    async fn what_worked_with_a_peer_is_tried_first() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (addr, peer) = (listener.local_addr().unwrap(), Arc::new(Particular::default()));
        let answering = tokio::spawn(peer.clone().run(listener));
        let (local, handshake_kinds, cpu) =
            (Local::asking(vec![HASH]), HandshakeKinds::default(), Arc::default());
        let call = || dial((&local, &Security::Open), (addr, None), &handshake_kinds, &cpu, &|_| {});
        for (demands, calls) in
            [(false, (1, 0)), (true, (1, 1)), (true, (0, 1)), (false, (1, 1)), (false, (1, 0))]
        {
            peer.demands.store(demands, Ordering::Relaxed);
            call().await.unwrap();
            assert_eq!(peer.calls(), calls);
        }
        answering.abort();
    }
}
