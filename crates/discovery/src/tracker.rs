//! One announce to a tracker: HTTP, HTTPS (BEP 3, 7, 23) or UDP (BEP 15, 41).
//!
//! A tracker with addresses of both families is contacted over both, so that it learns both of ours; one success is
//! enough. Every step has a time limit, and an answer a size limit.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;

use crate::{Error, InfoHash, PeerId, Scheme, TrackerUrl};
use crate::{http, socket, udp};

/// After one address family has answered, how long the other is still waited for.
const OTHER_FAMILY: Duration = Duration::from_millis(500);

/// Why this announce is made (BEP 3 `event`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Event {
    /// Nothing happened; the interval passed.
    #[default]
    None,
    /// The first announce.
    Started,
    /// The download just became complete (not sent by a node that had everything from the start).
    Completed,
    /// The last announce.
    Stopped,
}

/// The content of an announce. Byte counts are of payload since `started`.
#[derive(Debug, Clone)]
pub struct Announce {
    /// The swarm.
    pub info_hash: InfoHash,
    /// Our peer id.
    pub peer_id: PeerId,
    /// The port that peers connect to.
    pub port: u16,
    /// Bytes sent to peers.
    pub uploaded: u64,
    /// Bytes received from peers.
    pub downloaded: u64,
    /// Bytes still missing; 0 makes us a seed.
    pub left: u64,
    /// Why.
    pub event: Event,
    /// How many peers are asked for; `None` leaves it to the tracker.
    pub numwant: Option<u32>,
    /// Random, the same for the life of the process: lets a tracker recognise us when our address changes.
    pub key: u32,
    /// The `tracker id` of its last answer, which is sent back.
    pub tracker_id: Option<Vec<u8>>,
}

/// A tracker's answer.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Response {
    /// Interval until the next announce; 1 s to 24 h.
    pub interval: Duration,
    /// The least time between announces, when it names one.
    pub min_interval: Option<Duration>,
    /// Peers, each usable, none twice, in no order that means anything.
    pub peers: Vec<SocketAddr>,
    /// Peers that have everything.
    pub seeders: Option<u32>,
    /// Peers that do not.
    pub leechers: Option<u32>,
    /// A text for the user, cut and printable.
    pub warning: Option<String>,
    /// To be given back in the next announce.
    pub tracker_id: Option<Vec<u8>>,
}

/// How a tracker is reached.
#[derive(Debug, Clone)]
pub struct Options {
    /// Local addresses to send from, at most one per family; a family without one is then not used. Empty: as the
    /// routing table decides.
    pub bind: Vec<IpAddr>,
    /// Limit for a whole HTTP exchange, redirects included, and for resolving a name.
    pub timeout: Duration,
    /// How long the first UDP packet waits for its answer; each next one waits twice as long. `None`: 15 s as in
    /// BEP 15, 1 s to an address of this site, where loss is the likelier cause.
    pub udp_first_wait: Option<Duration>,
    /// How often a UDP request is sent before giving up.
    pub udp_attempts: u32,
    /// TLS settings; `None`: the certificate authorities that this system trusts.
    pub tls: Option<Arc<rustls::ClientConfig>>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            bind: Vec::new(),
            timeout: Duration::from_secs(20),
            udp_first_wait: None,
            udp_attempts: 3,
            tls: None,
        }
    }
}

/// Announces to the tracker at `url`, over each address family that it has.
///
/// # Errors
/// Whatever the first family that failed met, when none succeeded. [`Error::Refused`] is the
/// tracker's own word; all others are worth another try.
pub async fn announce(url: &TrackerUrl, ask: &Announce, options: &Options) -> Result<Response, Error> {
    let addrs = socket::lookup(url.host(), url.port(), options.timeout).await?;
    announce_at(url, addrs, ask, options).await
}

/// Announces to the tracker at `url`, whose name has the addresses `addrs`.
async fn announce_at(
    url: &TrackerUrl,
    addrs: Vec<SocketAddr>,
    ask: &Announce,
    options: &Options,
) -> Result<Response, Error> {
    let (v4, v6): (Vec<_>, Vec<_>) = addrs.into_iter().partition(SocketAddr::is_ipv4);
    let reach = |addrs: Vec<SocketAddr>| {
        let first = addrs.first().copied()?;
        Some((socket::local_for(first, &options.bind)?, addrs))
    };
    match (reach(v4), reach(v6)) {
        (Some(one), Some(other)) => {
            both(family(url, one, ask, options), family(url, other, ask, options)).await
        }
        (Some(one), None) | (None, Some(one)) => family(url, one, ask, options).await,
        (None, None) => Err(Error::NoAddress { host: url.host().to_owned() }),
    }
}

/// One address family: the first of its addresses that can be talked to.
async fn family(
    url: &TrackerUrl,
    (local, addrs): (SocketAddr, Vec<SocketAddr>),
    ask: &Announce,
    options: &Options,
) -> Result<Response, Error> {
    match url.scheme() {
        Scheme::Http | Scheme::Https => {
            let whole = http::announce(url, &addrs, local, ask, options);
            timeout(options.timeout, whole)
                .await
                .map_err(|_| Error::Timeout { what: url.to_string(), after: options.timeout })?
        }
        Scheme::Udp => {
            let mut last = Err(Error::NoAddress { host: url.host().to_owned() });
            for addr in addrs.into_iter().take(2) {
                last = udp::announce(addr, local, (ask, url.target()), options).await;
                if last.is_ok() {
                    break;
                }
            }
            last
        }
    }
}

/// Both families at once. The second one in has half a second after the first that succeeded.
async fn both(
    one: impl Future<Output = Result<Response, Error>>,
    other: impl Future<Output = Result<Response, Error>>,
) -> Result<Response, Error> {
    tokio::pin!(one, other);
    let (first, second) = tokio::select! {
        first = &mut one => match first {
            Ok(first) => (first, timeout(OTHER_FAMILY, other).await.ok()),
            Err(error) => return other.await.map_err(|_| error),
        },
        first = &mut other => match first {
            Ok(first) => (first, timeout(OTHER_FAMILY, one).await.ok()),
            Err(error) => return one.await.map_err(|_| error),
        },
    };
    Ok(match second {
        Some(Ok(second)) => merge(first, second),
        _ => first,
    })
}

fn merge(mut a: Response, b: Response) -> Response {
    a.interval = a.interval.max(b.interval);
    a.min_interval = a.min_interval.max(b.min_interval);
    a.seeders = a.seeders.max(b.seeders);
    a.leechers = a.leechers.max(b.leechers);
    a.warning = a.warning.or(b.warning);
    a.tracker_id = a.tracker_id.or(b.tracker_id);
    a.peers.extend(b.peers);
    dedup(&mut a.peers);
    a
}

/// Removes duplicates.
pub(crate) fn dedup(peers: &mut Vec<SocketAddr>) {
    peers.sort_unstable();
    peers.dedup();
}

/// A tracker's interval in seconds, limited to a sensible range.
pub(crate) fn interval(seconds: u64) -> Duration {
    Duration::from_secs(seconds.clamp(1, 24 * 3600))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;
    use crate::server::{self, Tracker};

    fn ask(port: u16) -> Announce {
        Announce {
            info_hash: [1; 20],
            peer_id: port.to_be_bytes().repeat(10).try_into().unwrap(),
            port,
            uploaded: 0,
            downloaded: 0,
            left: 1,
            event: Event::Started,
            numwant: None,
            key: 0,
            tracker_id: None,
        }
    }

    #[tokio::test]
    async fn a_name_with_both_families_is_told_over_both() {
        let Ok(tracker) = Tracker::bind("[::1]:0".parse().unwrap(), server::Options::default()) else {
            eprintln!("SKIPPED: this machine has no IPv6 loopback");
            return;
        };
        drop(tracker);
        let tracker = Tracker::bind("[::]:0".parse().unwrap(), server::Options::default()).unwrap();
        let port = tracker.local_addr().port();
        let all: Vec<SocketAddr> =
            vec![([127, 0, 0, 1], port).into(), ([0, 0, 0, 0, 0, 0, 0, 1], port).into()];
        for scheme in ["http", "udp"] {
            let url = TrackerUrl::parse(&format!("{scheme}://tracker.example:{port}/announce")).unwrap();
            let options = Options::default();
            let listed = announce_at(&url, all.clone(), &ask(1000), &options).await.unwrap();
            assert!(listed.peers.is_empty());
            assert_eq!(tracker.stats().peers, 2, "{scheme}");
            let other = announce_at(&url, all.clone(), &ask(1001), &options).await.unwrap();
            assert_eq!(other.peers, ["127.0.0.1:1000".parse().unwrap(), "[::1]:1000".parse().unwrap()]);
            for port in [1000, 1001] {
                let gone = Announce { event: Event::Stopped, ..ask(port) };
                announce_at(&url, all.clone(), &gone, &options).await.unwrap();
            }
            assert_eq!(tracker.stats().peers, 0, "{scheme}");
        }
    }

    /// A name with several addresses: without a server, a server that hangs up, a broken one, the tracker.
    #[tokio::test]
    async fn the_address_that_answers_counts() {
        let refuses = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
        let fake = async |answer: &'static [u8]| {
            let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
            let addr = listener.local_addr().unwrap();
            tokio::spawn(async move {
                while let Ok((mut stream, _)) = listener.accept().await {
                    let _ = tokio::io::AsyncReadExt::read(&mut stream, &mut [0; 4096]).await;
                    let _ = tokio::io::AsyncWriteExt::write_all(&mut stream, answer).await;
                }
            });
            addr
        };
        let hangs_up = fake(b"").await;
        let broken = fake(b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n").await;
        let tracker = Tracker::bind("127.0.0.1:0".parse().unwrap(), server::Options::default()).unwrap();
        let url = TrackerUrl::parse("http://tracker.example:80/announce").unwrap();
        let all = vec![refuses, hangs_up, broken, tracker.local_addr()];
        announce_at(&url, all, &ask(1000), &Options::default()).await.unwrap();
        assert_eq!(tracker.stats().peers, 1);
        let none = announce_at(&url, vec![refuses, broken], &ask(1000), &Options::default()).await;
        assert!(matches!(none, Err(Error::Status { status: 502, .. })), "{none:?}");
    }

    #[tokio::test]
    async fn one_family_that_fails_does_not_matter() {
        let tracker = Tracker::bind("127.0.0.1:0".parse().unwrap(), server::Options::default()).unwrap();
        let port = tracker.local_addr().port();
        let all: Vec<SocketAddr> =
            vec![([127, 0, 0, 1], port).into(), ([0, 0, 0, 0, 0, 0, 0, 1], port).into()];
        for scheme in ["http", "udp"] {
            let url = TrackerUrl::parse(&format!("{scheme}://tracker.example:{port}/announce")).unwrap();
            announce_at(&url, all.clone(), &ask(1000), &Options::default()).await.unwrap();
        }
    }
}
