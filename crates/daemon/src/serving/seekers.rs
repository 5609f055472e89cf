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
pub(crate) struct Seekers(Mutex<HashMap<[u8; 32], Vec<Seeker>>>);

struct Seeker {
    node: NodeId,
    addresses: Vec<SocketAddr>,
    at: Instant,
}

impl Seekers {
    /// Some other daemons that fetch this content, at random; `peer` is one of them from now on.
    pub(super) fn meet(&self, content: [u8; 32], peer: &Peer) -> Vec<Vec<SocketAddr>> {
        let mut all = self.0.lock();
        all.retain(|_, seekers| {
            seekers.retain(|s| s.at.elapsed() < SEEKS);
            !seekers.is_empty()
        });
        let seekers = all.entry(content).or_default();
        seekers.retain(|s| s.node != peer.node);
        let mut some: Vec<Vec<SocketAddr>> = Vec::new();
        let start = if seekers.is_empty() { 0 } else { rand::random_range(0..seekers.len()) };
        for seeker in seekers.iter().cycle().skip(start).take(seekers.len().min(NAMED)) {
            some.push(seeker.addresses.clone());
        }
        if seekers.len() < SEEKERS {
            let mut addresses = peer.hello.addresses.clone();
            if let Some(port) = addresses.first().map(SocketAddr::port) {
                addresses.insert(0, SocketAddr::new(peer.addr.ip(), port));
            }
            addresses.dedup();
            seekers.push(Seeker { node: peer.node, addresses, at: Instant::now() });
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
        let seekers = Seekers::default();
        assert!(seekers.meet([1; 32], &peer(1)).is_empty());
        assert!(seekers.meet([2; 32], &peer(9)).is_empty(), "another content");
        // Where its port is, seen from here: once.
        assert_eq!(seekers.meet([1; 32], &peer(2)), [vec![SocketAddr::from(([10, 0, 0, 1], 6980))]]);
        assert_eq!(seekers.meet([1; 32], &peer(1)).len(), 1, "none hears of itself");
    }

    #[tokio::test(start_paused = true)]
    async fn a_few_are_named_and_none_after_an_hour() {
        let seekers = Seekers::default();
        for n in 0..100 {
            assert!(seekers.meet([1; 32], &peer(n)).len() <= NAMED);
        }
        assert_eq!(seekers.meet([1; 32], &peer(200)).len(), NAMED);
        tokio::time::advance(SEEKS).await;
        assert!(seekers.meet([1; 32], &peer(201)).is_empty());
    }
}
