//! Events of `mount` and `umount`, and what `status` says of a mount.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

path_field!(path, path_base64, "The mount point.");
path_field!(socket, socket_base64, "The socket of the process that serves the mount.");

/// An event of `mount`.
pub type Event = crate::Event<Mounted, Mounted>;

/// The tree is mounted.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Mounted {
    /// The mount point.
    #[serde(flatten, serialize_with = "path::serialize")]
    #[schemars(with = "path::Schema")]
    pub path: PathBuf,
    /// The socket of the process that serves the mount.
    #[serde(flatten, serialize_with = "socket::serialize")]
    #[schemars(with = "socket::Schema")]
    pub socket: PathBuf,
    /// Seconds from the start until the tree was mounted.
    pub mount_seconds: f64,
}

/// The tree is not mounted any more.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Unmounted {
    /// The mount point.
    #[serde(flatten, serialize_with = "path::serialize")]
    #[schemars(with = "path::Schema")]
    pub path: PathBuf,
}

/// A process serves a tree to mounts: what the program says to the process that started it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Serving {
    /// `serving`.
    pub command: &'static str,
    /// What is served.
    pub name: String,
}

/// One mount, and the state of the process that serves it.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct State {
    /// The mount point.
    #[serde(flatten, serialize_with = "path::serialize")]
    #[schemars(with = "path::Schema")]
    pub path: PathBuf,
    /// What its process says; nothing of a mount that is dead.
    #[serde(flatten)]
    pub status: Option<Status>,
    /// Why no process serves it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dead: Option<String>,
}

/// What the process that serves a tree says of itself. The process may be of another version of the program: fields that it
/// does not know are zero.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Status {
    /// What is mounted.
    pub name: String,
    /// Files in it, symbolic links among them.
    pub files: u32,
    /// Their bytes.
    pub bytes: u64,
    /// Pieces in it; equal files count once.
    pub pieces: usize,
    /// Pieces that are not here.
    pub pieces_missing: usize,
    /// Requests of the kernel, by kind.
    pub requests: BTreeMap<String, u64>,
    /// Opens and reads whose data was here.
    pub hits: u64,
    /// Opens and reads that had to wait.
    pub misses: u64,
    /// Opens and reads that failed.
    pub errors: u64,
    /// Bytes given to the kernel.
    pub given: u64,
    /// Pieces in the prefetch list.
    pub listed_pieces: usize,
    /// Requests that wait now.
    pub waiting: usize,
    /// The requests that wait now, the longest first.
    pub waits: Vec<Hold>,
    /// Files over which most time was lost.
    pub slowest: Vec<Wait>,
    /// Why the cache did not take what came last, until it takes something again.
    pub trouble: Option<String>,
    /// Why opens and reads have failed, the last in front.
    pub failures: Vec<Failures>,
    /// Payload from the origin, bytes.
    pub from_origin: u64,
    /// Payload from other peers, bytes.
    pub from_peers: u64,
    /// Payload sent, bytes.
    pub sent: u64,
    /// Payload received that was there already, bytes.
    pub duplicate: u64,
    /// Payload received that did not match its hash, bytes.
    pub corrupt: u64,
    /// Connected peers.
    pub connections: usize,
    /// Seconds since the process began to serve.
    pub served_seconds: f64,
    /// The process.
    pub pid: u32,
    /// All mount points that it serves.
    pub mounted: Vec<PathBuf>,
    /// Peers with which payload was exchanged, and those connected.
    pub peers: Vec<Peer>,
    /// Whether a ticket or the user has named a peer.
    pub has_origin: bool,
    /// What was heard last of a peer that was refused, or refused this node, or did not answer.
    pub heard: Option<String>,
}

/// Opens and reads that have failed for one reason.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Failures {
    /// The reason.
    pub why: String,
    /// How often.
    pub times: u64,
    /// The file of the last one.
    pub path: String,
    /// Seconds since the last one.
    pub seconds: f64,
}

/// A process that waits now.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Hold {
    /// The file for which it waits.
    pub path: String,
    /// The process.
    pub pid: u32,
    /// For how long, seconds.
    pub seconds: f64,
    /// Pieces for which it waits.
    pub pieces: u32,
}

/// What was lost over one file.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Wait {
    /// The file.
    pub path: String,
    /// How often a process waited.
    pub times: u64,
    /// For how long in all, seconds.
    pub seconds: f64,
    /// The longest time, seconds.
    pub longest: f64,
}

/// What was exchanged with one peer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Peer {
    /// Its address.
    #[schemars(with = "String")]
    pub addr: SocketAddr,
    /// Whether a ticket or the user has named it.
    pub origin: bool,
    /// Its client, as it calls itself.
    pub client: String,
    /// Payload from it, bytes.
    pub received: u64,
    /// Payload to it, bytes.
    pub sent: u64,
}
