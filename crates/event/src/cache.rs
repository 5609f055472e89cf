//! Events of `cache create` and `cache get`, and the description of a cache.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// An event of `cache create`; its `started` has no fields.
pub type CreateEvent = crate::Event<(), Created>;

/// An event of `cache get`; its `started` has no fields.
pub type GetEvent = crate::Event<(), Got>;

path_field!(made, made_base64, "Its path for the caller.");

/// The cache was created, or a cache of the same content existed.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Created {
    /// Seconds since the start.
    pub seconds: f64,
    /// The cache.
    #[serde(flatten)]
    pub info: CacheInfo,
    /// Why other users cannot read it, if the mode was derived from the files.
    pub mode_reason: Option<String>,
    /// Bytes that the daemon did not have before.
    pub sent: u64,
}

/// The cache is on this host.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Got {
    /// Seconds since the start.
    pub seconds: f64,
    /// The cache.
    #[serde(flatten)]
    pub info: CacheInfo,
    /// Seconds of the transfer; 0 if the cache was on this host.
    pub fetched_seconds: f64,
    /// The transfer method; null if the cache was on this host.
    pub method: Option<String>,
    /// Why it is not the newest version, or not known to be the newest.
    pub older: Option<String>,
    /// Its path for the caller.
    #[serde(flatten, serialize_with = "made::serialize")]
    #[schemars(with = "made::Schema")]
    pub made: PathBuf,
    /// Files that were copied. Not in JSON lines.
    #[serde(skip)]
    pub copies: u64,
    /// Bytes of these files. Not in JSON lines.
    #[serde(skip)]
    pub copied: u64,
    /// Why the caller cannot read it in the daemon's store. Not in JSON lines.
    #[serde(skip)]
    pub unseen: Option<String>,
}

/// Why the daemon refuses a request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Refused {
    /// One word: `wait`, `forbidden`, `absent` and so on.
    pub reason: String,
}

/// A transfer method of caches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Method {
    /// Between all hosts that have the cache or fetch it.
    Swarm,
    /// From the parent or the origin only.
    Direct,
    /// Hard links from another daemon of the same user on the same machine; no data is sent. Not an option of caches or
    /// hosts.
    Link,
}

impl std::str::FromStr for Method {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.to_ascii_lowercase().as_str() {
            "swarm" | "bittorrent" => Ok(Self::Swarm),
            "direct" => Ok(Self::Direct),
            other => Err(format!("unknown method {other:?}: use swarm or direct")),
        }
    }
}

impl std::fmt::Display for Method {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Swarm => "SWARM",
            Self::Direct => "DIRECT",
            Self::Link => "LINK",
        })
    }
}

/// The description of a cache.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct CacheInfo {
    /// ORIGIN/NAME@VERSION.
    pub name: String,
    /// Its id.
    pub cache: String,
    /// `uncommitted`, `uploading`, `committed` or `invalid`.
    pub state: String,
    /// The user who owns it.
    pub owner: String,
    /// The group that may read it.
    pub group: Option<String>,
    /// The mode that allows reading: 0o700, 0o750 or 0o755.
    pub mode: u32,
    /// Bytes of its files.
    pub bytes: u64,
    /// Number of its files.
    pub files: u64,
    /// When the lease expires, seconds since 1970.
    pub lease: u64,
    /// It is not evicted until it is unpinned.
    pub pinned: bool,
    /// Its transfer methods.
    pub methods: Vec<Method>,
    /// It is sent to other hosts by DIRECT only.
    pub private: bool,
    /// Number of copies to keep.
    pub replicas: u32,
    /// When it was used last, seconds since 1970.
    pub used: u64,
    /// Jobs that use it now.
    pub users: u32,
    /// The processes that use it now, as far as the caller may see them; only if one cache was requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uses: Option<Vec<CacheUse>>,
    /// Bytes received, by source; all zero if it was created here.
    pub came: ReceivedBytes,
    /// The path of its files on this host.
    pub path: Option<PathBuf>,
    /// Device and inode of `path`, by which a caller checks that it sees the same directory; only in answer to a get.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inode: Option<(u64, u64)>,
    /// Its ad, in new syntax; only if one cache was requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ad: Option<String>,
}

/// A use of a cache, which prevents its eviction.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct CacheUse {
    /// The cache.
    pub cache: String,
    /// The process; null if it is not visible to the daemon.
    pub pid: Option<u32>,
    /// The name of the process.
    pub command: Option<String>,
    /// The user.
    pub user: Option<String>,
    /// The job, as the user reported it: batch system and number.
    pub job: Option<String>,
    /// Since when, seconds since 1970.
    pub since: Option<u64>,
    /// Until when at most, seconds since 1970; null: until the process ends.
    pub until: Option<u64>,
    /// The process is a shell at a terminal: it counts for a minute after its last command.
    pub terminal: bool,
}

impl CacheUse {
    /// The process, for people.
    #[must_use]
    pub fn in_words(&self) -> String {
        let Some(pid) = self.pid else { return "a process that is not visible to the daemon".into() };
        let command = self.command.as_ref().map_or(String::new(), |name| format!(" ({name})"));
        let user = self.user.as_ref().map_or(String::new(), |user| format!(" of {user}"));
        let job = self.job.as_ref().map_or(String::new(), |job| format!(", {job}"));
        let at = if self.terminal { ", a shell at a terminal" } else { "" };
        format!("process {pid}{command}{user}{job}{at}")
    }
}

/// Bytes received, by source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ReceivedBytes {
    /// From the cache's origin.
    pub origin: u64,
    /// From other hosts.
    pub peers: u64,
    /// From another daemon on this machine.
    pub parent: u64,
    /// Bytes of files that were linked from another daemon on this machine, without a transfer.
    pub link: u64,
}

/// Caches of this host that the caller may read.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Listed {
    /// The caches.
    pub caches: Vec<CacheInfo>,
}

/// The hosts to which a cache was offered.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Replicated {
    /// The cache, as requested.
    pub name: String,
    /// Each host, and its answer.
    pub offered: Vec<Offered>,
}

/// The answer to an offer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Offered {
    /// The host.
    pub host: String,
    /// `ok`, `wait` or `rejected`.
    pub answer: String,
    /// Why the host waits or rejects; for this host, that it has the cache.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

/// The hosts that have a cache.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Holders {
    /// The cache, as requested.
    pub name: String,
    /// The hosts.
    pub holders: Vec<Holder>,
}

/// A host that has a cache.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Holder {
    /// Its name.
    pub host: String,
    /// The addresses of its daemon.
    #[schemars(with = "Vec<String>")]
    pub addresses: Vec<std::net::SocketAddr>,
    /// It is this host.
    pub here: bool,
    /// It is the origin.
    pub origin: bool,
    /// The version that it has; older daemons do not report it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<u64>,
}

/// The history of caches.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct History {
    /// The events, newest first.
    pub events: Vec<HistoryEntry>,
}

/// An event in the history of a cache.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct HistoryEntry {
    /// Time, seconds since 1970.
    pub at: u64,
    /// The user or daemon that caused it.
    pub who: String,
    /// The action: `create`, `commit`, `get`, `send`, `extend`, `pin`, `evict`, and so on.
    pub what: String,
    /// The cache.
    pub cache: String,
    /// The outcome.
    pub outcome: String,
}
