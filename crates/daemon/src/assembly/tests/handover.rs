//! From the swarm that has brought a cache to the one that serves it.

use std::time::Duration;

use tidecast_net::Progress;
use tokio::sync::watch;
use tokio::time::sleep;

use super::site::{Host, Site, eventually, user};
use crate::model::types::CacheInfo;

/// The swarm that fetched the next cache serves it to this many peers.
fn serving(host: &Host, peers: usize) -> watch::Sender<Progress> {
    let (tell, progress) = watch::channel(Progress { peers, ..Progress::default() });
    *host.seen.serving.lock() = Some(progress);
    tell
}

/// Whether a swarm over the store's own files serves a cache, and whether its staged names are there.
fn stands(host: &Host, cache: &CacheInfo) -> (bool, bool) {
    let record = host.daemon.store.depot.cache(cache.cache.parse().unwrap()).unwrap();
    let staged = host.daemon.config.dir.join("depot/incoming").join(&cache.cache);
    (host.daemon.swarms.runs(&record.content.unwrap()), staged.exists())
}

#[tokio::test(start_paused = true)]
async fn what_brought_a_cache_serves_it_until_no_peer_is_left() {
    let (site, alice) = (Site::new(&["head", "node1"]).await, user("alice"));
    let (head, node1) = (site.host("head"), site.host("node1"));
    head.make(&alice, "nt", "acgt").await;
    let tell = serving(node1, 1);
    let got = node1.get(&alice, "head/nt").await.unwrap();
    assert_eq!((node1.content(&got).as_str(), got.came.origin), ("acgt", 4), "it is a cache at once");
    sleep(Duration::from_secs(60)).await;
    assert_eq!(stands(node1, &got), (false, true), "a peer is connected");
    tell.send_modify(|now| now.peers = 0);
    sleep(Duration::from_secs(4)).await;
    tell.send_modify(|now| now.peers = 1);
    sleep(Duration::from_secs(60)).await;
    assert_eq!(stands(node1, &got), (false, true), "the peer was gone for a moment only");
    tell.send_modify(|now| now.peers = 0);
    eventually("another swarm serves it", 10, || stands(node1, &got) == (true, false)).await;
}

#[tokio::test(start_paused = true)]
async fn a_swarm_that_was_stopped_gets_no_other_in_its_place() {
    let (site, alice) = (Site::new(&["head", "node1"]).await, user("alice"));
    let (head, node1) = (site.host("head"), site.host("node1"));
    head.make(&alice, "nt", "acgt").await;
    let tell = serving(node1, 1);
    let got = node1.get(&alice, "head/nt").await.unwrap();
    assert_eq!(stands(node1, &got), (false, true));
    drop(tell);
    eventually("its names are gone", 10, || !stands(node1, &got).1).await;
    sleep(Duration::from_secs(10)).await;
    assert_eq!(stands(node1, &got), (false, false));
}
