//! Running swarms: one for each manifest that is transferred now, all behind one listening port. A cache
//! without transfers costs nothing: its swarm starts when a peer asks for it, and ends when it has had no
//! peer for a while.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Mutex, RwLock};
use tidecast_identity::{NodeId, Tls};
use tidecast_metainfo::Manifest;
use tidecast_net::{Group, Known, PeerReport, Progress, Security, SharedPort, Swarm, SwarmOptions, Throttle};
use tidecast_paths::Root;
use tidecast_store::{DownloadOptions, Opened, SeedOptions, Select, Store};
use tokio::sync::watch;
use tokio::time::Instant;

/// A swarm without peers lives this long.
const IDLE: Duration = Duration::from_secs(60);
/// A peer that was let in may come (again) for this long.
const ADMITTED: Duration = Duration::from_secs(6 * 3600);

/// A peer that was admitted announces its pieces within this time.
const LATELY: Duration = Duration::from_secs(20);

/// Admissions after which expired ones are removed.
const MOST: usize = 65_536;

/// A manifest's v2 hash names its swarm.
pub(crate) type SwarmId = [u8; 32];

/// Why a swarm does not run.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SwarmError {
    #[error(transparent)]
    Store(#[from] tidecast_store::Error),
    #[error(transparent)]
    Net(#[from] tidecast_net::Error),
    #[error(transparent)]
    Depot(#[from] tidecast_depot::Error),
    #[error("the manifest has no v2 hashes")]
    NoV2,
    #[error("the cache is being fetched already")]
    Fetching,
    #[error("a thread of the daemon failed")]
    Thread,
}

/// The nodes admitted to each swarm, with their expiry: also for swarms that do not run.
#[derive(Clone, Default)]
struct Admitted(Arc<RwLock<HashMap<(SwarmId, NodeId), Instant>>>);

impl Admitted {
    fn let_in(&self, id: SwarmId, node: NodeId) {
        let mut nodes = self.0.write();
        let now = Instant::now();
        if nodes.len() >= MOST {
            nodes.retain(|_, until| *until > now);
        }
        nodes.insert((id, node), now + ADMITTED);
    }

    fn admits(&self, id: SwarmId, node: NodeId) -> bool {
        self.0.read().get(&(id, node)).is_some_and(|until| *until > Instant::now())
    }
}

struct Running {
    swarm: Swarm,
    /// When it had a peer last, or was asked for.
    used: Instant,
    /// It has nothing to fetch any more: it may end when it is idle.
    seeds: bool,
}

/// All that run.
pub(crate) struct Swarms {
    tls: Tls,
    shared_port: Arc<SharedPort>,
    throttle: Arc<Throttle>,
    running: Mutex<HashMap<SwarmId, Running>>,
    admitted: Admitted,
    /// Bytes sent and received by swarms that have ended.
    past: Mutex<(u64, u64)>,
}

/// A download in progress.
pub(crate) struct Fetching {
    /// How far it is.
    pub(crate) progress: watch::Receiver<Progress>,
    finder: tidecast_net::Finder,
}

impl Fetching {
    /// Joins the plan of the node that it comes from, if that makes one.
    pub(crate) async fn follow(&self, node: NodeId) {
        self.finder.follow(node).await;
    }

    /// Another node that has (some of) it and admits this one; it must be admitted too.
    pub(crate) async fn add(&self, addresses: Vec<SocketAddr>) {
        self.finder.call(addresses).await;
    }
}

impl Swarms {
    pub(crate) fn new(tls: Tls, shared_port: Arc<SharedPort>, throttle: Arc<Throttle>) -> Self {
        Self {
            tls,
            shared_port,
            throttle,
            running: Mutex::default(),
            admitted: Admitted::default(),
            past: Mutex::default(),
        }
    }

    /// Lets `node` into a swarm, from now on.
    pub(crate) fn admit(&self, id: SwarmId, node: NodeId) {
        self.admitted.let_in(id, node);
        if let Some(running) = self.running.lock().get_mut(&id) {
            running.used = Instant::now();
        }
    }

    /// Connects to a node in a swarm that runs; it must be admitted too.
    pub(crate) async fn call(&self, id: &SwarmId, addr: SocketAddr) {
        let finder = self.running.lock().get(id).map(|running| running.swarm.finder());
        if let Some(finder) = finder {
            finder.call(vec![addr]).await;
        }
    }

    /// Removes nodes that are no longer trusted from all swarms. Must be called regularly.
    pub(crate) fn expel(&self, distrusted: &[NodeId]) {
        if distrusted.is_empty() {
            return;
        }
        self.admitted.0.write().retain(|(_, node), _| !distrusted.contains(node));
        self.running.lock().values().for_each(|running| running.swarm.recheck());
    }

    /// Whether it runs.
    pub(crate) fn runs(&self, id: &SwarmId) -> bool {
        self.running.lock().contains_key(id)
    }

    /// Serves the data beneath `root` at `home`, all of it verified before; does nothing if the swarm already
    /// runs. Blocks on the disk.
    pub(crate) fn seed(
        &self,
        manifest: &Arc<Manifest>,
        (root, home): (Root, &Path),
        memory: &Path,
    ) -> Result<(), SwarmError> {
        let id = manifest.hash_v2().ok_or(SwarmError::NoV2)?;
        if self.runs(&id) {
            return Ok(());
        }
        let options = SeedOptions { state: Some(memory.to_owned()) };
        let opened = Store::seed_beneath(root, home, manifest.clone(), &options)?;
        match self.start(id, opened, true, Group::Whole) {
            // Another task was faster.
            Err(SwarmError::Fetching) => Ok(()),
            other => other,
        }
    }

    /// Fetches into a directory, continuing an earlier attempt.
    pub(crate) fn fetch(
        &self,
        manifest: &Arc<Manifest>,
        dir: Root,
        options: &DownloadOptions,
    ) -> Result<(SwarmId, Fetching), SwarmError> {
        let id = manifest.hash_v2().ok_or(SwarmError::NoV2)?;
        if self.running.lock().contains_key(&id) {
            return Err(SwarmError::Fetching);
        }
        let opened = Store::download_beneath(dir, manifest.clone(), options)?;
        // A plan pushes whole caches, not parts.
        let group = if matches!(options.select, Select::All) { Group::Whole } else { Group::None };
        self.start(id, opened, false, group)?;
        let running = self.running.lock();
        let swarm = &running.get(&id).ok_or(SwarmError::Thread)?.swarm;
        Ok((id, Fetching { progress: swarm.progress(), finder: swarm.finder() }))
    }

    fn start(&self, id: SwarmId, opened: Opened, seed_only: bool, group: Group) -> Result<(), SwarmError> {
        let gate = self.admitted.clone();
        let admits = Box::new(move |node| gate.admits(id, node));
        let gate = self.admitted.clone();
        let named = Box::new(move |node| gate.let_in(id, node));
        let mut running = self.running.lock();
        if running.contains_key(&id) {
            return Err(SwarmError::Fetching);
        }
        let swarm = Swarm::start(SwarmOptions {
            opened,
            listen: Vec::new(),
            listeners: Vec::new(),
            shared_port: Some(self.shared_port.clone()),
            port: None,
            network: None,
            security: Security::Known(Known { tls: self.tls.clone(), admits, named }),
            policy: tidecast_swarm::Policy::default(),
            seed_only,
            on_demand: None,
            group,
            planned: false,
            roots: None,
            web_seeds: false,
            throttle: Some(self.throttle.clone()),
        })?;
        running.insert(id, Running { swarm, used: Instant::now(), seeds: seed_only });
        Ok(())
    }

    /// All of a download is there and verified: gives it its names, and lets it serve on. Blocks on the disk.
    pub(crate) fn finish(&self, id: &SwarmId) -> Result<tidecast_store::Summary, SwarmError> {
        let finisher = {
            let mut running = self.running.lock();
            let swarm = running.get_mut(id).ok_or(SwarmError::Thread)?;
            swarm.seeds = true;
            swarm.used = Instant::now();
            swarm.swarm.finisher()
        };
        Ok(finisher()?)
    }

    /// How far a swarm is, if it runs.
    pub(crate) fn progress(&self, id: &SwarmId) -> Option<watch::Receiver<Progress>> {
        self.running.lock().get(id).map(|running| running.swarm.progress())
    }

    /// The bytes that a running swarm has exchanged with each peer so far.
    pub(crate) async fn peers(&self, id: &SwarmId) -> Vec<PeerReport> {
        let Some(demand) = self.running.lock().get(id).map(|running| running.swarm.demand()) else {
            return Vec::new();
        };
        let asked = tokio::task::spawn_blocking(move || demand.peers()).await;
        asked.ok().and_then(Result::ok).unwrap_or_default()
    }

    /// Ends one swarm, if it runs; its summary.
    pub(crate) async fn stop(&self, id: &SwarmId) -> Option<tidecast_net::Summary> {
        let running = self.running.lock().remove(id)?;
        match running.swarm.stop().await {
            Ok(summary) => {
                let mut past = self.past.lock();
                past.0 += summary.progress.sent_bytes;
                past.1 += summary.progress.received_bytes;
                Some(summary)
            }
            Err(error) => {
                tracing::warn!(%error, "a swarm ended with an error");
                None
            }
        }
    }

    /// Whether it runs, and has nothing to fetch.
    pub(crate) fn only_seeds(&self, id: &SwarmId) -> bool {
        self.running.lock().get(id).is_some_and(|running| running.seeds)
    }

    /// Whether `node` was let into this swarm.
    pub(crate) fn admits(&self, id: &SwarmId, node: NodeId) -> bool {
        self.admitted.admits(*id, node)
    }

    /// Recently admitted nodes: they may soon have the cache.
    pub(crate) fn admitted_nodes(&self, id: &SwarmId) -> Vec<NodeId> {
        let since = Instant::now() + ADMITTED - LATELY;
        let nodes = self.admitted.0.read();
        nodes
            .iter()
            .filter(|((of, _), until)| of == id && **until > since)
            .map(|((_, node), _)| *node)
            .collect()
    }

    /// Whether any swarm runs: idle ones have ended.
    pub(crate) fn any(&self) -> bool {
        !self.running.lock().is_empty()
    }

    /// Ends all.
    pub(crate) async fn stop_all(&self) {
        let all: Vec<SwarmId> = self.running.lock().keys().copied().collect();
        for id in &all {
            self.stop(id).await;
        }
    }

    /// Ends swarms without a peer for a while; which.
    pub(crate) async fn rest(&self) -> Vec<SwarmId> {
        let idle: Vec<SwarmId> = {
            let mut running = self.running.lock();
            for swarm in running.values_mut() {
                if swarm.swarm.progress().borrow().peers > 0 {
                    swarm.used = Instant::now();
                }
            }
            let idle = running.iter().filter(|(_, r)| r.seeds && r.used.elapsed() > IDLE);
            idle.map(|(id, _)| *id).collect()
        };
        for id in &idle {
            self.stop(id).await;
        }
        idle
    }

    /// Counts bytes that were sent and received for swarms, but not by them.
    pub(crate) fn count(&self, sent: u64, received: u64) {
        let mut past = self.past.lock();
        past.0 += sent;
        past.1 += received;
    }

    /// Bytes sent and received since the start.
    pub(crate) fn traffic(&self) -> (u64, u64) {
        let running = self.running.lock();
        let each = running.values().map(|r| {
            let progress = r.swarm.progress();
            let now = progress.borrow();
            (now.sent_bytes, now.received_bytes)
        });
        each.fold(*self.past.lock(), |sum, one| (sum.0 + one.0, sum.1 + one.1))
    }
}
