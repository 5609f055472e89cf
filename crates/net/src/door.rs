//! One port for all the swarms of a node, and for what its daemon has to say besides.
//!
//! Everybody speaks TLS and is known by the key; the protocol that TLS agreed on (ALPN) tells a visitor of the daemon
//! from a peer of a swarm, and the first message of a peer says of which.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Weak};

use parking_lot::RwLock;
use tidecast_identity::{ALPN, NodeId, Tls};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_rustls::TlsAcceptor;

use crate::accept::{HANDSHAKES, PAUSE, encrypt, unmapped};
use crate::conn::establish::{Opening, establish};
use crate::cpu::Cpu;
use crate::dial::tune;
use crate::error::ConnError;
use crate::security::proven;
use crate::shared::Shared;
use crate::transport::Transport;

/// A byte stream whose kind does not matter.
pub trait Stream: AsyncRead + AsyncWrite + Send {}
impl<T: AsyncRead + AsyncWrite + Send> Stream for T {}

/// Who has come to speak with the daemon.
pub struct Visitor {
    /// What is said between the two.
    pub stream: Pin<Box<dyn Stream>>,
    /// Whose key TLS has proven.
    pub node: NodeId,
    /// From where.
    pub addr: SocketAddr,
}

/// A port that serves many swarms.
pub struct Door {
    acceptor: TlsAcceptor,
    port: u16,
    swarms: RwLock<HashMap<[u8; 20], Weak<Shared>>>,
    cpu: Arc<Cpu>,
}

impl Door {
    /// A door at `port`, where a listener of the caller is. Who speaks `protocol` is a visitor.
    pub fn new(tls: &Tls, port: u16, protocol: &[u8]) -> Door {
        let acceptor = TlsAcceptor::from(tls.server_speaking(&[ALPN, protocol]));
        Door { acceptor, port, swarms: RwLock::default(), cpu: Arc::default() }
    }

    /// The port that peers are told.
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

    /// Accepts until the task is ended; `visit` goes on with each visitor.
    pub async fn run<F>(
        self: Arc<Self>,
        listener: TcpListener,
        visit: impl Fn(Visitor) -> F + Clone + Send + 'static,
    ) where
        F: Future<Output = ()> + Send,
    {
        let room = Arc::new(Semaphore::new(HANDSHAKES));
        loop {
            let Ok(permit) = room.clone().acquire_owned().await else { return };
            let (stream, addr) = match listener.accept().await {
                Ok(accepted) => accepted,
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a connection");
                    tokio::time::sleep(PAUSE).await;
                    continue;
                }
            };
            let (door, visit, addr) = (self.clone(), visit.clone(), unmapped(addr));
            tokio::spawn(async move {
                match door.welcome(stream, addr).await {
                    Ok(Welcomed::Visitor(visitor)) => {
                        drop(permit);
                        visit(visitor).await;
                    }
                    Ok(Welcomed::Peer(swarm, opening, node)) => {
                        let made = establish(&swarm.local(), &swarm.security, opening, Some(node)).await;
                        drop(permit);
                        match made {
                            Ok(peer) => crate::conn::run(swarm, peer, addr, None).await,
                            Err(why) => tracing::debug!(%addr, %why, "incoming connection refused"),
                        }
                    }
                    Err(why) => tracing::debug!(%addr, %why, "incoming connection refused"),
                }
            });
        }
    }

    async fn welcome(&self, stream: TcpStream, addr: SocketAddr) -> Result<Welcomed, ConnError> {
        tune(&stream);
        let stream = encrypt(&self.acceptor, stream, &self.cpu).await?;
        let session = stream.get_ref().1;
        let node = proven(session.peer_certificates())?;
        if session.alpn_protocol() != Some(ALPN) {
            return Ok(Welcomed::Visitor(Visitor { stream: Box::pin(stream), node, addr }));
        }
        let opening = Opening::answer(Transport::Tls(Box::new(stream)), &self.cpu).await?;
        let swarm = self.swarms.read().get(&opening.swarm()).and_then(Weak::upgrade);
        Ok(Welcomed::Peer(swarm.ok_or(ConnError::OtherSwarm)?, opening, node))
    }
}

enum Welcomed {
    Visitor(Visitor),
    Peer(Arc<Shared>, Opening, NodeId),
}
