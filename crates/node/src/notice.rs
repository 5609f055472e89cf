//! Notices of a swarm as text for people.

use std::net::SocketAddr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tidecast_net::Notice;
use tidecast_text::count;

use crate::plain;

/// Why a peer sends nothing, if that is the subject of the notice.
pub fn about_peer(notice: &Notice) -> Option<String> {
    match notice {
        Notice::Banned { addr, why, .. } => Some(format!("peer {addr} is banned: {why}")),
        Notice::Refused { addr, why } => Some(format!("peer {addr} rejected this node: {why}")),
        Notice::Rejected { addr, why } => Some(format!("peer {addr} was rejected: {why}")),
        Notice::Withdrew { addr } => Some(withdrew(*addr)),
        Notice::WebSeed { url, why } => Some(web_seed(url, why)),
        Notice::Unreachable { addr, why, .. } => Some(format!("peer {addr}: {why}")),
        Notice::Stalled { addrs, silent, sending: false, missing } => {
            Some(stalled(addrs, *silent, false, *missing))
        }
        _ => None,
    }
}

pub(crate) fn web_seed(url: &str, why: &str) -> String {
    format!("web seed {}: {}", plain(url), plain(why))
}

/// Peers are connected, and nothing moves.
pub(crate) fn stalled(addrs: &[SocketAddr], silent: Duration, sending: bool, missing: u32) -> String {
    let since = SystemTime::now().checked_sub(silent).map(clock).unwrap_or_default();
    let addrs = addrs.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    let seconds = silent.as_secs();
    match sending {
        true => format!("peer {addrs} received no data for {seconds} s, since {since}"),
        false if missing > 0 => {
            let pieces = count(missing.into(), "piece");
            format!(
                "no data for {seconds} s, since {since}: no connected peer has {pieces} of the missing data ({addrs})"
            )
        }
        false => format!("no data for {seconds} s, since {since}, from {addrs}"),
    }
}

/// The time of day.
fn clock(at: SystemTime) -> String {
    let seconds = at.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs()) % 86_400;
    format!("{:02}:{:02}:{:02}Z", seconds / 3600, seconds / 60 % 60, seconds % 60)
}

pub(crate) fn withdrew(addr: SocketAddr) -> String {
    let host = addr.ip().to_canonical();
    format!("peer {host} no longer has all pieces that it announced: its copy changed or is unreadable")
}
