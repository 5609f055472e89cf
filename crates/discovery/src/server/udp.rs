//! The UDP side of the tracker (BEP 15).
//!
//! Connection ids are a keyed hash of the client's address and the minute, so the tracker keeps no state for them
//! and they cannot be forged: a sender that has not received a packet at its address gets no answer longer than its
//! request.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use ring::hmac;
use tokio::net::UdpSocket;
use tracing::debug;

use super::{Shared, bump};
use crate::compact;
use crate::discovered::canonical;
use crate::udp_packet::{
    ANNOUNCE, CONNECT, CONNECT_LEN, ERROR, MAGIC, SCRAPE, read_announce, take, u32_at, u64_at,
};

/// Room for one request: a scrape of 74 swarms takes 1496 bytes.
const REQUEST: usize = 2048;
/// Most peers in an answer, so that it fits one frame of 1500 bytes, tunnels included.
const MAX_V4: usize = 200;
const MAX_V6: usize = 70;
/// Most swarms in a scrape (BEP 15: about 74).
const MAX_SCRAPE: usize = 74;

pub(super) async fn serve(socket: UdpSocket, shared: Arc<Shared>) {
    let mut buf = vec![0; REQUEST];
    loop {
        match socket.recv_from(&mut buf).await {
            Ok((len, from)) => {
                let request = buf.get(..len).unwrap_or_default();
                if let Some(answer) = handle(request, canonical(from), &shared) {
                    // A full send buffer loses this answer; the client asks again.
                    let _ = socket.try_send_to(&answer, from);
                }
            }
            Err(error) => {
                // ICMP errors about earlier answers appear here; none of them concerns this socket.
                debug!(%error, "UDP receive failed");
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        }
    }
}

fn handle(request: &[u8], from: SocketAddr, shared: &Shared) -> Option<Vec<u8>> {
    let head = (u64_at(request, 0), u32_at(request, 8), u32_at(request, 12));
    let (Some(connection), Some(action), Some(transaction)) = head else {
        bump(&shared.malformed);
        return None;
    };
    if action == CONNECT && connection == MAGIC {
        let mut out = answer(CONNECT, transaction);
        out.extend_from_slice(&connection_id(shared, from.ip(), minute(shared)).to_be_bytes());
        debug_assert_eq!(out.len(), CONNECT_LEN);
        return Some(out);
    }
    if !is_ours(shared, from.ip(), connection) {
        bump(&shared.forged);
        return error(transaction, "connect first", request);
    }
    match action {
        ANNOUNCE => announce(request, transaction, from, shared),
        SCRAPE => scrape(request, transaction, shared),
        _ => {
            bump(&shared.malformed);
            error(transaction, "unknown action", request)
        }
    }
}

fn announce(request: &[u8], transaction: u32, from: SocketAddr, shared: &Shared) -> Option<Vec<u8>> {
    let Some(ask) = read_announce(request) else {
        bump(&shared.malformed);
        return error(transaction, "too short", request);
    };
    bump(&shared.udp_announces);
    let sample = shared.announce(SocketAddr::new(from.ip(), ask.port), &ask);
    let mut out = answer(ANNOUNCE, transaction);
    let interval = u32::try_from(shared.options.interval.as_secs()).unwrap_or(u32::MAX);
    for number in [interval, sample.count.leechers, sample.count.seeders] {
        out.extend_from_slice(&number.to_be_bytes());
    }
    let peers = if from.is_ipv4() { sample.v4.iter().take(MAX_V4) } else { sample.v6.iter().take(MAX_V6) };
    peers.for_each(|peer| compact::push(&mut out, *peer));
    Some(out)
}

fn scrape(request: &[u8], transaction: u32, shared: &Shared) -> Option<Vec<u8>> {
    let (hashes, _tail) = request.get(16..)?.as_chunks::<20>();
    bump(&shared.scrapes);
    let mut out = answer(SCRAPE, transaction);
    for hash in hashes.iter().take(MAX_SCRAPE) {
        let count = shared.count(hash);
        for number in [count.seeders, count.completed, count.leechers] {
            out.extend_from_slice(&number.to_be_bytes());
        }
    }
    Some(out)
}

fn answer(action: u32, transaction: u32) -> Vec<u8> {
    let mut out = Vec::with_capacity(64);
    out.extend_from_slice(&action.to_be_bytes());
    out.extend_from_slice(&transaction.to_be_bytes());
    out
}

/// An error message, unless it would be longer than the request.
fn error(transaction: u32, reason: &str, request: &[u8]) -> Option<Vec<u8>> {
    let mut out = answer(ERROR, transaction);
    out.extend_from_slice(reason.as_bytes());
    (out.len() <= request.len()).then_some(out)
}

/// Minutes since the tracker started.
fn minute(shared: &Shared) -> u64 {
    shared.started.elapsed().as_secs() / 60
}

fn connection_id(shared: &Shared, ip: IpAddr, minute: u64) -> u64 {
    let mut message = [0; 24];
    let octets = match ip {
        IpAddr::V4(ip) => ip.to_ipv6_mapped().octets(),
        IpAddr::V6(ip) => ip.octets(),
    };
    message[..8].copy_from_slice(&minute.to_be_bytes());
    message[8..].copy_from_slice(&octets);
    let tag = hmac::sign(&shared.key, &message);
    take(tag.as_ref(), 0).map_or(0, u64::from_be_bytes)
}

/// An id lives at least one minute, at most two (BEP 15).
fn is_ours(shared: &Shared, ip: IpAddr, connection: u64) -> bool {
    let now = minute(shared);
    let made_in = |minute| connection_id(shared, ip, minute) == connection;
    made_in(now) || now.checked_sub(1).is_some_and(made_in)
}
