//! Daemons that were recently granted the same content: they can send it to each other.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::time::Duration;

use parking_lot::Mutex;
use tidecast_identity::NodeId;
use tokio::time::Instant;

use crate::links::link::Peer;

/// Holders named in one answer.
const NAMED: usize = 16;
/// A daemon that was granted a cache is expected to have (some of) it for this long.
const SEEKS: Duration = Duration::from_secs(3600);
/// Seekers remembered for one cache.
const SEEKERS: usize = 4096;

/// By content.
#[derive(Default)]
pub(crate) struct FetchingPeers(Mutex<HashMap<[u8; 32], Vec<FetchingPeer>>>);

struct FetchingPeer {
    node: NodeId,
    addresses: Vec<SocketAddr>,
    at: Instant,
}

impl FetchingPeers {
    /// Some other daemons that fetch this content, at random; `peer` is one of them from now on.
    pub(super) fn meet(&self, content: [u8; 32], peer: &Peer) -> Vec<Vec<SocketAddr>> {
        let mut all = self.0.lock();
        all.retain(|_, fetching_peers| {
            fetching_peers.retain(|s| s.at.elapsed() < SEEKS);
            !fetching_peers.is_empty()
        });
        let fetching_peers = all.entry(content).or_default();
        fetching_peers.retain(|s| s.node != peer.node);
        let mut some: Vec<Vec<SocketAddr>> = Vec::new();
        let start = if fetching_peers.is_empty() { 0 } else { rand::random_range(0..fetching_peers.len()) };
        for seeker in fetching_peers.iter().cycle().skip(start).take(fetching_peers.len().min(NAMED)) {
            some.push(seeker.addresses.clone());
        }
        if fetching_peers.len() < SEEKERS {
            let mut addresses = peer.hello.addresses.clone();
            if let Some(port) = addresses.first().map(SocketAddr::port) {
                addresses.insert(0, SocketAddr::new(peer.addr.ip(), port));
            }
            addresses.dedup();
            fetching_peers.push(FetchingPeer { node: peer.node, addresses, at: Instant::now() });
        }
        some
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use tidecast_identity::Identity;

    use super::*;
    use crate::model::message::Hello;

    fn peer(n: u8) -> Peer {
        let addr = SocketAddr::from(([10, 0, 0, n], 1000));
        let hello = Hello {
            name: format!("node{n}"),
            card: String::new(),
            addresses: vec![SocketAddr::from(([10, 0, 0, n], 6980))],
            machine: String::new(),
            started: 0,
            user: None,
            clock: 0,
        };
        Peer { node: NodeId([n; 32]), identity: Identity::Host("x".into()), hello, addr, called: false }
    }

    #[tokio::test(start_paused = true)]
    async fn seekers_of_one_content_hear_of_each_other() {
        let fetching_peers = FetchingPeers::default();
        assert!(fetching_peers.meet([1; 32], &peer(1)).is_empty());
        assert!(fetching_peers.meet([2; 32], &peer(9)).is_empty(), "another content");
        // Where its port is, seen from here: once.
        assert_eq!(fetching_peers.meet([1; 32], &peer(2)), [vec![SocketAddr::from(([10, 0, 0, 1], 6980))]]);
        assert_eq!(fetching_peers.meet([1; 32], &peer(1)).len(), 1, "none hears of itself");
    }

    #[tokio::test(start_paused = true)]
    async fn a_few_are_named_and_none_after_an_hour() {
        let fetching_peers = FetchingPeers::default();
        for n in 0..100 {
            assert!(fetching_peers.meet([1; 32], &peer(n)).len() <= NAMED);
        }
        assert_eq!(fetching_peers.meet([1; 32], &peer(200)).len(), NAMED);
        tokio::time::advance(SEEKS).await;
        assert!(fetching_peers.meet([1; 32], &peer(201)).is_empty());
    }
}
