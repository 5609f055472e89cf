//! Units are taken apart as the kernel would have: every part sums up, and together they are the whole.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use super::*;
use proptest::prelude::*;

/// A unit of TCP over IPv4 or IPv6 with `payload` bytes at `mss`, as a TUN (or TAP) device gives it.
fn unit(payload: usize, mss: u16, v6: bool, ethernet: bool) -> Vec<u8> {
    let l2 = if ethernet { ETHERNET } else { 0 };
    let ip_len = if v6 { 40 } else { 20 };
    let hdr_tcp = l2 + ip_len;
    let mut b = vec![NEEDS_CSUM, if v6 { GSO_TCPV6 } else { GSO_TCPV4 }];
    b.extend(((hdr_tcp + 20) as u16).to_ne_bytes());
    b.extend(mss.to_ne_bytes());
    b.extend((hdr_tcp as u16).to_ne_bytes());
    b.extend(16u16.to_ne_bytes());
    b.resize(HEADER + l2, 0xEE);
    if v6 {
        b.extend([0x60, 0, 0, 0]);
        b.extend(((20 + payload) as u16).to_be_bytes());
        b.extend([6, 64]);
        b.extend([7; 32]);
    } else {
        b.extend([0x45, 0]);
        b.extend(((40 + payload) as u16).to_be_bytes());
        b.extend([0xFF, 0xFF, 0x40, 0, 64, 6, 0, 0, 10, 77, 0, 1, 10, 77, 0, 2]);
    }
    b.extend([
        0x1A,
        0xE1,
        0x1A,
        0xE2,
        0xFF,
        0xFF,
        0xFF,
        0x00,
        0,
        0,
        0,
        9,
        0x50,
        FIN | PSH | CWR | 0x10,
        1,
        0,
        0,
        0,
        0,
        0,
    ]);
    b.extend((0..payload).map(|i| i as u8));
    b
}

fn tcp_at(v6: bool, ethernet: bool) -> usize {
    HEADER + if ethernet { ETHERNET } else { 0 } + if v6 { 40 } else { 20 }
}

#[test]
fn a_whole_unit_is_not_touched() {
    let b = unit(5000, 1448, false, false);
    let u = Unit::new(&b, false).unwrap();
    assert_eq!(u.segments(), 4);
    assert_eq!(u.segment_len(0), 20 + 20 + 1448);
    assert_eq!(u.segment_len(3), 20 + 20 + 5000 - 3 * 1448);
    assert_eq!(u.part(0..4), b);
}

#[test]
fn a_part_has_its_own_numbers() {
    let b = unit(5000, 1448, false, true);
    let u = Unit::new(&b, true).unwrap();
    let p = u.part(1..3);
    let (ip, tcp) = (HEADER + ETHERNET, tcp_at(false, true));
    assert_eq!(u16::from_be_bytes([p[ip + 2], p[ip + 3]]), 40 + 2 * 1448);
    assert_eq!([p[ip + 4], p[ip + 5]], [0, 0], "the identification wraps");
    assert_eq!(sum(&p[ip..ip + 20], 0), 0xFFFF, "the header sums up");
    assert_eq!(p[tcp + 4..tcp + 8], 0xFFFF_FF00u32.wrapping_add(1448).to_be_bytes());
    assert_eq!(p[tcp + 13], 0x10, "neither the first's nor the last's flags");
    assert_eq!(p[1], GSO_TCPV4);
    assert_eq!(u.part(3..4)[1], 0, "one segment is not several");
    assert_eq!(u.part(3..4)[tcp + 13], FIN | PSH | 0x10);
    assert_eq!(u.part(0..1)[tcp + 13], CWR | 0x10);
}

#[test]
fn other_things_stay_whole() {
    assert!(Unit::new(&[0; HEADER], false).is_none());
    for mut b in [unit(5000, 1448, false, false), unit(5000, 1448, true, false)] {
        b[1] = 0;
        let u = Unit::new(&b, false).unwrap();
        assert_eq!((u.segments(), u.part(0..1)), (1, b.clone()));
    }
}

proptest! {
    #[test]
    fn parts_are_the_whole(payload in 1usize..20_000, mss in 500u16..9000, v6: bool, ethernet: bool, cut in 0usize..100) {
        let b = unit(payload, mss, v6, ethernet);
        let u = Unit::new(&b, ethernet).unwrap();
        let n = u.segments();
        let cut = cut % n;
        let start = tcp_at(v6, ethernet) + 20;
        let mut data = Vec::new();
        let mut wire = 0;
        for range in [0..cut, cut..n] {
            if range.is_empty() { continue }
            let p = u.part(range.clone());
            let again = Unit::new(&p, ethernet).unwrap();
            prop_assert_eq!(again.segments(), range.len());
            wire += (0..range.len()).map(|i| again.segment_len(i)).sum::<usize>();
            data.extend_from_slice(&p[start..]);
        }
        prop_assert_eq!(&data, &b[start..]);
        prop_assert_eq!(wire, (0..n).map(|i| u.segment_len(i)).sum::<usize>());
    }

    #[test]
    fn noise_never_panics(mut b in prop::collection::vec(any::<u8>(), 0..200), ethernet: bool) {
        if let Some(first) = b.first_mut() { *first |= NEEDS_CSUM }
        if let Some(u) = Unit::new(&b, ethernet) {
            let n = u.segments();
            for i in 0..n.min(8) {
                prop_assert!(u.segment_len(i) > 0);
                prop_assert!(u.part(i..n).len() > HEADER);
            }
        }
    }
}
