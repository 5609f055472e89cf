//! The units of a TUN device: a virtio header, then a frame or packet that may stand for many segments.
//!
//! The kernel passes a large TCP unit as a whole, with the segment size in the header. [`Unit`] finds the
//! segments, and [`Unit::part`] makes a unit of some of them, as the kernel itself would: headers repeated;
//! lengths, identification, sequence number, flags and the pseudo-header's checksum corrected. A unit that
//! cannot be parsed stays whole and counts as one packet. Sources: virtio 1.2 section 5.1.6, RFC 791, 8200,
//! 9293.

use std::ops::Range;

/// Length of the virtio header before every unit.
pub const HEADER: usize = 10;
const NEEDS_CSUM: u8 = 1;
const GSO_TCPV4: u8 = 1;
const GSO_TCPV6: u8 = 4;
const ETHERNET: usize = 14;
const FIN: u8 = 0x01;
const PSH: u8 = 0x08;
const CWR: u8 = 0x80;

/// One unit as the kernel handed it over.
#[derive(Debug)]
pub struct Unit<'a> {
    bytes: &'a [u8],
    tcp: Option<Tcp>,
}

/// Where things are in a unit of several TCP segments.
#[derive(Debug, Clone, Copy)]
struct Tcp {
    ip: usize,
    tcp: usize,
    payload: usize,
    mss: usize,
    v6: bool,
}

impl<'a> Unit<'a> {
    /// Parses a unit as read, header first; `ethernet` for a TAP device. None when it is shorter than its
    /// header.
    #[must_use]
    pub fn new(bytes: &'a [u8], ethernet: bool) -> Option<Self> {
        (bytes.len() > HEADER).then(|| Self { bytes, tcp: Tcp::find(bytes, ethernet) })
    }

    /// How many packets of the MTU it stands for, at least 1.
    #[must_use]
    pub fn segments(&self) -> usize {
        self.tcp.map_or(1, |t| (self.bytes.len() - t.payload).div_ceil(t.mss).max(1))
    }

    /// Bytes on the wire of segment `i`, headers included.
    #[must_use]
    pub fn segment_len(&self, i: usize) -> usize {
        self.tcp.map_or(self.bytes.len() - HEADER, |t| {
            let begin = t.payload + i * t.mss;
            t.payload - HEADER + self.bytes.len().saturating_sub(begin).min(t.mss)
        })
    }

    /// A unit of the segments `which` alone, ready to be written.
    #[must_use]
    pub fn part(&self, which: Range<usize>) -> Vec<u8> {
        let all = self.segments();
        debug_assert!(which.start < which.end && which.end <= all);
        let Some(t) = self.tcp.filter(|_| which != (0..all)) else {
            return self.bytes.to_vec();
        };
        let begin = t.payload + which.start * t.mss;
        let end = (t.payload + which.end * t.mss).min(self.bytes.len());
        let mut out = Vec::with_capacity(t.payload + end - begin);
        out.extend_from_slice(&self.bytes[..t.payload]);
        out.extend_from_slice(&self.bytes[begin..end]);
        if which.len() == 1 {
            out[1] = 0; // no longer several
            out[4..6].fill(0);
        }
        t.fix_ip(&mut out, which.start);
        t.fix_tcp(&mut out, which.start * t.mss, which.start == 0, which.end == all);
        out
    }
}

impl Tcp {
    /// The layout of a unit of several TCP segments; None for anything else, and for anything inconsistent.
    fn find(b: &[u8], ethernet: bool) -> Option<Self> {
        let kind = *b.get(1)?;
        let v6 = kind == GSO_TCPV6;
        if *b.first()? & NEEDS_CSUM == 0 || !(kind == GSO_TCPV4 || v6) {
            return None;
        }
        let mss = usize::from(u16::from_ne_bytes([*b.get(4)?, *b.get(5)?]));
        let tcp = HEADER + usize::from(u16::from_ne_bytes([*b.get(6)?, *b.get(7)?]));
        let ip = HEADER + if ethernet { ETHERNET } else { 0 };
        let version = *b.get(ip)? >> 4;
        let shortest = if v6 { 40 } else { 20 };
        let payload = tcp + usize::from(*b.get(tcp + 12)? >> 4) * 4;
        let sound = version == if v6 { 6 } else { 4 } && tcp >= ip + shortest && payload >= tcp + 20;
        (sound && mss > 0 && payload < b.len()).then_some(Self { ip, tcp, payload, mss, v6 })
    }

    /// Length, identification and sum of the IP header, `skipped` segments into the original.
    fn fix_ip(self, out: &mut [u8], skipped: usize) {
        let length = out.len() - self.ip;
        let (header, _) = out[self.ip..].split_at_mut(self.tcp - self.ip);
        if self.v6 {
            header[4..6].copy_from_slice(&low16(length - 40));
            return;
        }
        header[2..4].copy_from_slice(&low16(length));
        let id = usize::from(u16::from_be_bytes([header[4], header[5]]));
        header[4..6].copy_from_slice(&low16(id.wrapping_add(skipped)));
        header[10..12].fill(0);
        let sum = !sum(header, 0);
        header[10..12].copy_from_slice(&sum.to_be_bytes());
    }

    /// Sequence number, flags and the partial sum (over the pseudo-header; the kernel adds the rest).
    fn fix_tcp(self, out: &mut [u8], offset: usize, first: bool, last: bool) {
        let length = out.len() - self.tcp;
        let addresses = if self.v6 { self.ip + 8..self.ip + 40 } else { self.ip + 12..self.ip + 20 };
        let pseudo = sum(&out[addresses], length as u32 + 6);
        let header = &mut out[self.tcp..];
        let seq =
            u32::from_be_bytes([header[4], header[5], header[6], header[7]]).wrapping_add(offset as u32);
        header[4..8].copy_from_slice(&seq.to_be_bytes());
        if !first {
            header[13] &= !CWR;
        }
        if !last {
            header[13] &= !(FIN | PSH);
        }
        header[16..18].copy_from_slice(&pseudo.to_be_bytes());
    }
}

/// The low 16 bits, big-endian.
fn low16(n: usize) -> [u8; 2] {
    ((n & 0xFFFF) as u16).to_be_bytes()
}

/// Ones' complement sum (RFC 1071), folded but not inverted, of 16-bit words and a number.
fn sum(words: &[u8], more: u32) -> u16 {
    let mut total = more;
    for pair in words.chunks(2) {
        total += u32::from(u16::from_be_bytes([pair[0], *pair.get(1).unwrap_or(&0)]));
    }
    while total > 0xFFFF {
        total = (total & 0xFFFF) + (total >> 16);
    }
    total as u16
}

#[cfg(test)]
#[path = "packet_tests.rs"]
mod tests;
