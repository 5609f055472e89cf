//! The Mainline DHT (BEP 5), a thin layer over the crate `mainline`. IPv4 only, as that crate is.
//!
//! Nothing here runs unless the user asked for it: a DHT tells strangers which hosts are in a swarm. Never start it
//! for a private manifest (BEP 27).

use std::future::poll_fn;
use std::net::{Ipv4Addr, SocketAddr};
use std::pin::pin;
use std::time::Duration;

use futures_core::Stream;
use mainline::Id;
use mainline::async_dht::AsyncDht;
use tokio::sync::mpsc;
use tokio::task::{JoinSet, spawn_blocking};
use tokio::time::{sleep, timeout};
use tracing::debug;

use crate::{DiscoveredPeers, Error, InfoHash, Source, peers, usable};

/// Time between announces (BEP 5: nodes forget after about 30 minutes).
const INTERVAL: Duration = Duration::from_secs(15 * 60);
/// Interval of announces while no peer was found.
const ALONE: Duration = Duration::from_secs(60);
/// Most time one search or one announce may take.
const PATIENCE: Duration = Duration::from_secs(60);
/// Most peers taken from one search.
const MAX_PEERS: usize = 400;
/// Most bootstrap names, and how long each may take to resolve.
const BOOTSTRAP: (usize, Duration) = (16, Duration::from_secs(5));

/// How the DHT node is set up.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Local address; `None`: all.
    pub bind: Option<Ipv4Addr>,
    /// UDP port; `None`: `mainline`'s choice.
    pub port: Option<u16>,
    /// Nodes to begin with, `HOST:PORT`; `None`: the public ones. Empty: none, for the first node of a
    /// network of one's own.
    pub bootstrap: Option<Vec<String>>,
    /// Answer others from the start (for a network of one's own), rather than after it has proved
    /// that this node can be reached.
    pub server: bool,
}

/// A running DHT node. Dropping it ends it.
pub struct Dht {
    node: AsyncDht,
    found: mpsc::Sender<DiscoveredPeers>,
    searches: JoinSet<()>,
}

impl Dht {
    /// Starts a node. Peers go into `found`, and are dropped while it is full.
    ///
    /// # Errors
    /// [`Error::Address`] for a bootstrap node that cannot be read, [`Error::Socket`] when the port
    /// cannot be bound. Bootstrap nodes that do not resolve are left out.
    pub async fn start(options: Options, found: mpsc::Sender<DiscoveredPeers>) -> Result<Self, Error> {
        let mut builder = mainline::Dht::builder();
        if let Some(names) = &options.bootstrap {
            builder.bootstrap(&resolve(names).await?);
        }
        if let Some(ip) = options.bind {
            builder.bind_address(ip);
        }
        if let Some(port) = options.port {
            builder.port(port);
        }
        if options.server {
            builder.server_mode();
        }
        let fail = |source| Error::Socket { what: "the DHT's port".into(), source };
        let node = spawn_blocking(move || builder.build())
            .await
            .map_err(std::io::Error::other)
            .and_then(|built| built)
            .map_err(fail)?;
        Ok(Self { node: node.as_async(), found, searches: JoinSet::new() })
    }

    /// The port of this node, and its address as far as it knows.
    pub async fn local_addr(&self) -> SocketAddr {
        self.node.info().await.local_addr().into()
    }

    /// Looks for peers of `hash`, and announces that we are one on `port`, from now on.
    pub fn add(&mut self, hash: InfoHash, port: u16) {
        self.searches.spawn(search(self.node.clone(), hash, port, self.found.clone()));
    }
}

async fn resolve(names: &[String]) -> Result<Vec<String>, Error> {
    let mut nodes = Vec::new();
    for name in names.iter().take(BOOTSTRAP.0) {
        peers::parse(name)?;
        match peers::resolve(name, BOOTSTRAP.1).await {
            Ok(addrs) => nodes.extend(addrs.iter().filter(|a| a.is_ipv4()).map(ToString::to_string)),
            Err(error) => debug!(%error, "skipped a DHT bootstrap node"),
        }
    }
    Ok(nodes)
}

async fn search(node: AsyncDht, hash: InfoHash, port: u16, found: mpsc::Sender<DiscoveredPeers>) {
    let id = Id::from(hash);
    loop {
        let mut peers: Vec<SocketAddr> = Vec::new();
        let _ = timeout(PATIENCE, async {
            let mut answers = pin!(node.get_peers(id));
            while let Some(answer) = poll_fn(|cx| answers.as_mut().poll_next(cx)).await {
                let mut new: Vec<_> = answer.into_iter().map(SocketAddr::V4).filter(usable).collect();
                new.retain(|peer| !peers.contains(peer));
                new.truncate(MAX_PEERS.saturating_sub(peers.len()));
                peers.extend(&new);
                if !new.is_empty()
                    && found.try_send(DiscoveredPeers { hash, source: Source::Dht, peers: new }).is_err()
                {
                    debug!("dropped peers of the DHT: the queue is full");
                }
            }
        })
        .await;
        match timeout(PATIENCE, node.announce_peer(id, Some(port))).await {
            Ok(Ok(_)) => {}
            Ok(Err(error)) => debug!(%error, "DHT announce failed"),
            Err(_) => debug!("DHT announce: timeout"),
        }
        sleep(if peers.is_empty() { ALONE } else { INTERVAL }).await;
    }
}
