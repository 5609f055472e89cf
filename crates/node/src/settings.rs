//! Options that hold for a process: the port is reserved, the limits are made.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, UdpSocket};
use std::sync::Arc;

use tidecast_discovery::TrackerUrl;
use tidecast_discovery::announcer::Trackers;
use tidecast_event::Error;
use tidecast_net::{Caps, Network, Port, Throttle};
use tidecast_swarm::Policy as EnginePolicy;

use crate::options::{Policy, SslFiles, SwarmOptions};

/// The ports that are tried when none is named.
const PORTS: std::ops::Range<u16> = 6881..6890;

/// See the head of the file.
pub struct SwarmSettings {
    /// Where to listen.
    pub listen: SocketAddr,
    /// Keeps the port from other processes of Tidecast until this one ends.
    _reserved: Option<UdpSocket>,
    /// The network to use.
    pub network: Option<Network>,
    /// Trackers besides those of a manifest.
    pub trackers: Vec<String>,
    /// Peers to connect to.
    pub peers: Vec<String>,
    /// Open, unencrypted BitTorrent is meant.
    pub plain: bool,
    /// BitTorrent's mechanisms.
    pub policy: EnginePolicy,
    /// Rate of the link, bits per second.
    pub link_rate: Option<u64>,
    /// The port of several swarms; none: `listen` is one's own.
    pub port: Option<Arc<Port>>,
    /// Enforces the limits of this process, if it has any.
    pub throttle: Option<Arc<Throttle>>,
    /// Ask the DHT.
    pub dht: bool,
    /// Look on the local network.
    pub lsd: bool,
    /// Fetch from web seeds.
    pub web_seeds: bool,
    /// The certificate for an SSL torrent of another publisher.
    pub ssl: Option<SslFiles>,
}

impl SwarmSettings {
    /// From these options.
    ///
    /// # Errors
    /// Usage errors: a tracker that is not a URL, a limit of zero.
    pub fn new(options: &SwarmOptions) -> Result<Self, Error> {
        check_trackers(&options.trackers)?;
        let throttle = throttle(options.upload_limit, options.download_limit)?;
        let (listen, reserved) = free_port(options.listen);
        Ok(Self {
            listen,
            _reserved: reserved,
            network: options.net.clone(),
            trackers: options.trackers.clone(),
            peers: options.peers.clone(),
            plain: options.plain,
            policy: match options.policy {
                Policy::Tidecast => EnginePolicy::TIDECAST,
                Policy::Classic => EnginePolicy::CLASSIC,
            },
            link_rate: options.link_rate,
            port: None,
            throttle,
            dht: options.dht,
            lsd: options.lsd,
            web_seeds: options.web_seeds,
            ssl: options.ssl.clone(),
        })
    }

    /// Trackers of the manifest and of the options.
    #[must_use]
    pub fn all_trackers(&self, manifest: &[Vec<String>]) -> Trackers {
        Trackers { named: self.trackers.clone(), tiers: manifest.to_vec() }
    }
}

/// Whether these are URLs of trackers.
///
/// # Errors
/// A usage error names the first that is not.
pub fn check_trackers(urls: &[String]) -> Result<(), Error> {
    urls.iter().try_for_each(|url| TrackerUrl::parse(url).map(drop)).map_err(Error::usage)
}

/// The limits of this process, if there are any.
fn throttle(upload: Option<u64>, download: Option<u64>) -> Result<Option<Arc<Throttle>>, Error> {
    let none = |limit: Option<u64>, flag: &str| match limit {
        Some(0) => Err(Error::usage(format!("{flag} must be at least 1 byte/s; omit it for no limit"))),
        _ => Ok(()),
    };
    none(upload, "--upload-limit")?;
    none(download, "--download-limit")?;
    let limited = upload.is_some() || download.is_some();
    let caps = Caps { upload, download, ..Caps::default() };
    Ok(limited.then(|| Arc::new(Throttle::new(caps, None))))
}

/// The listening address: the given one, else the first free of the usual ports, else any. Several processes that
/// start at once on one host must not choose the same port: each reserves it by the UDP port of that number, which
/// nothing else uses.
fn free_port(at: SocketAddr) -> (SocketAddr, Option<UdpSocket>) {
    let every = std::net::IpAddr::from(Ipv6Addr::UNSPECIFIED);
    let any = match at.ip() {
        ip if ip != every => ip,
        every if TcpListener::bind((every, 0)).is_ok() => every,
        _ => Ipv4Addr::UNSPECIFIED.into(),
    };
    if at.port() != 0 {
        return (SocketAddr::new(any, at.port()), None);
    }
    let free = |port: u16| {
        let reserved = UdpSocket::bind((any, port)).ok()?;
        let port = reserved.local_addr().ok()?.port();
        TcpListener::bind((any, port)).ok()?;
        Some((SocketAddr::new(any, port), Some(reserved)))
    };
    PORTS.chain([0; 8]).find_map(free).unwrap_or((SocketAddr::new(any, 0), None))
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn processes_that_start_at_once_get_ports_of_their_own() {
        let here = |port| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let all: Vec<_> = (0..12).map(|_| free_port(here(0))).collect();
        let ports: HashSet<u16> = all.iter().map(|(addr, _)| addr.port()).collect();
        assert_eq!(ports.len(), all.len(), "{ports:?}");
        let (told, reserved) = free_port(here(7));
        assert!(told.port() == 7 && reserved.is_none(), "what the user says is taken as said");
    }
}
