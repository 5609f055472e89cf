//! Changing interfaces of the thread's network namespace: MTU, queueing discipline, address.
//!
//! The options of a queueing discipline are kept as the kernel's own bytes, so that what is restored is what
//! was there.

use std::io;
use std::net::Ipv4Addr;

use rustix::io::Errno;

use crate::netlink::{
    ACK, DUMP, GET_QDISC, NEW_QDISC, Netlink, TC_HEADER, TC_KIND, TC_ROOT, attribute, attributes, number,
    text,
};

const NEW_LINK: u16 = 16;
const DEL_LINK: u16 = 17;
const GET_LINK: u16 = 18;
const NEW_ADDRESS: u16 = 20;
const DEL_QDISC: u16 = 37;
const REPLACE: u16 = 0x100;
const CREATE: u16 = 0x400;
/// Attributes of a link.
const LINK_MTU: u16 = 4;
const LINK_QUEUE: u16 = 13;
const LINK_HEADER: usize = 16;
const IS_UP: u32 = 1;
/// Attributes of an address.
const ADDRESS: u16 = 1;
const LOCAL: u16 = 2;
const IPV4: u8 = 2;
/// The attribute of a queueing discipline with its options.
const OPTIONS: u16 = 2;
/// Packets that an interface of a measurement may hold.
const QUEUE: u32 = 10_000;

/// A queueing discipline.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Qdisc {
    /// Its kind: `fq`.
    pub(crate) kind: String,
    /// Its handle; 0 for one that the kernel has chosen.
    pub(crate) handle: u32,
    /// Its options as the kernel gives them, which it also takes.
    pub(crate) options: Vec<u8>,
}

/// The index of an interface.
pub(crate) fn index(interface: &str) -> io::Result<u32> {
    nix::net::if_::if_nametoindex(interface).map_err(|e| io::Error::from_raw_os_error(e as i32))
}

/// The MTU of an interface, bytes.
pub(crate) fn mtu(index: u32) -> io::Result<u32> {
    for (kind, body) in netlink()?.ask(GET_LINK, ACK, &link(index, 0, &[]))? {
        let all = attributes(body.get(LINK_HEADER..).unwrap_or_default());
        if let (NEW_LINK, Some(bytes)) = (kind, number(&all, LINK_MTU)) {
            return Ok(bytes);
        }
    }
    Err(io::Error::other("the kernel's answer has no MTU"))
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

/// The root queueing discipline of an interface; `None` for one that is down and has none.
pub(crate) fn qdisc(index: u32) -> io::Result<Option<Qdisc>> {
    let of = |(kind, body): (u16, Vec<u8>)| {
        let word = |at: usize| Some(u32::from_ne_bytes(*body.get(at..)?.first_chunk()?));
        let is_it = kind == NEW_QDISC && word(4)? == index && word(12)? == TC_ROOT;
        let all = attributes(body.get(TC_HEADER..)?);
        is_it.then_some(Qdisc {
            kind: text(all.get(&TC_KIND)?),
            handle: word(8)?,
            options: all.get(&OPTIONS).cloned().unwrap_or_default(),
        })
    };
    Ok(netlink()?.ask(GET_QDISC, DUMP, &qdisc_header(index, 0))?.into_iter().find_map(of))
}

/// Deletes the root queueing discipline of an interface, so that the kernel gives it the default one; none is
/// no error.
pub(crate) fn delete_qdisc(index: u32) -> io::Result<()> {
    match ordered(DEL_QDISC, 0, &qdisc_header(index, 0)) {
        Err(e) if matches!(Errno::from_io_error(&e), Some(Errno::NOENT | Errno::INVAL)) => Ok(()),
        other => other,
    }
}

/// Gives an interface a root queueing discipline.
pub(crate) fn set_qdisc(index: u32, qdisc: &Qdisc) -> io::Result<()> {
    let mut body = qdisc_header(index, qdisc.handle);
    body.extend(attribute(TC_KIND, [qdisc.kind.as_bytes(), &[0]].concat()));
    if !qdisc.options.is_empty() {
        body.extend(attribute(OPTIONS, qdisc.options.clone()));
    }
    ordered(NEW_QDISC, CREATE | REPLACE, &body)
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

/// `struct tcmsg` of the root of an interface.
fn qdisc_header(index: u32, handle: u32) -> Vec<u8> {
    let mut body = vec![0; 4];
    for word in [index, handle, TC_ROOT, 0] {
        body.extend(word.to_ne_bytes());
    }
    body
}
