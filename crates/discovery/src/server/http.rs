//! The HTTP side of the tracker (BEP 3, 7, 23, 48): one request a connection, read within limits.

use std::convert::Infallible;
use std::io::Write as _;
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tidecast_admission::{Admitted, Gate, Limits, accept};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tracing::debug;

use super::{Sample, Shared, bump};
use crate::tracker::{Announce, Event};
use crate::{InfoHash, compact};

/// Largest request head read; a scrape of 74 swarms takes 5 KiB.
const MAX_HEAD: usize = 16 * 1024;
/// Most swarms in one scrape, as over UDP.
const MAX_SCRAPE: usize = 74;

pub(super) async fn serve(listener: TcpListener, shared: Arc<Shared>) {
    let options = &shared.options;
    let limits = Limits::of_process();
    let gate = Gate::new(Limits {
        total: limits.total.min(options.connections),
        deadline: options.patience,
        ..limits
    });
    let mut open = JoinSet::new();
    loop {
        while open.try_join_next().is_some() {}
        let (stream, from, admitted) = accept(&listener, &gate).await;
        let shared = Arc::clone(&shared);
        open.spawn(async move { one(stream, from, admitted, &shared).await });
    }
}

/// Serves one request. Clients of a tracker never authenticate, so a connection counts as unauthenticated to its
/// end.
async fn one(stream: TcpStream, from: SocketAddr, mut admitted: Admitted, shared: &Shared) {
    let progress = admitted.progress();
    let service = service_fn(async |request| {
        progress.advance();
        Ok::<_, Infallible>(handle(&request, from, shared))
    });
    let connection = http1::Builder::new()
        .keep_alive(false)
        .half_close(true)
        .max_buf_size(MAX_HEAD)
        .timer(TokioTimer::new())
        .header_read_timeout(shared.options.patience)
        .serve_connection(TokioIo::new(admitted.limited(stream)), service);
    match admitted.run(connection).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => {
            bump(&shared.malformed);
            debug!(%from, %error, "HTTP request failed");
        }
        Err(cut) => debug!(%from, %cut, "disconnected an HTTP client"),
    }
}

fn handle(request: &Request<Incoming>, from: SocketAddr, shared: &Shared) -> Response<Full<Bytes>> {
    let query = request.uri().query().unwrap_or_default();
    let path = request.uri().path();
    let (status, body) = if request.method() != Method::GET {
        (StatusCode::METHOD_NOT_ALLOWED, b"only GET\n".to_vec())
    } else if path.ends_with("/announce") {
        (StatusCode::OK, announce(query, from, shared))
    } else if path.ends_with("/scrape") {
        (StatusCode::OK, scrape(query, shared))
    } else {
        (StatusCode::NOT_FOUND, b"this is a BitTorrent tracker: /announce and /scrape\n".to_vec())
    };
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain"));
    response
}

fn announce(query: &str, from: SocketAddr, shared: &Shared) -> Vec<u8> {
    match read_announce(query) {
        Ok(ask) => {
            bump(&shared.http_announces);
            let sample = shared.announce(SocketAddr::new(from.ip(), ask.port), &ask);
            write_sample(&sample, shared)
        }
        Err(reason) => {
            bump(&shared.malformed);
            failure(reason)
        }
    }
}

fn failure(reason: &str) -> Vec<u8> {
    format!("d14:failure reason{}:{reason}e", reason.len()).into_bytes()
}

fn write_sample(sample: &Sample, shared: &Shared) -> Vec<u8> {
    let options = &shared.options;
    let mut out = Vec::with_capacity(128 + 6 * sample.v4.len() + 18 * sample.v6.len());
    // Writing to a Vec cannot fail.
    let _ = write!(
        out,
        "d8:completei{}e10:incompletei{}e8:intervali{}e12:min intervali{}e5:peers{}:",
        sample.count.seeders,
        sample.count.leechers,
        options.interval.as_secs(),
        options.min_interval.as_secs(),
        6 * sample.v4.len()
    );
    sample.v4.iter().for_each(|peer| compact::push(&mut out, *peer));
    if !sample.v6.is_empty() {
        let _ = write!(out, "6:peers6{}:", 18 * sample.v6.len());
        sample.v6.iter().for_each(|peer| compact::push(&mut out, *peer));
    }
    out.push(b'e');
    out
}

fn scrape(query: &str, shared: &Shared) -> Vec<u8> {
    let mut hashes: Vec<InfoHash> = Vec::new();
    for (key, value) in pairs(query) {
        if key == "info_hash" {
            match hash(&value) {
                Some(hash) if hashes.len() < MAX_SCRAPE => hashes.push(hash),
                _ => {
                    bump(&shared.malformed);
                    return failure("malformed or too many info_hash");
                }
            }
        }
    }
    if hashes.is_empty() {
        bump(&shared.malformed);
        return failure("a scrape needs an info_hash");
    }
    bump(&shared.scrapes);
    hashes.sort_unstable();
    hashes.dedup();
    let mut out = b"d5:filesd".to_vec();
    for hash in hashes {
        let count = shared.count(&hash);
        out.extend_from_slice(b"20:");
        out.extend_from_slice(&hash);
        let _ = write!(
            out,
            "d8:completei{}e10:downloadedi{}e10:incompletei{}ee",
            count.seeders, count.completed, count.leechers
        );
    }
    out.extend_from_slice(b"ee");
    out
}

/// Reads the query of an announce; the error is for the client.
fn read_announce(query: &str) -> Result<Announce, &'static str> {
    let (mut info_hash, mut peer_id, mut port) = (None, None, None);
    let (mut uploaded, mut downloaded, mut left) = (0, 0, None);
    let (mut event, mut numwant) = (Event::None, None);
    for (key, value) in pairs(query) {
        match key {
            "info_hash" => info_hash = Some(hash(&value).ok_or("info_hash is not 20 bytes")?),
            "peer_id" => peer_id = Some(value.try_into().map_err(|_| "peer_id is not 20 bytes")?),
            "port" => port = Some(number(&value).ok_or("port is not a port number")?),
            "uploaded" => uploaded = number(&value).ok_or("uploaded is not a number")?,
            "downloaded" => downloaded = number(&value).ok_or("downloaded is not a number")?,
            "left" => left = number(&value),
            "numwant" => numwant = number(&value),
            "event" => {
                event = match &*value {
                    b"started" => Event::Started,
                    b"completed" => Event::Completed,
                    b"stopped" => Event::Stopped,
                    _ => Event::None,
                }
            }
            _ => {}
        }
    }
    Ok(Announce {
        info_hash: info_hash.ok_or("info_hash is missing")?,
        peer_id: peer_id.ok_or("peer_id is missing")?,
        port: port.ok_or("port is missing")?,
        uploaded,
        downloaded,
        // A client that starts from a magnet link does not know the size yet; it is not zero.
        left: left.unwrap_or(u64::MAX),
        event,
        numwant,
        key: 0,
        tracker_id: None,
    })
}

/// A v1 hash, or a full v2 hash, truncated by BEP 52.
fn hash(value: &[u8]) -> Option<InfoHash> {
    if value.len() != 20 && value.len() != 32 {
        return None;
    }
    value.first_chunk().copied()
}

fn number<N: std::str::FromStr>(value: &[u8]) -> Option<N> {
    str::from_utf8(value).ok()?.parse().ok()
}

/// The pairs of a query, values decoded.
fn pairs(query: &str) -> impl Iterator<Item = (&str, Vec<u8>)> {
    let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    pairs.map(|(key, value)| (key, unescape(value.as_bytes())))
}

/// Decodes percent-encoding; invalid escapes stay unchanged.
fn unescape(text: &[u8]) -> Vec<u8> {
    let digit =
        |b: Option<&u8>| b.and_then(|&b| char::from(b).to_digit(16)).and_then(|d| u8::try_from(d).ok());
    let mut out = Vec::with_capacity(text.len());
    let mut at = 0;
    while let Some(&byte) = text.get(at) {
        at += 1;
        match (byte, digit(text.get(at)), digit(text.get(at + 1))) {
            (b'%', Some(high), Some(low)) => {
                out.push(high << 4 | low);
                at += 2;
            }
            (b'+', ..) => out.push(b' '),
            _ => out.push(byte),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;
    use proptest::prelude::*;

    const ID: &str = "info_hash=%00%01abcdefghijklmnopqr&peer_id=-TC0100-000000000000";

    #[test]
    fn reads_an_announce() {
        let ask = read_announce(&format!(
            "{ID}&port=6881&uploaded=1&downloaded=2&left=3&event=stopped&numwant=4&x=y"
        ));
        let ask = ask.unwrap();
        assert_eq!(&ask.info_hash, b"\0\x01abcdefghijklmnopqr");
        assert_eq!((ask.port, ask.uploaded, ask.downloaded, ask.left), (6881, 1, 2, 3));
        assert_eq!((ask.event, ask.numwant), (Event::Stopped, Some(4)));
    }

    #[test]
    fn says_what_is_wrong() {
        for (query, reason) in [
            ("", "info_hash is missing"),
            ("info_hash=abc", "info_hash is not 20 bytes"),
            ("info_hash=aaaaaaaaaaaaaaaaaaaa&port=1", "peer_id is missing"),
            (ID, "port is missing"),
            (&format!("{ID}&port=65536"), "port is not a port number"),
            (&format!("{ID}&port=-1"), "port is not a port number"),
            (&format!("{ID}&port=1&uploaded=x"), "uploaded is not a number"),
        ] {
            assert_eq!(read_announce(query).unwrap_err(), reason, "{query}");
        }
    }

    #[test]
    fn cuts_a_v2_hash() {
        let long = "a".repeat(20) + &"b".repeat(12);
        assert_eq!(hash(long.as_bytes()), Some([b'a'; 20]));
        assert_eq!(hash(&long.as_bytes()[..31]), None);
    }

    proptest! {
        #[test]
        fn any_query_is_read_or_refused(query in "\\PC{0,80}") {
            let _ = read_announce(&query);
        }

        #[test]
        fn any_bytes_survive_escaping(bytes: Vec<u8>) {
            let escaped: String = bytes.iter().map(|b| format!("%{b:02x}")).collect();
            prop_assert_eq!(unescape(escaped.as_bytes()), bytes);
        }

        #[test]
        fn unescaping_never_grows(text: Vec<u8>) {
            prop_assert!(unescape(&text).len() <= text.len());
        }
    }
}
