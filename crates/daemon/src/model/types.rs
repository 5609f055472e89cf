//! What goes over the unix socket, as JSON. The same types serve the daemon and its clients; `openapi.json` describes them.

use std::fmt::Write as _;

use serde::{Deserialize, Serialize};
pub use tidecast_event::cache::{CacheInfo, CacheUse, Came, Method};

/// A cache that somebody wants to make.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Create {
    /// Its name at this origin.
    pub name: String,
    /// How long it is to be kept, seconds; None: the daemon's usual.
    pub lease: Option<u64>,
    /// How it may travel, preferred first; empty: any way.
    pub methods: Vec<Method>,
    /// A ClassAd expression that daemons' ads must satisfy for the origin to offer it to them.
    pub policy: Option<String>,
    /// A ClassAd expression that a daemon's ad must satisfy to hold it.
    pub requirements: Option<String>,
    /// It leaves this host only by DIRECT.
    pub private: bool,
    /// Copies to keep alive on hosts; 0: as many as before, or one.
    pub replicas: u32,
    /// Who may read, as bits of a file's mode (0o700, 0o750, 0o755).
    pub mode: Option<u32>,
    /// The group for whom the middle digit is; None: the owner's.
    pub group: Option<String>,
    /// Mode and group are what the files allow, and were not asked for: of a cache that is there already they change nothing.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub found: bool,
}

impl Create {
    /// What of it cannot be had together.
    #[must_use]
    pub fn contradiction(&self) -> Option<&'static str> {
        if self.private && self.mode.is_some_and(|mode| mode & 0o077 != 0) {
            return Some("a private cache is for its owner alone: its mode is 700");
        }
        if self.private && self.methods.contains(&Method::Swarm) {
            return Some("a private cache travels by DIRECT only");
        }
        None
    }
}

/// A cache was declared.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Created {
    /// Its id.
    pub cache: String,
    /// Which files are still to be uploaded, in this order, by their index in the manifest.
    pub files: Vec<u32>,
}

/// Have this cache here.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Get {
    /// `[ORIGIN/]NAME[@VERSION]`.
    pub name: String,
    /// The answer may take so long, seconds; then it says how far it is.
    pub wait: u64,
    /// The process, of the caller's user, that will use it: it is kept until that ends. None: what leads the caller's job.
    pub pid: Option<i32>,
    /// What the caller's job is called, for people: its batch system and number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub job: Option<String>,
    /// What older daemons were to make in a directory of the caller's. It is refused: callers make their own files, from
    /// descriptors.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub place: Option<serde_json::Value>,
    /// A daemon of this machine asks, for a copy of its own, on behalf of this user: no process is noted. Only root may name
    /// another than himself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub copy_for: Option<String>,
    /// The origin is not asked for a newer version: what is here is given.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub offline: bool,
}

/// How far a cache has come.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "lowercase")]
pub enum Got {
    /// It is here.
    Ready {
        /// What it is.
        info: Box<CacheInfo>,
        /// How long it took to come, seconds; 0 when it was here.
        seconds: f64,
        /// How it came; None when it was here.
        method: Option<Method>,
        /// Why this is not the newest version, or not known to be.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        older: Option<String>,
    },
    /// It is coming: ask again.
    Wait {
        /// What it waits for.
        why: String,
        /// Bytes that are here.
        bytes: u64,
        /// Bytes in all; 0 while that is not known.
        total: u64,
    },
}

/// A longer lease.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Extend {
    /// From now, seconds.
    pub lease: u64,
}

/// Copies on other hosts.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Replicate {
    /// Names or addresses of hosts; empty: as many as the cache's `replicas`, wherever its policy allows.
    pub to: Vec<String>,
}

/// What became of an offer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Offered {
    /// To whom.
    pub host: String,
    /// `ok`, `wait` or `rejected`.
    pub answer: String,
    /// Why not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

/// A host that has a cache.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Holder {
    /// Its name.
    pub host: String,
    /// Where its daemon listens.
    pub addresses: Vec<std::net::SocketAddr>,
    /// It is this one.
    pub here: bool,
    /// It is the origin.
    pub origin: bool,
    /// The version that it has; of an older daemon that is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<u64>,
}

/// Something that happened to a cache.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Event {
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

/// The daemon itself.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Status {
    /// Its name: that of its host.
    pub name: String,
    /// Its key.
    pub node: String,
    /// Its program's version.
    pub version: String,
    /// Where it listens for other daemons.
    pub addresses: Vec<std::net::SocketAddr>,
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
    pub(crate) fn with_coming(self, coming: Vec<Underway>) -> Self {
        let transfers = coming.iter().map(|one| one.name.clone()).collect();
        Self { transfers, coming, ..self }
    }
}

/// A cache that is on its way to this host.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
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

/// What a check of the store has found, and made of it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
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
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Unread {
    /// Its path.
    pub path: String,
    /// What the system says.
    pub why: String,
    /// The caches that have it.
    pub caches: Vec<String>,
}

/// What became of an administrator's wish at one host.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
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

/// How an administrator changes the daemon.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Limit {
    /// Bytes of the store.
    pub capacity: Option<u64>,
    /// Caches that are fetched at once.
    pub transfers: Option<u32>,
    /// Bytes a second to other hosts; 0: as many as can be. So for the next two.
    pub upload: Option<u64>,
    /// Bytes a second from other hosts.
    pub download: Option<u64>,
    /// Bytes a second to the disk.
    pub disk_rate: Option<u64>,
    /// Seconds of CPU time a second; 0: all.
    pub cores: Option<f64>,
    /// The share of all that while a job uses a cache.
    pub busy: Option<f64>,
}

impl Limit {
    /// An administrator's wish, with its numbers.
    pub(crate) fn wish(&self, what: &str) -> String {
        let mut text = what.to_owned();
        if what != "limit" {
            return text;
        }
        let whole = [
            ("capacity", self.capacity),
            ("transfers", self.transfers.map(u64::from)),
            ("upload", self.upload),
            ("download", self.download),
            ("disk_rate", self.disk_rate),
        ];
        for (name, value) in whole {
            if let Some(value) = value {
                let _ = write!(text, " {name}={value}");
            }
        }
        for (name, value) in [("cores", self.cores), ("busy", self.busy)] {
            if let Some(value) = value {
                let _ = write!(text, " {name}={value}");
            }
        }
        text
    }
}

/// What a daemon may take from its host at this moment; None: as much as there is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wish_is_told_with_its_numbers() {
        let limit = Limit { capacity: Some(5), busy: Some(0.5), ..Limit::default() };
        assert_eq!(limit.wish("limit"), "limit capacity=5 busy=0.5");
        assert_eq!(limit.wish("drain"), "drain");
    }
}
