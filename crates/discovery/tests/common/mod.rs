//! Shared by the tests: an announce to fill in, and a tracker on loopback.
#![allow(dead_code, clippy::unwrap_used, clippy::expect_used)]

use std::net::SocketAddr;
use std::time::Duration;

use tidecast_discovery::TrackerUrl;
use tidecast_discovery::server::{self, Tracker};
use tidecast_discovery::tracker::{Announce, Event, Options};

pub(crate) fn ask(hash: u8, port: u16, left: u64, event: Event) -> Announce {
    Announce {
        info_hash: [hash; 20],
        peer_id: [&b"-TC0100-0123456789"[..], &port.to_be_bytes()].concat().try_into().unwrap(),
        port,
        uploaded: 1,
        downloaded: 2,
        left,
        event,
        numwant: None,
        key: 7,
        tracker_id: None,
    }
}

/// Patience enough for a busy machine, but lost UDP packets are sent again soon.
pub(crate) fn options() -> Options {
    Options {
        timeout: Duration::from_secs(30),
        udp_first_wait: Some(Duration::from_millis(200)),
        udp_attempts: 6,
        ..Options::default()
    }
}

pub(crate) fn tracker(listen: &str) -> Tracker {
    Tracker::bind(listen.parse().unwrap(), server::Options::default()).unwrap()
}

pub(crate) fn url(scheme: &str, addr: SocketAddr) -> TrackerUrl {
    TrackerUrl::parse(&format!("{scheme}://{addr}/announce")).unwrap()
}

/// Whether this machine can do IPv6; says so when it cannot.
pub(crate) fn has_ipv6() -> bool {
    let has = std::net::UdpSocket::bind("[::1]:0").is_ok();
    if !has {
        eprintln!("SKIPPED: this machine has no IPv6 loopback");
    }
    has
}
