//! How a daemon is set up.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use tidecast_net::Caps;

use crate::model::types::Method;

/// The users whose requests a daemon accepts at its socket. It does not imply a privilege: a daemon that
/// serves all users need not be root.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Serves {
    /// All users of the host.
    Everyone,
    /// The user of the daemon, and root.
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
    /// The user of the daemon; None: the host's daemon.
    pub user: Option<String>,
    /// Whose requests it admits.
    pub serves: Serves,
    /// The user (uid) of the host's daemon besides root. Daemons of this machine take caches from it as from
    /// root's.
    pub host_uid: Option<u32>,
    /// The machine's own name, equal for all daemons on it.
    pub machine: String,
    /// Other daemons to begin with: NAME, HOST:PORT or NAME=HOST:PORT.
    pub peers: Vec<String>,
    /// Whether to look for other daemons on the local network (BEP 14).
    pub local_discovery: bool,
    /// Nodes of the site's own DHT (BEP 5) to begin with, HOST:PORT; None: no DHT.
    pub dht: Option<Vec<String>>,
    /// Hosts whose administrators may control this daemon; empty: all hosts of the site.
    pub admins: Vec<String>,
    /// Where else others are found, and this daemon is entered.
    pub catalogue: Option<CatalogueAt>,
    /// The trust file (docs/trust.md).
    pub trust: Option<PathBuf>,
    /// This node's certificate and key, from which its card is made.
    pub certificate: Option<PathBuf>,
    /// The limits of the store.
    pub depot: tidecast_depot::Config,
    /// How it takes caches, preferred first.
    pub methods: Vec<Method>,
    /// Its requirements of caches (ClassAd).
    pub requirements: Option<String>,
    /// Owners whose caches are accepted; empty: all.
    pub owners: Vec<String>,
    /// Caches that are fetched at once.
    pub transfers: usize,
    /// ... of them from one and the same host.
    pub per_source: usize,
    /// Limits while no job uses a cache.
    pub caps: Caps,
    /// The share of that while one does.
    pub busy: f64,
    /// The daemon ends after this time without a request or a transfer.
    pub idle: Option<Duration>,
    /// How the daemon is confined to its files: for its status.
    pub confined: String,
    /// Features that are disabled because its user lacks privileges.
    pub without: Vec<String>,
    /// Bytes of blocks in memory; of everything, where it has a cgroup.
    pub memory: u64,
}

/// Where the site's catalogue is: `condor`, `etcd://HOST:PORT[,HOST:PORT..]` or `file:/PATH`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CatalogueAt {
    /// The collector that the HTCondor of this host is configured for.
    Condor,
    /// An etcd cluster, its members in the order in which they are tried.
    Etcd(Vec<String>),
    /// A file with a daemon a line, as `--peer` names them.
    File(PathBuf),
}

impl FromStr for CatalogueAt {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "condor" {
            return Ok(Self::Condor);
        }
        if let Some(path) = text.strip_prefix("file:").filter(|path| path.starts_with('/')) {
            return Ok(Self::File(path.into()));
        }
        let hosts: Vec<String> =
            text.strip_prefix("etcd://").unwrap_or("").split(',').map(str::to_owned).collect();
        let has_port = |host: &String| {
            host.rsplit_once(':').is_some_and(|(name, port)| !name.is_empty() && port.parse::<u16>().is_ok())
        };
        if hosts.iter().all(has_port) {
            return Ok(Self::Etcd(hosts));
        }
        Err(format!("{text:?} is not a catalogue; write condor, etcd://HOST:PORT or file:/PATH"))
    }
}

impl fmt::Display for CatalogueAt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Condor => f.write_str("condor"),
            Self::Etcd(hosts) => write!(f, "etcd://{}", hosts.join(",")),
            Self::File(path) => write!(f, "file:{}", path.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_catalogue_is_named_as_it_prints() {
        for good in ["condor", "file:/etc/peers", "etcd://10.0.0.1:2379", "etcd://a:1,[::1]:2"] {
            assert_eq!(good.parse::<CatalogueAt>().unwrap().to_string(), good);
        }
        for bad in ["", "etcd", "etcd://", "etcd://a", "etcd://a:1,", "etcd://:1", "file:peers", "http://a:1"]
        {
            assert!(bad.parse::<CatalogueAt>().is_err(), "{bad}");
        }
    }
}
