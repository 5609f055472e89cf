//! The packets of BEP 15, for client and server alike: fixed fields in big-endian order.
//!
//! Reading uses the bytes that are there and never trusts a length; trailing bytes (BEP 41) are written and
//! ignored.

use crate::tracker::{Announce, Event};

/// The connection id by which a client asks for a real one.
pub(crate) const MAGIC: u64 = 0x0417_2710_1980;

pub(crate) const CONNECT: u32 = 0;
pub(crate) const ANNOUNCE: u32 = 1;
pub(crate) const SCRAPE: u32 = 2;
pub(crate) const ERROR: u32 = 3;

/// Length of a connect request, and of its answer.
pub(crate) const CONNECT_LEN: usize = 16;
/// Length of an announce request.
pub(crate) const ANNOUNCE_LEN: usize = 98;

/// `N` bytes at `at`, or nothing.
pub(crate) fn take<const N: usize>(packet: &[u8], at: usize) -> Option<[u8; N]> {
    packet.get(at..at.checked_add(N)?)?.try_into().ok()
}

pub(crate) fn u16_at(packet: &[u8], at: usize) -> Option<u16> {
    take(packet, at).map(u16::from_be_bytes)
}

pub(crate) fn u32_at(packet: &[u8], at: usize) -> Option<u32> {
    take(packet, at).map(u32::from_be_bytes)
}

pub(crate) fn u64_at(packet: &[u8], at: usize) -> Option<u64> {
    take(packet, at).map(u64::from_be_bytes)
}

/// A request's first 16 bytes.
pub(crate) fn head(connection: u64, action: u32, transaction: u32) -> Vec<u8> {
    let mut out = Vec::with_capacity(ANNOUNCE_LEN);
    out.extend_from_slice(&connection.to_be_bytes());
    out.extend_from_slice(&action.to_be_bytes());
    out.extend_from_slice(&transaction.to_be_bytes());
    out
}

/// Option of BEP 41: a part of the URL behind its host.
const URL_DATA: u8 = 2;

/// Adds path and query of the tracker's URL (BEP 41), in parts as long as an option can be.
pub(crate) fn add_url(packet: &mut Vec<u8>, target: &str) {
    for part in target.as_bytes().chunks(255).filter(|_| target != "/") {
        packet.extend([URL_DATA, u8::try_from(part.len()).unwrap_or(u8::MAX)]);
        packet.extend_from_slice(part);
    }
}

/// An announce request. The IP field stays 0: the tracker sees where it comes from.
pub(crate) fn announce(connection: u64, transaction: u32, ask: &Announce) -> Vec<u8> {
    let event: u32 = match ask.event {
        Event::None => 0,
        Event::Completed => 1,
        Event::Started => 2,
        Event::Stopped => 3,
    };
    let numwant = ask.numwant.map_or(-1, |n| i32::try_from(n).unwrap_or(i32::MAX));
    let mut out = head(connection, ANNOUNCE, transaction);
    out.extend_from_slice(&ask.info_hash);
    out.extend_from_slice(&ask.peer_id);
    out.extend_from_slice(&ask.downloaded.to_be_bytes());
    out.extend_from_slice(&ask.left.to_be_bytes());
    out.extend_from_slice(&ask.uploaded.to_be_bytes());
    out.extend_from_slice(&event.to_be_bytes());
    out.extend_from_slice(&0u32.to_be_bytes());
    out.extend_from_slice(&ask.key.to_be_bytes());
    out.extend_from_slice(&numwant.to_be_bytes());
    out.extend_from_slice(&ask.port.to_be_bytes());
    debug_assert_eq!(out.len(), ANNOUNCE_LEN);
    out
}

/// Reads an announce request (from byte 16 on; the head is the caller's).
pub(crate) fn read_announce(packet: &[u8]) -> Option<Announce> {
    if packet.len() < ANNOUNCE_LEN {
        return None;
    }
    let event = match u32_at(packet, 80)? {
        1 => Event::Completed,
        2 => Event::Started,
        3 => Event::Stopped,
        _ => Event::None,
    };
    Some(Announce {
        info_hash: take(packet, 16)?,
        peer_id: take(packet, 36)?,
        downloaded: u64_at(packet, 56)?,
        left: u64_at(packet, 64)?,
        uploaded: u64_at(packet, 72)?,
        event,
        key: u32_at(packet, 88)?,
        numwant: u32::try_from(i32::from_be_bytes(take(packet, 92)?)).ok(),
        port: u16_at(packet, 96)?,
        tracker_id: None,
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn path_and_query_follow_in_parts() {
        let with = |target: &str| {
            let mut packet = Vec::new();
            add_url(&mut packet, target);
            packet
        };
        assert!(with("/").is_empty());
        assert_eq!(with("/a?b"), b"\x02\x04/a?b");
        let long = with(&"x".repeat(300));
        assert_eq!((long.len(), &long[..2], &long[257..259]), (304, &[2, 255][..], &[2, 45][..]));
    }

    proptest! {
        #[test]
        fn announce_round_trip(
            hash: [u8; 20], up: u64, down: u64, left: u64, key: u32, port: u16, event in 0usize..4,
            numwant in proptest::option::of(0u32..=0x7fff_ffff),
        ) {
            let event = [Event::None, Event::Started, Event::Completed, Event::Stopped][event];
            let ask = Announce {
                info_hash: hash, peer_id: [7; 20], port, uploaded: up, downloaded: down, left, event, numwant, key,
                tracker_id: None,
            };
            let packet = announce(5, 6, &ask);
            prop_assert_eq!(packet.len(), ANNOUNCE_LEN);
            prop_assert_eq!((u64_at(&packet, 0), u32_at(&packet, 8), u32_at(&packet, 12)), (Some(5), Some(1), Some(6)));
            let got = read_announce(&packet).unwrap();
            prop_assert_eq!(format!("{got:?}"), format!("{ask:?}"));
        }

        #[test]
        fn garbage_is_read_or_refused(packet: Vec<u8>) {
            prop_assert_eq!(read_announce(&packet).is_some(), packet.len() >= ANNOUNCE_LEN);
        }
    }
}
