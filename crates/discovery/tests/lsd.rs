//! Local discovery between instances on this host, where its interfaces can do multicast.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::net::UdpSocket;
use std::time::Duration;

use tidecast_discovery::Source;
use tidecast_discovery::interfaces;
use tidecast_discovery::lsd::{Lsd, Options};
use tokio::sync::mpsc;
use tokio::time::timeout;

/// A group port of this test's own, so that it receives neither other tests nor real clients.
fn port() -> u16 {
    UdpSocket::bind("0.0.0.0:0").unwrap().local_addr().unwrap().port()
}

/// Two instances on `interface`; whether they found each other.
async fn meet(interface: &str) -> bool {
    let options = Options { interfaces: vec![interface.into()], port: port() };
    let (send_a, mut found_a) = mpsc::channel(100);
    let (send_b, mut found_b) = mpsc::channel(100);
    let (Ok(a), Ok(b)) = (Lsd::start(&options, send_a), Lsd::start(&options, send_b)) else { return false };
    a.add([1; 20], 1001);
    a.add([9; 20], 1001);
    b.add([2; 20], 1002);
    // Both listen from now on: the other receives the next announcement.
    tokio::time::sleep(Duration::from_millis(100)).await;
    b.add([1; 20], 1002);
    let Ok(got) = timeout(Duration::from_secs(3), found_a.recv()).await else { return false };
    let got = got.unwrap();
    assert_eq!((got.hash, got.source), ([1; 20], Source::Local));
    assert_eq!(got.peers[0].port(), 1002);
    // Over IPv6 the same again; anything else (its own packets, swarms it is not in) would be wrong.
    while let Ok(Some(more)) = timeout(Duration::from_millis(200), found_a.recv()).await {
        assert_eq!((more.hash, more.peers[0].port()), ([1; 20], 1002));
    }
    // Announcements that the other may have received meanwhile are of the first, never its own.
    while let Ok(more) = found_b.try_recv() {
        assert_eq!((more.hash, more.peers[0].port()), ([1; 20], 1001));
    }
    true
}

#[tokio::test]
async fn two_on_one_host_meet() {
    let mut met = Vec::new();
    for interface in interfaces::list().unwrap() {
        // Twice, because on a busy machine the other may not have listened yet.
        if meet(&interface.name).await || meet(&interface.name).await {
            met.push(interface.name);
        }
    }
    eprintln!("met over {met:?}");
    if met.is_empty() {
        eprintln!("SKIPPED: no interface of this machine can do multicast");
    }
}

#[tokio::test]
async fn an_interface_that_is_not_there_is_an_error() {
    let options = Options { interfaces: vec!["no-such-interface".into()], port: port() };
    let (send, _found) = mpsc::channel(1);
    assert!(Lsd::start(&options, send).is_err());
}
