//! One swarm, from start to stop: the handle that programs hold.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::ops::Range;
use std::sync::atomic::AtomicU32;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use tidecast_hash::Digest;
use tidecast_identity::NodeId;
use tidecast_store::{Opened, Store};
use tidecast_swarm::plan::Role;
use tidecast_swarm::{Engine, Limits, Policy, Setup};
use tidecast_wire::ext::MAX_STRIPES;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinSet;

use crate::accept::{Port, chosen, on_network, open_all};
use crate::demand::Demand;
use crate::driver::{Driver, Start};
use crate::error::Error;
use crate::fingerprints::Fingerprints;
use crate::handshake::new_peer_id;
use crate::handshake_kinds::HandshakeKinds;
use crate::hashes::LayerCache;
use crate::iface::{Network, listening, local_addresses};
use crate::input::COMPLAINTS;
use crate::input::OnVerified;
use crate::input::{Input, NOTICES};
use crate::member::Group;
use crate::member::{Complained, Member};
use crate::pool::{BUFFER, Pool};
use crate::report::{Notice, Progress, Summary};
use crate::roots::{Roots, RootsKey};
use crate::security::Security;
use crate::settle::Settler;
use crate::shared::Shared;
use crate::shared_port::SharedPort;
use crate::throttle::Throttle;
use crate::web_seed::Seed;

/// Inputs in the driver's queue; senders of more wait.
const INBOX: usize = 4096;
/// Buffers: one that a slow peer may hold for each connection, and enough in flight besides.
const BUFFERS: usize = 256;
/// Bytes received and not yet on disk.
const UNSETTLED: u64 = 64 << 20;
/// Random peers of a node whose parents a plan names: only for the case that the plan fails.
const PLANNED_NEIGHBOURS: usize = 4;
/// Other peers besides those that such a plan names.
const WHOLE_NEIGHBOURS: usize = 8;
/// Copies, in percent, that the maker of a plan for joining nodes sends before members help one another.
const WHOLE_COPIES: u32 = 105;
/// Data is synced this often, or when this much is dirty.
const SYNC_EVERY: Duration = Duration::from_secs(1);
const SYNC_BYTES: u64 = 256 << 20;
/// Interval of checks of the sync and of revocations.
const LOOK: Duration = Duration::from_millis(200);

/// How to take part in a swarm.
pub struct SwarmOptions {
    /// The data on disk, as the store opened it.
    pub opened: Opened,
    /// Where to listen; empty for nowhere. Port 0 takes any free one.
    pub listen: Vec<SocketAddr>,
    /// Sockets that listen already, from [`listen`](crate::listen); used beside `listen`.
    pub listeners: Vec<std::net::TcpListener>,
    /// A port that takes connections for this swarm among others of known nodes.
    pub shared_port: Option<Arc<SharedPort>>,
    /// A port that takes connections for this swarm among others of any kind.
    pub port: Option<Arc<Port>>,
    /// The network to use; None for any.
    pub network: Option<Network>,
    /// How connections are protected and which nodes may join.
    pub security: Security,
    /// BitTorrent's mechanisms.
    pub policy: Policy,
    /// Nothing is to be fetched: the data is there.
    pub seed_only: bool,
    /// Only pieces requested by [`Swarm::demand`] are fetched; the callback for verified pieces.
    pub on_demand: Option<OnVerified>,
    /// The node's part in a plan for nodes that fetch on demand.
    pub group: Group,
    /// A plan will determine the connections ([`Swarm::plan`]): few other peers are dialled, and peers are not
    /// introduced to each other. The caller leaves discovery out.
    pub planned: bool,
    /// The manifest is a draft: the key that signs its roots.
    pub roots: Option<RootsKey>,
    /// Fetch from the manifest's web seeds too.
    pub web_seeds: bool,
    /// Limits of this node on its host, shared with its other swarms; None: no limit.
    pub throttle: Option<Arc<Throttle>>,
}

/// A running swarm.
pub struct Swarm {
    shared: Arc<Shared>,
    addrs: Vec<SocketAddr>,
    progress: watch::Receiver<Progress>,
    notices: Option<mpsc::Receiver<Notice>>,
    complaints: Option<mpsc::Receiver<Complained>>,
    tasks: JoinSet<()>,
}

impl Swarm {
    /// Opens the sockets and starts all threads and tasks, on the tokio runtime of the caller.
    ///
    /// # Errors
    /// The network does not exist, an address cannot be used, or threads cannot be started.
    pub fn start(options: SwarmOptions) -> Result<Swarm, Error> {
        let SwarmOptions { opened, listen, listeners, shared_port, port, network, security, policy, .. } =
            options;
        let SwarmOptions {
            seed_only, group, planned, roots, throttle, on_demand: verified, web_seeds, ..
        } = options;
        let planned = planned || matches!(group, Group::Join | Group::Whole);
        let on_demand = matches!(group, Group::Make | Group::Join);
        let policy = Policy { on_demand, stays: group == Group::Whole, ..policy };
        let Opened { store, have, to_check, hashed, wanted } = opened;
        let wanted = if verified.is_some() { Vec::new() } else { wanted };
        let store = Arc::new(store);
        let manifest = store.manifest().clone();
        let roots = roots.and_then(|key| Roots::new(&manifest, &key)).map(Arc::new);
        if roots.is_some() != manifest.is_draft() {
            return Err(Error::Draft("a draft needs the key that its roots are signed with"));
        }
        let sources = network.map_or(Ok(Vec::new()), |n| chosen(&n))?;
        let listeners = open_all(listeners, &on_network(&listen, &sources))?;
        let port = port.unwrap_or_default();
        let own = listeners.iter().filter_map(|l| l.local_addr().ok());
        let addrs: Vec<SocketAddr> = own.chain(port.addrs().iter().copied()).collect();
        let listening = listening(&addrs, &local_addresses().unwrap_or_default());
        let cpu = port.cpu.clone();
        let (inbox, queue) = mpsc::channel(INBOX);
        let runtime = tokio::runtime::Handle::current();
        let threads = runtime.metrics().num_workers();
        let handed = (roots.clone(), inbox.clone(), cpu.clone());
        let settler = Settler::start(manifest.clone(), store.clone(), handed.0, handed.1, handed.2, threads)
            .map_err(|source| Error::System { what: "start a thread", source })?;
        let unchecked: BTreeSet<u32> = to_check.iter().cloned().flatten().collect();
        let to_hash = minus(&to_check, &ranges_of(&hashed));
        settler.keep_found(hashed);
        have.iter().for_each(|r| settler.mark_verified(r.clone()));
        let limits = limits(planned, group);
        let shared_pool = throttle.as_ref().and_then(|throttle| throttle.pool().cloned());
        let shared = Arc::new(Shared {
            manifest: manifest.clone(),
            store,
            settler,
            roots,
            pool: shared_pool.unwrap_or_else(|| Pool::new(BUFFERS + limits.peers, BUFFER)),
            throttle,
            cpu,
            security,
            peer_id: new_peer_id(),
            listen_port: addrs
                .first()
                .map(SocketAddr::port)
                .or(shared_port.as_ref().map(|shared_port| shared_port.port())),
            sources,
            listening,
            inbox,
            runtime,
            next_peer: AtomicU32::new(0),
            start: Instant::now(),
            seed_only,
            group,
            divides: verified.is_none(),
            handshake_kinds: HandshakeKinds::default(),
            whole_manifest: OnceLock::new(),
            layers: LayerCache::default(),
            fingerprints: Fingerprints::default(),
        });
        let lengths: Arc<[u32]> = (0..manifest.piece_count()).map(|p| manifest.piece_len(p)).collect();
        let known = have.iter().filter(|_| verified.is_none()).cloned().flatten();
        let verified_bytes = known.map(|p| u64::from(manifest.piece_len(p))).sum();
        let want = minus(&minus(&wanted, &have), &to_check);
        let setup = Setup { lengths, have, want, policy, limits, seed: rand::random() };
        let lacking = !setup.want.is_empty() || !to_check.is_empty() || verified.is_some();
        let engine = Engine::new(setup, tidecast_swarm::Time(0)).map_err(|e| Error::Setup(e.to_string()))?;
        let (progress, watching) = watch::channel(Progress::default());
        let (notices, reading) = mpsc::channel(NOTICES);
        let (complaints, complained) = mpsc::channel(COMPLAINTS);
        let start = Start {
            engine,
            wanted: flags(&wanted, manifest.piece_count()),
            verified,
            unchecked,
            verified_bytes,
            progress,
            notices,
            complaints,
            group,
            planned,
        };
        if web_seeds && lacking && !seed_only {
            // The queue has space: nothing was sent yet.
            let seeds = manifest.web_seeds().iter().map(|url| Arc::new(Seed::new(url, &manifest)));
            seeds.for_each(|seed| drop(shared.inbox.try_send(Input::WebSeed(seed))));
        }
        spawn_driver(Driver::new(shared.clone(), start), queue)?;
        spawn_checks(&shared, to_hash)?;
        let mut tasks = JoinSet::new();
        if let Some(shared_port) = shared_port {
            shared_port.open_to(&shared);
        }
        port.serve(&shared);
        for listener in listeners {
            tasks.spawn(port.clone().run(listener));
        }
        tasks.spawn(keep(shared.clone()));
        Ok(Swarm {
            shared,
            addrs,
            progress: watching,
            notices: Some(reading),
            complaints: Some(complained),
            tasks,
        })
    }

    /// Where it listens.
    pub fn listen_addrs(&self) -> &[SocketAddr] {
        &self.addrs
    }

    /// This run's peer id (BEP 20).
    pub fn peer_id(&self) -> [u8; 20] {
        self.shared.peer_id
    }

    /// The data on disk.
    pub fn store(&self) -> &Arc<Store> {
        &self.shared.store
    }

    /// How connections are protected.
    pub fn security(&self) -> &Security {
        &self.shared.security
    }

    /// Takes part in a plan: `role` is this node's part, `members` are all members by their numbers,
    /// which stay the same from epoch to epoch. Our parents are dialled; connections that are up
    /// already count. An epoch older than the present one changes nothing.
    ///
    /// # Errors
    /// [`Error::Plan`] if the role names a stripe or a member that there cannot be; nothing is changed
    /// then. [`Error::Stopped`].
    pub async fn plan(&self, role: Role, members: Vec<Member>) -> Result<(), Error> {
        let is_member = |number: &u32| (*number as usize) < members.len();
        let edges = || role.stripes.iter().flat_map(|e| e.parent.iter().chain(&e.children));
        if role.stripes.len() > usize::from(MAX_STRIPES) {
            return Err(Error::Plan("too many stripes"));
        }
        if !role.sources.iter().chain([&role.member]).chain(edges()).all(is_member) {
            return Err(Error::Plan("a member number is out of range"));
        }
        let input = Input::Plan { role: Arc::new(role), members };
        self.shared.inbox.send(input).await.map_err(|_| Error::Stopped)
    }

    /// Complaints about other members of the plan, for its maker; can be taken once.
    pub fn complaints(&mut self) -> Option<mpsc::Receiver<Complained>> {
        self.complaints.take()
    }

    /// Adds one node by its addresses, tried in order. `told`: named by the user or a ticket.
    pub async fn add_peer(&self, addresses: Vec<SocketAddr>, told: bool) {
        let _ = self.shared.inbox.send(Input::Found { addresses, told }).await;
    }

    /// The admitted nodes have changed: nodes that are no longer admitted are disconnected.
    pub fn recheck(&self) {
        // A full inbox is that of a driver with much to do; it is asked again.
        let _ = self.shared.inbox.try_send(Input::Recheck);
    }

    /// A handle that adds peers, for the tasks that find them.
    pub fn finder(&self) -> Finder {
        Finder { inbox: self.shared.inbox.clone() }
    }

    /// A handle that asks for pieces, for a swarm that fetches them on demand.
    pub fn demand(&self) -> Demand {
        Demand { inbox: self.shared.inbox.clone(), settler: self.shared.settler.clone() }
    }

    /// The state as it changes, at most ten times a second.
    pub fn progress(&self) -> watch::Receiver<Progress> {
        self.progress.clone()
    }

    /// Notices for the user; can be taken once.
    pub fn notices(&mut self) -> Option<mpsc::Receiver<Notice>> {
        self.notices.take()
    }

    /// Waits until every wanted piece is verified and nothing is left to check.
    ///
    /// # Errors
    /// [`Error::Stopped`] if the swarm ended before.
    pub async fn complete(&self) -> Result<(), Error> {
        let mut progress = self.progress.clone();
        progress.wait_for(|p| p.complete).await.map(|_| ()).map_err(|_| Error::Stopped)
    }

    /// Gives complete data its final name; for a thread that may block. A draft must be sealed by its origin first.
    pub fn finisher(&self) -> impl FnOnce() -> Result<tidecast_store::Summary, Error> + Send + 'static {
        let (roots, store) = (self.shared.roots.clone(), self.shared.store.clone());
        move || {
            if roots
                .is_some_and(|roots| roots.seal().is_none() || roots.seal() != store.manifest().sealed_hash())
            {
                return Err(Error::Seal);
            }
            Ok(store.finish()?)
        }
    }

    /// The origin of a draft: how long it took to hash all of it, once it has.
    pub fn hashing_took(&self) -> Option<Duration> {
        self.shared.roots.as_ref()?.took()
    }

    /// Closes all connections and reports; data that was verified is synced.
    pub async fn stop(mut self) -> Result<Summary, Error> {
        let (reply, summary) = oneshot::channel();
        let _ = self.shared.inbox.send(Input::Stop(reply)).await;
        let summary = summary.await.map_err(|_| Error::Stopped)?;
        // Connections flush their queues; they end within their own time limits.
        self.tasks.shutdown().await;
        self.shared.settler.stop();
        let store = self.shared.store.clone();
        let synced = tokio::task::spawn_blocking(move || store.sync()).await;
        if let Ok(Err(error)) = synced {
            tracing::error!(%error, "the last sync failed");
        }
        Ok(summary)
    }
}

/// Adds peers to a swarm from elsewhere: trackers, local discovery.
#[derive(Clone)]
pub struct Finder {
    inbox: mpsc::Sender<Input>,
}

impl Finder {
    /// Adds one node that was found; false when the swarm has ended.
    pub async fn found(&self, address: SocketAddr) -> bool {
        self.inbox.send(Input::Found { addresses: vec![address], told: false }).await.is_ok()
    }

    /// If this node makes a plan for nodes that fetch, join it.
    pub async fn follow(&self, node: NodeId) {
        let _ = self.inbox.send(Input::Follow { node }).await;
    }

    /// Dials one node now by its addresses, whatever the result before: it asks for this node, or was told to admit
    /// it.
    pub async fn call(&self, addresses: Vec<SocketAddr>) {
        let _ = self.inbox.send(Input::Call { addresses }).await;
    }
}

fn limits(planned: bool, group: Group) -> Limits {
    let usual = Limits { unsettled: UNSETTLED, ..Limits::default() };
    if group == Group::Whole {
        return Limits { origin_copies: WHOLE_COPIES, random_neighbours: WHOLE_NEIGHBOURS, ..usual };
    }
    if planned { Limits { random_neighbours: PLANNED_NEIGHBOURS, ..usual } } else { usual }
}

/// The engine's thread: its own small runtime, so that nothing but the engine runs on it.
fn spawn_driver(driver: Driver, queue: mpsc::Receiver<Input>) -> Result<(), Error> {
    let system = |source| Error::System { what: "start the engine's thread", source };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().map_err(system)?;
    let run = move || runtime.block_on(driver.run(queue));
    std::thread::Builder::new().name("engine".into()).spawn(run).map(|_| ()).map_err(system)
}

/// Feeds the pieces that may be on disk to the settling threads.
fn spawn_checks(shared: &Arc<Shared>, to_check: Vec<Range<u32>>) -> Result<(), Error> {
    if to_check.is_empty() {
        return Ok(());
    }
    let settler = shared.settler.clone();
    let run = move || to_check.into_iter().flatten().for_each(|piece| settler.check(piece));
    let spawned = std::thread::Builder::new().name("check".into()).spawn(run);
    spawned.map(|_| ()).map_err(|source| Error::System { what: "start a thread", source })
}

/// Syncs in batches, and picks up revocations.
async fn keep(shared: Arc<Shared>) {
    let mut last = Instant::now();
    loop {
        tokio::time::sleep(LOOK).await;
        let dirty = shared.store.dirty_bytes();
        if dirty > 0 && (dirty >= SYNC_BYTES || last.elapsed() >= SYNC_EVERY) {
            let store = shared.store.clone();
            store.spare_cache(shared.throttle.as_ref().is_some_and(|throttle| throttle.spares_cache()));
            if let Ok(Err(error)) = tokio::task::spawn_blocking(move || store.sync()).await {
                let _ = shared.inbox.send(Input::StoreFailed(error)).await;
            }
            last = Instant::now();
        }
        if let Security::Private(membership) = &shared.security
            && membership.refresh()
        {
            let _ = shared.inbox.send(Input::Recheck).await;
        }
    }
}

/// The pieces of an ascending list, each a range.
fn ranges_of(hashed: &[(u32, Digest)]) -> Vec<Range<u32>> {
    hashed.iter().map(|(piece, _)| *piece..piece.saturating_add(1)).collect()
}

fn flags(ranges: &[Range<u32>], count: u32) -> Vec<bool> {
    let mut flags = vec![false; count as usize];
    for range in ranges {
        if let Some(part) = flags.get_mut(range.start as usize..range.end as usize) {
            part.fill(true);
        }
    }
    flags
}

/// The parts of sorted, disjoint ranges that are in none of the others.
fn minus(ranges: &[Range<u32>], others: &[Range<u32>]) -> Vec<Range<u32>> {
    let mut rest = Vec::new();
    let mut others = others.iter().peekable();
    for range in ranges {
        let mut start = range.start;
        while let Some(other) = others.peek().filter(|o| o.start < range.end) {
            if other.end <= start {
                others.next();
                continue;
            }
            if other.start > start {
                rest.push(start..other.start);
            }
            start = other.end;
            if start >= range.end {
                break;
            }
            others.next();
        }
        if start < range.end {
            rest.push(start..range.end);
        }
    }
    rest
}

#[cfg(test)]
#[allow(clippy::single_range_in_vec_init)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_taken_away() {
        assert_eq!(minus(&[0..10], &[]), [0..10]);
        assert_eq!(minus(&[0..10], &[0..10]), []);
        assert_eq!(minus(&[0..10, 20..30], &[2..4, 8..22, 29..40]), [0..2, 4..8, 22..29]);
        assert_eq!(minus(&[5..6], &[0..5, 6..7]), [5..6]);
    }
}
