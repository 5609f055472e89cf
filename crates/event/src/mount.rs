//! Events of `mount` and `umount`, and the status of a mount.

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

/// The tree was unmounted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Unmounted {
    /// The mount point.
    #[serde(flatten, serialize_with = "path::serialize")]
    #[schemars(with = "path::Schema")]
    pub path: PathBuf,
}

/// A process serves a tree to mounts; sent to the process that started it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Serving {
    /// `serving`.
    pub command: &'static str,
    /// The name of the tree.
    pub name: String,
}

/// One mount, and the state of the process that serves it.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct State {
    /// The mount point.
    #[serde(flatten, serialize_with = "path::serialize")]
    #[schemars(with = "path::Schema")]
    pub path: PathBuf,
    /// The status of its process; absent if no process serves it.
    #[serde(flatten)]
    pub status: Option<Status>,
    /// Why no process serves it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dead: Option<String>,
}

/// The status of the process that serves a tree. The process may be of another version of the program: fields that it
/// does not report are zero.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Status {
    /// The name of the tree.
    pub name: String,
    /// Files in it, including symbolic links.
    pub files: u32,
    /// Bytes of these files.
    pub bytes: u64,
    /// Pieces in it; equal files count once.
    pub pieces: usize,
    /// Pieces that are not local.
    pub pieces_missing: usize,
    /// Requests of the kernel, by kind.
    pub requests: BTreeMap<String, u64>,
    /// Opens and reads whose data was local.
    pub hits: u64,
    /// Opens and reads that had to wait.
    pub misses: u64,
    /// Opens and reads that failed.
    pub errors: u64,
    /// Bytes returned to the kernel.
    pub given: u64,
    /// Pieces in the prefetch list.
    pub listed_pieces: usize,
    /// Requests that wait now.
    pub waiting: usize,
    /// The requests that wait now, the longest first.
    pub waits: Vec<Hold>,
    /// Files for which processes waited longest.
    pub slowest: Vec<Wait>,
    /// Why the last write to the cache failed, until a write succeeds.
    pub trouble: Option<String>,
    /// Why opens and reads have failed, newest first.
    pub failures: Vec<Failures>,
    /// Payload from the origin, bytes.
    pub from_origin: u64,
    /// Payload from other peers, bytes.
    pub from_peers: u64,
    /// Payload sent, bytes.
    pub sent: u64,
    /// Payload received twice, bytes.
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
    /// Whether a ticket or the user named a peer.
    pub has_origin: bool,
    /// The last error of a peer: it was rejected, rejected this node, or did not answer.
    pub heard: Option<String>,
}

/// Opens and reads that have failed for one reason.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Failures {
    /// The reason.
    pub why: String,
    /// Number of failures.
    pub times: u64,
    /// The file of the last failure.
    pub path: String,
    /// Seconds since the last failure.
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
    /// Seconds that it has waited.
    pub seconds: f64,
    /// Pieces for which it waits.
    pub pieces: u32,
}

/// The time that processes waited for one file.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Wait {
    /// The file.
    pub path: String,
    /// Number of waits.
    pub times: u64,
    /// Total time, seconds.
    pub seconds: f64,
    /// Longest time, seconds.
    pub longest: f64,
}

/// The traffic with one peer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Peer {
    /// Its address.
    #[schemars(with = "String")]
    pub addr: SocketAddr,
    /// Whether a ticket or the user named it.
    pub origin: bool,
    /// Its client program, as it reports it.
    pub client: String,
    /// Payload from it, bytes.
    pub received: u64,
    /// Payload to it, bytes.
    pub sent: u64,
}
