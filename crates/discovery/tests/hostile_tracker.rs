//! The tracker client against trackers that mean harm: each ends in an error, in bounded time and memory.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::net::SocketAddr;
use std::time::Duration;

use common::{ask, options, url};
use tidecast_discovery::tracker::{Event, Options, announce};
use tidecast_discovery::{Error, TrackerUrl};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::time::{Instant, sleep};

/// An HTTP server that reads each request's head and then runs `answer`.
async fn fake<F, Fut>(answer: F) -> SocketAddr
where
    F: Fn(TcpStream, SocketAddr) -> Fut + Send + 'static,
    Fut: Future<Output = ()> + Send,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut head = [0; 4096];
            let _ = stream.read(&mut head).await;
            answer(stream, addr).await;
        }
    });
    addr
}

async fn fails(addr: SocketAddr, options: &Options) -> Error {
    let before = Instant::now();
    let error = announce(&url("http", addr), &ask(1, 1, 1, Event::Started), options).await.unwrap_err();
    // A generous bound: it is there to catch «for ever», not to measure.
    assert!(before.elapsed() < Duration::from_secs(60), "{error}");
    error
}

#[tokio::test]
async fn a_body_that_says_it_is_huge() {
    let addr = fake(async |mut s: TcpStream, _| {
        let _ = s.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 10000000000\r\n\r\nd").await;
        sleep(Duration::from_secs(600)).await;
    })
    .await;
    let mut brief = options();
    brief.timeout = Duration::from_millis(500);
    let error = fails(addr, &brief).await;
    assert!(matches!(error, Error::TooLarge { .. } | Error::Timeout { .. }), "{error}");
}

#[tokio::test]
async fn a_body_without_end() {
    let addr = fake(async |mut s: TcpStream, _| {
        let _ = s.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await;
        while s.write_all(&[b'x'; 65536]).await.is_ok() {}
    })
    .await;
    let error = fails(addr, &options()).await;
    assert!(matches!(error, Error::TooLarge { .. }), "{error}");
}

#[tokio::test]
async fn chunks_without_end() {
    let addr = fake(async |mut s: TcpStream, _| {
        let _ = s.write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n").await;
        let chunk = format!("4000\r\n{}\r\n", "y".repeat(0x4000));
        while s.write_all(chunk.as_bytes()).await.is_ok() {}
    })
    .await;
    let error = fails(addr, &options()).await;
    assert!(matches!(error, Error::TooLarge { .. }), "{error}");
}

#[tokio::test]
async fn headers_without_end() {
    let addr = fake(async |mut s: TcpStream, _| {
        let _ = s.write_all(b"HTTP/1.1 200 OK\r\nX: ").await;
        while s.write_all(&[b'x'; 65536]).await.is_ok() {}
    })
    .await;
    let error = fails(addr, &options()).await;
    assert!(matches!(error, Error::Http { .. }), "{error}");
}

#[tokio::test]
async fn one_byte_at_a_time() {
    let addr = fake(async |mut s: TcpStream, _| {
        let _ = s.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n").await;
        while s.write_all(b"d").await.is_ok() {
            sleep(Duration::from_millis(50)).await;
        }
    })
    .await;
    let mut brief = options();
    brief.timeout = Duration::from_millis(500);
    let error = fails(addr, &brief).await;
    assert!(matches!(error, Error::Timeout { .. }), "{error}");
}

#[tokio::test]
async fn silence() {
    let addr = fake(async |_s, _| sleep(Duration::from_secs(600)).await).await;
    let mut brief = options();
    brief.timeout = Duration::from_millis(300);
    let error = fails(addr, &brief).await;
    assert!(matches!(error, Error::Timeout { .. }), "{error}");
}

#[tokio::test]
async fn garbage() {
    for body in [
        &b"HTTP/1.1 200 OK\r\n\r\n<html>not a tracker</html>"[..],
        b"HTTP/1.1 200 OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n\r\nd5:peers99999999999:",
        b"HTTP/1.1 200 OK\r\n\r\nd5:peersi5ee",
        b"HTTP/1.1 200 OK\r\n\r\nle",
        b"HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\nde",
        b"HTTP/1.1 500 Oops\r\n\r\nx",
        b"\0\0\0\0\0\0",
        b"",
    ] {
        let addr = fake(async move |mut s: TcpStream, _| {
            let _ = s.write_all(body).await;
        })
        .await;
        let error = fails(addr, &options()).await;
        assert!(!matches!(error, Error::Timeout { .. }), "{error}");
    }
    let nested = format!("HTTP/1.1 200 OK\r\n\r\nd5:peers{}", "l".repeat(200_000));
    let addr = fake(move |mut s: TcpStream, _| {
        let nested = nested.clone();
        async move {
            let _ = s.write_all(nested.as_bytes()).await;
        }
    })
    .await;
    let error = fails(addr, &options()).await;
    assert!(matches!(error, Error::Malformed { .. }), "{error}");
}

#[tokio::test]
async fn redirects_that_lead_nowhere() {
    let to_itself = fake(async |mut s: TcpStream, addr| {
        let _ = s.write_all(format!("HTTP/1.1 302 F\r\nLocation: http://{addr}/x\r\n\r\n").as_bytes()).await;
    })
    .await;
    assert!(matches!(fails(to_itself, &options()).await, Error::Redirect { .. }));
    for location in
        ["", "Location: udp://127.0.0.1:1/\r\n", "Location: file:///etc/passwd\r\n", "Location: \u{1}\r\n"]
    {
        let addr = fake(move |mut s: TcpStream, _| async move {
            let _ = s.write_all(format!("HTTP/1.1 301 M\r\n{location}\r\n").as_bytes()).await;
        })
        .await;
        let error = fails(addr, &options()).await;
        assert!(matches!(error, Error::Redirect { .. } | Error::Http { .. }), "{location}: {error}");
    }
}

#[tokio::test]
async fn a_redirect_is_followed_and_a_refusal_told() {
    let target = fake(async |mut s: TcpStream, _| {
        let _ = s.write_all(b"HTTP/1.1 200 OK\r\n\r\nd14:failure reason9:not todaye").await;
    })
    .await;
    let addr = fake(move |mut s: TcpStream, _| async move {
        let _ = s
            .write_all(format!("HTTP/1.1 307 T\r\nLocation: http://{target}/new?a=b\r\n\r\n").as_bytes())
            .await;
    })
    .await;
    let error = fails(addr, &options()).await;
    assert!(matches!(&error, Error::Refused { reason, .. } if reason == "not today"), "{error}");
}

#[tokio::test]
async fn nobody_there() {
    // A port that was free a moment ago.
    let addr = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let error = fails(addr, &options()).await;
    assert!(matches!(error, Error::Io { .. }), "{error}");
    let unknown = TrackerUrl::parse("http://no-such-host.invalid/announce").unwrap();
    let error = announce(&unknown, &ask(1, 1, 1, Event::None), &options()).await.unwrap_err();
    assert!(matches!(error, Error::Resolve { .. } | Error::Timeout { .. }), "{error}");
}

/// A UDP tracker that answers each packet with the result of `answer`.
async fn fake_udp<F>(answer: F) -> SocketAddr
where
    F: Fn(&[u8]) -> Vec<Vec<u8>> + Send + 'static,
{
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let addr = socket.local_addr().unwrap();
    tokio::spawn(async move {
        let mut buf = [0; 2048];
        while let Ok((len, from)) = socket.recv_from(&mut buf).await {
            for packet in answer(&buf[..len]) {
                let _ = socket.send_to(&packet, from).await;
            }
        }
    });
    addr
}

/// `action`, the request's transaction id changed by `flip`, and `rest`.
fn reply(request: &[u8], action: u8, flip: u8, rest: &[u8]) -> Vec<u8> {
    let mut out = vec![0, 0, 0, action];
    out.extend(request[12..16].iter().map(|b| b ^ flip));
    out.extend_from_slice(rest);
    out
}

async fn ask_udp(addr: SocketAddr) -> Result<tidecast_discovery::tracker::Response, Error> {
    let mut brief = options();
    brief.udp_attempts = 3;
    announce(&url("udp", addr), &ask(1, 1, 1, Event::Started), &brief).await
}

#[tokio::test]
async fn udp_silence_is_given_up_after_the_last_attempt() {
    let before = Instant::now();
    let error = ask_udp(fake_udp(|_| Vec::new()).await).await.unwrap_err();
    assert!(matches!(error, Error::Timeout { .. }), "{error}");
    // 200 + 400 + 800 ms.
    assert!(before.elapsed() >= Duration::from_millis(1400));
}

#[tokio::test]
async fn udp_answers_to_something_else_do_not_count() {
    let addr = fake_udp(|request| {
        vec![
            reply(request, 0, 1, &[0; 8]),
            reply(request, 1, 0xff, &[0; 12]),
            reply(request, 3, 4, b"no"),
            reply(request, 9, 0, b"?"),
            vec![0; 3],
            Vec::new(),
        ]
    })
    .await;
    let error = ask_udp(addr).await.unwrap_err();
    assert!(matches!(error, Error::Timeout { .. }), "{error}");
}

#[tokio::test]
async fn udp_noise_before_the_answer_does_no_harm() {
    let peers = [10, 0, 0, 1, 0, 80, 10, 0, 0, 2, 0, 0, 99];
    let addr = fake_udp(move |request| {
        let noise = reply(request, 1, 1, &[0xff; 40]);
        if request.len() == 16 {
            return vec![noise, reply(request, 0, 0, &[1, 2, 3, 4, 5, 6, 7, 8])];
        }
        assert_eq!(request[..8], [1, 2, 3, 4, 5, 6, 7, 8]);
        let rest = [&[0, 0, 0, 60, 0, 0, 0, 2, 0, 0, 0, 1][..], &peers].concat();
        vec![noise, reply(request, 1, 0, &rest)]
    })
    .await;
    let got = ask_udp(addr).await.unwrap();
    assert_eq!(got.peers, ["10.0.0.1:80".parse().unwrap()]);
    assert_eq!((got.interval.as_secs(), got.leechers, got.seeders), (60, Some(2), Some(1)));
}

#[tokio::test]
async fn udp_refusals_and_short_answers() {
    let error = ask_udp(fake_udp(|request| vec![reply(request, 3, 0, b"go\naway")]).await).await.unwrap_err();
    assert!(matches!(&error, Error::Refused { reason, .. } if reason == "go?away"), "{error}");
    let error = ask_udp(fake_udp(|request| vec![reply(request, 0, 0, &[1; 7])]).await).await.unwrap_err();
    assert!(matches!(error, Error::Malformed { .. }), "{error}");
    let addr = fake_udp(|request| {
        let action = if request.len() == 16 { 0 } else { 1 };
        vec![reply(request, action, 0, &[1; 8])]
    })
    .await;
    let error = ask_udp(addr).await.unwrap_err();
    assert!(matches!(error, Error::Malformed { .. }), "{error}");
}

#[tokio::test]
async fn udp_survives_a_lost_packet_each_way() {
    let seen = std::sync::atomic::AtomicU32::new(0);
    let addr = fake_udp(move |request| {
        let n = seen.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        match (n, request.len()) {
            (0 | 2, _) => Vec::new(),
            (_, 16) => vec![reply(request, 0, 0, &[1; 8])],
            _ => vec![reply(request, 1, 0, &[0, 0, 0, 60, 0, 0, 0, 0, 0, 0, 0, 0])],
        }
    })
    .await;
    announce(&url("udp", addr), &ask(1, 1, 1, Event::Started), &options()).await.unwrap();
}
