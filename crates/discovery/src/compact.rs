//! Compact peer lists: 6 bytes an IPv4 peer (BEP 23), 18 bytes an IPv6 peer (BEP 7).
//!
//! Decoding drops addresses that make no sense and never allocates more than the input holds.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use crate::usable;

/// Appends `addr` in compact form: 6 bytes for IPv4, 18 for IPv6.
pub fn push(out: &mut Vec<u8>, addr: SocketAddr) {
    match addr {
        SocketAddr::V4(a) => out.extend_from_slice(&a.ip().octets()),
        SocketAddr::V6(a) => out.extend_from_slice(&a.ip().octets()),
    }
    out.extend_from_slice(&addr.port().to_be_bytes());
}

/// The usable peers of a compact IPv4 list; a tail shorter than a peer is ignored.
#[must_use]
pub fn v4(list: &[u8]) -> Vec<SocketAddr> {
    let (peers, _tail) = list.as_chunks::<6>();
    let read = |&[a, b, c, d, hi, lo]: &[u8; 6]| {
        SocketAddr::from((Ipv4Addr::new(a, b, c, d), u16::from_be_bytes([hi, lo])))
    };
    peers.iter().map(read).filter(usable).collect()
}

/// The usable peers of a compact IPv6 list; a tail shorter than a peer is ignored.
#[must_use]
pub fn v6(list: &[u8]) -> Vec<SocketAddr> {
    let (peers, _tail) = list.as_chunks::<18>();
    let read = |peer: &[u8; 18]| {
        let mut ip = [0; 16];
        ip.copy_from_slice(&peer[..16]);
        SocketAddr::from((Ipv6Addr::from(ip), u16::from_be_bytes([peer[16], peer[17]])))
    };
    peers.iter().map(read).filter(usable).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn round_trip_v4(ip in 0x0100_0000u32..0xe000_0000, port in 1u16..) {
            let addr = SocketAddr::from((Ipv4Addr::from(ip), port));
            let mut out = Vec::new();
            push(&mut out, addr);
            prop_assert_eq!(v4(&out), vec![addr]);
        }

        #[test]
        fn round_trip_v6(ip in 1u128..(0xfe80u128 << 112), port in 1u16..) {
            let addr = SocketAddr::from((Ipv6Addr::from(ip), port));
            let mut out = Vec::new();
            push(&mut out, addr);
            prop_assert_eq!(v6(&out), vec![addr]);
        }

        #[test]
        fn garbage_never_yields_more_than_it_holds(list: Vec<u8>) {
            prop_assert!(v4(&list).len() <= list.len() / 6);
            prop_assert!(v6(&list).len() <= list.len() / 18);
            prop_assert!(v4(&list).iter().chain(&v6(&list)).all(usable));
        }
    }
}
