//! Other daemons: a control channel to each that is spoken with, and who they are.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Mutex, RwLock};
use tidecast_identity::{NodeId, Tls, placeholder_name};
use tidecast_net::Visitor;
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use super::link::{Link, LinkError, Peer, Serve, greet, refuse};
use super::refusals::{Refusals, Whose, who};
use crate::links::trust::Trust;
use crate::model::message::Hello;

/// The protocol of control channels, as TLS agrees on it (ALPN).
pub(crate) const PROTOCOL: &[u8] = b"tidecast-daemon/1";
/// Channels remembered at most; further ones serve who made them, and nobody else.
const MOST: usize = 4096;
/// An address answers within this time: a second try a second after the first, and no waiting for a third, so that a link
/// that comes back is used at once.
const CONNECT: Duration = Duration::from_secs(3);
/// Hands are shaken within this time.
const DIAL: Duration = Duration::from_secs(5);

/// Why another daemon cannot be spoken with.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PeerError {
    #[error("{addr} cannot be reached: {why}")]
    Unreachable { addr: SocketAddr, why: String },
    #[error("no address of it is known")]
    NoAddress,
    #[error("{addr} is not trusted: {why}")]
    Untrusted { addr: SocketAddr, why: String },
    #[error(transparent)]
    Link(#[from] LinkError),
}

/// The channels that are up.
pub(crate) struct Peers {
    tls: Tls,
    trust: Arc<Trust>,
    hello: RwLock<Hello>,
    links: Mutex<HashMap<NodeId, Arc<Link>>>,
    refusals: Refusals,
}

impl Peers {
    pub(crate) fn new(tls: Tls, trust: Arc<Trust>, hello: Hello) -> Self {
        Self { tls, trust, hello: RwLock::new(hello), links: Mutex::default(), refusals: Refusals::default() }
    }

    /// What this daemon says of itself.
    pub(crate) fn hello(&self) -> Hello {
        Hello { clock: crate::now(), ..self.hello.read().clone() }
    }

    /// A new card, before the old one ends.
    pub(crate) fn set_card(&self, card: String) {
        self.hello.write().card = card;
    }

    /// The daemon at one of these addresses, whichever answers first; a channel that is up already serves.
    pub(crate) async fn at<S: Serve>(
        &self,
        addresses: &[SocketAddr],
        serve: &Arc<S>,
    ) -> Result<Arc<Link>, PeerError> {
        if let Some(link) =
            self.find(|peer| addresses.contains(&peer.addr) || covers(&peer.hello.addresses, addresses))
        {
            return Ok(link);
        }
        let mut calling = connect_all(addresses);
        let mut last = PeerError::NoAddress;
        while let Some(called) = calling.join_next().await {
            let Ok((addr, connected)) = called else { continue };
            let greeted = match connected {
                Ok(stream) => self.greet(addr, stream, serve).await,
                Err(error) => Err(error),
            };
            match greeted {
                Ok(link) => return Ok(link),
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    /// A channel that is up, to a daemon of which `fits` is true.
    pub(crate) fn find(&self, fits: impl Fn(&Peer) -> bool) -> Option<Arc<Link>> {
        self.links.lock().values().find(|link| link.is_up() && fits(&link.peer)).cloned()
    }

    /// The channel to a node, if it is up.
    pub(crate) fn to(&self, node: NodeId) -> Option<Arc<Link>> {
        self.links.lock().get(&node).filter(|link| link.is_up()).cloned()
    }

    /// A channel to this very node, which is said to be at one of these addresses.
    pub(crate) async fn reach<S: Serve>(
        &self,
        node: NodeId,
        addresses: &[SocketAddr],
        serve: &Arc<S>,
    ) -> Result<Arc<Link>, PeerError> {
        let mut calling = connect_all(addresses);
        let mut last = PeerError::NoAddress;
        while let Some(called) = calling.join_next().await {
            if let Some(link) = self.to(node) {
                return Ok(link);
            }
            let Ok((addr, connected)) = called else { continue };
            let dialled = async { self.greet(addr, connected?, serve).await };
            match dialled.await {
                Ok(link) if link.peer.node == node => return Ok(link),
                Ok(_) => last = PeerError::Unreachable { addr, why: "another daemon is there".into() },
                Err(error) => last = error,
            }
        }
        self.to(node).ok_or(last)
    }

    /// Ends the channel to a node that answers no more.
    pub(crate) fn part(&self, node: NodeId) {
        if let Some(link) = self.links.lock().remove(&node) {
            link.close();
        }
    }

    /// Whom this daemon believes.
    pub(crate) fn trust(&self) -> &Trust {
        &self.trust
    }

    /// All channels that are up.
    pub(crate) fn all(&self) -> Vec<Arc<Link>> {
        self.links.lock().values().filter(|link| link.is_up()).cloned().collect()
    }

    /// Those who are not believed any more (a certificate was revoked, a card has ended): their channels are closed.
    pub(crate) fn judge_again<S: Serve>(&self, serve: &Arc<S>) -> Vec<NodeId> {
        let mut distrusted = Vec::new();
        for link in self.all() {
            let peer = &link.peer;
            if let Err(why) = self.trust.judge(&peer.hello, peer.node) {
                if why.has_expired() {
                    // It has shown this card when the channel was made, and may have a new one: that is seen when the next
                    // channel is made, at once.
                    link.close();
                    continue;
                }
                let why = why.to_string();
                link.turn_away(&why);
                self.turned_away(&peer.hello, peer.node, peer.addr, &why, serve);
                distrusted.push(peer.node);
            }
        }
        distrusted
    }

    /// Logs that somebody is not believed.
    fn turned_away<S: Serve>(
        &self,
        hello: &Hello,
        node: NodeId,
        addr: SocketAddr,
        why: &str,
        serve: &Arc<S>,
    ) {
        let who = who(&hello.name, addr);
        if self.refusals.note(Whose::Ours, node, &who, why) {
            tracing::warn!(peer = who, %node, why, "a daemon is not believed, and turned away");
            serve.turned_away(&who, why);
        }
    }

    /// Another daemon does not believe this one: it is logged.
    pub(crate) fn refused(&self, peer: &Peer, why: &str) {
        if self.refusals.note(Whose::Theirs, peer.node, &peer.hello.name, why) {
            let (peer, addr) = (peer.hello.name.as_str(), peer.addr);
            tracing::warn!(peer, %addr, why, "another daemon does not believe this one");
        }
    }

    /// `why` nobody has something, and who does not believe whom among those who might have it: a few.
    pub(crate) fn with_refusals(&self, mut why: String) -> String {
        for refusal in self.refusals.lately(|node| self.to(node).is_none()).into_iter().take(3) {
            if !why.contains(&refusal) {
                why = format!("{why}; {refusal}");
            }
        }
        why
    }

    /// One who has come: greets, judges, and serves until the channel ends.
    pub(crate) async fn welcome<S: Serve>(&self, visitor: Visitor, serve: Arc<S>) {
        let Visitor { mut stream, node, addr, mut admitted } = visitor;
        let ours = self.hello();
        let greeted = admitted.run(greet(&mut stream, &ours)).await.unwrap_or_else(|cut| Err(cut.into()));
        let met = match greeted {
            Ok(hello) => self.judge(hello, node, (addr, false), &serve),
            Err(error) => return tracing::debug!(%addr, %error, "a daemon that has come is not spoken with"),
        };
        match met {
            Ok(peer) => {
                admitted.prove();
                self.link(peer, stream, &serve).1.await;
            }
            // It still counts as unproven while it is told why.
            Err(PeerError::Untrusted { why, .. }) => {
                let _ = admitted.run(refuse(stream, why)).await;
            }
            Err(error) => tracing::debug!(%addr, %error, "a daemon that has come is not spoken with"),
        }
    }

    async fn greet<S: Serve>(
        &self,
        addr: SocketAddr,
        stream: TcpStream,
        serve: &Arc<S>,
    ) -> Result<Arc<Link>, PeerError> {
        let unreachable = |why: String| unreachable(addr, why);
        let config = self.tls.client_speaking(PROTOCOL, None).map_err(|e| unreachable(e.to_string()))?;
        let connect = async {
            stream.set_nodelay(true)?;
            tidecast_net::end_when_gone(&stream);
            TlsConnector::from(config).connect(placeholder_name(), stream).await
        };
        let stream = match timeout(DIAL, connect).await {
            Err(_) => return Err(unreachable(format!("no answer within {} s", DIAL.as_secs()))),
            Ok(connected) => connected.map_err(|e| unreachable(e.to_string()))?,
        };
        let node = tidecast_identity::peer_node_id(stream.get_ref().1.peer_certificates())
            .map_err(|e| unreachable(e.to_string()))?;
        if node == self.tls.id() {
            return Err(unreachable("it is this daemon itself".into()));
        }
        let (link, run) = self.meet(Box::pin(stream), node, (addr, true), serve).await?;
        tokio::spawn(run);
        Ok(link)
    }

    async fn meet<S: Serve>(
        &self,
        mut stream: std::pin::Pin<Box<dyn tidecast_net::Stream>>,
        node: NodeId,
        (addr, called): (SocketAddr, bool),
        serve: &Arc<S>,
    ) -> Result<(Arc<Link>, impl Future<Output = ()> + Send + use<S>), PeerError> {
        let hello = greet(&mut stream, &self.hello()).await?;
        match self.judge(hello, node, (addr, called), serve) {
            Ok(peer) => Ok(self.link(peer, stream, serve)),
            Err(error) => {
                if let PeerError::Untrusted { why, .. } = &error {
                    tokio::spawn(refuse(stream, why.clone()));
                }
                Err(error)
            }
        }
    }

    /// Whether one who has said hello is believed.
    fn judge<S: Serve>(
        &self,
        hello: Hello,
        node: NodeId,
        (addr, called): (SocketAddr, bool),
        serve: &Arc<S>,
    ) -> Result<Peer, PeerError> {
        match self.trust.judge(&hello, node) {
            Ok(identity) => Ok(Peer { node, identity, hello, addr, called }),
            Err(why) => {
                let why = why.say(&hello, &self.hello.read().name);
                self.turned_away(&hello, node, addr, &why, serve);
                serve.distrusted(node);
                Err(PeerError::Untrusted { addr, why })
            }
        }
    }

    /// The channel to one who is believed, and what runs it to its end.
    fn link<S: Serve>(
        &self,
        peer: Peer,
        stream: std::pin::Pin<Box<dyn tidecast_net::Stream>>,
        serve: &Arc<S>,
    ) -> (Arc<Link>, impl Future<Output = ()> + Send + use<S>) {
        let node = peer.node;
        let (link, run) = Link::new(peer, stream, serve.clone());
        {
            let mut links = self.links.lock();
            links.retain(|_, link| link.is_up());
            if links.len() < MOST {
                links.insert(node, link.clone());
            }
        }
        serve.met(&link);
        let serve = serve.clone();
        let run = async move {
            run.await;
            serve.ended(node);
        };
        (link, run)
    }
}

/// Connects to all of these at once: some may be behind a NAT and never answer, and those that do are not kept waiting.
fn connect_all(addresses: &[SocketAddr]) -> JoinSet<(SocketAddr, Result<TcpStream, PeerError>)> {
    let mut calling = JoinSet::new();
    for &addr in addresses {
        calling.spawn(async move { (addr, connect(addr).await) });
    }
    calling
}

async fn connect(addr: SocketAddr) -> Result<TcpStream, PeerError> {
    let connected = timeout(CONNECT, TcpStream::connect(addr)).await;
    let connected =
        connected.map_err(|_| unreachable(addr, format!("no answer within {} s", CONNECT.as_secs())))?;
    connected.map_err(|error| unreachable(addr, error))
}

fn unreachable(addr: SocketAddr, why: impl ToString) -> PeerError {
    PeerError::Unreachable { addr, why: why.to_string() }
}

/// Whether whoever has `all` addresses is the one that is said to have `some`: hosts may have one address alike that leads
/// nowhere from outside, such as that of a bridge for containers.
fn covers(all: &[SocketAddr], some: &[SocketAddr]) -> bool {
    !some.is_empty() && some.iter().all(|addr| all.contains(addr))
}
