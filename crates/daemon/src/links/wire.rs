//! How connections to other daemons are made: by TCP and TLS. Tests have a wire of their own, in memory.

use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tidecast_identity::{NodeId, Tls, placeholder_name};
use tidecast_tls::Stream;
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::link::LinkError;

/// The protocol of control channels, as TLS agrees on it (ALPN).
pub(crate) const PROTOCOL: &[u8] = b"tidecast-daemon/1";
/// An address answers within this time: a second try a second after the first, and no waiting for a third, so that a link
/// that comes back is used at once.
const CONNECT: Duration = Duration::from_secs(3);
/// Hands are shaken within this time.
const DIAL: Duration = Duration::from_secs(5);

/// Why there is no connection to another daemon.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PeerError {
    #[error("cannot reach {addr}: {why}")]
    Unreachable { addr: SocketAddr, why: String },
    #[error("no address of this daemon is known")]
    NoAddress,
    #[error("certificate of {addr} was rejected: {why}")]
    Untrusted { addr: SocketAddr, why: String },
    #[error(transparent)]
    Link(#[from] LinkError),
}

/// A stream to another daemon.
pub(crate) type Wired = Pin<Box<dyn tidecast_net::Stream>>;
/// Something that takes time, and may be given to a task.
pub(crate) type Taking<T> = Pin<Box<dyn Future<Output = Result<T, PeerError>> + Send>>;
/// The rest of a connection after an address has answered: the stream, and the key that the other end has
/// proven.
pub(crate) type Handshake = Taking<(Wired, NodeId)>;

/// Makes connections.
pub(crate) trait Wire: Send + Sync + 'static {
    /// Connects to an address: of several that are tried at once, hands are shaken with the first that answers.
    fn connect(self: Arc<Self>, addr: SocketAddr) -> Taking<Handshake>;
}

/// The network.
pub(crate) struct Tcp(pub(crate) Tls);

impl Wire for Tcp {
    fn connect(self: Arc<Self>, addr: SocketAddr) -> Taking<Handshake> {
        Box::pin(async move {
            let connected = timeout(CONNECT, TcpStream::connect(addr)).await;
            let connected = connected
                .map_err(|_| unreachable(addr, format!("no answer within {} s", CONNECT.as_secs())))?;
            let stream = connected.map_err(|error| unreachable(addr, error))?;
            let handshake: Handshake = Box::pin(async move { self.shake_hands(addr, stream).await });
            Ok(handshake)
        })
    }
}

impl Tcp {
    async fn shake_hands(&self, addr: SocketAddr, stream: TcpStream) -> Result<(Wired, NodeId), PeerError> {
        let config = self.0.client_speaking(PROTOCOL, None).map_err(|e| unreachable(addr, e))?;
        let connect = async {
            stream.set_nodelay(true)?;
            tidecast_net::end_when_gone(&stream);
            Stream::connect(config, placeholder_name(), stream).await
        };
        let stream = match timeout(DIAL, connect).await {
            Err(_) => return Err(unreachable(addr, format!("no answer within {} s", DIAL.as_secs()))),
            Ok(connected) => connected.map_err(|e| unreachable(addr, e))?,
        };
        let node = tidecast_identity::peer_node_id(stream.session().agreed().peer_certificates())
            .map_err(|e| unreachable(addr, e))?;
        Ok((Box::pin(stream), node))
    }
}

pub(crate) fn unreachable(addr: SocketAddr, why: impl ToString) -> PeerError {
    PeerError::Unreachable { addr, why: why.to_string() }
}
