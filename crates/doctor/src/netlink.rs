//! Questions to the kernel that no file answers: settings of network cards (ethtool's netlink family) and queueing
//! disciplines. `links.rs` changes interfaces by the same socket.

use std::collections::BTreeMap;
use std::io;
use std::time::Duration;

use netlink_packet_core::{DefaultNla, Emitable, NlasIterator};
use rustix::fd::OwnedFd;
use rustix::net::netlink::{GENERIC, SocketAddrNetlink};
use rustix::net::{AddressFamily, Protocol, RecvFlags, SendFlags, SocketFlags, SocketType, sockopt};

/// The kernel answers at once.
const PATIENCE: Duration = Duration::from_secs(2);
/// Bytes of one read: no message of a dump is longer.
const READ: usize = 1 << 16;
/// Messages of one answer: the queues of a host's interfaces.
const MESSAGES: usize = 1 << 14;
const HEADER: usize = 16;
const ERROR: u16 = 2;
const DONE: u16 = 3;
const REQUEST: u16 = 1;
pub(crate) const ACK: u16 = 4;
pub(crate) const DUMP: u16 = 0x300;
pub(crate) const GET_QDISC: u16 = 38;
pub(crate) const NEW_QDISC: u16 = 36;
/// `struct tcmsg`, the parent of what is at the root, and the attribute of the kind.
pub(crate) const TC_HEADER: usize = 20;
pub(crate) const TC_ROOT: u32 = u32::MAX;
pub(crate) const TC_KIND: u16 = 1;
/// The family that names the others.
const CONTROL: u16 = 0x10;
const NESTED: u16 = 0x8000;

/// Attributes of a message: the value of each kind.
pub(crate) type Attributes = BTreeMap<u16, Vec<u8>>;

/// A socket to one part of the kernel.
pub(crate) struct Netlink(OwnedFd);

impl Netlink {
    pub(crate) fn open(protocol: Option<Protocol>) -> io::Result<Self> {
        let socket = rustix::net::socket_with(
            AddressFamily::NETLINK,
            SocketType::RAW,
            SocketFlags::CLOEXEC,
            protocol,
        )?;
        sockopt::set_socket_timeout(&socket, sockopt::Timeout::Recv, Some(PATIENCE))?;
        rustix::net::bind(&socket, &SocketAddrNetlink::new(0, 0))?;
        // Connected to the kernel: no other process can answer.
        rustix::net::connect(&socket, &SocketAddrNetlink::new(0, 0))?;
        Ok(Self(socket))
    }

    /// The answers: kind and body of each message.
    pub(crate) fn ask(&self, kind: u16, flags: u16, body: &[u8]) -> io::Result<Vec<(u16, Vec<u8>)>> {
        let length = u32::try_from(HEADER + body.len()).map_err(io::Error::other)?;
        let mut message = length.to_ne_bytes().to_vec();
        message.extend(kind.to_ne_bytes());
        message.extend((REQUEST | flags).to_ne_bytes());
        message.extend([1, 0, 0, 0, 0, 0, 0, 0]);
        message.extend(body);
        rustix::net::send(&self.0, &message, SendFlags::empty())?;
        let (mut answers, mut buffer) = (Vec::new(), vec![0; READ]);
        while answers.len() < MESSAGES {
            let (_, read) = rustix::net::recv(&self.0, &mut buffer[..], RecvFlags::empty())?;
            let mut rest = buffer.get(..read).unwrap_or_default();
            while let Some((kind, body, after)) = message_of(rest) {
                match kind {
                    DONE => return Ok(answers),
                    ERROR => return ended(body).map(|()| answers),
                    _ => answers.push((kind, body.to_vec())),
                }
                rest = after;
            }
        }
        Ok(answers)
    }
}

/// The first message of these bytes: its kind, its body, and what follows.
fn message_of(bytes: &[u8]) -> Option<(u16, &[u8], &[u8])> {
    let length = u32::from_ne_bytes(*bytes.first_chunk()?) as usize;
    let kind = u16::from_ne_bytes(*bytes.get(4..)?.first_chunk()?);
    let body = bytes.get(HEADER..length)?;
    Some((kind, body, bytes.get(length.next_multiple_of(4)..).unwrap_or_default()))
}

/// An error message: number 0 is an acknowledgement.
fn ended(body: &[u8]) -> io::Result<()> {
    match body.first_chunk().map_or(0, |number| i32::from_ne_bytes(*number)) {
        0 => Ok(()),
        number => Err(io::Error::from_raw_os_error(number.saturating_neg())),
    }
}

pub(crate) fn attribute(kind: u16, value: Vec<u8>) -> Vec<u8> {
    let attribute = DefaultNla::new(kind, value);
    let mut bytes = vec![0; attribute.buffer_len()];
    attribute.emit(&mut bytes);
    bytes
}

pub(crate) fn attributes(bytes: &[u8]) -> Attributes {
    NlasIterator::new(bytes).flatten().map(|of| (of.kind(), of.value().to_vec())).collect()
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).trim_end_matches('\0').to_owned()
}

pub(crate) fn number(of: &Attributes, kind: u16) -> Option<u32> {
    Some(u32::from_ne_bytes(*of.get(&kind)?.first_chunk()?))
}

fn flag(of: &Attributes, kind: u16) -> Option<bool> {
    of.get(&kind)?.first().map(|byte| *byte != 0)
}

/// The queueing disciplines at the root of each interface, by its index; of one with several queues (`mq`) those of its
/// queues.
///
/// # Errors
/// The kernel refuses to answer.
pub(crate) fn qdiscs() -> io::Result<BTreeMap<u32, Vec<String>>> {
    let netlink = Netlink::open(None)?;
    let answers = netlink.ask(GET_QDISC, DUMP, &[0; TC_HEADER])?;
    let of = |(kind, body): &(u16, Vec<u8>)| {
        let word = |at: usize| Some(u32::from_ne_bytes(*body.get(at..)?.first_chunk()?));
        let (index, parent) = ((*kind == NEW_QDISC).then(|| word(4))??, word(12)?);
        Some((index, parent, text(attributes(body.get(TC_HEADER..)?).get(&TC_KIND)?)))
    };
    let all: Vec<(u32, u32, String)> = answers.iter().filter_map(of).collect();
    let mut found: BTreeMap<u32, Vec<String>> = BTreeMap::new();
    for (index, _, kind) in all.iter().filter(|(_, parent, kind)| *parent == TC_ROOT && kind != "noqueue") {
        let queues = all.iter().filter(|(of, parent, _)| of == index && *parent != TC_ROOT && *parent != 0);
        let kinds: Vec<String> =
            if kind == "mq" { queues.map(|(.., kind)| kind.clone()).collect() } else { Vec::new() };
        let mut kinds = if kinds.is_empty() { vec![kind.clone()] } else { kinds };
        kinds.sort_unstable();
        kinds.dedup();
        found.insert(*index, kinds);
    }
    Ok(found)
}

/// What ethtool shows of a card.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Card {
    /// Descriptors of a receive queue, now and at most.
    pub receive_ring: Option<(u32, u32)>,
    /// Descriptors of a send queue, now and at most.
    pub send_ring: Option<(u32, u32)>,
    /// Queues now and at most, those for both directions or else those of receiving.
    pub channels: Option<(u32, u32)>,
    /// Microseconds that an interrupt waits for more packets.
    pub receive_wait: Option<u32>,
    /// Packets after which it waits no longer; 0: no bound.
    pub receive_frames: Option<u32>,
    /// Whether the driver adapts the wait to the load.
    pub adaptive: Option<bool>,
    /// Whether the card obeys and sends pause frames.
    pub pause: Option<(bool, bool)>,
    /// Features that are on, by the kernel's names: `tx-tcp-segmentation`. Empty: not known.
    pub active: Vec<String>,
    /// Features that can be changed.
    pub changeable: Vec<String>,
}

/// Asks about cards.
pub(crate) struct Ethtool {
    netlink: Netlink,
    family: u16,
}

impl Ethtool {
    /// # Errors
    /// The kernel has no such family (before 5.6), or does not let this process ask.
    pub(crate) fn open() -> io::Result<Self> {
        let netlink = Netlink::open(Some(GENERIC))?;
        let mut body = vec![3, 1, 0, 0];
        body.extend(attribute(2, b"ethtool\0".to_vec()));
        let answers = netlink.ask(CONTROL, ACK, &body)?;
        let id = |(_, body): &(u16, Vec<u8>)| {
            Some(u16::from_ne_bytes(*attributes(body.get(4..)?).get(&1)?.first_chunk()?))
        };
        let family =
            answers.iter().find_map(id).ok_or_else(|| io::Error::from(io::ErrorKind::Unsupported))?;
        Ok(Self { netlink, family })
    }

    /// The attributes of one answer; none if the driver does not say it.
    fn get(&self, command: u8, name: &str) -> Attributes {
        let mut interface = name.as_bytes().to_vec();
        interface.push(0);
        let mut body = vec![command, 1, 0, 0];
        body.extend(attribute(1 | NESTED, attribute(2, interface)));
        let answers = self.netlink.ask(self.family, ACK, &body).unwrap_or_default();
        answers.first().and_then(|(_, body)| body.get(4..)).map(attributes).unwrap_or_default()
    }

    pub(crate) fn card(&self, name: &str) -> Card {
        const FEATURES: u8 = 11;
        const RINGS: u8 = 15;
        const CHANNELS: u8 = 17;
        const COALESCE: u8 = 19;
        const PAUSE: u8 = 21;
        let (rings, channels, wait) =
            (self.get(RINGS, name), self.get(CHANNELS, name), self.get(COALESCE, name));
        let (pause, features) = (self.get(PAUSE, name), self.get(FEATURES, name));
        let both =
            |of: &Attributes, now, most| number(of, now).zip(number(of, most)).filter(|(_, most)| *most > 0);
        Card {
            receive_ring: both(&rings, 6, 2),
            send_ring: both(&rings, 9, 5),
            channels: both(&channels, 9, 5).or_else(|| both(&channels, 6, 2)),
            receive_wait: number(&wait, 2),
            receive_frames: number(&wait, 3),
            adaptive: flag(&wait, 11),
            pause: flag(&pause, 3).zip(flag(&pause, 4)),
            changeable: features.get(&2).map(|bits| names(bits)).unwrap_or_default(),
            active: features.get(&4).map(|bits| names(bits)).unwrap_or_default(),
        }
    }
}

/// The names of the bits that are set.
fn names(bitset: &[u8]) -> Vec<String> {
    let set = attributes(bitset);
    let is_list = set.contains_key(&1);
    let of = |bit: &[u8]| {
        let bit = attributes(bit);
        // In a list without a mask all bits are set; else a flag says so.
        (is_list || bit.contains_key(&3)).then(|| bit.get(&2).map(|name| text(name)))?
    };
    let bits = set.get(&3).cloned().unwrap_or_default();
    NlasIterator::new(&bits[..]).flatten().filter_map(|bit| of(bit.value())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_of_any_bytes_are_survived() {
        let mut message = 24u32.to_ne_bytes().to_vec();
        message.extend([2, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0]);
        message.extend((-95i32).to_ne_bytes());
        message.extend([0; 4]);
        let (kind, body, rest) = message_of(&message).unwrap_or_default();
        assert_eq!((kind, body.len(), rest.len()), (ERROR, 8, 0));
        assert_eq!(ended(body).map_err(|e| e.raw_os_error()), Err(Some(95)));
        for length in 0..message.len() {
            assert!(message_of(message.get(..length).unwrap_or_default()).is_none());
        }
        message[0] = 3;
        assert!(message_of(&message).is_none(), "shorter than its head");
    }

    #[test]
    fn a_set_of_bits_gives_the_names_of_those_that_are_on() {
        let bit = |name: &str, on: bool| {
            let mut body = attribute(2, format!("{name}\0").into_bytes());
            body.extend(if on { attribute(3, Vec::new()) } else { Vec::new() });
            attribute(1 | NESTED, body)
        };
        let bits = [bit("rx-gro", true), bit("rx-lro", false)].concat();
        assert_eq!(names(&attribute(3 | NESTED, bits.clone())), ["rx-gro"]);
        let list = [attribute(1, Vec::new()), attribute(3 | NESTED, bits)].concat();
        assert_eq!(names(&list), ["rx-gro", "rx-lro"]);
    }
}
