//! Two nodes of a DHT of their own find each other through a third.
#![cfg(feature = "dht")]
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::time::Duration;

use tidecast_discovery::Source;
use tidecast_discovery::dht::{Dht, Options};
use tokio::sync::mpsc;
use tokio::time::timeout;

#[tokio::test]
async fn two_nodes_meet() {
    let (send, mut found) = mpsc::channel(100);
    let node = async |bootstrap: Vec<String>| {
        let local = Some([127, 0, 0, 1].into());
        let options = Options { bind: local, port: None, bootstrap: Some(bootstrap), server: true };
        Dht::start(options, send.clone()).await.unwrap()
    };
    let first = node(Vec::new()).await;
    let through = vec![format!("127.0.0.1:{}", first.local_addr().await.port())];
    let mut one = node(through.clone()).await;
    let mut other = node(through).await;
    one.add([7; 20], 1001);
    // Long enough for its announce, mostly; if not, the other searches again after a minute.
    tokio::time::sleep(Duration::from_secs(3)).await;
    other.add([7; 20], 1002);
    let got = timeout(Duration::from_secs(150), found.recv()).await.expect("an answer").unwrap();
    assert_eq!((got.hash, got.source), ([7; 20], Source::Dht));
    assert_eq!(got.peers, ["127.0.0.1:1001".parse().unwrap()]);
}

#[tokio::test]
async fn a_bootstrap_address_that_is_none_is_an_error() {
    let (send, _found) = mpsc::channel(1);
    let options = Options { bootstrap: Some(vec!["nonsense".into()]), ..Options::default() };
    assert!(Dht::start(options, send).await.is_err());
}
