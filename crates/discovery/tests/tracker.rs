//! The tracker client against the embedded tracker: HTTP and UDP, IPv4 and IPv6, each mixed with the other.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::net::SocketAddr;
use std::time::Duration;

use common::{ask, has_ipv6, options, tracker, url};
use tidecast_discovery::Error;
use tidecast_discovery::tracker::{Event, announce};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UdpSocket};

/// A leecher comes, a seeder finds it, the leecher completes, the seeder leaves.
async fn life_of_a_swarm(scheme: &str, listen: &str) {
    let tracker = tracker(listen);
    let (url, options) = (url(scheme, tracker.local_addr()), options());
    let ip = tracker.local_addr().ip();

    let first = announce(&url, &ask(1, 1001, 9, Event::Started), &options).await.unwrap();
    assert_eq!((first.peers.len(), first.seeders, first.leechers), (0, Some(0), Some(1)));
    assert_eq!(first.interval, Duration::from_secs(120));

    let second = announce(&url, &ask(1, 1002, 0, Event::Started), &options).await.unwrap();
    assert_eq!(second.peers, [SocketAddr::new(ip, 1001)]);
    assert_eq!((second.seeders, second.leechers), (Some(1), Some(1)));

    let done = announce(&url, &ask(1, 1001, 0, Event::Completed), &options).await.unwrap();
    assert_eq!((done.peers.len(), done.seeders, done.leechers), (0, Some(2), Some(0)));

    // Another swarm on the same tracker sees nothing of it.
    let other = announce(&url, &ask(2, 1003, 9, Event::Started), &options).await.unwrap();
    assert_eq!(other.peers, []);

    announce(&url, &ask(1, 1002, 0, Event::Stopped), &options).await.unwrap();
    let last = announce(&url, &ask(1, 1004, 9, Event::Started), &options).await.unwrap();
    assert_eq!(last.peers, [SocketAddr::new(ip, 1001)]);
    assert_eq!(tracker.stats().peers, 3);
    assert_eq!(tracker.stats().swarms, 2);
    assert_eq!(tracker.stats().malformed, 0);
}

#[tokio::test]
async fn http_v4() {
    life_of_a_swarm("http", "127.0.0.1:0").await;
}

#[tokio::test]
async fn udp_v4() {
    life_of_a_swarm("udp", "127.0.0.1:0").await;
}

#[tokio::test]
async fn http_v6() {
    if has_ipv6() {
        life_of_a_swarm("http", "[::1]:0").await;
    }
}

#[tokio::test]
async fn udp_v6() {
    if has_ipv6() {
        life_of_a_swarm("udp", "[::1]:0").await;
    }
}

#[tokio::test]
async fn one_port_serves_both_families_and_both_protocols() {
    if !has_ipv6() {
        return;
    }
    let tracker = tracker("[::]:0");
    let port = tracker.local_addr().port();
    let v4 = SocketAddr::from(([127, 0, 0, 1], port));
    let v6: SocketAddr = format!("[::1]:{port}").parse().unwrap();
    let options = options();
    for (n, (scheme, addr)) in (0..).zip([("http", v4), ("udp", v4), ("http", v6), ("udp", v6)]) {
        announce(&url(scheme, addr), &ask(1, 1000 + n, 9, Event::Started), &options).await.unwrap();
    }
    let all = [
        "127.0.0.1:1000".parse().unwrap(),
        "127.0.0.1:1001".parse().unwrap(),
        "[::1]:1002".parse().unwrap(),
        "[::1]:1003".parse().unwrap(),
    ];
    let http = announce(&url("http", v4), &ask(1, 2000, 0, Event::None), &options).await.unwrap();
    assert_eq!(http.peers, all);
    // UDP answers carry the family that they travel by (BEP 15).
    let udp = announce(&url("udp", v6), &ask(1, 2000, 0, Event::None), &options).await.unwrap();
    assert_eq!(udp.peers, all[2..]);
}

#[tokio::test]
async fn it_leaves_from_the_address_it_is_told() {
    let tracker = tracker("0.0.0.0:0");
    let at = SocketAddr::from(([127, 0, 0, 1], tracker.local_addr().port()));
    let mut from = options();
    from.bind = vec!["127.0.0.9".parse().unwrap()];
    announce(&url("http", at), &ask(1, 1000, 9, Event::Started), &from).await.unwrap();
    announce(&url("udp", at), &ask(1, 1001, 9, Event::Started), &from).await.unwrap();
    let got = announce(&url("http", at), &ask(1, 1002, 9, Event::Started), &options()).await.unwrap();
    assert_eq!(got.peers, ["127.0.0.9:1000".parse().unwrap(), "127.0.0.9:1001".parse().unwrap()]);

    from.bind = vec!["::1".parse().unwrap()];
    let error = announce(&url("udp", at), &ask(1, 1003, 9, Event::Started), &from).await.unwrap_err();
    assert!(matches!(error, Error::NoAddress { .. }), "{error}");
}

#[tokio::test]
async fn scrape_over_http() {
    let tracker = tracker("127.0.0.1:0");
    let http = url("http", tracker.local_addr());
    announce(&http, &ask(b'a', 1000, 0, Event::Completed), &options()).await.unwrap();
    announce(&http, &ask(b'a', 1001, 5, Event::Started), &options()).await.unwrap();
    let a = "a".repeat(20);
    let got = get(tracker.local_addr(), &format!("/scrape?info_hash={a}")).await;
    assert!(
        got.ends_with(&format!("\r\n\r\nd5:filesd20:{a}d8:completei1e10:downloadedi1e10:incompletei1eeee")),
        "{got}"
    );
    assert!(get(tracker.local_addr(), "/scrape").await.contains("failure reason"));
    assert!(get(tracker.local_addr(), "/elsewhere").await.starts_with("HTTP/1.1 404"));
}

#[tokio::test]
async fn scrape_over_udp() {
    let tracker = tracker("127.0.0.1:0");
    announce(&url("udp", tracker.local_addr()), &ask(1, 1000, 0, Event::Completed), &options())
        .await
        .unwrap();
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    socket.connect(tracker.local_addr()).await.unwrap();
    let id = connect(&socket).await;
    let mut packet = head(id, 2, 5);
    packet.extend_from_slice(&[1; 20]);
    packet.extend_from_slice(&[2; 20]);
    let got = exchange(&socket, &packet).await;
    let numbers: Vec<u32> = got.as_chunks::<4>().0.iter().map(|b| u32::from_be_bytes(*b)).collect();
    assert_eq!(numbers, [2, 5, 1, 1, 0, 0, 0, 0]);
}

#[tokio::test]
async fn hostile_udp_packets() {
    let tracker = tracker("127.0.0.1:0");
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    socket.connect(tracker.local_addr()).await.unwrap();
    // Too short for a request: no answer, so the next answer belongs to the next request.
    for len in 0..16 {
        socket.send(&vec![0xff; len]).await.unwrap();
    }
    // A made-up id: at most an error, no longer than the request.
    let short = head(12345, 1, 1);
    socket.send(&short).await.unwrap();
    let mut long = head(12345, 1, 2);
    long.resize(98, 0);
    let got = exchange(&socket, &long).await;
    assert_eq!(got[..8], [0, 0, 0, 3, 0, 0, 0, 2]);
    // A good id and then nonsense.
    let id = connect(&socket).await;
    let mut odd = head(id, 77, 3);
    odd.resize(64, 0);
    assert_eq!(exchange(&socket, &odd).await[..8], [0, 0, 0, 3, 0, 0, 0, 3]);
    let mut cut = head(id, 1, 4);
    cut.resize(97, 0);
    assert_eq!(exchange(&socket, &cut).await[..8], [0, 0, 0, 3, 0, 0, 0, 4]);
    let mut huge = head(id, 2, 5);
    huge.resize(60_000, 7);
    assert_eq!(exchange(&socket, &huge).await.len(), 8 + 12 * 74);
    // The id belongs to the address: from another one it is worth nothing.
    let other = UdpSocket::bind("127.0.0.2:0").await.unwrap();
    other.connect(tracker.local_addr()).await.unwrap();
    let mut stolen = head(id, 1, 6);
    stolen.resize(98, 0);
    assert_eq!(exchange(&other, &stolen).await[..4], [0, 0, 0, 3]);
    let stats = tracker.stats();
    assert_eq!((stats.malformed, stats.forged, stats.peers), (18, 3, 0));
}

#[tokio::test]
async fn hostile_http_requests() {
    let tracker = tracker("127.0.0.1:0");
    let at = tracker.local_addr();
    assert!(get(at, "/announce").await.contains("14:failure reason20:info_hash is missing"));
    let long = format!("/announce?x={}", "y".repeat(100_000));
    assert!(!get(at, &long).await.contains("200 OK"));
    for garbage in [
        &b"\0\xff\xfe\r\n\r\n"[..],
        b"GET\r\n\r\n",
        b"\r\n\r\n\r\n",
        b"GET /announce?info_hash=\xff\xff HTTP/1.1\r\n\r\n",
    ] {
        let mut stream = TcpStream::connect(at).await.unwrap();
        stream.write_all(garbage).await.unwrap();
        stream.shutdown().await.unwrap();
        let mut got = Vec::new();
        let _ = stream.read_to_end(&mut got).await;
        assert!(!got.starts_with(b"HTTP/1.1 200") || got.windows(14).any(|w| w == b"failure reason"));
    }
    // It is still there.
    announce(&url("http", at), &ask(1, 1, 1, Event::Started), &options()).await.unwrap();
}

#[tokio::test]
async fn silent_http_clients_are_let_go() {
    let few = tidecast_discovery::server::Options {
        connections: 2,
        patience: Duration::from_millis(200),
        ..Default::default()
    };
    let tracker = tidecast_discovery::server::Tracker::bind("127.0.0.1:0".parse().unwrap(), few).unwrap();
    let mut silent = Vec::new();
    for _ in 0..4 {
        silent.push(TcpStream::connect(tracker.local_addr()).await.unwrap());
    }
    // Silent clients take all places; a later client gets its turn nevertheless.
    let url = url("http", tracker.local_addr());
    announce(&url, &ask(1, 1, 1, Event::Started), &options()).await.unwrap();
}

fn head(connection: u64, action: u32, transaction: u32) -> Vec<u8> {
    [&connection.to_be_bytes()[..], &action.to_be_bytes(), &transaction.to_be_bytes()].concat()
}

async fn exchange(socket: &UdpSocket, packet: &[u8]) -> Vec<u8> {
    socket.send(packet).await.unwrap();
    let mut buf = vec![0; 4096];
    let len = tokio::time::timeout(Duration::from_secs(10), socket.recv(&mut buf)).await.unwrap().unwrap();
    buf.truncate(len);
    buf
}

async fn connect(socket: &UdpSocket) -> u64 {
    let got = exchange(socket, &head(0x0417_2710_1980, 0, 9)).await;
    assert_eq!(got.len(), 16);
    assert_eq!(got[..8], [0, 0, 0, 0, 0, 0, 0, 9]);
    u64::from_be_bytes(got[8..].try_into().unwrap())
}

async fn get(at: SocketAddr, target: &str) -> String {
    let mut stream = TcpStream::connect(at).await.unwrap();
    let _ = stream.write_all(format!("GET {target} HTTP/1.1\r\nHost: x\r\n\r\n").as_bytes()).await;
    let mut got = Vec::new();
    let _ = stream.read_to_end(&mut got).await;
    String::from_utf8_lossy(&got).into_owned()
}
