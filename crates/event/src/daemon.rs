//! Events of `daemon`, and what `admin` says of daemons.

use std::net::SocketAddr;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::cache::{CacheUse, Came};

/// An event of `daemon`.
pub type Event = crate::Event<Started, Done>;

path_field!(socket, socket_base64, "The socket at which users ask.");

/// The daemon serves.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Started {
    /// The command: `daemon`.
    pub command: &'static str,
    /// Its name: the origin of caches that are made here.
    pub name: String,
    /// Its key.
    pub node: String,
    /// The socket at which users ask.
    #[serde(flatten, serialize_with = "socket::serialize")]
    #[schemars(with = "socket::Schema")]
    pub socket: PathBuf,
    /// Where other daemons connect; nothing where there is nobody to trust.
    #[schemars(with = "Vec<String>")]
    pub listen: Vec<SocketAddr>,
    /// Caches that are here.
    pub caches: u64,
    /// Bytes on disk.
    pub bytes: u64,
    /// Bytes at most.
    pub capacity: u64,
    /// The URL, with its key, at which it serves a directory to copies.
    pub serves: Option<String>,
    /// Whether the kernel holds it to its own files, and how.
    pub confined: String,
}

/// The daemon was told to end, or had nothing to do for so long as it was told.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Done {
    /// Seconds since the start.
    pub seconds: f64,
}

path_field!(dir, dir_base64, "The directory of its certificate and of what it trusts.");

/// This host has founded a site, or joined one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Initialized {
    /// The host or user that it is: `host:NAME` or `user:NAME`.
    pub identity: String,
    /// Its key.
    pub node: String,
    /// The directory of its certificate and of what it trusts.
    #[serde(flatten, serialize_with = "dir::serialize")]
    #[schemars(with = "dir::Schema")]
    pub dir: PathBuf,
    /// It founded the site, and keeps its certificate authority.
    pub authority: bool,
    /// When its certificate expires, seconds since 1970; the daemon renews it before.
    pub not_after: u64,
}

/// What became of an administrator's wish at several hosts.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct AllRuled {
    /// Each host.
    pub hosts: Vec<Ruled>,
}

/// What became of an administrator's wish at one host.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Ruled {
    /// The host; its address where its name is not known.
    pub host: String,
    /// Why it was not done.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// How it is now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<Status>,
}

/// The daemon itself.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Status {
    /// Its name: that of its host.
    pub name: String,
    /// Its key.
    pub node: String,
    /// Its program's version.
    pub version: String,
    /// Where it listens for other daemons.
    #[schemars(with = "Vec<String>")]
    pub addresses: Vec<SocketAddr>,
    /// When it was started, seconds since 1970.
    pub started: u64,
    /// `running`, `paused` or `draining`.
    pub state: String,
    /// Caches that are here.
    pub caches: u64,
    /// Bytes on disk.
    pub bytes: u64,
    /// Bytes at most.
    pub capacity: u64,
    /// Bytes at most as the administrator has said; less than `capacity` while caches that were here before keep their room.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub configured: Option<u64>,
    /// Bytes that are being fetched or uploaded, reserved.
    pub reserved: u64,
    /// Daemons of the site that are alive as far as this one knows, itself among them.
    pub members: u64,
    /// Other daemons that it speaks with.
    pub peers: Vec<String>,
    /// Transfers under way.
    pub transfers: Vec<String>,
    /// How far they are, as far as the caller may know.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub coming: Vec<Underway>,
    /// What uses caches, as far as the caller may know; the first hundred.
    pub uses: Vec<CacheUse>,
    /// Bytes sent to other hosts since the start.
    pub sent: u64,
    /// Bytes received from other hosts since the start.
    pub received: u64,
    /// Of caches that came since the start, by where from.
    pub came: Came,
    /// The daemon of this machine from which it takes caches; None: it is the oldest, or shares with nobody.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent: Option<String>,
    /// What it may take from its host now.
    pub limits: Limits,
    /// `everyone` on its host, or `owner`.
    pub serves: String,
    /// The user (uid) who runs it.
    pub user: u32,
    /// Whether the kernel holds it to its own files, and how.
    pub confined: String,
    /// What it does without, as its user's privilege does not suffice.
    pub without: Vec<String>,
}

impl Status {
    /// With these transfers.
    #[must_use]
    pub fn with_coming(self, coming: Vec<Underway>) -> Self {
        let transfers = coming.iter().map(|one| one.name.clone()).collect();
        Self { transfers, coming, ..self }
    }
}

/// A cache that is on its way to this host.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Underway {
    /// Its name, as it was asked for.
    pub name: String,
    /// For whom.
    pub owner: String,
    /// Bytes that are here.
    pub bytes: u64,
    /// Bytes in all; 0 while that is not known.
    pub total: u64,
    /// What it waits for.
    pub why: String,
}

/// What a daemon may take from its host at this moment; None: as much as there is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Limits {
    /// A job uses a cache: it is less than usual.
    pub busy: bool,
    /// Bytes a second to other hosts.
    pub upload: Option<u64>,
    /// Bytes a second from other hosts.
    pub download: Option<u64>,
    /// Bytes a second to the disk.
    pub disk_rate: Option<u64>,
    /// Seconds of CPU time a second.
    pub cores: Option<f64>,
    /// Bytes of blocks in memory.
    pub memory: u64,
    /// Its cgroup, and what the kernel holds it to there; else why it has none.
    pub cgroup: String,
}

/// What a check of the store has found, and made of it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Checked {
    /// Nothing was wrong.
    pub clean: bool,
    /// Caches that were looked at.
    pub caches: u64,
    /// Contents that were looked at.
    pub objects: u64,
    /// Bytes that were read.
    pub bytes: u64,
    /// Contents that were damaged.
    pub damaged: u64,
    /// ... of them such as are right again.
    pub repaired: u64,
    /// ... and such as nobody was found to have.
    pub lost: u64,
    /// `lost`, as older programs know it.
    pub bad: u64,
    /// Caches in which names, links or rights were put right.
    pub views: Vec<String>,
    /// Caches that were INVALID, and are COMMITTED again.
    pub restored: Vec<String>,
    /// Caches that are INVALID.
    pub invalid: Vec<String>,
    /// Things in the store that belonged to nothing, removed.
    pub orphans: u64,
    /// Files that this host could not read; their caches stay as they are.
    pub unread: Vec<Unread>,
}

/// A file of the store that this host could not read.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Unread {
    /// Its path.
    pub path: String,
    /// What the system says.
    pub why: String,
    /// The caches that have it.
    pub caches: Vec<String>,
}
