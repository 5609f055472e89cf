//! One port for all the swarms of a node, and for its daemon's control channels.
//!
//! All connections use TLS and are identified by their key; the protocol that TLS agreed on (ALPN) distinguishes
//! visitors of the daemon from peers, and the first message of a peer names the swarm.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Weak};

use parking_lot::RwLock;
use rustls::ServerConfig;
use tidecast_admission::{Admitted, Allowance, Gate, Progress, accept};
use tidecast_identity::{ALPN, NodeId, Tls};
use tidecast_mse::Swarms;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};

use crate::accept::encrypt;
use crate::cpu::Cpu;
use crate::error::ConnError;
use crate::handshake::{Established, Opening, establish};
use crate::security::proven;
use crate::shared::Shared;
use crate::transport::Transport;
use crate::tune::{end_when_gone, tune};

/// A byte stream of any kind.
pub trait Stream: AsyncRead + AsyncWrite + Send {}
impl<T: AsyncRead + AsyncWrite + Send> Stream for T {}

/// A connection to the daemon.
pub struct Visitor {
    /// The stream between the two.
    pub stream: Pin<Box<dyn Stream>>,
    /// Whose key TLS has proven.
    pub node: NodeId,
    /// From where.
    pub addr: SocketAddr,
    /// It still counts as unauthenticated: any key is accepted. The daemon proves it when it has verified the
    /// identity.
    pub admitted: Admitted,
}

/// A port that many swarms and one more protocol share.
pub struct SharedPort {
    config: Arc<ServerConfig>,
    port: u16,
    swarms: RwLock<HashMap<[u8; 20], Weak<Shared>>>,
    cpu: Arc<Cpu>,
    /// Connections that have proved nothing yet.
    unproven: Gate,
}

impl SharedPort {
    /// Serves `port`, where the caller listens. A connection that uses `protocol` is a visitor.
    pub fn new(tls: &Tls, port: u16, protocol: &[u8]) -> SharedPort {
        let config = tls.server_speaking(&[ALPN, protocol]);
        SharedPort { config, port, swarms: RwLock::default(), cpu: Arc::default(), unproven: Gate::default() }
    }

    /// The port that is announced to peers.
    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// From now on peers of this swarm are let in to it, until it ends.
    pub(crate) fn open_to(&self, swarm: &Arc<Shared>) {
        let mut swarms = self.swarms.write();
        swarms.retain(|_, swarm| swarm.strong_count() > 0);
        for hash in swarm.manifest.swarm_hashes() {
            swarms.insert(hash, Arc::downgrade(swarm));
        }
    }

    /// Accepts until the task is ended; `visit` serves each visitor.
    pub async fn run<F>(
        self: Arc<Self>,
        listener: TcpListener,
        visit: impl Fn(Visitor) -> F + Clone + Send + 'static,
    ) where
        F: Future<Output = ()> + Send,
    {
        loop {
            let (stream, addr, admitted) = accept(&listener, &self.unproven).await;
            let (shared_port, visit) = (self.clone(), visit.clone());
            tokio::spawn(async move { shared_port.serve(stream, addr, admitted, visit).await });
        }
    }

    async fn serve<F>(
        self: Arc<Self>,
        stream: TcpStream,
        addr: SocketAddr,
        mut admitted: Admitted,
        visit: impl Fn(Visitor) -> F + Send,
    ) where
        F: Future<Output = ()> + Send,
    {
        let (allowance, progress) = (admitted.allowance(), admitted.progress());
        let welcome = self.welcome(stream, (allowance, &progress));
        let welcomed = admitted.run(welcome).await.unwrap_or_else(|cut| Err(cut.into()));
        match welcomed {
            Ok(Welcomed::Visitor(stream, node)) => visit(Visitor { stream, node, addr, admitted }).await,
            Ok(Welcomed::Peer(swarm, peer)) => {
                admitted.prove();
                crate::conn::run(swarm, *peer, addr, None).await;
            }
            Err(why) => tracing::debug!(%addr, %why, "rejected an incoming connection"),
        }
    }

    async fn welcome(
        &self,
        stream: TcpStream,
        (allowance, progress): (Allowance, &Progress),
    ) -> Result<Welcomed, ConnError> {
        tune(&stream);
        let stream = encrypt(|_| Ok(self.config.clone()), stream, &self.cpu, (allowance, progress)).await?;
        let agreed = stream.session().agreed();
        let node = proven(agreed.peer_certificates())?;
        if agreed.alpn_protocol() != Some(ALPN) {
            end_when_gone(stream.get_ref().as_ref());
            return Ok(Welcomed::Visitor(Box::pin(stream), node));
        }
        let opening =
            Opening::answer(Transport::Tls(Box::new(stream)), &Swarms::default(), &self.cpu).await?;
        let swarm = self.swarms.read().get(&opening.swarm()).and_then(Weak::upgrade);
        let swarm = swarm.ok_or(ConnError::OtherSwarm)?;
        let peer = establish(&swarm.local(), &swarm.security, opening, Some(node)).await?;
        Ok(Welcomed::Peer(swarm, Box::new(peer)))
    }
}

enum Welcomed {
    Visitor(Pin<Box<dyn Stream>>, NodeId),
    Peer(Arc<Shared>, Box<Established>),
}
