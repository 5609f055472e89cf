//! `ut_pex` (BEP 11): peers added and dropped. At most [`MAX_PEX`] of each are kept of one message; unusable
//! addresses (port 0, the unspecified address) are left out.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use bytes::BytesMut;

use tidecast_metainfo::bencode::Writer;

use crate::Error;
use crate::bencode::{bytes, dict};

/// The most addresses kept of either list of one message. BEP 11 says 50, and more in the first one.
pub const MAX_PEX: usize = 200;

const NAME: &str = "ut_pex";

/// A message of `ut_pex`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Pex {
    /// Connected since the last message, IPv4 before IPv6 on the wire.
    pub added: Vec<PexPeer>,
    /// Disconnected since.
    pub dropped: Vec<SocketAddr>,
}

/// An added peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PexPeer {
    /// Its address.
    pub addr: SocketAddr,
    /// BEP 11: 0x01 prefers encryption, 0x02 seed, 0x04 uTP, 0x08 hole punching, 0x10 was reached from
    /// outside.
    pub flags: u8,
}

impl Pex {
    pub(crate) fn decode(body: &[u8]) -> Result<Self, Error> {
        let (dict, _) = dict(NAME, body)?;
        let list = |key| bytes(&dict, key).unwrap_or_default();
        let flagged = |addrs: Vec<SocketAddr>, flags: &[u8]| -> Vec<PexPeer> {
            let flags = flags.iter().copied().chain(std::iter::repeat(0));
            addrs.into_iter().zip(flags).map(|(addr, flags)| PexPeer { addr, flags }).collect()
        };
        let mut added = flagged(compact_v4(list("added"))?, list("added.f"));
        added.extend(flagged(compact_v6(list("added6"))?, list("added6.f")));
        added.retain(|peer| connectable(&peer.addr));
        added.truncate(MAX_PEX);
        let mut dropped = compact_v4(list("dropped"))?;
        dropped.extend(compact_v6(list("dropped6"))?);
        dropped.truncate(MAX_PEX);
        Ok(Self { added, dropped })
    }

    pub(crate) fn encode(&self, out: &mut BytesMut) {
        let of = |v4: bool| self.added.iter().filter(move |p| p.addr.is_ipv4() == v4);
        let addrs = |v4| compact(of(v4).map(|p| p.addr));
        let flags = |v4| of(v4).map(|p| p.flags).collect::<Vec<_>>();
        let gone = |v4: bool| compact(self.dropped.iter().copied().filter(move |a| a.is_ipv4() == v4));
        let mut writer = Writer::new();
        writer.dict(|d| {
            d.key(b"added").bytes(&addrs(true));
            d.key(b"added.f").bytes(&flags(true));
            d.key(b"added6").bytes(&addrs(false));
            d.key(b"added6.f").bytes(&flags(false));
            d.key(b"dropped").bytes(&gone(true));
            d.key(b"dropped6").bytes(&gone(false));
        });
        out.extend_from_slice(&writer.into_bytes());
    }
}

pub(crate) fn connectable(addr: &SocketAddr) -> bool {
    addr.port() != 0 && !addr.ip().is_unspecified() && !addr.ip().is_multicast()
}

fn compact(addrs: impl Iterator<Item = SocketAddr>) -> Vec<u8> {
    let mut out = Vec::new();
    for addr in addrs {
        match addr.ip() {
            IpAddr::V4(ip) => out.extend_from_slice(&ip.octets()),
            IpAddr::V6(ip) => out.extend_from_slice(&ip.octets()),
        }
        out.extend_from_slice(&addr.port().to_be_bytes());
    }
    out
}

fn compact_v4(list: &[u8]) -> Result<Vec<SocketAddr>, Error> {
    let (peers, odd) = list.as_chunks::<6>();
    whole(list, odd)?;
    Ok(peers
        .iter()
        .map(|&[a, b, c, d, p, q]| (Ipv4Addr::new(a, b, c, d), u16::from_be_bytes([p, q])).into())
        .collect())
}

fn compact_v6(list: &[u8]) -> Result<Vec<SocketAddr>, Error> {
    let (peers, odd) = list.as_chunks::<18>();
    whole(list, odd)?;
    let addr = |peer: &[u8; 18]| {
        let mut ip = [0; 16];
        let (head, port) = peer.split_at(16);
        ip.copy_from_slice(head);
        let port = port.iter().fold(0_u16, |port, &b| port << 8 | u16::from(b));
        (Ipv6Addr::from(ip), port).into()
    };
    Ok(peers.iter().map(addr).collect())
}

fn whole(list: &[u8], odd: &[u8]) -> Result<(), Error> {
    if odd.is_empty() {
        return Ok(());
    }
    let rule = "BEP 11: 6 bytes for each IPv4 peer, 18 for each IPv6 peer";
    Err(Error::Length { message: NAME, len: list.len() as u64, rule })
}
