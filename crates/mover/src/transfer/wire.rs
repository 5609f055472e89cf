//! Kernel statistics of the sending streams (TCP_INFO): the time they waited, by reason, and the bytes
//! acknowledged.

use std::collections::BTreeMap;
use std::net::TcpStream;
use std::sync::OnceLock;

use nix::sys::socket::GetSockOpt as _;
use nix::{getsockopt_impl, libc, sockopt_impl};
use socket2::SockRef;
pub use tidecast_event::copy::Wire;

use super::connection::FAR;

/// As much of `struct tcp_info` as Linux has since 4.10; a kernel that has less is not asked.
const LENGTH: usize = 192;

sockopt_impl!(
    /// The first part of `struct tcp_info`, as bytes.
    Info, GetOnly, libc::IPPROTO_TCP, libc::TCP_INFO, [u8; LENGTH]
);

/// The kernel's statistics of one stream; None where they are not available.
pub(crate) fn of(tcp: &TcpStream) -> Option<Wire> {
    if !is_known() {
        return None;
    }
    let info = Info.get(tcp).ok()?;
    let buffer = SockRef::from(tcp).send_buffer_size().ok()?;
    Some(Wire { send_buffer: buffer as u64, ..read(&info) })
}

/// By the layout of linux/tcp.h, which only grows.
fn read(info: &[u8; LENGTH]) -> Wire {
    let u32_at = |at: usize| {
        info.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |bytes| u32::from_ne_bytes(*bytes))
    };
    let u64_at = |at: usize| {
        info.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |bytes| u64::from_ne_bytes(*bytes))
    };
    let seconds = |micros: u64| micros as f64 / 1e6;
    let (segment, unacknowledged) = (u32_at(16), u32_at(24));
    Wire {
        streams: 1,
        round_trip: seconds(u32_at(68).into()),
        least_round_trip: seconds(u32_at(148).into()),
        busy: seconds(u64_at(168)),
        window_limited: seconds(u64_at(176)),
        buffer_limited: seconds(u64_at(184)),
        under_way: u64::from(segment) * u64::from(unacknowledged),
        send_buffer: 0,
        segments: u32_at(136).into(),
        again: u32_at(100).into(),
        acknowledged: u64_at(120),
    }
}

/// Whether the other end is far away by all of these streams.
pub(crate) fn is_far(streams: impl Iterator<Item = (usize, Wire)>) -> bool {
    let least = streams.map(|(_, wire)| wire.least_round_trip).fold(f64::INFINITY, f64::min);
    least.is_finite() && least > FAR.as_secs_f64()
}

fn is_known() -> bool {
    static KNOWN: OnceLock<bool> = OnceLock::new();
    *KNOWN.get_or_init(|| {
        let release = rustix::system::uname().release().to_string_lossy().into_owned();
        let mut numbers = release.split(['.', '-']).map(|part| part.parse::<u32>().unwrap_or_default());
        (numbers.next().unwrap_or_default(), numbers.next().unwrap_or_default()) >= (4, 10)
    })
}

/// All streams of a sender by their serial numbers.
#[derive(Debug, Default)]
pub(crate) struct Wires {
    all: BTreeMap<usize, Wire>,
    under_way: u64,
}

/// Streams that have ended and are kept apart: more of them are forgotten, the oldest first.
const KEPT: usize = 1024;

impl Wires {
    /// Reads the open streams, and sums up.
    pub(crate) fn sum(&mut self, now: impl Iterator<Item = (usize, Wire)>) -> Wire {
        let mut open = (0_u32, 0.0);
        for (serial, wire) in now {
            open = (open.0 + 1, open.1 + wire.round_trip);
            self.under_way = self.under_way.max(wire.under_way);
            self.all.insert(serial, wire);
        }
        while self.all.len() > KEPT {
            self.all.pop_first();
        }
        let mut sum = Wire { streams: open.0, under_way: self.under_way, ..Wire::default() };
        sum.round_trip = if open.0 > 0 { open.1 / f64::from(open.0) } else { 0.0 };
        for wire in self.all.values() {
            sum.busy += wire.busy;
            sum.window_limited += wire.window_limited;
            sum.buffer_limited += wire.buffer_limited;
            sum.send_buffer = sum.send_buffer.max(wire.send_buffer);
            sum.segments += wire.segments;
            sum.again += wire.again;
            sum.acknowledged += wire.acknowledged;
        }
        sum
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::io::{Read, Write};
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn the_kernel_counts_what_a_stream_has_sent() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut sender = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut receiver, _) = listener.accept().unwrap();
        sender.write_all(&[7; 5000]).unwrap();
        receiver.read_exact(&mut [0; 5000]).unwrap();
        // An answer carries the acknowledgement.
        receiver.write_all(b".").unwrap();
        sender.read_exact(&mut [0]).unwrap();
        let Some(wire) = of(&sender) else { return };
        // The SYN counts too in older kernels.
        assert!((5000..=5001).contains(&wire.acknowledged), "{wire:?}");
        assert!(wire.segments > 0 && wire.round_trip > 0.0 && wire.send_buffer > 0, "{wire:?}");
    }

    #[test]
    fn an_end_is_far_if_no_stream_is_short() {
        let wire = |least_round_trip| (1, Wire { least_round_trip, ..Wire::default() });
        assert!(is_far([wire(0.05), wire(0.1)].into_iter()));
        assert!(!is_far([wire(0.05), wire(0.0002)].into_iter()));
        assert!(!is_far(std::iter::empty()));
    }

    #[test]
    fn streams_that_have_ended_count() {
        let wire = |acknowledged, round_trip| Wire { acknowledged, round_trip, busy: 1.0, ..Wire::default() };
        let mut wires = Wires::default();
        wires.sum([(1, wire(10, 0.1)), (2, wire(20, 0.3))].into_iter());
        let sum = wires.sum([(2, wire(25, 0.3))].into_iter());
        assert_eq!((sum.streams, sum.acknowledged, sum.busy, sum.round_trip), (1, 35, 2.0, 0.3));
    }
}
