//! Events of `bcast`.

use std::net::SocketAddr;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::get::LinkRateFrom;
use crate::rounded;

/// An event of `bcast`.
pub type Event = crate::Event<Started, Done, News>;

path_field!(source, source_base64, "The file or directory that is broadcast.");
path_field!(torrent, torrent_base64, "The metainfo file by which any client can join.");

/// The broadcast begins.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Started {
    /// The command: `bcast`.
    pub command: &'static str,
    /// The file or directory that is broadcast.
    #[serde(flatten, serialize_with = "source::serialize")]
    #[schemars(with = "source::Schema")]
    pub source: PathBuf,
    /// The path of the copy on each host.
    pub dest: String,
    /// Hosts.
    pub hosts: usize,
}

/// Numbers of hosts of a broadcast.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Hosts {
    /// Hosts of a broadcast.
    pub hosts: usize,
    /// Hosts that are complete.
    pub hosts_done: usize,
    /// Hosts that have failed.
    pub hosts_failed: usize,
}

/// Events that only a broadcast has.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "event", rename_all = "lowercase")]
#[non_exhaustive]
pub enum News {
    /// Workers of some hosts are not connected yet.
    Waiting(Waiting),
    /// BitTorrent clients can join.
    Open(Open),
    /// The ticket for workers that are started by the caller, a secret; the first event, and only then. Not in JSON lines.
    #[serde(skip)]
    Ticket(String),
    /// Several names of the list are the same host, which is served once. Not in JSON lines.
    #[serde(skip)]
    Aliases {
        /// The name under which it is served.
        host: String,
        /// Its other names.
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
    /// The places of hosts that were measured; only if there are several places. Not in JSON lines.
    #[serde(skip)]
    Places(Vec<Vec<String>>),
    /// A host has failed; the others continue. Not in JSON lines.
    #[serde(skip)]
    Failed {
        /// Its name.
        host: String,
        /// Why.
        reason: String,
    },
}

/// Workers of some hosts are not connected yet; sent after 4 s, 12 s, 28 s and so on.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Waiting {
    /// The hosts, in the order of their launch.
    pub hosts: Vec<Late>,
    /// Hosts that are not launched yet.
    pub queued: usize,
    /// Programs that launch them.
    pub launchers: Vec<String>,
    /// The last output of the launcher of the first host.
    pub said: String,
}

/// A host whose worker is not connected yet.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Late {
    /// Its name.
    pub name: String,
    /// Seconds since it was launched.
    #[serde(serialize_with = "rounded")]
    #[schemars(with = "f64")]
    pub seconds: f64,
}

/// BitTorrent clients can join now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Open {
    /// The metainfo file, which exists now.
    #[serde(flatten, serialize_with = "torrent::serialize")]
    #[schemars(with = "torrent::Schema")]
    pub torrent: PathBuf,
    /// Where this host listens.
    pub peers: Vec<SocketAddr>,
}

/// Files that existed at the destination before, by their treatment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ExistingFiles {
    /// Files with other content that were replaced.
    pub replaced: u64,
    /// Of `replaced`: files that are not recorded as delivered by Tidecast.
    pub replaced_foreign: u64,
    /// Files that the source does not have and that were kept.
    pub stale: u64,
    /// Of `stale`: files that Tidecast did not deliver.
    pub foreign: u64,
    /// Files that were removed.
    pub deleted: u64,
}

/// The result for the copy on one host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Action {
    /// DEST did not exist before.
    Delivered,
    /// DEST had another version.
    Replaced,
    /// DEST had the same data.
    Unchanged,
    /// The host does not have the copy.
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

/// Figures of a host that is complete.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, JsonSchema)]
pub struct Figures {
    /// Seconds from the start of the transfer until the copy was complete.
    #[serde(serialize_with = "rounded")]
    #[schemars(with = "f64")]
    pub seconds: f64,
    /// Useful payload received, bytes.
    pub received: u64,
    /// Payload sent to others, bytes.
    pub sent: u64,
    /// Payload received twice, bytes.
    pub duplicate: u64,
    /// Payload received that did not match its hash, bytes.
    pub corrupt: u64,
    /// Files that already had the right data.
    pub kept: u64,
    /// Files that existed before.
    #[serde(flatten)]
    pub found: ExistingFiles,
}

/// A worker that cannot connect to the host of the broadcast.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Unreached {
    /// Addresses of the coordinator to which the worker could not connect.
    pub coordinator_addresses: Vec<SocketAddr>,
    /// The error of the last of these connections.
    pub coordinator_error: String,
}

/// The result of one host.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Host {
    /// Its name.
    pub name: String,
    /// It is complete.
    pub ok: bool,
    /// The result for its copy.
    pub action: Action,
    /// Its figures, if it is complete.
    #[serde(flatten)]
    pub done: Option<Figures>,
    /// Why it failed, if it did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The failed connection of its worker, if that is the reason.
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

/// The transfer in comparison with the rate of the links.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, JsonSchema)]
pub struct Link {
    /// Rate of a host's link, bits per second.
    pub link_rate: u64,
    /// The origin of this figure.
    pub link_rate_from: LinkRateFrom,
    /// Seconds that the links need at least for the data that a host needed.
    #[serde(serialize_with = "rounded")]
    #[schemars(with = "f64")]
    pub bound_seconds: f64,
    /// The share of the links' rate that was used, from 0 to 1.
    #[serde(serialize_with = "rounded")]
    #[schemars(with = "f64")]
    pub efficiency: f64,
}

/// Every host is complete. If hosts failed the operation fails, and these fields are in its `error` event.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Done {
    /// Seconds since the start.
    pub seconds: f64,
    /// Bytes of the source.
    pub bytes: u64,
    /// Files of the source.
    pub files: u64,
    /// Bytes of a piece.
    pub piece_length: u32,
    /// The algorithm that distributed the data.
    pub algorithm: &'static str,
    /// The network that the hosts used.
    pub network: String,
    /// Seconds of reading and hashing the source.
    #[serde(serialize_with = "rounded")]
    #[schemars(with = "f64")]
    pub hash_seconds: f64,
    /// Seconds of launching, until the transfer began.
    #[serde(serialize_with = "rounded")]
    #[schemars(with = "f64")]
    pub gather_seconds: f64,
    /// Seconds of the transfer, until the last host was complete.
    #[serde(serialize_with = "rounded")]
    #[schemars(with = "f64")]
    pub transfer_seconds: f64,
    /// Bytes per second that a host received during the transfer.
    pub rate: u64,
    /// Payload that hosts received, bytes.
    pub received: u64,
    /// Payload that hosts received twice, bytes.
    pub duplicate: u64,
    /// Payload that did not match its hash, bytes.
    pub corrupt: u64,
    /// Bytes that this host and the other sources sent.
    pub origin_sent: u64,
    /// `origin_sent` in copies of the data that a host needed; null if no host needed data.
    pub origin_copies: Option<f64>,
    /// Every host, in the order of the list.
    pub hosts: Vec<Host>,
    /// Hosts that are complete.
    pub hosts_done: usize,
    /// Hosts that have failed.
    pub hosts_failed: usize,
    /// The hosts of each place, if places were measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub places: Option<Vec<Vec<String>>>,
    /// The hosts that served a share of the source.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub sources: Vec<Source>,
    /// Bytes of the manifest, if it was so long that it was broadcast before the data.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub manifest_bytes: Option<u64>,
    /// Bytes of the manifest that this host sent; not included in `origin_sent`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub manifest_sent: Option<u64>,
    /// Settings of this host that cost more than 5% of its link, by the names of the checks of `tidecast doctor`; looked at
    /// only where the efficiency is below 80%.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub host_limits: Vec<String>,
    /// The comparison with the rate of the links, if that is known.
    #[serde(flatten)]
    pub link: Option<Link>,
}
