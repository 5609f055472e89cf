//! The HTTP side of the tracker client (BEP 3, 7, 23).
//!
//! Built on hyper's connection API rather than on a complete client, because it lets us choose the local address,
//! limit TLS, headers and body, and drop everything at the deadline; the embedded tracker needs hyper anyway. One
//! connection per announce, never kept.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Empty, LengthLimitError, Limited};
use hyper::client::conn::http1;
use hyper::header::{ACCEPT_ENCODING, CONNECTION, CONTENT_ENCODING, HOST, LOCATION, USER_AGENT};
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use rustls_pki_types::ServerName;
use tidecast_metainfo::bencode::{Limits, Value};
use tidecast_tls::Stream;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::error::printable;
use crate::tracker::{Announce, Event, Options, Response, dedup, interval};
use crate::{Error, Scheme, TrackerUrl, compact, content_encoding, peers, socket, usable};

/// Largest body read. A thousand peers of both families in compact form take 24 KiB, in the old form 100 KiB.
const MAX_BODY: usize = 256 * 1024;
/// Largest header block read.
const MAX_HEADERS: usize = 16 * 1024;
/// Redirects followed.
const MAX_REDIRECTS: usize = 4;
/// Most peers taken from one answer.
const MAX_PEERS: usize = 4096;
/// Addresses of a tracker that are tried.
const MAX_ADDRESSES: usize = 4;
/// Peers of one answer that are given by name and looked up, and how long that may take.
const MAX_NAMED: usize = 8;
const NAMED_WITHIN: Duration = Duration::from_secs(5);
/// Longest `tracker id` remembered.
const MAX_TRACKER_ID: usize = 256;

/// Most values and deepest nesting in an answer; a peer of the old form takes four values.
const LIMITS: Limits = Limits { values: 32_768, depth: 8 };

pub(crate) const AGENT: &str = concat!("tidecast/", env!("CARGO_PKG_VERSION"));

/// One announce to `url` at the first of `addrs` that answers. The caller bounds the time.
pub(crate) async fn announce(
    url: &TrackerUrl,
    addrs: &[SocketAddr],
    local: SocketAddr,
    ask: &Announce,
    options: &Options,
) -> Result<Response, Error> {
    let mut at = url.clone();
    let mut target = with_query(url.target(), ask);
    let mut addrs = addrs.to_vec();
    for _ in 0..=MAX_REDIRECTS {
        let answer = get(&at, &target, &addrs, local, options).await?;
        let location = match answer {
            Answer::Body(body) => return with_named(read(&body, url)?).await,
            Answer::Redirect(location) => location,
        };
        let refuse = |why| Error::Redirect { url: at.to_string(), why };
        let next = at.join(&location).map_err(|_| refuse("its target is not a valid URL"))?;
        match (at.scheme(), next.scheme()) {
            (_, Scheme::Udp) => return Err(refuse("it changes the protocol")),
            (Scheme::Https, Scheme::Http) => return Err(refuse("it leaves TLS")),
            _ => {}
        }
        addrs = socket::lookup(next.host(), next.port(), options.timeout).await?;
        addrs.retain(|a| a.is_ipv4() == local.is_ipv4());
        // A tracker that moved may or may not repeat the query in its redirect.
        target = if next.target().contains("info_hash=") {
            next.target().to_owned()
        } else {
            with_query(next.target(), ask)
        };
        at = next;
    }
    Err(Error::Redirect { url: url.to_string(), why: "more than four redirects in a row" })
}

enum Answer {
    Body(Bytes),
    Redirect(String),
}

async fn get(
    url: &TrackerUrl,
    target: &str,
    addrs: &[SocketAddr],
    local: SocketAddr,
    options: &Options,
) -> Result<Answer, Error> {
    let addrs = addrs.get(..MAX_ADDRESSES).unwrap_or(addrs);
    // One that is silent leaves time for the others; the last may take all that is left.
    let each = options.timeout / u32::try_from(addrs.len() + 1).unwrap_or(u32::MAX);
    let mut failed = Error::NoAddress { host: url.host().to_owned() };
    for (at, addr) in addrs.iter().enumerate() {
        let limit = if at + 1 < addrs.len() { each } else { options.timeout };
        let late = || Error::Timeout { what: addr.to_string(), after: limit };
        let answer = timeout(limit, get_at(url, target, *addr, local, options)).await;
        match answer.unwrap_or_else(|_| Err(late())) {
            // Another address may be of another machine, which works.
            Err(
                error
                @ (Error::Http { .. } | Error::Io { .. } | Error::Timeout { .. } | Error::Status { .. }),
            ) => {
                failed = error;
            }
            other => return other,
        }
    }
    Err(failed)
}

async fn get_at(
    url: &TrackerUrl,
    target: &str,
    addr: SocketAddr,
    local: SocketAddr,
    options: &Options,
) -> Result<Answer, Error> {
    let stream = socket::connect(addr, local, options.timeout).await?;
    if url.scheme() != Scheme::Https {
        return exchange(url, target, stream).await;
    }
    let name = ServerName::try_from(url.host().to_owned())
        .map_err(|_| http_error(url, "the host is not a name that TLS can verify"))?;
    let config = match &options.tls {
        Some(config) => Arc::clone(config),
        None => system_tls(url)?,
    };
    let stream = Stream::connect(config, name, stream).await;
    exchange(url, target, stream.map_err(|e| http_error(url, &format!("TLS: {e}")))?).await
}

async fn exchange<S>(url: &TrackerUrl, target: &str, stream: S) -> Result<Answer, Error>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let request = Request::get(target)
        .header(HOST, url.authority())
        .header(USER_AGENT, AGENT)
        .header(ACCEPT_ENCODING, content_encoding::ACCEPTED)
        .header(CONNECTION, "close")
        .body(Empty::<Bytes>::new())
        .map_err(|_| http_error(url, "cannot form an HTTP request"))?;
    let (mut sender, connection) = http1::Builder::new()
        .max_buf_size(MAX_HEADERS)
        .handshake(TokioIo::new(stream))
        .await
        .map_err(|e| http_error(url, &e.to_string()))?;
    let answer = async {
        let response = sender.send_request(request).await.map_err(|e| http_error(url, &e.to_string()))?;
        let status = response.status();
        if status.is_redirection() && status != StatusCode::NOT_MODIFIED {
            let location = response.headers().get(LOCATION).and_then(|l| l.to_str().ok());
            return location
                .map(|l| Answer::Redirect(l.to_owned()))
                .ok_or_else(|| Error::Redirect { url: url.to_string(), why: "no Location header" });
        }
        let encoding = response.headers().get(CONTENT_ENCODING).cloned();
        let body = Limited::new(response.into_body(), MAX_BODY).collect().await;
        let body = body.map_err(|e| {
            if e.is::<LengthLimitError>() {
                Error::TooLarge { url: url.to_string(), limit: MAX_BODY }
            } else {
                http_error(url, &e.to_string())
            }
        })?;
        let body = body.to_bytes();
        let body = match encoding.as_ref().and_then(|value| value.to_str().ok()) {
            Some(encoding) => decoded(&body, encoding, url)?,
            None => body,
        };
        // Some trackers put their failure reason under an error status.
        if status.is_success() || body.first() == Some(&b'd') {
            Ok(Answer::Body(body))
        } else {
            Err(Error::Status { url: url.to_string(), status: status.as_u16() })
        }
    };
    tokio::pin!(answer);
    tokio::select! {
        biased;
        done = &mut answer => done,
        // The connection may end before its last data was read.
        _ = connection => answer.await,
    }
}

/// A body as it was before the tracker compressed it.
fn decoded(body: &Bytes, encoding: &str, url: &TrackerUrl) -> Result<Bytes, Error> {
    use content_encoding::Fault;
    let content = content_encoding::decode(body, encoding, MAX_BODY).map_err(|fault| match fault {
        Fault::TooLong => Error::TooLarge { url: url.to_string(), limit: MAX_BODY },
        Fault::Damaged => Error::Malformed { from: url.to_string(), why: "compressed content is damaged" },
        Fault::Unknown => http_error(url, &format!("unsupported content encoding {encoding:?}")),
    })?;
    Ok(Bytes::from(content.into_owned()))
}

fn http_error(url: &TrackerUrl, why: &str) -> Error {
    Error::Http { url: url.to_string(), why: printable(why.as_bytes()) }
}

/// The settings for HTTPS with the certificate authorities of this system, read once.
pub(crate) fn system_tls(url: &TrackerUrl) -> Result<Arc<rustls::ClientConfig>, Error> {
    static TLS: OnceLock<Option<Arc<rustls::ClientConfig>>> = OnceLock::new();
    let make = || {
        let mut roots = rustls::RootCertStore::empty();
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config =
            rustls::ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        Some(Arc::new(config.ok()?.with_root_certificates(roots).with_no_client_auth()))
    };
    TLS.get_or_init(make).clone().ok_or_else(|| http_error(url, "cannot set up TLS on this system"))
}

/// `target` with the announce added to whatever query it has.
fn with_query(target: &str, ask: &Announce) -> String {
    let mut out = String::with_capacity(target.len() + 256);
    out.push_str(target);
    out.push(if target.contains('?') { '&' } else { '?' });
    out.push_str("info_hash=");
    escape(&mut out, &ask.info_hash);
    out.push_str("&peer_id=");
    escape(&mut out, &ask.peer_id);
    // Writing to a String cannot fail.
    let _ = write!(
        out,
        "&port={}&uploaded={}&downloaded={}&left={}&compact=1&key={:08x}",
        ask.port, ask.uploaded, ask.downloaded, ask.left, ask.key
    );
    if let Some(numwant) = ask.numwant {
        let _ = write!(out, "&numwant={numwant}");
    }
    match ask.event {
        Event::None => {}
        Event::Started => out.push_str("&event=started"),
        Event::Completed => out.push_str("&event=completed"),
        Event::Stopped => out.push_str("&event=stopped"),
    }
    if let Some(id) = &ask.tracker_id {
        out.push_str("&trackerid=");
        escape(&mut out, id);
    }
    out
}

/// Percent-encodes all but RFC 3986's unreserved characters.
fn escape(out: &mut String, bytes: &[u8]) {
    for &b in bytes {
        if b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'_' | b'~') {
            out.push(char::from(b));
        } else {
            let _ = write!(out, "%{b:02X}");
        }
    }
}

/// The answer with the peers that it gives by name.
async fn with_named((mut response, names): (Response, Vec<String>)) -> Result<Response, Error> {
    let mut looking = JoinSet::new();
    for name in names {
        looking.spawn(async move { peers::resolve(&name, NAMED_WITHIN).await });
    }
    while let Some(found) = looking.join_next().await {
        if let Ok(Ok(addrs)) = found {
            response.peers.extend(addrs);
        }
    }
    dedup(&mut response.peers);
    Ok(response)
}

/// Reads a tracker's bencoded answer: its fields, and peers that it gives by name (BEP 3), a few of them.
fn read(body: &[u8], url: &TrackerUrl) -> Result<(Response, Vec<String>), Error> {
    let bad = |why| Error::Malformed { from: url.to_string(), why };
    // Data after the value is ignored: some trackers send a line end.
    let (top, _rest) = Value::decode_prefix(body, LIMITS).map_err(|_| bad("not bencoded"))?;
    if top.as_dict().is_none() {
        return Err(bad("not a dictionary"));
    }
    if let Some(reason) = top.get(b"failure reason") {
        let reason = printable(reason.as_bytes().unwrap_or_default());
        return Err(Error::Refused { from: url.to_string(), reason });
    }
    let seconds =
        |key| top.get(key).and_then(Value::as_int).and_then(|n| u64::try_from(n).ok()).map(interval);
    let count = |key| top.get(key).and_then(Value::as_int).and_then(|n| u32::try_from(n).ok());
    let mut names = Vec::new();
    let mut peers = match top.get(b"peers") {
        Some(Value::Bytes(list)) => compact::v4(list),
        Some(Value::List(list)) => {
            names = list.iter().filter_map(named).take(MAX_NAMED).collect();
            list.iter().filter_map(peer).collect()
        }
        Some(_) => return Err(bad("peers are neither bytes nor a list")),
        None => Vec::new(),
    };
    if let Some(list) = top.get(b"peers6").and_then(Value::as_bytes) {
        peers.extend(compact::v6(list));
    }
    dedup(&mut peers);
    if peers.len() > MAX_PEERS {
        peers.truncate(MAX_PEERS);
    }
    let warning = top.get(b"warning message").and_then(Value::as_bytes).map(printable);
    let id = top.get(b"tracker id").and_then(Value::as_bytes).filter(|id| id.len() <= MAX_TRACKER_ID);
    let response = Response {
        interval: seconds(b"interval").unwrap_or(Duration::from_secs(1800)),
        min_interval: seconds(b"min interval"),
        peers,
        seeders: count(b"complete"),
        leechers: count(b"incomplete"),
        warning,
        tracker_id: id.map(<[u8]>::to_vec),
    };
    Ok((response, names))
}

/// A peer of the old form whose `ip` is a name, as `name:port`.
fn named(entry: &Value<'_>) -> Option<String> {
    let host = str::from_utf8(entry.get(b"ip")?.as_bytes()?).ok()?;
    let text = format!("{host}:{}", entry.get(b"port")?.as_int()?);
    matches!(peers::parse(&text), Ok(peers::PeerAddr::Name(..))).then_some(text)
}

/// A peer of the old form: a dictionary with `ip` and `port`.
fn peer(entry: &Value<'_>) -> Option<SocketAddr> {
    let ip = str::from_utf8(entry.get(b"ip")?.as_bytes()?).ok()?.parse().ok()?;
    let port = u16::try_from(entry.get(b"port")?.as_int()?).ok()?;
    Some(SocketAddr::new(ip, port)).filter(usable)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;
    use proptest::prelude::*;

    fn url() -> TrackerUrl {
        TrackerUrl::parse("http://t.example/a").unwrap()
    }

    #[test]
    fn reads_compact_answers() {
        let body = b"d8:completei3e10:incompletei4e8:intervali60e12:min intervali30e\
            5:peers6:\x0a\0\0\x01\x1a\xe16:peers618:\xfd\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x01\x1a\xe1\
            10:tracker id3:abc15:warning message5:a\nb\xffce";
        let (got, _) = read(body, &url()).unwrap();
        assert_eq!(got.peers, ["10.0.0.1:6881".parse().unwrap(), "[fd00::1]:6881".parse().unwrap()]);
        assert_eq!((got.seeders, got.leechers), (Some(3), Some(4)));
        assert_eq!((got.interval.as_secs(), got.min_interval.unwrap().as_secs()), (60, 30));
        assert_eq!(got.warning.as_deref(), Some("a?b\u{fffd}c"));
        assert_eq!(got.tracker_id.as_deref(), Some(&b"abc"[..]));
    }

    #[test]
    fn reads_the_old_form() {
        let body = b"d5:peersld2:ip8:10.0.0.14:porti6881eed2:ip7:fd00::14:porti1eed2:ip9:localhost4:porti1ee\
            d2:ip8:10.0.0.24:porti0eed2:ip8:10.0.0.24:porti99999eei7eee";
        let (got, names) = read(body, &url()).unwrap();
        assert_eq!(got.peers, ["10.0.0.1:6881".parse().unwrap(), "[fd00::1]:1".parse().unwrap()]);
        assert_eq!(names, ["localhost:1"]);
        let many = format!("d5:peersl{}ee", "d2:ip4:host4:porti7ee".repeat(100));
        assert_eq!(read(many.as_bytes(), &url()).unwrap().1.len(), MAX_NAMED);
        for ip in ["1:.", "9:1.2.3.400", "3:a b", "4:a:80"] {
            let body = format!("d5:peersld2:ip{ip}4:porti7eeee");
            assert!(read(body.as_bytes(), &url()).unwrap().1.is_empty(), "{ip}");
        }
        assert_eq!(got.interval.as_secs(), 1800);
    }

    #[test]
    fn says_why_it_was_refused() {
        let error = read(b"d14:failure reason7:go awaye", &url()).unwrap_err();
        assert!(matches!(error, Error::Refused { reason, .. } if reason == "go away"));
    }

    #[test]
    fn keeps_the_query_that_is_there() {
        let ask = Announce {
            info_hash: *b"\x00a~ -._%&+\xff123456789",
            peer_id: *b"-TC0100-000000000000",
            port: 1,
            uploaded: 2,
            downloaded: 3,
            left: 4,
            event: Event::Started,
            numwant: Some(5),
            key: 6,
            tracker_id: Some(b"a b".to_vec()),
        };
        assert_eq!(
            with_query("/a?pass=x", &ask),
            "/a?pass=x&info_hash=%00a~%20-._%25%26%2B%FF123456789&peer_id=-TC0100-000000000000&port=1\
             &uploaded=2&downloaded=3&left=4&compact=1&key=00000006&numwant=5&event=started&trackerid=a%20b"
        );
    }

    proptest! {
        #[test]
        fn any_body_is_read_or_refused(body: Vec<u8>) {
            let _ = read(&body, &url());
        }

        #[test]
        fn intervals_are_held_to_sense(n: i64) {
            let (got, _) = read(format!("d8:intervali{n}ee").as_bytes(), &url()).unwrap();
            prop_assert!((1..=86_400).contains(&got.interval.as_secs()));
        }
    }
}
