//! Other daemons: a control channel to each connected one, and its identity.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock, Weak};

use bytes::Bytes;
use parking_lot::{Mutex, RwLock};
use tidecast_control::ConnectAttempts;
use tidecast_identity::NodeId;
use tidecast_net::Visitor;

use super::link::{Link, Peer, Serve, Serving, answer_enrolment, exchange_hello, refuse};
use super::rejections::{RejectedBy, Rejections, who};
use super::trust::Trust;
use super::wire::{Handshake, PeerError, Taking, Wire, Wired, unreachable};
use crate::model::message::{Answer, Ask, First, Hello};

/// Channels kept at most; further ones serve only the peer that opened them.
const MOST: usize = 4096;

/// The channels that are up.
pub(crate) struct Links {
    node: NodeId,
    wire: Arc<dyn Wire>,
    trust: Arc<Trust>,
    hello: RwLock<Hello>,
    links: Mutex<HashMap<NodeId, Arc<Link>>>,
    rejections: Rejections,
    /// Answers requests. It is built after the links and owns them; the reference is weak, so that both can
    /// end.
    serve: OnceLock<Weak<dyn Serve>>,
}

/// Before there is anything to answer with, and after it has ended.
struct Nothing;

impl Serve for Nothing {
    fn serve<'a>(self: Arc<Self>, _: &'a Peer, _: Ask, _: Bytes) -> Serving<'a> {
        Box::pin(async { (Answer::NotUnderstood, Bytes::new()) })
    }
}

impl Links {
    pub(crate) fn new(node: NodeId, wire: Arc<dyn Wire>, trust: Arc<Trust>, hello: Hello) -> Self {
        Self {
            node,
            wire,
            trust,
            hello: RwLock::new(hello),
            links: Mutex::default(),
            rejections: Rejections::default(),
            serve: OnceLock::new(),
        }
    }

    /// From now on this answers the requests of other daemons.
    pub(crate) fn answer_with<S: Serve>(&self, serve: &Arc<S>) {
        let weak: Weak<S> = Arc::downgrade(serve);
        // Set once, by the builder of the daemon.
        let _ = self.serve.set(weak);
    }

    fn serve(&self) -> Arc<dyn Serve> {
        self.serve.get().and_then(Weak::upgrade).unwrap_or_else(|| Arc::new(Nothing))
    }

    /// This daemon's hello.
    pub(crate) fn hello(&self) -> Hello {
        Hello { clock: crate::clock::now(), ..self.hello.read().clone() }
    }

    /// A new card, before the old one ends.
    pub(crate) fn set_card(&self, card: String) {
        self.hello.write().card = card;
    }

    /// The daemon at one of these addresses, whichever answers first; a channel that is up already serves.
    pub(crate) async fn at(&self, addresses: &[SocketAddr]) -> Result<Arc<Link>, PeerError> {
        if let Some(link) =
            self.find(|peer| addresses.contains(&peer.addr) || covers(&peer.hello.addresses, addresses))
        {
            return Ok(link);
        }
        let mut attempts = self.dial(addresses);
        let mut last = PeerError::NoAddress;
        while let Some((addr, connected)) = attempts.next_delayed().await {
            let greeted = match connected {
                Ok(handshake) => self.exchange_hello(addr, handshake).await,
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

    /// A channel to this node, which should be at one of these addresses.
    pub(crate) async fn reach(&self, node: NodeId, addresses: &[SocketAddr]) -> Result<Arc<Link>, PeerError> {
        let mut attempts = self.dial(addresses);
        let mut last = PeerError::NoAddress;
        while let Some((addr, connected)) = attempts.next_delayed().await {
            if let Some(link) = self.to(node) {
                return Ok(link);
            }
            let dialled = async { self.exchange_hello(addr, connected?).await };
            match dialled.await {
                Ok(link) if link.peer.node == node => return Ok(link),
                Ok(_) => last = PeerError::Unreachable { addr, why: "another daemon listens there".into() },
                Err(error) => last = error,
            }
        }
        self.to(node).ok_or(last)
    }

    /// Closes the channel to a node that no longer answers.
    pub(crate) fn part(&self, node: NodeId) {
        if let Some(link) = self.links.lock().remove(&node) {
            link.close();
        }
    }

    /// The trust settings of this daemon.
    pub(crate) fn trust(&self) -> &Trust {
        &self.trust
    }

    /// All channels that are up.
    pub(crate) fn all(&self) -> Vec<Arc<Link>> {
        self.links.lock().values().filter(|link| link.is_up()).cloned().collect()
    }

    /// Closes the channels to peers that are no longer trusted (a certificate was revoked, a card has
    /// expired).
    pub(crate) fn recheck_peers(&self) -> Vec<NodeId> {
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
                self.rejected_peer(&peer.hello, peer.node, peer.addr, &why);
                distrusted.push(peer.node);
            }
        }
        distrusted
    }

    /// Logs that a peer was rejected.
    fn rejected_peer(&self, hello: &Hello, node: NodeId, addr: SocketAddr, why: &str) {
        let who = who(&hello.name, addr);
        if self.rejections.note(RejectedBy::ThisDaemon, node, &who, why) {
            tracing::warn!(peer = who, %node, why, "rejected a daemon: its certificate is not trusted");
            self.serve().rejected_peer(&who, why);
        }
    }

    /// Logs that another daemon rejected this one.
    pub(crate) fn refused(&self, peer: &Peer, why: &str) {
        if self.rejections.note(RejectedBy::Peer, peer.node, &peer.hello.name, why) {
            let (peer, addr) = (peer.hello.name.as_str(), peer.addr);
            tracing::warn!(peer, %addr, why, "another daemon rejected this one");
        }
    }

    /// Adds recent rejections (a few) to `why`, the reason why no host has something: a rejected peer may
    /// have it.
    pub(crate) fn with_rejections(&self, mut why: String) -> String {
        for refusal in self.rejections.lately(|node| self.to(node).is_none()).into_iter().take(3) {
            if !why.contains(&refusal) {
                why = format!("{why}; {refusal}");
            }
        }
        why
    }

    /// Serves an incoming connection: hello, check of the certificate, requests until the channel ends.
    pub(crate) async fn accept(&self, visitor: Visitor) {
        let Visitor { mut stream, node, addr, mut admitted } = visitor;
        let ours = self.hello();
        let greeted =
            admitted.run(exchange_hello(&mut stream, &ours)).await.unwrap_or_else(|cut| Err(cut.into()));
        let met = match greeted {
            Ok(First::Hello(hello)) => self.judge(hello, node, (addr, false)),
            Ok(First::Enrolment(wish)) => {
                // It has proven no more than its key: it counts as unproven to its end, and has no more time than others.
                let answered = async {
                    let (answer, crl) = self.serve().enrol(node, addr, wish).await;
                    answer_enrolment(stream, &answer, &crl).await;
                };
                let _ = admitted.run(answered).await;
                return;
            }
            Err(error) => return tracing::debug!(%addr, %error, "cannot accept a connection from a daemon"),
        };
        match met {
            Ok(peer) => {
                admitted.prove();
                self.link(peer, stream).1.await;
            }
            // The connection still counts as unauthenticated while the reason is sent.
            Err(PeerError::Untrusted { why, .. }) => {
                let _ = admitted.run(refuse(stream, why)).await;
            }
            Err(error) => tracing::debug!(%addr, %error, "cannot accept a connection from a daemon"),
        }
    }

    /// Connects to these a little after one another: some may be behind a NAT and never answer, and keep none waiting.
    fn dial(
        &self,
        addresses: &[SocketAddr],
    ) -> ConnectAttempts<Result<Handshake, PeerError>, impl FnMut(SocketAddr) -> Taking<Handshake> + use<>>
    {
        let wire = self.wire.clone();
        ConnectAttempts::new(addresses.to_vec(), move |addr| wire.clone().connect(addr))
    }

    async fn exchange_hello(&self, addr: SocketAddr, handshake: Handshake) -> Result<Arc<Link>, PeerError> {
        let (stream, node) = handshake.await?;
        if node == self.node {
            return Err(unreachable(addr, "this daemon itself listens there"));
        }
        let (link, run) = self.meet(stream, node, (addr, true)).await?;
        tokio::spawn(run);
        Ok(link)
    }

    /// Exchanges the hello over a stream whose other end has proven to be `node`; the channel, and the future
    /// that runs it.
    pub(crate) async fn meet(
        &self,
        mut stream: Wired,
        node: NodeId,
        (addr, called): (SocketAddr, bool),
    ) -> Result<(Arc<Link>, impl Future<Output = ()> + Send + use<>), PeerError> {
        let hello = exchange_hello(&mut stream, &self.hello()).await?;
        match self.judge(hello, node, (addr, called)) {
            Ok(peer) => Ok(self.link(peer, stream)),
            Err(error) => {
                if let PeerError::Untrusted { why, .. } = &error {
                    tokio::spawn(refuse(stream, why.clone()));
                }
                Err(error)
            }
        }
    }

    /// Checks whether the sender of a hello is trusted.
    fn judge(
        &self,
        hello: Hello,
        node: NodeId,
        (addr, called): (SocketAddr, bool),
    ) -> Result<Peer, PeerError> {
        match self.trust.judge(&hello, node) {
            Ok(identity) => Ok(Peer { node, identity, hello, addr, called }),
            Err(why) => {
                let why = why.describe(&hello, &self.hello.read().name);
                self.rejected_peer(&hello, node, addr, &why);
                self.serve().distrusted(node);
                Err(PeerError::Untrusted { addr, why })
            }
        }
    }

    /// The channel to a trusted peer, and the future that runs it.
    fn link(&self, peer: Peer, stream: Wired) -> (Arc<Link>, impl Future<Output = ()> + Send + use<>) {
        let (node, serve) = (peer.node, self.serve());
        let (link, run) = Link::new(peer, stream, serve.clone());
        {
            let mut links = self.links.lock();
            links.retain(|_, link| link.is_up());
            if links.len() < MOST {
                links.insert(node, link.clone());
            }
        }
        serve.met(&link);
        let run = async move {
            run.await;
            serve.ended(node);
        };
        (link, run)
    }
}

/// Whether the node with `all` addresses is the one announced with `some`: hosts may share an address that is
/// not reachable from outside, such as that of a container bridge.
fn covers(all: &[SocketAddr], some: &[SocketAddr]) -> bool {
    !some.is_empty() && some.iter().all(|addr| all.contains(addr))
}
