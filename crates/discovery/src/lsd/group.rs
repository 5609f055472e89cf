//! The multicast sockets of local discovery: one an address family, in the group on each interface.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

use socket2::{Domain, InterfaceIndexOrAddress, Protocol, SockRef, Socket, Type};
use tokio::net::UdpSocket;
use tracing::debug;

use crate::interfaces::Interface;

const V4: Ipv4Addr = Ipv4Addr::new(239, 192, 152, 143);
const V6: Ipv6Addr = Ipv6Addr::new(0xff15, 0, 0, 0, 0, 0, 0xefc0, 0x988f);

/// A socket that receives one group on some interfaces and can send on each of them.
pub(super) struct Group {
    pub(super) socket: UdpSocket,
    /// The group as packets name it.
    pub(super) host: String,
    outgoing: Vec<OutInterface>,
}

/// An interface, in the form that the socket option of the family needs.
enum OutInterface {
    V4(Ipv4Addr),
    V6(u32),
}

impl Group {
    /// The IPv4 group on those of `interfaces` that have an IPv4 address and can join it.
    pub(super) fn v4(port: u16, interfaces: &[Interface]) -> io::Result<Self> {
        let socket = open(Domain::IPV4, SocketAddr::from((Ipv4Addr::UNSPECIFIED, port)))?;
        // Receive only groups joined by this socket, not by any program on this host.
        socket.set_multicast_all_v4(false)?;
        socket.set_multicast_loop_v4(true)?;
        let mut outgoing = Vec::new();
        for interface in interfaces {
            let addr = interface.addrs.iter().find_map(|ip| match ip {
                IpAddr::V4(ip) => Some(*ip),
                IpAddr::V6(_) => None,
            });
            let Some(addr) = addr else { continue };
            match socket.join_multicast_v4_n(&V4, &InterfaceIndexOrAddress::Index(interface.index)) {
                Ok(()) => outgoing.push(OutInterface::V4(addr)),
                Err(error) => debug!(interface = interface.name, %error, "cannot join IPv4 multicast"),
            }
        }
        Self::new(socket, SocketAddr::V4(SocketAddrV4::new(V4, port)), outgoing)
    }

    /// The IPv6 group on those of `interfaces` that have an IPv6 address and can join it.
    pub(super) fn v6(port: u16, interfaces: &[Interface]) -> io::Result<Self> {
        let socket = open(Domain::IPV6, SocketAddr::from((Ipv6Addr::UNSPECIFIED, port)))?;
        socket.set_multicast_all_v6(false)?;
        socket.set_multicast_loop_v6(true)?;
        let mut outgoing = Vec::new();
        for interface in interfaces.iter().filter(|i| i.addrs.iter().any(IpAddr::is_ipv6)) {
            match socket.join_multicast_v6(&V6, interface.index) {
                Ok(()) => outgoing.push(OutInterface::V6(interface.index)),
                Err(error) => debug!(interface = interface.name, %error, "cannot join IPv6 multicast"),
            }
        }
        Self::new(socket, SocketAddr::V6(SocketAddrV6::new(V6, port, 0, 0)), outgoing)
    }

    fn new(socket: Socket, group: SocketAddr, outgoing: Vec<OutInterface>) -> io::Result<Self> {
        if outgoing.is_empty() {
            return Err(io::Error::new(io::ErrorKind::AddrNotAvailable, "no interface supports multicast"));
        }
        Ok(Self { socket: UdpSocket::from_std(socket.into())?, host: group.to_string(), outgoing })
    }

    /// Sends `packet` to the group on each interface; how many took it.
    pub(super) fn send(&self, packet: &[u8], port: u16) -> usize {
        let socket = SockRef::from(&self.socket);
        let sent = self.outgoing.iter().filter(|way| {
            let sent = match way {
                OutInterface::V4(addr) => socket
                    .set_multicast_if_v4(addr)
                    .and_then(|()| self.socket.try_send_to(packet, (V4, port).into())),
                OutInterface::V6(index) => socket.set_multicast_if_v6(*index).and_then(|()| {
                    self.socket.try_send_to(packet, SocketAddrV6::new(V6, port, 0, *index).into())
                }),
            };
            if let Err(error) = &sent {
                debug!(%error, host = self.host, "cannot send multicast");
            }
            sent.is_ok()
        });
        sent.count()
    }
}

fn open(domain: Domain, addr: SocketAddr) -> io::Result<Socket> {
    let socket = Socket::new(domain, Type::DGRAM.nonblocking(), Some(Protocol::UDP))?;
    // Every client on this host listens on this port; which of the two options they use differs.
    socket.set_reuse_address(true)?;
    socket.set_reuse_port(true)?;
    if addr.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    socket.bind(&addr.into())?;
    Ok(socket)
}
