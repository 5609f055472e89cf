//! Events of `daemon`, and results of `admin`.

use std::net::SocketAddr;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::cache::{CacheUse, ReceivedBytes};

/// An event of `daemon`.
pub type Event = crate::Event<Started, Done>;

path_field!(socket, socket_base64, "The socket for users.");

/// The daemon is ready.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Started {
    /// The command: `daemon`.
    pub command: &'static str,
    /// Its name: the origin of caches that are created here.
    pub name: String,
    /// Its node id.
    pub node: String,
    /// The socket for users.
    #[serde(flatten, serialize_with = "socket::serialize")]
    #[schemars(with = "socket::Schema")]
    pub socket: PathBuf,
    /// The addresses for other daemons; empty without a trust file.
    #[schemars(with = "Vec<String>")]
    pub listen: Vec<SocketAddr>,
    /// Caches in its store.
    pub caches: u64,
    /// Bytes on disk.
    pub bytes: u64,
    /// The limit of bytes on disk.
    pub capacity: u64,
    /// The URL, with its key, under which it serves a directory to copies.
    pub serves: Option<String>,
    /// Whether and how the kernel confines it to its own files.
    pub confined: String,
}

/// The daemon was stopped, or ended after the idle time.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Done {
    /// Seconds since the start.
    pub seconds: f64,
}

path_field!(dir, dir_base64, "The directory of its certificate and of the certificates that it trusts.");

/// This host has founded a site, or joined one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Initialized {
    /// The host or user that it is: `host:NAME` or `user:NAME`.
    pub identity: String,
    /// Its key.
    pub node: String,
    /// The directory of its certificate and of the certificates that it trusts.
    #[serde(flatten, serialize_with = "dir::serialize")]
    #[schemars(with = "dir::Schema")]
    pub dir: PathBuf,
    /// It founded the site, and keeps its certificate authority.
    pub authority: bool,
    /// When its certificate expires, seconds since 1970; the daemon renews it earlier.
    pub not_after: u64,
}

/// The results of an administrator's command on several hosts.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct CommandResults {
    /// The result on each host.
    pub hosts: Vec<CommandResult>,
}

/// The result of an administrator's command on one host.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CommandResult {
    /// The host; its address if its name is not known.
    pub host: String,
    /// Why the command failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// The state of the daemon now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<Status>,
}

/// The state of a daemon.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Status {
    /// Its name: that of its host.
    pub name: String,
    /// Its node id.
    pub node: String,
    /// Its program's version.
    pub version: String,
    /// The addresses for other daemons.
    #[schemars(with = "Vec<String>")]
    pub addresses: Vec<SocketAddr>,
    /// When it was started, seconds since 1970.
    pub started: u64,
    /// `running`, `paused` or `draining`.
    pub state: String,
    /// Caches in its store.
    pub caches: u64,
    /// Bytes on disk.
    pub bytes: u64,
    /// The limit of bytes on disk.
    pub capacity: u64,
    /// The limit that the administrator set; less than `capacity` while existing caches exceed it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub configured: Option<u64>,
    /// Bytes reserved for transfers and uploads in progress.
    pub reserved: u64,
    /// Live daemons of the site that this one knows, including itself.
    pub members: u64,
    /// Other daemons that it is connected to.
    pub peers: Vec<String>,
    /// Transfers in progress.
    pub transfers: Vec<String>,
    /// The progress of these transfers, as far as the caller may see it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub coming: Vec<TransferProgress>,
    /// Uses of caches, as far as the caller may see them; the first hundred.
    pub uses: Vec<CacheUse>,
    /// Bytes sent to other hosts since the start.
    pub sent: u64,
    /// Bytes received from other hosts since the start.
    pub received: u64,
    /// Bytes of caches received since the start, by source.
    pub came: ReceivedBytes,
    /// The daemon on this machine from which it gets caches; absent if it is the oldest, or shares with none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent: Option<String>,
    /// The resources of its host that it may use now.
    pub limits: Limits,
    /// `everyone` on its host, or `owner`.
    pub serves: String,
    /// The user (uid) who runs it.
    pub user: u32,
    /// Whether and how the kernel confines it to its own files.
    pub confined: String,
    /// Features that are off because its user lacks the privilege.
    pub without: Vec<String>,
}

impl Status {
    /// With these transfers.
    #[must_use]
    pub fn with_transfers(self, coming: Vec<TransferProgress>) -> Self {
        let transfers = coming.iter().map(|one| one.name.clone()).collect();
        Self { transfers, coming, ..self }
    }
}

/// A transfer of a cache to this host.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct TransferProgress {
    /// The cache's name, as requested.
    pub name: String,
    /// The user who requested it.
    pub owner: String,
    /// Bytes received.
    pub bytes: u64,
    /// Bytes in total; 0 while that is not known.
    pub total: u64,
    /// The reason why it waits, or its state.
    pub why: String,
}

/// The resources of its host that a daemon may use now; null: no limit.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Limits {
    /// A job uses a cache, so the limits are reduced.
    pub busy: bool,
    /// Bytes per second to other hosts.
    pub upload: Option<u64>,
    /// Bytes per second from other hosts.
    pub download: Option<u64>,
    /// Bytes per second to the disk.
    pub disk_rate: Option<u64>,
    /// Seconds of CPU time per second.
    pub cores: Option<f64>,
    /// Bytes of blocks in memory.
    pub memory: u64,
    /// Its cgroup and the limits there, or why it has no cgroup.
    pub cgroup: String,
}

/// The result of a check of the store.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Checked {
    /// No damage was found.
    pub clean: bool,
    /// Caches checked.
    pub caches: u64,
    /// Objects (contents of files) checked.
    pub objects: u64,
    /// Bytes read.
    pub bytes: u64,
    /// Objects that were damaged.
    pub damaged: u64,
    /// Damaged objects that were repaired.
    pub repaired: u64,
    /// Damaged objects that no known host has.
    pub lost: u64,
    /// `lost`, under the name for older programs.
    pub bad: u64,
    /// Caches in which names, links or permissions were corrected.
    pub views: Vec<String>,
    /// Caches that were INVALID, and are COMMITTED again.
    pub restored: Vec<String>,
    /// Caches that are INVALID.
    pub invalid: Vec<String>,
    /// Entries of the store that belonged to no cache, removed.
    pub orphans: u64,
    /// Files that this host could not read; their caches are not changed.
    pub unread: Vec<Unread>,
}

/// A file of the store that this host could not read.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Unread {
    /// Its path.
    pub path: String,
    /// The system's error.
    pub why: String,
    /// The caches that contain it.
    pub caches: Vec<String>,
}
