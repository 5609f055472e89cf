//! Finds peers for one swarm: trackers, local discovery, the DHT, and peers named by the user.
//!
//! Promise: a private manifest (BEP 27) uses trackers and named peers only.

use std::net::SocketAddr;
use std::time::Duration;

use tidecast_discovery::announcer::{Announcer, Config, Progress, Trackers};
use tidecast_discovery::dht::Dht;
use tidecast_discovery::lsd::Lsd;
use tidecast_discovery::{DiscoveredPeers, peers, tracker};
use tidecast_event::Error;
use tidecast_metainfo::Manifest;
use tidecast_net::Network;
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout_at};

use crate::messages::MessageSender;
use crate::settings::SwarmSettings;

/// Found peers in the queue.
const QUEUE: usize = 64;
/// The first peer is waited for this long, and then others this long.
const FIRST: Duration = Duration::from_secs(3);
const OTHERS: Duration = Duration::from_millis(200);
/// How long a name that the user gave may take to resolve.
const RESOLVE: Duration = Duration::from_secs(10);
/// A slow name resolution is reported after this time.
const UNANSWERED: Duration = Duration::from_secs(3);

/// The swarm to find peers for, and the sources.
pub struct Wanted {
    /// The swarm's 20-byte names.
    pub hashes: Vec<[u8; 20]>,
    /// Trackers to announce to.
    pub trackers: Trackers,
    /// How this node calls itself.
    pub peer_id: [u8; 20],
    /// Where we listen.
    pub port: u16,
    /// Bytes that are missing here; any number but 0 if it is not known yet.
    pub left: u64,
    /// Only trackers may be asked.
    pub private: bool,
    /// Look on the local network.
    pub lsd: bool,
    /// Ask the DHT.
    pub dht: bool,
    /// The network that the user chose.
    pub network: Option<Network>,
}

impl Wanted {
    /// The peers of a manifest.
    #[must_use]
    pub fn of(
        manifest: &Manifest,
        settings: &SwarmSettings,
        peer_id: [u8; 20],
        port: u16,
        left: u64,
    ) -> Self {
        Self {
            hashes: manifest.swarm_hashes(),
            trackers: settings.all_trackers(manifest.trackers()),
            peer_id,
            port,
            left,
            private: manifest.private(),
            lsd: settings.lsd,
            dht: settings.dht,
            network: settings.network.clone(),
        }
    }

    /// Whether there is any way to find them.
    fn has_a_way(&self) -> bool {
        !self.trackers.is_empty() || !self.private && (self.lsd || self.dht)
    }
}

/// The running searches. Dropping it ends them without a message to the trackers.
pub struct Finders {
    announcer: Option<Announcer>,
    _lsd: Option<Lsd>,
    _dht: Option<Dht>,
}

impl Finders {
    /// Starts searching. A source that cannot be started is reported and left out.
    pub async fn start(
        wanted: Wanted,
        messages: &MessageSender<'_>,
    ) -> (Self, mpsc::Receiver<DiscoveredPeers>) {
        let (found, finds) = mpsc::channel(QUEUE);
        let Wanted { hashes, trackers, peer_id, port, left, private, lsd, dht, network } = wanted;
        let lsd =
            if lsd && !private { start_lsd(&hashes, port, network.as_ref(), found.clone()) } else { None };
        let dht = if dht && private {
            messages.warning("ignoring --dht: a private manifest is not announced in the DHT");
            None
        } else if dht {
            start_dht(&hashes, port, found.clone(), messages).await
        } else {
            None
        };
        let announcer = (!trackers.is_empty()).then(|| {
            let progress = Progress { left, ..Progress::default() };
            let options =
                tracker::Options { bind: local_ips(network.as_ref()), ..tracker::Options::default() };
            Announcer::start(
                Config { trackers, hashes, peer_id, port, progress, numwant: None, options },
                found,
            )
        });
        (Self { announcer, _lsd: lsd, _dht: dht }, finds)
    }

    /// Starts the search for peers before the swarm of a manifest begins, and waits up to 3 s for the first of
    /// them, which can compare an older version here with the data. None if there is no tracker, local discovery or
    /// DHT, or the port to announce is not known yet.
    pub async fn ahead(
        manifest: &Manifest,
        settings: &SwarmSettings,
        messages: &MessageSender<'_>,
    ) -> Option<((Self, mpsc::Receiver<DiscoveredPeers>), Vec<SocketAddr>)> {
        let port = settings.listen.port();
        let left = manifest.total_len().max(1);
        let wanted = Wanted::of(manifest, settings, peer_id(), port, left);
        if port == 0 || !wanted.has_a_way() {
            return None;
        }
        let (finders, mut finds) = Self::start(wanted, messages).await;
        let (mut peers, mut until) = (Vec::new(), Instant::now() + FIRST);
        while let Ok(Some(found)) = timeout_at(until, finds.recv()).await {
            peers.extend(found.peers);
            until = until.min(Instant::now() + OTHERS);
        }
        Some(((finders, finds), peers))
    }

    /// Reports the progress of the download to the trackers.
    pub fn progress(&self, downloaded: u64, uploaded: u64, left: u64) {
        if let Some(announcer) = &self.announcer {
            announcer.progress(Progress { uploaded, downloaded, left });
        }
    }

    /// Trackers that do not answer, and why.
    pub fn troubles(&self) -> Vec<String> {
        let Some(announcer) = &self.announcer else { return Vec::new() };
        let mut all: Vec<String> = announcer
            .status()
            .into_iter()
            .filter_map(|s| Some(format!("tracker {}: {}", s.url, s.error.or(s.warning)?)))
            .collect();
        all.dedup();
        all
    }

    /// Sends the trackers a goodbye, within two seconds.
    pub async fn stop(self) {
        if let Some(announcer) = self.announcer {
            announcer.stop().await;
        }
    }
}

/// How we call ourselves to trackers before the swarm has begun (BEP 20).
pub(crate) fn peer_id() -> [u8; 20] {
    let mut id = *b"-TC0100-000000000000";
    if let Some(tail) = id.last_chunk_mut::<12>() {
        rand::fill(tail);
    }
    id
}

fn start_lsd(
    hashes: &[[u8; 20]],
    port: u16,
    network: Option<&Network>,
    found: mpsc::Sender<DiscoveredPeers>,
) -> Option<Lsd> {
    let interfaces = match network {
        Some(Network::Interface(name)) => vec![name.clone()],
        _ => Vec::new(),
    };
    let options = tidecast_discovery::lsd::Options { interfaces, ..Default::default() };
    match Lsd::start(&options, found) {
        Ok(lsd) => {
            hashes.iter().for_each(|hash| lsd.add(*hash, port));
            Some(lsd)
        }
        // The user did not ask for it: only logged.
        Err(error) => {
            tracing::info!(%error, "local discovery is unavailable");
            None
        }
    }
}

async fn start_dht(
    hashes: &[[u8; 20]],
    port: u16,
    found: mpsc::Sender<DiscoveredPeers>,
    messages: &MessageSender<'_>,
) -> Option<Dht> {
    match Dht::start(Default::default(), found).await {
        Ok(mut dht) => {
            hashes.iter().for_each(|hash| dht.add(*hash, port));
            Some(dht)
        }
        Err(error) => {
            messages.warning(format!("no DHT: {error}"));
            None
        }
    }
}

/// One address a family on the chosen network; none if any will do.
fn local_ips(network: Option<&Network>) -> Vec<std::net::IpAddr> {
    let Some(network) = network else { return Vec::new() };
    let all = tidecast_net::local_addresses().unwrap_or_default();
    let on = |v4: bool| all.iter().find(|a| a.ip.is_ipv4() == v4 && network.holds(a)).map(|a| a.ip);
    [on(true), on(false)].into_iter().flatten().collect()
}

/// The peers named by the user, each with its addresses. One that does not resolve is reported and left out.
///
/// # Errors
/// A malformed one is a usage error.
pub async fn named(peers: &[String], messages: &MessageSender<'_>) -> Result<Vec<Vec<SocketAddr>>, Error> {
    let mut all = Vec::new();
    for text in peers {
        peers::parse(text).map_err(|error| Error::usage(error).context("--peer"))?;
        let resolving = peers::resolve(text, RESOLVE);
        let mut resolving = std::pin::pin!(resolving);
        let resolved = match tokio::time::timeout(UNANSWERED, &mut resolving).await {
            Ok(resolved) => resolved,
            Err(_) => {
                let seconds = UNANSWERED.as_secs();
                messages.unanswered(text, &format!("its name was not resolved within {seconds} s"));
                resolving.await
            }
        };
        match resolved {
            Ok(addresses) => all.push(addresses),
            Err(error) => messages.unanswered(text, &format!("left out: {error}")),
        }
    }
    Ok(all)
}
