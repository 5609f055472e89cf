//! How a node takes part in swarms.

use std::net::SocketAddr;
use std::path::PathBuf;

use tidecast_net::Network;

/// How the engine behaves.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Policy {
    /// The fastest algorithms within a cluster.
    #[default]
    Tidecast,
    /// BitTorrent's choking, anti-snub, super-seeding and endgame.
    Classic,
}

/// A certificate for an SSL torrent of another publisher.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SslFiles {
    /// The certificate (PEM).
    pub cert: PathBuf,
    /// Its private key (PEM).
    pub key: PathBuf,
}

/// How a node takes part in a swarm. The default is right for a node of a cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SwarmOptions {
    /// Where to listen. Port 0 is the first free one of 6881 to 6889, else any; `[::]` is every address, of IPv4 too. Default:
    /// `[::]:0`.
    pub listen: SocketAddr,
    /// The network to use: an interface or a CIDR. Default: the fastest that both ends share.
    pub net: Option<Network>,
    /// Peers to connect to, `HOST:PORT`.
    pub peers: Vec<String>,
    /// URLs of trackers to announce to, besides those of the manifest.
    pub trackers: Vec<String>,
    /// The most that is sent to all peers together, bytes per second.
    pub upload_limit: Option<u64>,
    /// The most that is received from all peers together, bytes per second.
    pub download_limit: Option<u64>,
    /// How the engine behaves.
    pub policy: Policy,
    /// Find peers through the public DHT too; never for private manifests.
    pub dht: bool,
    /// Find peers on the local network by multicast. Default: yes.
    pub lsd: bool,
    /// Fetch from the web seeds too that a manifest or magnet link names. Default: yes.
    pub web_seeds: bool,
    /// Open, unencrypted BitTorrent is meant.
    pub plain: bool,
    /// Rate of this node's link in bits per second, for the efficiency in the result. Default: as reported by
    /// drivers.
    pub link_rate: Option<u64>,
    /// For an SSL torrent of another publisher: the certificate that it issued.
    pub ssl: Option<SslFiles>,
}

impl Default for SwarmOptions {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([0u16; 8], 0)),
            net: None,
            peers: Vec::new(),
            trackers: Vec::new(),
            upload_limit: None,
            download_limit: None,
            policy: Policy::Tidecast,
            dht: false,
            lsd: true,
            web_seeds: true,
            plain: false,
            link_rate: None,
            ssl: None,
        }
    }
}

impl SwarmOptions {
    /// Options for processes of one host: this node listens at the loopback address only, and looks for no one by
    /// multicast.
    #[must_use]
    pub fn loopback() -> Self {
        Self { listen: SocketAddr::from(([127, 0, 0, 1], 0)), lsd: false, ..Self::default() }
    }
}
