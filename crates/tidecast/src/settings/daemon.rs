//! The settings of a daemon.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::Deserialize;
use tidecast_daemon::CatalogueAt;
use tidecast_daemon::api::types::Method;
use tidecast_mover::server::User;
use tidecast_text::{Size, Span};

use super::checked_by::path;
use super::values::{Listen, Text};

/// The table `[daemon]` of the configuration. Absent settings have the defaults of docs/daemon.md.
#[derive(Debug, Default, Clone, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Table {
    /// Where everything is kept.
    #[serde(deserialize_with = "path")]
    pub dir: Option<PathBuf>,
    /// Serve all users of the host.
    pub system: bool,
    /// Hold the process to its own files.
    pub confine: Option<bool>,
    /// Where other daemons connect.
    pub listen: Option<Text<Listen>>,
    /// The name of this host for other hosts.
    pub name: Option<String>,
    /// The name that daemons of one machine share.
    pub machine: Option<String>,
    /// Other daemons to begin with.
    pub peer: Vec<String>,
    /// Where else others are found.
    pub catalogue: Option<Text<CatalogueAt>>,
    /// The file of trusted roots and nodes (docs/trust.md).
    #[serde(deserialize_with = "path")]
    pub trust: Option<PathBuf>,
    /// This host's certificate and key (PEM).
    #[serde(deserialize_with = "path")]
    pub certificate: Option<PathBuf>,
    /// The most that caches may occupy.
    pub capacity: Option<Text<Size>>,
    /// The most that caches of one owner may occupy.
    pub quota: Option<Text<Size>>,
    /// The same for some owners.
    pub quotas: BTreeMap<String, Text<Size>>,
    /// The lease of caches that set none.
    pub lease: Option<Text<Span>>,
    /// How long they are kept at most.
    pub lease_cap: Option<Text<Span>>,
    /// How caches travel, preferred first.
    pub methods: Vec<Method>,
    /// Requirements for caches.
    pub requirements: Option<Text<Requirements>>,
    /// Owners whose jobs are expected here.
    pub owners: Vec<String>,
    /// Caches that are fetched at once.
    pub transfers: Option<usize>,
    /// Of them, from one host.
    pub per_source: Option<usize>,
    /// Bytes a second to others.
    pub upload: Option<Text<Size>>,
    /// Bytes a second from others.
    pub download: Option<Text<Size>>,
    /// Bytes a second to the disk.
    pub disk_rate: Option<Text<Size>>,
    /// CPU time, in cores.
    pub cores: Option<f64>,
    /// The share of these limits while a job uses a cache.
    pub busy: Option<f64>,
    /// Bytes of blocks in memory.
    pub memory: Option<Text<Size>>,
    /// The nice value of the process.
    pub nice: Option<i32>,
    /// Whether a daemon is started for a user without one.
    pub on_demand: Option<bool>,
    /// Find others on the local network.
    pub local_discovery: Option<bool>,
    /// Nodes of the site's own DHT to begin with.
    pub dht: Option<Vec<String>>,
    /// Hosts whose administrators it obeys; all hosts of the site if the list is empty.
    pub admins: Vec<String>,
    /// A directory that it serves to copies.
    #[serde(deserialize_with = "path")]
    pub serve: Option<PathBuf>,
    /// Where it does so.
    pub serve_listen: Option<Text<Listen>>,
    /// Nothing can be written there.
    pub serve_read_only: bool,
    /// The user that the server runs as.
    pub serve_as: Option<User>,
    /// It is served as root.
    pub serve_as_root: bool,
    /// Keep set-id bits, devices and owners that others send.
    pub serve_trust_metadata: bool,
}

/// Requirements for caches: a ClassAd expression that can be true or false.
#[derive(Debug, Clone, PartialEq)]
pub struct Requirements(pub String);

impl std::str::FromStr for Requirements {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        tidecast_daemon::check_requirements(text).map(|()| Self(text.to_owned()))
    }
}
