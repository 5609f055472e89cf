//! Connects back to a worker: determines its reachable addresses, and the rate to them.
//!
//! Several hosts may have the same private address; so the callee identifies itself by its key. If the rate to an address
//! matters and is unknown ([`ties`](crate::network::ties)), a short trial measures it.
//!
//! ```text
//!   ── connect ──▶   ◀── key (32 bytes) ──      the end, or:
//!   ── 2, pass (16 bytes) ──▶                   callers without the pass cause no further work
//!   ── zeros, until the answer ──▶              at most TRIAL_BYTES, TRIAL_TIME; or a probe, see `probe.rs`
//!   ◀── bits per second, 8 bytes ──             the measured rate
//! ```

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::{Duration, Instant};

use subtle::ConstantTimeEq as _;
use tidecast_admission::{Gate, Limits, accept};
use tidecast_identity::NodeId;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::{timeout, timeout_at};

use crate::probe;

/// The timeout after which an address is unreachable.
const PATIENCE: Duration = Duration::from_secs(3);
/// When one address has answered, the others get this time, or this multiple of its time: the group must not wait seconds
/// for an address that is not connected to this host (a container's bridge, a management network).
const GRACE: (Duration, u32) = (Duration::from_millis(250), 8);
/// Maximum number of addresses of one node that are tried.
const MAX_ADDRESSES: usize = 32;

/// A trial takes at most this time, or this many bytes, which take 2 ms at 10 Gbit/s.
const TRIAL_TIME: Duration = Duration::from_millis(150);
const TRIAL_BYTES: usize = 2 << 20;
/// Bytes per read or write.
pub(crate) const STEP: usize = 64 << 10;
/// The first byte of a trial.
const TRY: u8 = 2;

/// An address that answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reached {
    pub(crate) ip: IpAddr,
    /// The time until the answer.
    pub(crate) after: Duration,
    /// The rate to this address, bits per second, if it was measured.
    pub(crate) rate: Option<u64>,
}

/// A socket that listens on every address of this host, at a free port.
pub(crate) fn listener() -> Result<std::net::TcpListener, tidecast_net::Error> {
    let any: [IpAddr; 2] = [Ipv6Addr::UNSPECIFIED.into(), Ipv4Addr::UNSPECIFIED.into()];
    // IPv4 only if the kernel has no IPv6.
    tidecast_net::listen((any[0], 0).into()).or_else(|_| tidecast_net::listen((any[1], 0).into()))
}

/// Tries all addresses at once.
pub(crate) async fn connect_back(addresses: Vec<IpAddr>, port: u16, node: NodeId) -> Vec<Reached> {
    let mut trying = JoinSet::new();
    for ip in addresses.into_iter().take(MAX_ADDRESSES) {
        trying.spawn(async move {
            let began = Instant::now();
            let asked = timeout(PATIENCE, ask(SocketAddr::new(ip, port))).await;
            let same = matches!(asked, Ok(Ok(id)) if id == node);
            same.then(|| Reached { ip, after: began.elapsed(), rate: None })
        });
    }
    let mut reached: Vec<Reached> = Vec::new();
    let mut until = tokio::time::Instant::now() + PATIENCE;
    while let Ok(Some(tried)) = timeout_at(until, trying.join_next()).await {
        let Ok(Some(found)) = tried else { continue };
        if reached.is_empty() {
            until = until.min(tokio::time::Instant::now() + GRACE.0.max(found.after * GRACE.1));
        }
        reached.push(found);
    }
    reached.sort_by_key(|r| r.ip);
    reached
}

async fn ask(address: SocketAddr) -> std::io::Result<NodeId> {
    Ok(call(address).await?.1)
}

pub(crate) async fn call(address: SocketAddr) -> std::io::Result<(TcpStream, NodeId)> {
    let mut stream = TcpStream::connect(address).await?;
    let mut id = [0; 32];
    stream.read_exact(&mut id).await?;
    Ok((stream, NodeId(id)))
}

/// Measures the rates to these addresses of a worker, one after the other.
pub(crate) async fn try_rates(
    reached: &mut [Reached],
    ips: &[IpAddr],
    port: u16,
    (node, pass): (NodeId, [u8; 16]),
) {
    for way in reached.iter_mut().filter(|r| ips.contains(&r.ip)) {
        let tried = timeout(PATIENCE, try_rate(SocketAddr::new(way.ip, port), node, &pass)).await;
        way.rate = tried.ok().and_then(Result::ok);
        tracing::debug!(?way, "tried");
    }
}

/// Sends until the callee answers with the rate.
async fn try_rate(address: SocketAddr, node: NodeId, pass: &[u8; 16]) -> std::io::Result<u64> {
    let (mut stream, id) = call(address).await?;
    if id != node {
        return Err(std::io::ErrorKind::ConnectionRefused.into());
    }
    // Unsent data in the socket is discarded when the answer arrives.
    stream.set_zero_linger()?;
    let (mut answer, mut way) = stream.split();
    let zeros = [0; STEP];
    let send = async {
        way.write_all(&[&[TRY][..], pass].concat()).await?;
        for _ in 0..TRIAL_BYTES / STEP {
            way.write_all(&zeros).await?;
        }
        std::future::pending::<std::io::Result<u64>>().await
    };
    tokio::select! {
        rate = answer.read_u64() => rate,
        failed = send => failed,
    }
}

/// Answers callers with this node's key, and serves trials and probes to callers with the pass, until the task is ended.
pub(crate) async fn answer(listener: TcpListener, node: NodeId, pass: [u8; 16], tell: probe::Results) {
    let gate = Gate::new(Limits { deadline: PATIENCE, ..Limits::of_process() });
    let mut callers = JoinSet::new();
    loop {
        let (stream, _, mut admitted) = accept(&listener, &gate).await;
        let tell = tell.clone();
        callers.spawn(async move {
            let Ok(Ok((stream, wish))) = admitted.run(greet(stream, node, &pass)).await else { return };
            admitted.prove();
            let _ = timeout(PATIENCE, serve(stream, wish, &tell)).await;
        });
        while callers.try_join_next().is_some() {}
    }
}

/// Sends this node's key, and reads the request of a caller with the pass: 17 bytes.
async fn greet(mut stream: TcpStream, node: NodeId, pass: &[u8; 16]) -> std::io::Result<(TcpStream, u8)> {
    stream.write_all(&node.0).await?;
    let wish = stream.read_u8().await?;
    let mut shown = [0; 16];
    stream.read_exact(&mut shown).await?;
    match bool::from(shown.ct_eq(pass)) {
        true => Ok((stream, wish)),
        false => Err(std::io::ErrorKind::PermissionDenied.into()),
    }
}

async fn serve(mut stream: TcpStream, wish: u8, tell: &probe::Results) -> std::io::Result<()> {
    match wish {
        probe::PROBE => return probe::answer(stream, tell).await,
        TRY => {}
        _ => return Ok(()),
    }
    let mut sink = vec![0; STEP];
    // Data that arrived together with the first bytes does not count for the rate.
    let (began, mut bytes) = (Instant::now(), 0);
    while bytes < TRIAL_BYTES - STEP
        && let Some(left) = TRIAL_TIME.checked_sub(began.elapsed())
    {
        match timeout(left, stream.read(&mut sink)).await {
            Ok(Ok(read @ 1..)) => bytes += read,
            _ => break,
        }
    }
    let nanos = began.elapsed().as_nanos().max(1);
    let rate = u64::try_from(bytes as u128 * 8 * 1_000_000_000 / nanos).unwrap_or(u64::MAX);
    stream.write_u64(rate).await?;
    // Closing before the caller has read the answer could lose it.
    while stream.read(&mut sink).await? > 0 {}
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[tokio::test]
    async fn only_who_it_is_counts() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let answering = tokio::spawn(answer(listener, NodeId([1; 32]), [0; 16], probe::channel().0));
        let here: Vec<IpAddr> = vec!["127.0.0.1".parse().unwrap(), "127.0.0.9".parse().unwrap()];
        let ips = async |id| {
            let reached = connect_back(here.clone(), port, NodeId([id; 32])).await;
            reached.into_iter().map(|r| r.ip.to_string()).collect::<Vec<_>>()
        };
        assert_eq!(ips(1).await, ["127.0.0.1"]);
        assert!(ips(2).await.is_empty(), "somebody else answered");
        answering.abort();
    }

    #[tokio::test]
    async fn one_that_is_silent_holds_nobody_up() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let answering = tokio::spawn(answer(listener, NodeId([1; 32]), [0; 16], probe::channel().0));
        // It takes the connection and says nothing.
        let _silent = std::net::TcpListener::bind(("127.0.0.9", port)).unwrap();
        let began = Instant::now();
        let both = vec!["127.0.0.9".parse().unwrap(), "127.0.0.1".parse().unwrap()];
        assert_eq!(connect_back(both, port, NodeId([1; 32])).await.len(), 1);
        assert!(began.elapsed() < PATIENCE);
        answering.abort();
    }

    #[tokio::test]
    async fn callers_that_say_nothing_keep_no_other_away() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let at = listener.local_addr().unwrap();
        let answering = tokio::spawn(answer(listener, NodeId([1; 32]), [0; 16], probe::channel().0));
        let mut silent = Vec::new();
        for _ in 0..300 {
            silent.push(TcpStream::connect(at).await.unwrap());
        }
        let mut reached = connect_back(vec![at.ip()], at.port(), NodeId([1; 32])).await;
        assert_eq!(reached.len(), 1);
        try_rates(&mut reached, &[at.ip()], at.port(), (NodeId([1; 32]), [9; 16])).await;
        assert_eq!(reached[0].rate, None, "another pass");
        try_rates(&mut reached, &[at.ip()], at.port(), (NodeId([1; 32]), [0; 16])).await;
        assert!(reached[0].rate.is_some());
        answering.abort();
    }

    #[tokio::test]
    async fn a_way_is_tried_where_that_is_asked() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let answering = tokio::spawn(answer(listener, NodeId([1; 32]), [0; 16], probe::channel().0));
        let here: IpAddr = "127.0.0.1".parse().unwrap();
        let reached = connect_back(vec![here], port, NodeId([1; 32])).await;
        let tried = async |ips: &[IpAddr], id| {
            let mut reached = reached.clone();
            try_rates(&mut reached, ips, port, (NodeId([id; 32]), [0; 16])).await;
            reached.first().unwrap().rate
        };
        assert!(tried(&[here], 1).await.is_some_and(|rate| rate > 0));
        assert_eq!(tried(&[], 1).await, None);
        assert_eq!(tried(&[here], 2).await, None, "somebody else's");
        answering.abort();
    }
}
