//! Events of `bcast`.

use std::net::SocketAddr;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::get::LinkRateFrom;
use crate::rounded;

/// An event of `bcast`.
pub type Event = crate::Event<Started, Done, News>;

path_field!(source, source_base64, "What is broadcast.");
path_field!(torrent, torrent_base64, "The metainfo file by which any client can join.");

/// The broadcast begins.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Started {
    /// The command: `bcast`.
    pub command: &'static str,
    /// What is broadcast.
    #[serde(flatten, serialize_with = "source::serialize")]
    #[schemars(with = "source::Schema")]
    pub source: PathBuf,
    /// The path that it shall have on each host.
    pub dest: String,
    /// Hosts.
    pub hosts: usize,
}

/// How the hosts fare.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Hosts {
    /// Hosts of a broadcast.
    pub hosts: usize,
    /// Those that have all of it.
    pub hosts_done: usize,
    /// Those that have failed.
    pub hosts_failed: usize,
}

/// What only a broadcast tells.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "event", rename_all = "lowercase")]
#[non_exhaustive]
pub enum News {
    /// Workers of some hosts have not come.
    Waiting(Waiting),
    /// Any BitTorrent client can join.
    Open(Open),
    /// What workers need to know that come by themselves, which is a secret; before all else, and only then. Not in JSON lines.
    #[serde(skip)]
    Ticket(String),
    /// Other names of the list are this host: it is served once. Not in JSON lines.
    #[serde(skip)]
    Aliases {
        /// The name by which it is served.
        host: String,
        /// The others.
        names: Vec<String>,
    },
    /// The network is chosen. Not in JSON lines.
    #[serde(skip)]
    Network {
        /// Its name.
        name: String,
        /// The known rate of its links, bits a second; 0: unknown.
        rate: u64,
    },
    /// Which hosts are together, as far as was found out; told only where there are several places. Not in JSON lines.
    #[serde(skip)]
    Places(Vec<Vec<String>>),
    /// A host has failed; the others go on. Not in JSON lines.
    #[serde(skip)]
    Failed {
        /// Its name.
        host: String,
        /// Why.
        reason: String,
    },
}

/// Workers of some hosts have not come: told after 4 s, 12 s, 28 s and so on.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Waiting {
    /// The hosts; those launched longest ago in front.
    pub hosts: Vec<Late>,
    /// Hosts whose launch has its turn still to come.
    pub queued: usize,
    /// Programs that launch them.
    pub launchers: Vec<String>,
    /// What the launcher of the first one said last.
    pub said: String,
}

/// A host whose worker has not come.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Late {
    /// Its name.
    pub name: String,
    /// Seconds since it was launched.
    #[serde(serialize_with = "rounded")]
    #[schemars(with = "f64")]
    pub seconds: f64,
}

/// Any BitTorrent client can join now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Open {
    /// The metainfo file, which is written.
    #[serde(flatten, serialize_with = "torrent::serialize")]
    #[schemars(with = "torrent::Schema")]
    pub torrent: PathBuf,
    /// Where this host listens.
    pub peers: Vec<SocketAddr>,
}

/// What became of files that stood at the destination.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Found {
    /// Files that stood for something else, and were replaced.
    pub replaced: u64,
    /// Of those: files of which no record said that Tidecast delivered them.
    pub replaced_foreign: u64,
    /// Files that stay though the source does not have them.
    pub stale: u64,
    /// Of those: files that Tidecast did not deliver.
    pub foreign: u64,
    /// Files that were removed.
    pub deleted: u64,
}

/// What became of the copy on one host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Action {
    /// Nothing was there.
    Delivered,
    /// Another version was there.
    Replaced,
    /// The same was there.
    Unchanged,
    /// It does not have it.
    Failed,
}

impl Action {
    /// Its name, in JSON and for people.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Delivered => "delivered",
            Self::Replaced => "replaced",
            Self::Unchanged => "unchanged",
            Self::Failed => "failed",
        }
    }
}

/// What one host did that has all of it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, JsonSchema)]
pub struct Figures {
    /// Seconds from the start of the transfer until all was in place.
    #[serde(serialize_with = "rounded")]
    #[schemars(with = "f64")]
    pub seconds: f64,
    /// Payload received that was of use, bytes.
    pub received: u64,
    /// Payload sent to others, bytes.
    pub sent: u64,
    /// Payload received that was there already, bytes.
    pub duplicate: u64,
    /// Payload received that did not match its hash, bytes.
    pub corrupt: u64,
    /// Files that were right already.
    pub kept: u64,
    /// What stood there.
    #[serde(flatten)]
    pub found: Found,
}

/// A worker that cannot connect to the host of the broadcast.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Unreached {
    /// Addresses of the coordinator to which the worker could not connect.
    pub coordinator_addresses: Vec<SocketAddr>,
    /// Why it could not connect to the last of them.
    pub coordinator_error: String,
}

/// How one host fared.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Host {
    /// Its name.
    pub name: String,
    /// It has all of it.
    pub ok: bool,
    /// What became of its copy.
    pub action: Action,
    /// What it did, if it has all of it.
    #[serde(flatten)]
    pub done: Option<Figures>,
    /// Why it failed, if it did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// What its worker could not connect to, if that is why.
    #[serde(flatten)]
    pub unreached: Option<Unreached>,
    /// Other names of it in the list.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub aliases: Vec<String>,
}

/// A host that read and sent a share of the source.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Source {
    /// Its name.
    pub name: String,
    /// Bytes of `origin_sent` that it sent.
    pub sent: u64,
}

/// What the links could have done.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, JsonSchema)]
pub struct Link {
    /// Rate of a host's link, bits a second.
    pub link_rate: u64,
    /// How that is known.
    pub link_rate_from: LinkRateFrom,
    /// Seconds that the links take for what a host needed.
    #[serde(serialize_with = "rounded")]
    #[schemars(with = "f64")]
    pub bound_seconds: f64,
    /// The part of the links' rate that was used: 1 is all.
    #[serde(serialize_with = "rounded")]
    #[schemars(with = "f64")]
    pub efficiency: f64,
}

/// Every host has it. Where hosts failed the operation fails, and these fields are in its `error` event.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Done {
    /// Seconds since the start.
    pub seconds: f64,
    /// Bytes of the source.
    pub bytes: u64,
    /// Its files.
    pub files: u64,
    /// Bytes of a piece.
    pub piece_length: u32,
    /// How the data went.
    pub algorithm: &'static str,
    /// The network on which the hosts met.
    pub network: String,
    /// Seconds of reading and hashing the source.
    #[serde(serialize_with = "rounded")]
    #[schemars(with = "f64")]
    pub hash_seconds: f64,
    /// Seconds of launching, until the transfer began.
    #[serde(serialize_with = "rounded")]
    #[schemars(with = "f64")]
    pub gather_seconds: f64,
    /// Seconds from then until the last host was done.
    #[serde(serialize_with = "rounded")]
    #[schemars(with = "f64")]
    pub transfer_seconds: f64,
    /// Bytes a second that a host received while the transfer ran.
    pub rate: u64,
    /// Payload that hosts received, bytes.
    pub received: u64,
    /// Payload that they had already, bytes.
    pub duplicate: u64,
    /// Payload that did not match its hash, bytes.
    pub corrupt: u64,
    /// Bytes that this host and the sources beside it sent.
    pub origin_sent: u64,
    /// The same as copies of what a host needed; null where none needed anything.
    pub origin_copies: Option<f64>,
    /// Every host, in the order of the list.
    pub hosts: Vec<Host>,
    /// Hosts that have all of it.
    pub hosts_done: usize,
    /// Hosts that do not.
    pub hosts_failed: usize,
    /// Which hosts are together, if that was found out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub places: Option<Vec<Vec<String>>>,
    /// The hosts that served a share of the source.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub sources: Vec<Source>,
    /// Where the manifest was so long that it was broadcast before the data: its bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub manifest_bytes: Option<u64>,
    /// Of these, bytes that this host sent; they are not in `origin_sent`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub manifest_sent: Option<u64>,
    /// What the links could have done, where their rate is known.
    #[serde(flatten)]
    pub link: Option<Link>,
}
