//! The embedded tracker: HTTP (`/announce`, `/scrape`; BEP 3, 7, 23, 48) and UDP (BEP 15) on one port.
//!
//! Promises: memory is bounded by [`Limits`] and [`Options`], whatever is sent; a UDP answer is never longer than
//! its request until the sender has proven that it owns its address; no request panics; answers are always compact.
//! It knows nothing about the data of a swarm and lets any client create one.

mod http;
mod state;
mod udp;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use ring::hmac;
use socket2::{Domain, Protocol, Socket, Type};
use tokio::net::{TcpListener, UdpSocket};
use tokio::task::JoinSet;

pub use state::Limits;
use state::{Count, Sample, State};
use tidecast_event::tracker::Stats;

use crate::tracker::Announce;
use crate::{Error, InfoHash};

/// How the tracker behaves.
#[derive(Debug, Clone)]
pub struct Options {
    /// How often clients are asked to announce. Twice this after its last announce, a peer is forgotten.
    pub interval: Duration,
    /// How often clients may announce.
    pub min_interval: Duration,
    /// Bounds of its memory.
    pub limits: Limits,
    /// Most HTTP connections at once; beyond them those of the address with the most are closed, the oldest first.
    pub connections: usize,
    /// How long an HTTP client has for its whole request and answer.
    pub patience: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            interval: Duration::from_secs(120),
            min_interval: Duration::from_secs(10),
            limits: Limits::default(),
            connections: 1024,
            patience: Duration::from_secs(10),
        }
    }
}

/// A running tracker. Dropping it stops it and frees its port.
pub struct Tracker {
    addr: SocketAddr,
    shared: Arc<Shared>,
    _tasks: JoinSet<()>,
}

/// State shared by the HTTP and the UDP side.
struct Shared {
    state: Mutex<State>,
    options: Options,
    /// Key of the UDP connection ids; new with every start.
    key: hmac::Key,
    started: Instant,
    http_announces: AtomicU64,
    udp_announces: AtomicU64,
    scrapes: AtomicU64,
    malformed: AtomicU64,
    forged: AtomicU64,
}

impl Tracker {
    /// Starts a tracker at `listen`, TCP and UDP. Port 0 picks a port that is free for both;
    /// `[::]` serves IPv4 too, and means IPv4 alone where the system has no IPv6.
    ///
    /// Must be called within a tokio runtime.
    ///
    /// # Errors
    /// [`Error::Socket`] when the address cannot be bound.
    pub fn bind(listen: SocketAddr, options: Options) -> Result<Self, Error> {
        let (tcp, udp) = sockets(listen)
            .map_err(|source| Error::Socket { what: format!("the tracker's address {listen}"), source })?;
        let addr = tcp
            .local_addr()
            .map_err(|source| Error::Socket { what: "the tracker's address".into(), source })?;
        let expiry = options.interval * 2 + Duration::from_secs(10);
        let mut secret = [0; 32];
        rand::fill(&mut secret);
        let shared = Arc::new(Shared {
            state: Mutex::new(State::new(options.limits.clone(), expiry)),
            key: hmac::Key::new(hmac::HMAC_SHA256, &secret),
            started: Instant::now(),
            http_announces: AtomicU64::new(0),
            udp_announces: AtomicU64::new(0),
            scrapes: AtomicU64::new(0),
            malformed: AtomicU64::new(0),
            forged: AtomicU64::new(0),
            options,
        });
        let mut tasks = JoinSet::new();
        tasks.spawn(http::serve(tcp, Arc::clone(&shared)));
        tasks.spawn(udp::serve(udp, Arc::clone(&shared)));
        tasks.spawn(sweep(Arc::clone(&shared)));
        Ok(Self { addr, shared, _tasks: tasks })
    }

    /// Where it listens; the port is the real one.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.addr
    }

    /// Its counters, and its present state.
    #[must_use]
    pub fn stats(&self) -> Stats {
        let shared = &self.shared;
        let (swarms, peers, refused) = {
            let state = shared.state.lock();
            (state.swarms(), state.peers(), state.refused())
        };
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Stats {
            swarms,
            peers,
            http_announces: read(&shared.http_announces),
            udp_announces: read(&shared.udp_announces),
            scrapes: read(&shared.scrapes),
            malformed: read(&shared.malformed),
            forged: read(&shared.forged),
            refused,
        }
    }
}

impl Shared {
    fn announce(&self, addr: SocketAddr, ask: &Announce) -> Sample {
        self.state.lock().announce(addr, ask, Instant::now(), &mut rand::rng())
    }

    fn count(&self, hash: &InfoHash) -> Count {
        self.state.lock().count(hash)
    }
}

/// Adds one.
fn bump(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

/// Removes, a few times per interval, peers that stopped announcing.
async fn sweep(shared: Arc<Shared>) {
    let every = (shared.options.interval / 4).max(Duration::from_secs(1));
    loop {
        tokio::time::sleep(every).await;
        shared.state.lock().expire(Instant::now());
    }
}

/// A TCP and a UDP socket at the same address and port.
fn sockets(listen: SocketAddr) -> io::Result<(TcpListener, UdpSocket)> {
    let pair = |listen: SocketAddr| -> io::Result<(TcpListener, UdpSocket)> {
        let tcp = TcpListener::from_std(socket(listen, Type::STREAM)?.into())?;
        let same = SocketAddr::new(listen.ip(), tcp.local_addr()?.port());
        let udp = UdpSocket::from_std(socket(same, Type::DGRAM)?.into())?;
        Ok((tcp, udp))
    };
    let mut last = pair(listen);
    // The kernel picks a port that is free for TCP; for UDP it may be taken.
    for _ in 0..16 {
        match &last {
            Err(e) if listen.port() == 0 && e.kind() == io::ErrorKind::AddrInUse => last = pair(listen),
            Err(e) if listen.is_ipv6() && listen.ip().is_unspecified() && no_ipv6(e) => {
                return pair(SocketAddr::from(([0, 0, 0, 0], listen.port())));
            }
            _ => break,
        }
    }
    last
}

/// Whether `error` is the system's way of saying that it has no IPv6.
fn no_ipv6(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::AddrNotAvailable
        || error.raw_os_error() == Some(nix::errno::Errno::EAFNOSUPPORT as i32)
}

fn socket(addr: SocketAddr, kind: Type) -> io::Result<Socket> {
    let stream = kind == Type::STREAM;
    let protocol = if stream { Protocol::TCP } else { Protocol::UDP };
    let socket = Socket::new(Domain::for_address(addr), kind.nonblocking(), Some(protocol))?;
    if addr.is_ipv6() {
        socket.set_only_v6(!addr.ip().is_unspecified())?;
    }
    if stream {
        socket.set_reuse_address(true)?;
    } else {
        // A whole cluster may start in the same second; the kernel grants up to its limit.
        let _ = socket.set_recv_buffer_size(4 << 20);
    }
    socket.bind(&addr.into())?;
    if stream {
        socket.listen(4096)?;
    }
    Ok(socket)
}
