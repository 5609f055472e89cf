//! The announcer: named trackers and tiers, both hashes, from `started` to `stopped`, with some dead trackers.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::net::SocketAddr;
use std::time::Duration;

use common::{ask, options, tracker, url};
use tidecast_discovery::announcer::{Announcer, Config, Progress, Trackers};
use tidecast_discovery::server::{self, Tracker};
use tidecast_discovery::tracker::{Event, announce};
use tidecast_discovery::{DiscoveredPeers, Source};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, timeout};

fn config(tiers: Vec<Vec<String>>, hashes: Vec<[u8; 20]>) -> Config {
    Config {
        trackers: Trackers { tiers, ..Trackers::default() },
        hashes,
        peer_id: *b"-TC0100-0123456789ab",
        port: 7000,
        progress: Progress { uploaded: 0, downloaded: 0, left: 10 },
        numwant: None,
        options: options(),
    }
}

/// Waits until `what` holds; the bound only ends a test that has failed.
async fn eventually(what: impl AsyncFn() -> bool) {
    let started = Instant::now();
    while !what().await {
        assert!(started.elapsed() < Duration::from_secs(60), "it never came about");
        sleep(Duration::from_millis(20)).await;
    }
}

async fn next(found: &mut mpsc::Receiver<DiscoveredPeers>) -> DiscoveredPeers {
    timeout(Duration::from_secs(60), found.recv()).await.unwrap().unwrap()
}

#[tokio::test]
async fn all_named_both_hashes_until_stopped() {
    let (one, other) = (tracker("127.0.0.1:0"), tracker("127.0.0.1:0"));
    let dead = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let http = url("http", one.local_addr());
    // A peer is there already, in the swarm of the second hash.
    announce(&http, &ask(2, 6000, 5, Event::Started), &options()).await.unwrap();

    let tiers = vec![vec![http.to_string()]];
    let mut config = config(tiers, vec![[1; 20], [2; 20]]);
    config.trackers.named = vec![
        format!("http://{dead}/announce"),
        "wss://tracker.example".into(),
        http.to_string(),
        format!("udp://{}/announce", other.local_addr()),
    ];
    let (send, mut found) = mpsc::channel(10);
    let announcer = Announcer::start(config, send);

    let got = next(&mut found).await;
    assert_eq!(got.hash, [2; 20]);
    assert_eq!(got.source, Source::Tracker(http.as_str().into()));
    assert_eq!(got.peers, ["127.0.0.1:6000".parse::<SocketAddr>().unwrap()]);
    eventually(async || one.stats().peers == 3 && other.stats().peers == 2).await;

    let status = announcer.status();
    assert_eq!(status.len(), 7);
    assert!(status.iter().filter(|s| s.answered > 0).all(|s| s.error.is_none()));
    assert_eq!(status.iter().filter(|s| s.answered > 0).count(), 4);
    let bad = status.iter().find(|s| s.url.starts_with("wss")).unwrap();
    assert!(bad.error.as_ref().unwrap().contains("scheme"));

    announcer.progress(Progress { uploaded: 1, downloaded: 10, left: 0 });
    let seeders = async |hash| {
        let got = announce(&http, &ask(hash, 6001, 5, Event::None), &options()).await.unwrap();
        got.seeders == Some(1)
    };
    eventually(async || seeders(1).await && seeders(2).await).await;

    announcer.stop().await;
    // Ours are gone; those that the test itself made remain.
    eventually(async || other.stats().peers == 0).await;
    assert_eq!(one.stats().peers, 3);
}

#[tokio::test]
async fn a_tracker_that_comes_late_is_found() {
    let place = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let (send, _found) = mpsc::channel(10);
    let announcer =
        Announcer::start(config(vec![vec![format!("http://{place}/announce")]], vec![[1; 20]]), send);
    eventually(async || announcer.status()[0].error.is_some()).await;
    let late = Tracker::bind(place, server::Options::default()).unwrap();
    eventually(async || late.stats().peers == 1).await;
    eventually(async || announcer.status()[0].error.is_none()).await;
}

#[tokio::test]
async fn stopping_is_not_held_up_by_a_silent_tracker() {
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let tiers = vec![vec![format!("http://{}/announce", silent.local_addr().unwrap())]];
    let mut config = config(tiers, vec![[1; 20]]);
    config.options.timeout = Duration::from_secs(600);
    let (send, _found) = mpsc::channel(10);
    let announcer = Announcer::start(config, send);
    let _held = silent.accept().await.unwrap();
    timeout(Duration::from_secs(60), announcer.stop()).await.expect("it stops");
}

/// Takes the next announce that comes: which event it tells, and where the answer goes.
async fn hear(tracker: &TcpListener) -> (String, TcpStream) {
    let (mut stream, _) = timeout(Duration::from_secs(60), tracker.accept()).await.unwrap().unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.unwrap());
    }
    let head = String::from_utf8(head).unwrap();
    let event = head.split(['?', '&', ' ']).find_map(|part| part.strip_prefix("event="));
    (event.unwrap_or_default().to_owned(), stream)
}

async fn answer(mut stream: TcpStream) {
    let body = "d8:intervali1800e5:peers0:e";
    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", body.len());
    stream.write_all((head + body).as_bytes()).await.unwrap();
}

#[tokio::test]
async fn who_stops_while_completed_is_under_way_does_not_say_it_twice() {
    let tracker = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let tiers = vec![vec![format!("http://{}/announce", tracker.local_addr().unwrap())]];
    let (send, _found) = mpsc::channel(10);
    let announcer = Announcer::start(config(tiers, vec![[1; 20]]), send);
    let (event, stream) = hear(&tracker).await;
    assert_eq!(event, "started");
    answer(stream).await;
    announcer.progress(Progress { uploaded: 0, downloaded: 10, left: 0 });
    let (event, stream) = hear(&tracker).await;
    assert_eq!(event, "completed");
    let stopping = tokio::spawn(announcer.stop());
    // All tasks of this test share a thread: it knows of the stop before the answer comes.
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    answer(stream).await;
    let (event, stream) = hear(&tracker).await;
    assert_eq!(event, "stopped");
    answer(stream).await;
    stopping.await.unwrap();
}

#[tokio::test]
async fn nobody_reading_holds_up_nothing() {
    let tracker = tracker("127.0.0.1:0");
    let url = url("http", tracker.local_addr());
    for hash in 1..=3 {
        announce(&url, &ask(hash, 6000, 5, Event::Started), &options()).await.unwrap();
    }
    let (send, mut found) = mpsc::channel(1);
    let hashes = vec![[1; 20], [2; 20], [3; 20]];
    let announcer = Announcer::start(config(vec![vec![url.to_string()]], hashes), send);
    eventually(async || announcer.status().iter().all(|s| s.answered == 1)).await;
    next(&mut found).await;
    announcer.stop().await;
    assert_eq!(tracker.stats().peers, 3);
}

/// The trackers that have a swarm.
fn told(trackers: &[&Tracker]) -> Vec<usize> {
    trackers.iter().map(|tracker| tracker.stats().peers).collect()
}

#[tokio::test]
async fn one_tracker_of_the_tiers_is_told_while_it_answers() {
    let trackers = [tracker("127.0.0.1:0"), tracker("127.0.0.1:0"), tracker("127.0.0.1:0")];
    let [one, other, later] = &trackers;
    let at = |tracker: &Tracker| url("http", tracker.local_addr()).to_string();
    let (send, _found) = mpsc::channel(10);
    let tiers = vec![vec![at(one), at(other)], vec![at(later)]];
    let announcer = Announcer::start(config(tiers, vec![[1; 20], [2; 20]]), send);
    eventually(async || announcer.status().iter().filter(|s| s.answered > 0).count() == 2).await;
    announcer.progress(Progress { uploaded: 0, downloaded: 10, left: 0 });
    eventually(async || announcer.status().iter().filter(|s| s.answered > 1).count() == 2).await;
    let heard = told(&[one, other, later]);
    assert!(heard == [2, 0, 0] || heard == [0, 2, 0], "one of the first tier, of both hashes: {heard:?}");
    announcer.stop().await;
    assert_eq!(told(&[one, other, later]), [0, 0, 0]);
}

#[tokio::test]
async fn the_next_tier_is_told_where_one_fails_or_is_silent() {
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let refuses = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let (last, after) = (tracker("127.0.0.1:0"), tracker("127.0.0.1:0"));
    let tiers = vec![
        vec![
            format!("http://{refuses}/announce"),
            format!("http://{}/announce", silent.local_addr().unwrap()),
        ],
        vec![url("udp", last.local_addr()).to_string()],
        vec![url("http", after.local_addr()).to_string()],
    ];
    let mut config = config(tiers, vec![[1; 20]]);
    config.options.timeout = Duration::from_secs(600);
    let (send, _found) = mpsc::channel(10);
    let announcer = Announcer::start(config, send);
    eventually(async || last.stats().peers == 1).await;
    assert_eq!(after.stats().peers, 0);
    announcer.stop().await;
    assert_eq!(last.stats().peers, 0);
}
