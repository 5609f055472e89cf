//! One UDP socket a stream: connected, never fragmenting, many datagrams a call where the kernel can (UDP_SEGMENT, Linux 4.18).

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::time::Duration;

use nix::sys::socket::{getsockopt, setsockopt, sockopt};
use rustix::net::RecvFlags;
use rustix::net::sockopt::{
    Ipv4PathMtuDiscovery, Ipv6PathMtuDiscovery, set_ip_mtu_discover, set_ipv6_mtu_discover,
};

/// UDP payload in a frame of 9,000 bytes: no larger datagram is made, on whatever network.
const JUMBO: usize = 8_972;
/// The same of 1,500: where the kernel does not report the MTU.
const ETHERNET: usize = 1_472;
/// Bytes and datagrams of one call at most.
const CALL: (usize, usize) = (65_000, 64);
/// The requested size of the kernel's buffer.
const BUFFER: usize = 4 << 20;
/// A call that waits for room longer than this has failed.
const ROOM: Duration = Duration::from_secs(1);

/// The fate of datagrams.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sent {
    /// They are sent.
    Gone,
    /// There is no listener, or no route, now: they are lost.
    Lost,
    /// They are larger than the path MTU: see [`SendSocket::room`].
    TooLarge,
}

/// The sending end of a stream.
#[derive(Debug)]
pub(super) struct SendSocket {
    socket: UdpSocket,
    to: SocketAddr,
    /// The length of datagrams that the kernel cuts apart; 0: none.
    segment: std::sync::atomic::AtomicUsize,
}

impl SendSocket {
    pub(super) fn connect(to: SocketAddr) -> io::Result<Self> {
        let any: SocketAddr = match to {
            SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
            SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
        };
        let socket = UdpSocket::bind(any)?;
        match to {
            SocketAddr::V4(_) => set_ip_mtu_discover(&socket, Ipv4PathMtuDiscovery::DO)?,
            SocketAddr::V6(_) => set_ipv6_mtu_discover(&socket, Ipv6PathMtuDiscovery::DO)?,
        }
        socket.connect(to)?;
        // Less than was asked for will do too.
        let _ = socket2::SockRef::from(&socket).set_send_buffer_size(BUFFER);
        socket.set_write_timeout(Some(ROOM))?;
        Ok(Self { socket, to, segment: 0.into() })
    }

    /// Where it goes.
    pub(super) fn to(&self) -> SocketAddr {
        self.to
    }

    /// Bytes of a datagram that go this way whole, as far as the kernel knows by now.
    pub(super) fn room(&self) -> usize {
        let head = if self.to.is_ipv4() { 28 } else { 48 };
        let mtu = match self.to {
            SocketAddr::V4(_) => {
                getsockopt(&self.socket, sockopt::IpMtu).ok().and_then(|mtu| usize::try_from(mtu).ok())
            }
            SocketAddr::V6(_) => None,
        };
        mtu.map_or(ETHERNET - (head - 28), |mtu| mtu.saturating_sub(head).min(JUMBO))
    }

    /// Has the kernel cut the given data into datagrams of `size`, if it can; returns how many bytes of them
    /// one call may have.
    pub(super) fn segment(&self, size: usize) -> usize {
        let can = i32::try_from(size)
            .is_ok_and(|size| setsockopt(&self.socket, sockopt::UdpGsoSegment, &size).is_ok());
        self.segment.store(if can { size } else { 0 }, std::sync::atomic::Ordering::Relaxed);
        (CALL.0 / size.max(1)).clamp(1, CALL.1) * size
    }

    /// Sends datagrams of `size` bytes each, the last one maybe shorter.
    pub(super) fn send(&self, datagrams: &[u8], size: usize) -> io::Result<Sent> {
        use std::sync::atomic::Ordering::Relaxed;
        if datagrams.len() <= size || self.segment.load(Relaxed) == size {
            match self.once(datagrams) {
                // A card that cannot (no checksums of its own) reports it only now.
                Err(error) if datagrams.len() > size && error.raw_os_error() == Some(libc_eio()) => {
                    let _ = setsockopt(&self.socket, sockopt::UdpGsoSegment, &0);
                    self.segment.store(0, Relaxed);
                }
                other => return other,
            }
        }
        let mut worst = Sent::Gone;
        for datagram in datagrams.chunks(size.max(1)) {
            match self.once(datagram)? {
                Sent::Gone => {}
                other => worst = other,
            }
        }
        Ok(worst)
    }

    fn once(&self, bytes: &[u8]) -> io::Result<Sent> {
        use rustix::io::Errno;
        match self.socket.send(bytes) {
            Ok(_) => Ok(Sent::Gone),
            Err(error) => match Errno::from_io_error(&error) {
                Some(Errno::MSGSIZE) => Ok(Sent::TooLarge),
                // The error of an earlier datagram; this one was not sent.
                Some(
                    Errno::CONNREFUSED
                    | Errno::HOSTUNREACH
                    | Errno::NETUNREACH
                    | Errno::NETDOWN
                    | Errno::PERM
                    | Errno::NOBUFS
                    | Errno::AGAIN
                    | Errno::INTR,
                ) => Ok(Sent::Lost),
                // With UDP_SEGMENT, older kernels return this for datagrams that are too large.
                Some(Errno::INVAL) if bytes.len() > self.room() => Ok(Sent::TooLarge),
                _ => Err(error),
            },
        }
    }

    /// A received datagram, if there is one.
    pub(super) fn receive<'a>(&self, into: &'a mut [u8]) -> Option<&'a [u8]> {
        match rustix::net::recv(&self.socket, &mut *into, RecvFlags::DONTWAIT) {
            Ok((length, _)) => into.get(..length),
            // Errors of datagrams sent earlier: hellos continue.
            Err(_) => None,
        }
    }

    /// To wait for answers.
    pub(super) fn poll(&self) -> rustix::event::PollFd<'_> {
        rustix::event::PollFd::new(&self.socket, rustix::event::PollFlags::IN)
    }
}

fn libc_eio() -> i32 {
    rustix::io::Errno::IO.raw_os_error()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair() -> (SendSocket, UdpSocket) {
        let receiver = UdpSocket::bind("127.0.0.1:0").unwrap();
        receiver.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        (SendSocket::connect(receiver.local_addr().unwrap()).unwrap(), receiver)
    }

    #[test]
    fn datagrams_arrive_one_by_one_with_the_kernels_help_or_without() {
        for help in [true, false] {
            let (out, receiver) = pair();
            if help {
                assert!(out.segment(1000) >= 1000);
            }
            let bytes: Vec<u8> = (0..3500u32).map(|n| (n / 7) as u8).collect();
            assert_eq!(out.send(&bytes, 1000).unwrap(), Sent::Gone);
            assert_eq!(out.send(b"hello", 5).unwrap(), Sent::Gone);
            let mut found = Vec::new();
            for size in [1000, 1000, 1000, 500, 5] {
                let mut into = [0; 2000];
                assert_eq!(receiver.recv(&mut into).unwrap(), size);
                found.extend_from_slice(&into[..size]);
            }
            assert_eq!(found, [&bytes[..], b"hello"].concat());
        }
    }

    #[test]
    fn loopback_has_room_for_jumbo_frames() {
        let (out, receiver) = pair();
        assert_eq!(out.room(), JUMBO);
        let mut into = [0; 100];
        assert_eq!(out.receive(&mut into), None);
        receiver.send_to(b"report", out.socket.local_addr().unwrap()).unwrap();
        rustix::event::poll(&mut [out.poll()], Some(&rustix::event::Timespec { tv_sec: 10, tv_nsec: 0 }))
            .unwrap();
        assert_eq!(out.receive(&mut into), Some(&b"report"[..]));
        drop(receiver);
        // The error of the first one is reported by the second.
        let _ = out.send(b"x", 1).unwrap();
        assert_eq!(out.send(b"x", 1).unwrap(), Sent::Lost);
    }
}
