//! JSON messages over the unix socket. The daemon and its clients use the same types; `openapi.json`
//! describes them.

use std::fmt::Write as _;

use serde::{Deserialize, Serialize};
pub use tidecast_event::cache::{
    CacheInfo, CacheUse, HistoryEntry as Event, Holder, Method, Offered, ReceivedBytes,
};
pub use tidecast_event::daemon::{Checked, CommandResult, Limits, Status, TransferProgress, Unread};

/// A request to create a cache.
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
    /// Permission to read, as bits of a file's mode (0o700, 0o750, 0o755).
    pub mode: Option<u32>,
    /// The group of the middle digit; None: the owner's.
    pub group: Option<String>,
    /// Mode and group were derived from the files, not requested: they do not change an existing cache.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub found: bool,
}

impl Create {
    /// Options that contradict each other.
    #[must_use]
    pub fn contradiction(&self) -> Option<&'static str> {
        if self.private && self.mode.is_some_and(|mode| mode & 0o077 != 0) {
            return Some("only its owner may read a private cache: its mode must be 700");
        }
        if self.private && self.methods.contains(&Method::Swarm) {
            return Some("a private cache is transferred by DIRECT only");
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
    /// Seconds that the answer may take; then it reports the progress.
    pub wait: u64,
    /// The process, of the caller's user, that will use the cache: it is kept until the process ends. None:
    /// the leader of the caller's job.
    pub pid: Option<i32>,
    /// The caller's job for people: its batch system and number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub job: Option<String>,
    /// Files that older daemons were to create in a directory of the caller. It is rejected: clients create
    /// their own files, from descriptors.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub place: Option<serde_json::Value>,
    /// A daemon of this machine asks, for a copy of its own, on behalf of this user: no process is noted.
    /// Only root may name another user.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub copy_for: Option<String>,
    /// The origin is not asked for a newer version: the version on this host is used.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub offline: bool,
}

/// How far a cache has come.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "lowercase")]
pub enum Got {
    /// It is here.
    Ready {
        /// The cache.
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
        /// The reason for waiting.
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
