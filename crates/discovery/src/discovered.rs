//! The result of every source of peers, and the check whether an address is usable.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use crate::InfoHash;

/// Peers of one swarm, as some source named them. Nothing about them is verified.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DiscoveredPeers {
    /// Their swarm.
    pub hash: InfoHash,
    /// The source.
    pub source: Source,
    /// Their listening addresses; never empty, each [`usable`].
    pub peers: Vec<SocketAddr>,
}

/// Where an address came from.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Source {
    /// A tracker, by its URL.
    Tracker(Arc<str>),
    /// Local discovery (BEP 14).
    Local,
    /// The DHT (BEP 5).
    Dht,
    /// The user.
    Static,
}

/// Whether a TCP connection to `addr` can make sense: a real port, one host, and no scope that the address does not
/// carry (an IPv6 link-local address from a tracker lacks the interface).
#[must_use]
pub fn usable(addr: &SocketAddr) -> bool {
    if addr.port() == 0 {
        return false;
    }
    match addr {
        SocketAddr::V4(a) => {
            let ip = a.ip();
            !(ip.is_unspecified() || ip.is_multicast() || ip.is_broadcast())
        }
        SocketAddr::V6(a) => {
            let ip = a.ip();
            let scope_missing = ip.is_unicast_link_local() && a.scope_id() == 0;
            !(ip.is_unspecified() || ip.is_multicast() || scope_missing)
        }
    }
}

/// `addr` with an IPv4 address written as IPv4, which a dual-stack socket does not do.
pub(crate) fn canonical(addr: SocketAddr) -> SocketAddr {
    match addr.ip().to_canonical() {
        IpAddr::V4(ip) => SocketAddr::new(IpAddr::V4(ip), addr.port()),
        IpAddr::V6(_) => addr,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;

    #[test]
    fn only_addresses_one_can_connect_to() {
        for good in ["10.0.0.1:1", "127.0.0.1:6881", "[::1]:6881", "[fe80::1%3]:9"] {
            assert!(usable(&good.parse().unwrap()), "{good}");
        }
        for bad in [
            "10.0.0.1:0",
            "0.0.0.0:1",
            "239.1.1.1:1",
            "255.255.255.255:1",
            "[::]:1",
            "[ff02::1]:1",
            "[fe80::1]:9",
        ] {
            assert!(!usable(&bad.parse().unwrap()), "{bad}");
        }
    }

    #[test]
    fn mapped_addresses_become_ipv4() {
        assert_eq!(canonical("[::ffff:10.0.0.1]:5".parse().unwrap()), "10.0.0.1:5".parse().unwrap());
        assert_eq!(canonical("[fd00::1]:5".parse().unwrap()), "[fd00::1]:5".parse().unwrap());
    }
}
