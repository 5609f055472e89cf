//! The extension handshake (BEP 10): which extensions the sender takes, under which ids, and what it says of itself.
//! Everything in it is optional and nothing in it is trusted: what makes no sense is left out, texts are cleaned.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use bytes::{BufMut, BytesMut};

use crate::Error;
use crate::bencode::{Dict, Value, put_bytes, put_entry, put_int};
use crate::ext::Offer;

const NAME: &str = "extension handshake";
/// The most characters kept of a client's name.
const MAX_CLIENT: usize = 64;

/// The extensions spoken here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Extension {
    /// BEP 11.
    Pex,
    /// BEP 9.
    Metadata,
    /// BEP 54.
    DontHave,
    /// Tidecast's own.
    Tidecast,
}

impl Extension {
    /// All, in the order of their names.
    pub const ALL: [Self; 4] = [Self::DontHave, Self::Tidecast, Self::Metadata, Self::Pex];

    /// The name in the dictionary `m`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Pex => "ut_pex",
            Self::Metadata => "ut_metadata",
            Self::DontHave => "lt_donthave",
            Self::Tidecast => "tidecast",
        }
    }
}

/// The ids under which one side takes extension messages (BEP 10): each side chooses its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ExtIds([u8; 4]);

impl ExtIds {
    /// The ids that Tidecast announces, all extensions on.
    pub const LOCAL: Self = Self([1, 2, 7, 20]);

    /// The id of an extension, if it is taken.
    #[must_use]
    pub fn get(self, extension: Extension) -> Option<u8> {
        self.0.get(extension as usize).copied().filter(|&id| id != 0)
    }

    /// With this id for an extension; 0 turns it off (peer exchange in private swarms: BEP 27).
    #[must_use]
    pub fn with(mut self, extension: Extension, id: u8) -> Self {
        if let Some(slot) = self.0.get_mut(extension as usize) {
            *slot = id;
        }
        self
    }

    /// The extension that has this id.
    #[must_use]
    pub fn find(self, id: u8) -> Option<Extension> {
        Extension::ALL.into_iter().find(|&e| self.get(e) == Some(id))
    }

    /// The dictionary `m` that announces these ids.
    #[must_use]
    pub fn to_m(self) -> Vec<(Extension, u8)> {
        Extension::ALL.into_iter().filter_map(|e| Some((e, self.get(e)?))).collect()
    }

    /// Takes over what an extension handshake changes.
    #[must_use]
    pub fn changed_by(self, m: &[(Extension, u8)]) -> Self {
        m.iter().fold(self, |ids, &(extension, id)| ids.with(extension, id))
    }
}

/// An extension handshake (BEP 10), sent right after the handshake, and again when something changes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ExtHandshake {
    /// Changes of the sender's ids, 0 for an extension turned off. Extensions not known here are left out.
    pub m: Vec<(Extension, u8)>,
    /// Name and version of the client, without control characters, at most 64 characters.
    pub client: Option<String>,
    /// TCP port on which the sender listens.
    pub port: Option<u16>,
    /// Number of core requests that the sender queues.
    pub reqq: Option<u32>,
    /// Length in bytes of the info dictionary, if the sender has it (BEP 9). As the peer says: bound it.
    pub metadata_size: Option<u32>,
    /// The receiver's address as the sender sees it.
    pub your_ip: Option<IpAddr>,
    /// The sender's IPv4 address.
    pub ipv4: Option<Ipv4Addr>,
    /// The sender's IPv6 address.
    pub ipv6: Option<Ipv6Addr>,
    /// BEP 21: the sender downloads nothing more.
    pub upload_only: bool,
    /// What the sender offers of the Tidecast extension.
    pub tidecast: Option<Offer>,
}

impl ExtHandshake {
    pub(crate) fn decode(body: &[u8]) -> Result<Self, Error> {
        let (dict, _) = Dict::parse(NAME, body)?;
        let mut shake = Self::default();
        for (key, value) in dict.entries() {
            match (key, value) {
                (b"m", Value::Dict(m)) => shake.m = ids(m),
                (b"v", Value::Bytes(v)) => shake.client = Some(clean(v)),
                (b"p", Value::Int(v)) => shake.port = u16::try_from(v).ok().filter(|&p| p != 0),
                (b"reqq", Value::Int(v)) => shake.reqq = u32::try_from(v).ok(),
                (b"metadata_size", Value::Int(v)) => {
                    shake.metadata_size = u32::try_from(v).ok().filter(|&n| n != 0)
                }
                (b"yourip", Value::Bytes(v)) => shake.your_ip = ip(v),
                (b"ipv4", Value::Bytes(v)) => shake.ipv4 = <[u8; 4]>::try_from(v).ok().map(Into::into),
                (b"ipv6", Value::Bytes(v)) => shake.ipv6 = <[u8; 16]>::try_from(v).ok().map(Into::into),
                (b"upload_only", Value::Int(v)) => shake.upload_only = v != 0,
                (b"tidecast", Value::Dict(offer)) => shake.tidecast = Offer::decode(offer),
                _ => {}
            }
        }
        Ok(shake)
    }

    /// Keys in the order that bencoding demands.
    pub(crate) fn encode(&self, out: &mut BytesMut) {
        out.put_u8(b'd');
        if let Some(ip) = self.ipv4 {
            put_entry(out, "ipv4", &ip.octets());
        }
        if let Some(ip) = self.ipv6 {
            put_entry(out, "ipv6", &ip.octets());
        }
        put_bytes(out, b"m");
        out.put_u8(b'd');
        let mut m = self.m.clone();
        m.sort_by_key(|(extension, _)| extension.name());
        m.iter().for_each(|&(extension, id)| put_int(out, extension.name(), id));
        out.put_u8(b'e');
        if let Some(size) = self.metadata_size {
            put_int(out, "metadata_size", size);
        }
        if let Some(port) = self.port {
            put_int(out, "p", port);
        }
        if let Some(reqq) = self.reqq {
            put_int(out, "reqq", reqq);
        }
        if let Some(offer) = &self.tidecast {
            put_bytes(out, b"tidecast");
            offer.encode(out);
        }
        if self.upload_only {
            put_int(out, "upload_only", 1);
        }
        if let Some(client) = &self.client {
            put_entry(out, "v", clean(client.as_bytes()).as_bytes());
        }
        match self.your_ip {
            Some(IpAddr::V4(ip)) => put_entry(out, "yourip", &ip.octets()),
            Some(IpAddr::V6(ip)) => put_entry(out, "yourip", &ip.octets()),
            None => {}
        }
        out.put_u8(b'e');
    }
}

fn ids(m: Dict<'_>) -> Vec<(Extension, u8)> {
    let known = |(key, value)| {
        let extension = Extension::ALL.into_iter().find(|e| e.name().as_bytes() == key)?;
        let Value::Int(id) = value else { return None };
        Some((extension, u8::try_from(id).ok()?))
    };
    // A name twice is hostile: the list stays as short as there are extensions.
    m.entries().filter_map(known).take(Extension::ALL.len()).collect()
}

fn ip(bytes: &[u8]) -> Option<IpAddr> {
    let v4 = || <[u8; 4]>::try_from(bytes).ok().map(IpAddr::from);
    let v6 = || <[u8; 16]>::try_from(bytes).ok().map(IpAddr::from);
    v4().or_else(v6)
}

/// It ends up in logs and on terminals.
fn clean(text: &[u8]) -> String {
    String::from_utf8_lossy(text).chars().filter(|c| !c.is_control()).take(MAX_CLIENT).collect()
}
