//! A socket of one stream: many datagrams a call, several to a buffer where the system puts them together (GRO).

use std::io::{self, IoSliceMut};
use std::net::{Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use quinn_udp::{RecvMeta, UdpSockRef, UdpSocketState};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use socket2::{Domain, Protocol, Socket, Type};
use tidecast_paths::PageBuffer;

/// Buffers of one call: as many as their bytes stay in a core's cache.
const BUFFERS: usize = 8;
/// Bytes of a buffer: all that the system puts together.
const BUFFER: usize = 1 << 16;
/// The socket buffer of a stream, if the kernel allows it: 50 ms at 10 Gbit/s, for the time that its thread
/// is not running.
const KEPT: usize = 64 << 20;

/// Datagrams come in here.
pub(super) struct ReceiveSocket {
    socket: Arc<UdpSocket>,
    /// Its thread has stored all datagrams that it took, and waits for the next.
    waits: Arc<AtomicBool>,
    state: UdpSocketState,
    buffers: PageBuffer,
    metas: [RecvMeta; BUFFERS],
    filled: usize,
}

impl ReceiveSocket {
    /// Listens at `address`; the unspecified address of IPv6 is that of IPv4 too.
    pub(super) fn bind(address: SocketAddr) -> io::Result<Self> {
        let socket = Socket::new(Domain::for_address(address), Type::DGRAM, Some(Protocol::UDP))?;
        if address.ip() == Ipv6Addr::UNSPECIFIED {
            socket.set_only_v6(false)?;
        }
        // Only root gets more than the system's limit; a smaller buffer is enough or its overflow counts as
        // loss.
        if rustix::net::sockopt::set_socket_recv_buffer_size_force(&socket, KEPT).is_err() {
            let _ = socket.set_recv_buffer_size(KEPT);
        }
        socket.bind(&address.into())?;
        let state = UdpSocketState::new(UdpSockRef::from(&socket))?;
        Ok(Self {
            socket: Arc::new(socket.into()),
            waits: Arc::default(),
            state,
            buffers: PageBuffer::new(BUFFERS * BUFFER),
            metas: Default::default(),
            filled: 0,
        })
    }

    /// Where it listens.
    pub(super) fn address(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }

    /// For other threads.
    pub(super) fn backlog(&self) -> Backlog {
        Backlog { socket: Arc::downgrade(&self.socket), waits: self.waits.clone() }
    }

    /// Waits for datagrams, at most this long. The earlier ones are dropped.
    pub(super) fn fill(&mut self, patience: Duration) -> io::Result<()> {
        self.filled = 0;
        match self.take() {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            done => return done,
        }
        let patience =
            Timespec { tv_sec: patience.as_secs() as i64, tv_nsec: patience.subsec_nanos().into() };
        self.waits.store(true, Ordering::SeqCst);
        let polled = poll(&mut [PollFd::new(&self.socket, PollFlags::IN)], Some(&patience));
        self.waits.store(false, Ordering::SeqCst);
        match polled {
            Ok(0) | Err(rustix::io::Errno::INTR) => return Ok(()),
            Ok(_) => {}
            Err(error) => return Err(error.into()),
        }
        match self.take() {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(()),
            done => done,
        }
    }

    fn take(&mut self) -> io::Result<()> {
        let (buffers, _) = self.buffers.as_chunks_mut::<BUFFER>();
        let mut slices: [IoSliceMut<'_>; BUFFERS] = std::array::from_fn(|_| IoSliceMut::new(&mut []));
        slices.iter_mut().zip(buffers).for_each(|(slice, buffer)| *slice = IoSliceMut::new(buffer));
        self.filled = self.state.recv(UdpSockRef::from(&self.socket), &mut slices, &mut self.metas)?;
        Ok(())
    }

    /// The received datagrams: their sender, the datagrams one after the other, and the bytes of each but the
    /// last. Beside them the socket for answers.
    pub(super) fn filled(&mut self) -> (&UdpSocket, impl Iterator<Item = (SocketAddr, &mut [u8], usize)>) {
        let buffers = self.buffers.chunks_exact_mut(BUFFER).zip(&self.metas).take(self.filled);
        let filled = buffers.map(|(buffer, meta)| {
            (meta.addr, buffer.get_mut(..meta.len).unwrap_or_default(), meta.stride.max(1))
        });
        (&self.socket, filled)
    }
}

/// Tells other threads whether datagrams have arrived at a socket that its thread, which may not have run for a while, has
/// not stored yet.
#[derive(Debug)]
pub(super) struct Backlog {
    /// Weak: the socket is closed when its thread ends.
    socket: Weak<UdpSocket>,
    waits: Arc<AtomicBool>,
}

impl Backlog {
    /// Whether there may be some.
    pub(super) fn is_any(&self) -> bool {
        let Some(socket) = self.socket.upgrade() else { return false };
        let waits = || self.waits.load(Ordering::SeqCst);
        let is_empty = || {
            let polled = poll(&mut [PollFd::new(&socket, PollFlags::IN)], Some(&Timespec::default()));
            matches!(polled, Ok(0))
        };
        // A second look at the thread: it may have taken the last datagrams meanwhile.
        !(waits() && is_empty() && waits())
    }
}

/// Sends an answer; one that is lost is asked for again.
pub(super) fn answer(socket: &UdpSocket, to: SocketAddr, datagram: &[u8]) {
    let _ = socket.send_to(datagram, to);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_backlog_is_what_no_thread_has_stored() {
        let mut inlet = ReceiveSocket::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let (backlog, address) = (inlet.backlog(), inlet.address().unwrap());
        std::thread::scope(|scope| {
            let thread = scope.spawn(move || {
                inlet.fill(Duration::from_secs(60)).unwrap();
                inlet
            });
            while backlog.is_any() {
                std::thread::yield_now();
            }
            UdpSocket::bind("127.0.0.1:0").unwrap().send_to(b"x", address).unwrap();
            let inlet = thread.join().unwrap();
            assert!(backlog.is_any(), "the thread has taken it, and may not have stored it yet");
            drop(inlet);
            assert!(!backlog.is_any(), "the thread has ended");
        });
    }

    #[test]
    fn datagrams_come_whole_and_waiting_ends() {
        let mut inlet = ReceiveSocket::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        inlet.fill(Duration::from_millis(10)).unwrap();
        assert_eq!(inlet.filled().1.count(), 0);
        let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
        for size in [0usize, 1, 8968, 60_000] {
            sender.send_to(&vec![size as u8; size], inlet.address().unwrap()).unwrap();
        }
        let mut sizes = Vec::new();
        for _ in 0..100 {
            inlet.fill(Duration::from_millis(100)).unwrap();
            for (from, bytes, stride) in inlet.filled().1 {
                assert_eq!(from, sender.local_addr().unwrap());
                sizes.extend(bytes.chunks(stride).map(<[u8]>::len));
            }
            if sizes.contains(&60_000) {
                break;
            }
        }
        sizes.retain(|size| *size > 0);
        assert_eq!(sizes, [1, 8968, 60_000]);
    }
}
