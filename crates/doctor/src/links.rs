//! Setting up interfaces of the thread's network namespace, for a measurement: MTU, address, queue.

use std::io;
use std::net::Ipv4Addr;

use crate::netlink::{ACK, Netlink, attribute};

const NEW_LINK: u16 = 16;
const DEL_LINK: u16 = 17;
const NEW_ADDRESS: u16 = 20;
const CREATE: u16 = 0x400;
/// Attributes of a link.
const LINK_MTU: u16 = 4;
const LINK_QUEUE: u16 = 13;
const IS_UP: u32 = 1;
/// Attributes of an address.
const ADDRESS: u16 = 1;
const LOCAL: u16 = 2;
const IPV4: u8 = 2;
/// Packets that an interface of a measurement may hold.
const QUEUE: u32 = 10_000;

/// The index of an interface.
pub(crate) fn index(interface: &str) -> io::Result<u32> {
    nix::net::if_::if_nametoindex(interface).map_err(|e| io::Error::from_raw_os_error(e as i32))
}

/// Sets the MTU of an interface.
pub(crate) fn set_mtu(index: u32, bytes: u32) -> io::Result<()> {
    ordered(NEW_LINK, 0, &link(index, 0, &attribute(LINK_MTU, bytes.to_ne_bytes().to_vec())))
}

/// Brings an interface up with an address of a network of 30 bits and a long queue.
pub(crate) fn set_up(index: u32, address: Ipv4Addr) -> io::Result<()> {
    let mut body = vec![IPV4, 30, 0, 0];
    body.extend(index.to_ne_bytes());
    body.extend(attribute(LOCAL, address.octets().to_vec()));
    body.extend(attribute(ADDRESS, address.octets().to_vec()));
    ordered(NEW_ADDRESS, CREATE, &body)?;
    let queue = attribute(LINK_QUEUE, QUEUE.to_ne_bytes().to_vec());
    ordered(NEW_LINK, 0, &link(index, IS_UP, &queue))
}

/// Deletes an interface.
pub(crate) fn delete(index: u32) -> io::Result<()> {
    ordered(DEL_LINK, 0, &link(index, 0, &[]))
}

fn netlink() -> io::Result<Netlink> {
    Netlink::open(None)
}

/// Has the kernel do something and waits for its acknowledgement.
fn ordered(kind: u16, flags: u16, body: &[u8]) -> io::Result<()> {
    netlink()?.ask(kind, flags | ACK, body).map(drop)
}

/// `struct ifinfomsg` with attributes; `flags` are set.
fn link(index: u32, flags: u32, attributes: &[u8]) -> Vec<u8> {
    let mut body = vec![0; 4];
    body.extend(index.to_ne_bytes());
    body.extend(flags.to_ne_bytes());
    body.extend(flags.to_ne_bytes());
    body.extend(attributes);
    body
}
