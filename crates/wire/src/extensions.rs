//! The extension handshake (BEP 10): which extensions the sender accepts, under which ids, and its own
//! details. Everything in it is optional and nothing in it is trusted: invalid values are left out, texts are
//! cleaned.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use bytes::BytesMut;
use tidecast_metainfo::bencode::Writer;

use crate::Error;
use crate::bencode::{bytes, dict, int};
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

    /// Applies the changes of an extension handshake.
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
    /// Length in bytes of the info dictionary, if the sender has it (BEP 9). As claimed by the peer: bound
    /// it.
    pub metadata_size: Option<u32>,
    /// The receiver's address as the sender sees it.
    pub your_ip: Option<IpAddr>,
    /// The sender's IPv4 address.
    pub ipv4: Option<Ipv4Addr>,
    /// The sender's IPv6 address.
    pub ipv6: Option<Ipv6Addr>,
    /// BEP 21: the sender downloads nothing more.
    pub upload_only: bool,
    /// The sender's offer of the Tidecast extension.
    pub tidecast: Option<Offer>,
}

impl ExtHandshake {
    pub(crate) fn decode(body: &[u8]) -> Result<Self, Error> {
        let (dict, _) = dict(NAME, body)?;
        let m = dict.get(b"m");
        let id = |e: Extension| Some((e, int(m?, e.name())?));
        Ok(Self {
            m: Extension::ALL.into_iter().filter_map(id).collect(),
            client: bytes(&dict, "v").map(clean),
            port: int(&dict, "p").filter(|&port| port != 0),
            reqq: int(&dict, "reqq"),
            metadata_size: int(&dict, "metadata_size").filter(|&size| size != 0),
            your_ip: bytes(&dict, "yourip").and_then(ip),
            ipv4: bytes(&dict, "ipv4").and_then(|b| <[u8; 4]>::try_from(b).ok()).map(Into::into),
            ipv6: bytes(&dict, "ipv6").and_then(|b| <[u8; 16]>::try_from(b).ok()).map(Into::into),
            upload_only: int::<i64>(&dict, "upload_only").is_some_and(|v| v != 0),
            tidecast: dict.get(b"tidecast").and_then(Offer::decode),
        })
    }

    /// Keys in the order that bencoding demands.
    pub(crate) fn encode(&self, out: &mut BytesMut) {
        let mut writer = Writer::new();
        writer.dict(|d| {
            self.ipv4.iter().for_each(|ip| d.key(b"ipv4").bytes(&ip.octets()));
            self.ipv6.iter().for_each(|ip| d.key(b"ipv6").bytes(&ip.octets()));
            let id = |e| Some((e, self.m.iter().rfind(|(extension, _)| *extension == e)?.1));
            d.key(b"m").dict(|m| {
                let ids = Extension::ALL.into_iter().filter_map(id);
                ids.for_each(|(e, id)| m.key(e.name().as_bytes()).int(id.into()));
            });
            self.metadata_size.iter().for_each(|&size| d.key(b"metadata_size").int(size.into()));
            self.port.iter().for_each(|&port| d.key(b"p").int(port.into()));
            self.reqq.iter().for_each(|&reqq| d.key(b"reqq").int(reqq.into()));
            self.tidecast.iter().for_each(|offer| offer.write(d.key(b"tidecast")));
            if self.upload_only {
                d.key(b"upload_only").int(1);
            }
            self.client.iter().for_each(|name| d.key(b"v").bytes(clean(name.as_bytes()).as_bytes()));
            match self.your_ip {
                Some(IpAddr::V4(ip)) => d.key(b"yourip").bytes(&ip.octets()),
                Some(IpAddr::V6(ip)) => d.key(b"yourip").bytes(&ip.octets()),
                None => {}
            }
        });
        out.extend_from_slice(&writer.into_bytes());
    }
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
