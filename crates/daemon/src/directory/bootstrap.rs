//! Finds first members to connect to: those of the configuration and of a catalogue, those known before the
//! restart, and daemons that announce themselves on the local network (BEP 14) or in the site's own DHT (BEP
//! 5). Once one is reached, gossip finds the others.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tidecast_discovery::{DiscoveredPeers, dht, lsd};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::catalogue;
use super::membership::Membership;
use crate::config::Config;
use crate::links::peers::Links;

/// Alone, it calls all seeds this often at first; then less and less often.
const ALONE: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));
/// When members are connected, unreachable bootstrap addresses are retried this often: by them a split
/// membership merges again.
const IN_COMPANY: Duration = Duration::from_secs(60);
/// Addresses remembered, and taken from discovery.
const MOST: usize = 256;
/// Seeds called at once.
const CALLS: usize = 16;

/// Configuration of the search.
pub(crate) struct Bootstrap {
    pub(crate) config: Arc<Config>,
    pub(crate) links: Arc<Links>,
    pub(crate) membership: Arc<Membership>,
    pub(crate) found: Arc<catalogue::known_peers::KnownPeers>,
}

/// Until the task is ended.
pub(crate) async fn keep(boot: Bootstrap) {
    let path = boot.config.dir.join("members");
    let mut before = read(&path);
    let (tell, mut found) = mpsc::channel(64);
    let _discovery = discover(&boot, tell).await;
    let mut changes = boot.membership.changes();
    let mut wait = ALONE.0;
    let mut next = Instant::now();
    loop {
        if Instant::now() >= next {
            call(&boot, &before).await;
            let alone = boot.membership.alive().is_empty();
            wait = if alone { (wait * 2).min(ALONE.1) } else { IN_COMPANY };
            next = Instant::now() + wait;
        }
        tokio::select! {
            () = tokio::time::sleep_until(next) => {}
            () = boot.found.changed.notified() => next = Instant::now(),
            Some(DiscoveredPeers { peers, .. }) = found.recv() => {
                let known: BTreeSet<SocketAddr> = boot.membership.alive().into_values().flatten().collect();
                let new: Vec<_> = peers.into_iter().filter(|peer| !known.contains(peer)).take(CALLS).collect();
                dial_all(&boot.links, new).await;
            }
            Ok(()) = changes.changed() => {
                let alive: BTreeSet<SocketAddr> = boot.membership.alive().into_values().flatten().collect();
                if alive.is_empty() {
                    (wait, next) = (ALONE.0, Instant::now() + ALONE.0);
                } else {
                    before = remember(&path, alive, &before);
                    // Several come and go at once: written once.
                    tokio::time::sleep(Duration::from_secs(1)).await;
                }
            }
        }
    }
}

/// Connects to addresses that are not members yet.
async fn call(boot: &Bootstrap, before: &BTreeSet<SocketAddr>) {
    let alive: BTreeSet<SocketAddr> = boot.membership.alive().into_values().flatten().collect();
    let mut places = Vec::new();
    let found = boot.found.some(None, &boot.config.name);
    for peer in boot.config.peers.iter().chain(&found) {
        let (name, place) = peer.split_once('=').unwrap_or(("", peer));
        if name != boot.config.name {
            places.extend(crate::directory::configured_peers::resolve(place).await);
        }
    }
    if alive.is_empty() {
        places.extend(before);
    }
    let own = boot.links.hello().addresses;
    places.retain(|place| !alive.contains(place) && !own.contains(place));
    dial_all(&boot.links, places).await;
}

async fn dial_all(links: &Arc<Links>, places: Vec<SocketAddr>) {
    let mut calls = JoinSet::new();
    for place in places {
        if calls.len() >= CALLS {
            calls.join_next().await;
        }
        let links = links.clone();
        calls.spawn(async move {
            if let Err(error) = links.at(&[place]).await {
                tracing::debug!(%place, %error, "cannot reach a bootstrap address");
            }
        });
    }
    while calls.join_next().await.is_some() {}
}

fn read(path: &Path) -> BTreeSet<SocketAddr> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.lines().filter_map(|line| line.parse().ok()).take(MOST).collect()
}

/// Saves the addresses of the running members, and of earlier ones up to the limit.
fn remember(path: &Path, alive: BTreeSet<SocketAddr>, before: &BTreeSet<SocketAddr>) -> BTreeSet<SocketAddr> {
    let mut all: BTreeSet<SocketAddr> = alive.into_iter().take(MOST).collect();
    let room = MOST - all.len();
    all.extend(before.iter().take(room));
    if all != *before {
        let text: String = all.iter().map(|addr| format!("{addr}\n")).collect();
        let new: PathBuf = path.with_extension("new");
        // Without the file only the next start takes a little longer.
        if let Err(error) = std::fs::write(&new, text).and_then(|()| std::fs::rename(&new, path)) {
            tracing::warn!(%error, "cannot save the list of members");
        }
    }
    all
}

/// Running discovery; it ends when this is dropped.
struct Discovery {
    _local: Option<lsd::Lsd>,
    _dht: Option<dht::Dht>,
}

/// Announces this daemon under a name that only daemons of its site search for.
async fn discover(boot: &Bootstrap, found: mpsc::Sender<DiscoveredPeers>) -> Discovery {
    let addresses = boot.links.hello().addresses;
    let reachable = addresses.iter().find(|addr| !addr.ip().is_loopback());
    let site: Vec<[u8; 20]> = boot.links.trust().roots().iter().map(name_of).collect();
    let port = addresses.first().map(SocketAddr::port);
    let local = (reachable.is_some() && boot.config.local_discovery && !site.is_empty())
        .then(|| lsd::Lsd::start(&lsd::Options::default(), found.clone()));
    let local = local.and_then(|started| {
        started.inspect_err(|error| tracing::info!(%error, "local discovery is unavailable")).ok()
    });
    let dht = match &boot.config.dht {
        Some(nodes) if !site.is_empty() => {
            let bind = boot.config.listen.and_then(|listen| match listen.ip() {
                IpAddr::V4(ip) if !ip.is_unspecified() => Some(ip),
                _ => None,
            });
            let options = dht::Options { bind, port, bootstrap: Some(nodes.clone()), server: true };
            let started = dht::Dht::start(options, found).await;
            started.inspect_err(|error| tracing::error!(%error, "the DHT is unavailable")).ok()
        }
        _ => None,
    };
    let mut discovery = Discovery { _local: local, _dht: dht };
    for (hash, port) in site.into_iter().zip(port.into_iter().cycle()) {
        if let Some(local) = &discovery._local {
            local.add(hash, port);
        }
        if let Some(dht) = &mut discovery._dht {
            dht.add(hash, port);
        }
    }
    discovery
}

fn name_of(root: &[u8; 32]) -> [u8; 20] {
    let sum = tidecast_hash::sha256(&[b"tidecast daemons\0".as_slice(), root].concat());
    sum.first_chunk().copied().unwrap_or_default()
}
