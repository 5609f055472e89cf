//! How a daemon is set up.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use tidecast_net::Caps;

use crate::api::types::Method;
use crate::catalogue::CatalogueAt;
use crate::parent::Kin;

/// Whose requests a daemon admits at its socket. It says nothing about privilege: a daemon that serves everyone need not be root.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Serves {
    /// All users of the host.
    Everyone,
    /// The user who runs it, and root.
    Owner,
}

/// The settings of a daemon; each with a default that is right for most.
#[derive(Clone, Debug)]
pub struct Config {
    /// The directory that holds all its state.
    pub dir: PathBuf,
    /// Where local users ask.
    pub socket: PathBuf,
    /// Where other daemons connect; None: nowhere, this host is alone.
    pub listen: Option<SocketAddr>,
    /// Its name: the origin of caches that are made here.
    pub name: String,
    /// The user whose daemon it is; None: the host's.
    pub user: Option<String>,
    /// Whose requests it admits.
    pub serves: Serves,
    /// The user (uid) who runs the host's daemon besides root. Daemons of this machine take caches from it as from root's.
    pub host_uid: Option<u32>,
    /// The machine's own name, equal for all daemons on it.
    pub machine: String,
    /// Other daemons to begin with: NAME, HOST:PORT or NAME=HOST:PORT.
    pub peers: Vec<String>,
    /// Whether to look for other daemons on the local network (BEP 14).
    pub local_discovery: bool,
    /// Nodes of the site's own DHT (BEP 5) to begin with, HOST:PORT; None: no DHT.
    pub dht: Option<Vec<String>>,
    /// Hosts whose administrators this daemon obeys; empty: any host's of the site.
    pub admins: Vec<String>,
    /// Where else others are found, and this daemon is entered.
    pub catalogue: Option<CatalogueAt>,
    /// Whom to believe (docs/trust.md).
    pub trust: Option<PathBuf>,
    /// This node's certificate and key, from which its card is made.
    pub certificate: Option<PathBuf>,
    /// The limits of the store.
    pub depot: tidecast_depot::Config,
    /// How it takes caches, preferred first.
    pub methods: Vec<Method>,
    /// What it requires of caches (ClassAd).
    pub requirements: Option<String>,
    /// Owners whose jobs are expected here; empty: anybody's.
    pub owners: Vec<String>,
    /// Caches that are fetched at once.
    pub transfers: usize,
    /// ... of them from one and the same host.
    pub per_source: usize,
    /// What it may take from the host while no job uses a cache.
    pub caps: Caps,
    /// The share of that while one does.
    pub busy: f64,
    /// It ends by itself when nobody has asked for anything for so long, and nothing is under way.
    pub idle: Option<Duration>,
    /// What holds it to its files, and how: for its status.
    pub confined: String,
    /// What its user's privilege does not suffice for.
    pub without: Vec<String>,
    /// Bytes of blocks in memory; of everything, where it has a cgroup.
    pub memory: u64,
}

impl Config {
    /// Whether an older daemon of the same user is on this machine now, which may give links into its own store. Asks nobody
    /// and starts no thread.
    #[must_use]
    pub fn has_elder_with_links(&self) -> bool {
        Kin::new(&self.machine, self.serves, self.host_uid).has_elder_with_links()
    }
}
