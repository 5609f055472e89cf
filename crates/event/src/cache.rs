//! Events of `cache create` and `cache get`, and what a cache is.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// An event of `cache create`; there is nothing to say when it starts.
pub type CreateEvent = crate::Event<(), Created>;

/// An event of `cache get`; there is nothing to say when it starts.
pub type GetEvent = crate::Event<(), Got>;

path_field!(made, made_base64, "Where it is for the caller.");

/// The cache is made, or there was one of the same content.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Created {
    /// Seconds since the start.
    pub seconds: f64,
    /// What it is.
    #[serde(flatten)]
    pub info: CacheInfo,
    /// What keeps other users from reading it, if the mode was found by the files.
    pub mode_reason: Option<String>,
    /// Bytes that were new to the daemon.
    pub sent: u64,
}

/// The cache is on this host.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Got {
    /// Seconds since the start.
    pub seconds: f64,
    /// What it is.
    #[serde(flatten)]
    pub info: CacheInfo,
    /// Seconds that it took to come; 0 where it was here.
    pub fetched_seconds: f64,
    /// How it came; null where it was here.
    pub method: Option<String>,
    /// Why it is not the newest version, or not known to be.
    pub older: Option<String>,
    /// Where it is for the caller.
    #[serde(flatten, serialize_with = "made::serialize")]
    #[schemars(with = "made::Schema")]
    pub made: PathBuf,
    /// Files that had to be copied. Not in JSON lines.
    #[serde(skip)]
    pub copies: u64,
    /// Bytes of these. Not in JSON lines.
    #[serde(skip)]
    pub copied: u64,
    /// Why it is not at its own place, or a link to that, that the caller reads it. Not in JSON lines.
    #[serde(skip)]
    pub unseen: Option<String>,
}

/// Why the daemon refuses.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Refused {
    /// One word: `wait`, `forbidden`, `absent` and so on.
    pub reason: String,
}

/// How a cache may travel between hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Method {
    /// From everybody who has it, and to everybody who wants it.
    Swarm,
    /// From its parent or its origin, and nobody else.
    Direct,
    /// By links from another daemon of the same user on the same machine; nothing moves. No cache and no host asks for it.
    Link,
}

impl std::str::FromStr for Method {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.to_ascii_lowercase().as_str() {
            "swarm" | "bittorrent" => Ok(Self::Swarm),
            "direct" => Ok(Self::Direct),
            other => Err(format!("{other:?} is no method: write swarm or direct")),
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

/// A cache as people and programs see it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct CacheInfo {
    /// ORIGIN/NAME@VERSION.
    pub name: String,
    /// Its id.
    pub cache: String,
    /// `uncommitted`, `uploading`, `committed` or `invalid`.
    pub state: String,
    /// Whose it is.
    pub owner: String,
    /// The group that may read it.
    pub group: Option<String>,
    /// Who may read: 0o700, 0o750, 0o755.
    pub mode: u32,
    /// Bytes of its files.
    pub bytes: u64,
    /// Number of its files.
    pub files: u64,
    /// When the lease ends, seconds since 1970.
    pub lease: u64,
    /// Not evicted while this is so.
    pub pinned: bool,
    /// How it may travel.
    pub methods: Vec<Method>,
    /// It leaves this host only by DIRECT.
    pub private: bool,
    /// Copies to keep alive.
    pub replicas: u32,
    /// When it was used last, seconds since 1970.
    pub used: u64,
    /// Jobs that use it now.
    pub users: u32,
    /// What uses it now, as far as the caller may know; only when one cache is asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uses: Option<Vec<CacheUse>>,
    /// How it came here; nothing where it was made.
    pub came: Came,
    /// Where its files are on this host.
    pub path: Option<PathBuf>,
    /// Device and inode of what is at `path`, by which a caller knows whether it sees the same; only in answer to a get.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inode: Option<(u64, u64)>,
    /// Its ad, in new syntax; only when one cache is asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ad: Option<String>,
}

/// Something that keeps a cache from being evicted.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct CacheUse {
    /// The cache.
    pub cache: String,
    /// The process; None: one that the daemon does not see.
    pub pid: Option<u32>,
    /// What the process is called.
    pub command: Option<String>,
    /// The user.
    pub user: Option<String>,
    /// The user's word for the job: its batch system and number.
    pub job: Option<String>,
    /// Since when, seconds since 1970.
    pub since: Option<u64>,
    /// Until when at most, seconds since 1970; None: until the process ends.
    pub until: Option<u64>,
    /// The process is a shell at a terminal: it counts for a minute after its last command.
    pub terminal: bool,
}

impl CacheUse {
    /// Who it is, for people.
    #[must_use]
    pub fn in_words(&self) -> String {
        let Some(pid) = self.pid else { return "a process that the daemon does not see".into() };
        let command = self.command.as_ref().map_or(String::new(), |name| format!(" ({name})"));
        let user = self.user.as_ref().map_or(String::new(), |user| format!(" of {user}"));
        let job = self.job.as_ref().map_or(String::new(), |job| format!(", {job}"));
        let at = if self.terminal { ", a shell at a terminal" } else { "" };
        format!("process {pid}{command}{user}{job}{at}")
    }
}

/// Bytes that came, by where from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Came {
    /// From the cache's origin.
    pub origin: u64,
    /// From other hosts.
    pub peers: u64,
    /// From another daemon of this machine.
    pub parent: u64,
    /// Of files that another daemon of this machine has linked: nothing moved.
    pub link: u64,
}

/// Caches of this host that the caller may read.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Listed {
    /// Each of them.
    pub caches: Vec<CacheInfo>,
}

/// To which hosts a cache was offered.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Replicated {
    /// The cache, as it was asked for.
    pub name: String,
    /// Each host, and what it answered.
    pub offered: Vec<Offered>,
}

/// What became of an offer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Offered {
    /// To whom.
    pub host: String,
    /// `ok`, `wait` or `rejected`.
    pub answer: String,
    /// Why not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

/// Which hosts have a cache.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Holders {
    /// The cache, as it was asked for.
    pub name: String,
    /// Each of them.
    pub holders: Vec<Holder>,
}

/// A host that has a cache.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Holder {
    /// Its name.
    pub host: String,
    /// Where its daemon listens.
    #[schemars(with = "Vec<String>")]
    pub addresses: Vec<std::net::SocketAddr>,
    /// It is this one.
    pub here: bool,
    /// It is the origin.
    pub origin: bool,
    /// The version that it has; of an older daemon that is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<u64>,
}

/// What happened to caches.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct History {
    /// The last in front.
    pub events: Vec<Happened>,
}

/// Something that happened to a cache.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Happened {
    /// When, seconds since 1970.
    pub at: u64,
    /// Who did it: a user, or a daemon.
    pub who: String,
    /// What: `create`, `commit`, `get`, `send`, `extend`, `pin`, `evict`, and so on.
    pub what: String,
    /// To which cache.
    pub cache: String,
    /// How it ended.
    pub outcome: String,
}
