//! Ranges of files from servers of HTTP (RFC 9110), for web seeds (BEP 19).
//!
//! Like the tracker client it is built on hyper's connection API (see `http`); here connections are kept. The
//! caller interprets the answer. Promise: every wait is bounded ([`HEADERS`], [`STALL`]), so is the header block
//! ([`BUFFER`]); no data of the user is sent besides the URL: no credentials, no cookies.

use std::net::{IpAddr, SocketAddr};
use std::ops::Range;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Empty};
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper::header::{
    ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_RANGE, HOST, HeaderMap, HeaderName, LOCATION,
    RANGE, RETRY_AFTER, USER_AGENT,
};
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use rustls_pki_types::ServerName;
use tidecast_tls::Stream;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::error::printable;
use crate::http::{AGENT, system_tls};
use crate::{Error, Scheme, TrackerUrl, socket};

/// The addresses of one server that are tried.
const ADDRESSES: usize = 3;
/// One address has this long to accept, and TLS this long to be agreed.
const CONNECT: Duration = Duration::from_secs(5);
/// The time from a request to the end of the headers: the server may read from a tape or a remote cache.
const HEADERS: Duration = Duration::from_secs(30);
/// A body may pause for this long.
const STALL: Duration = Duration::from_secs(20);
/// Bytes read ahead of a body, and the most that a header block may have.
const BUFFER: usize = 256 << 10;

/// A kept connection to one server.
pub struct Connection {
    sender: SendRequest<Empty<Bytes>>,
    driver: JoinHandle<()>,
    origin: (Scheme, String, u16),
    addr: SocketAddr,
    used: bool,
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

/// The head of an answer; its body follows.
#[derive(Debug)]
pub struct Answer {
    /// The status code.
    pub status: u16,
    /// `Content-Range`, as it was sent.
    pub range: Option<String>,
    /// `Content-Length`.
    pub length: Option<u64>,
    /// Where a redirect leads to, as it was sent.
    pub location: Option<String>,
    /// `Retry-After`, where it is in seconds.
    pub retry_after: Option<Duration>,
    /// The body is compressed, or otherwise not the file's bytes.
    pub encoded: bool,
    body: Incoming,
}

impl TrackerUrl {
    /// The addresses of its host.
    ///
    /// # Errors
    /// The name does not resolve within five seconds.
    pub async fn resolve(&self) -> Result<Vec<SocketAddr>, Error> {
        socket::lookup(self.host(), self.port(), CONNECT).await
    }

    fn origin(&self) -> (Scheme, String, u16) {
        (self.scheme(), self.host().to_ascii_lowercase(), self.port())
    }
}

impl Connection {
    /// Connects to the first of `addrs` that answers. `from`: the local address to use, if it matters.
    ///
    /// # Errors
    /// None of them accepts in time, or TLS fails.
    pub async fn open(
        url: &TrackerUrl,
        addrs: &[SocketAddr],
        from: impl Fn(SocketAddr) -> Option<IpAddr>,
    ) -> Result<Self, Error> {
        let mut failed = Error::NoAddress { host: url.host().to_owned() };
        for &addr in addrs.iter().take(ADDRESSES) {
            let any: IpAddr = if addr.is_ipv4() { [0; 4].into() } else { [0_u16; 8].into() };
            let local = SocketAddr::new(from(addr).unwrap_or(any), 0);
            match socket::connect(addr, local, CONNECT).await {
                Ok(stream) if url.scheme() == Scheme::Https => {
                    let name = ServerName::try_from(url.host().to_owned());
                    let name = name.map_err(|_| error(url, "the host is not a name that TLS can verify"))?;
                    let connecting = Stream::connect(system_tls(url)?, name, stream);
                    let late = |_| Error::Timeout { what: addr.to_string(), after: CONNECT };
                    let stream = timeout(CONNECT, connecting).await.map_err(late)?;
                    return Self::over(url, addr, stream.map_err(|e| error(url, &format!("TLS: {e}")))?)
                        .await;
                }
                Ok(stream) => return Self::over(url, addr, stream).await,
                Err(why) => failed = why,
            }
        }
        Err(failed)
    }

    async fn over<S>(url: &TrackerUrl, addr: SocketAddr, stream: S) -> Result<Self, Error>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let builder = http1::Builder::new().max_buf_size(BUFFER).handshake(TokioIo::new(stream)).await;
        let (sender, connection) = builder.map_err(|e| error(url, &e.to_string()))?;
        // The requester is told of errors.
        let driver = tokio::spawn(async { drop(connection.await) });
        Ok(Self { sender, driver, origin: url.origin(), addr, used: false })
    }

    /// The server's address.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Whether a request for this URL may go over it.
    #[must_use]
    pub fn reaches(&self, url: &TrackerUrl) -> bool {
        !self.sender.is_closed() && self.origin == url.origin()
    }

    /// A request has gone over it before: if the next one fails, the server may merely have closed it meanwhile.
    #[must_use]
    pub fn is_used(&self) -> bool {
        self.used
    }

    /// Requests bytes of the file at `url`. The body of the previous answer must have been read, or the connection
    /// is unusable.
    ///
    /// # Errors
    /// The connection breaks, or there is no answer in time.
    pub async fn get(&mut self, url: &TrackerUrl, bytes: Range<u64>) -> Result<Answer, Error> {
        let last = bytes.end.saturating_sub(1);
        let request = Request::get(url.target())
            .header(HOST, url.authority())
            .header(USER_AGENT, AGENT)
            .header(ACCEPT_ENCODING, "identity")
            .header(RANGE, format!("bytes={}-{last}", bytes.start))
            .body(Empty::new())
            .map_err(|_| error(url, "cannot form an HTTP request"))?;
        let late = |_| Error::Timeout { what: url.to_string(), after: HEADERS };
        let sent = async {
            self.sender.ready().await?;
            self.used = true;
            self.sender.send_request(request).await
        };
        let answer = timeout(HEADERS, sent).await.map_err(late)?.map_err(|e| error(url, &e.to_string()))?;
        let head = answer.headers();
        let status = answer.status();
        let moved = status.is_redirection() && status != StatusCode::NOT_MODIFIED;
        let encoded = text(head, CONTENT_ENCODING).is_some_and(|how| !how.eq_ignore_ascii_case("identity"));
        Ok(Answer {
            status: status.as_u16(),
            range: text(head, CONTENT_RANGE),
            length: text(head, CONTENT_LENGTH).and_then(|n| n.parse().ok()),
            location: text(head, LOCATION).filter(|_| moved),
            retry_after: text(head, RETRY_AFTER).and_then(|n| n.parse().ok()).map(Duration::from_secs),
            encoded,
            body: answer.into_body(),
        })
    }
}

impl Answer {
    /// The next bytes of the body; `None` at its end.
    ///
    /// # Errors
    /// The connection breaks, or nothing comes for 20 s.
    pub async fn next(&mut self, url: &TrackerUrl) -> Result<Option<Bytes>, Error> {
        loop {
            let late = |_| Error::Timeout { what: url.to_string(), after: STALL };
            match timeout(STALL, self.body.frame()).await.map_err(late)? {
                None => return Ok(None),
                Some(Err(why)) => return Err(error(url, &why.to_string())),
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) if data.is_empty() => {}
                    Ok(data) => return Ok(Some(data)),
                    // Trailers say nothing about the file.
                    Err(_) => {}
                },
            }
        }
    }
}

fn text(head: &HeaderMap, name: HeaderName) -> Option<String> {
    head.get(name).map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned())
}

fn error(url: &TrackerUrl, why: &str) -> Error {
    Error::Http { url: url.to_string(), why: printable(why.as_bytes()) }
}

/// How far beyond this host an address is: a redirect may not lead closer to it than the URL that the user was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reach {
    /// This host, or this link.
    Here,
    /// A private network.
    Site,
    /// Anywhere.
    World,
}

impl Reach {
    /// That of an address.
    #[must_use]
    pub fn of(ip: IpAddr) -> Self {
        match ip.to_canonical() {
            ip if ip.is_loopback() || ip.is_unspecified() => Self::Here,
            IpAddr::V4(ip) if ip.is_link_local() || ip.is_broadcast() || ip.is_multicast() => Self::Here,
            IpAddr::V6(ip) if ip.is_unicast_link_local() || ip.is_multicast() => Self::Here,
            IpAddr::V4(ip) if ip.is_private() || matches!(ip.octets(), [100, 64..=127, ..]) => Self::Site,
            IpAddr::V6(ip) if ip.is_unique_local() => Self::Site,
            _ => Self::World,
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn addresses_are_here_in_the_site_or_beyond() {
        let of = |text: &str| Reach::of(text.parse().unwrap());
        for here in ["127.0.0.1", "0.0.0.0", "169.254.169.254", "::1", "fe80::1", "::ffff:127.0.0.1", "::"] {
            assert_eq!(of(here), Reach::Here, "{here}");
        }
        for site in ["10.1.2.3", "172.16.0.1", "192.168.0.1", "100.64.0.1", "fd00::1", "::ffff:10.0.0.1"] {
            assert_eq!(of(site), Reach::Site, "{site}");
        }
        for world in ["192.0.2.1", "2001:db8::1", "100.128.0.1"] {
            assert_eq!(of(world), Reach::World, "{world}");
        }
        assert!(Reach::Here < Reach::Site && Reach::Site < Reach::World);
    }
}
