//! Daemons of hosts and users that trust each other, and users' operations.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use axum::body::Body;
use tempfile::TempDir;
use tidecast_depot::{CacheId, Depot};
use tidecast_identity::{NodeId, NodeKey, Tls};
use tidecast_metainfo::{Manifest, Version};
use tidecast_net::{Caps, SharedPort};
use tidecast_publish::{Format, HashOptions, Progress, ScanOptions, hash, scan};
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::wire::{Copier, FakeWire, Net, Seen};
use crate::assembly::parts::{Basis, Daemon};
use crate::clock::Clock;
use crate::config::{Config, Serves};
use crate::host::caller::Caller;
use crate::host::limits::HostLimits;
use crate::links::certificate::Certificate;
use crate::links::trust::Trust;
use crate::links::wire::PROTOCOL;
use crate::model::api_error::ApiError;
use crate::model::message::Hello;
use crate::model::types::{CacheInfo, Create, Get, Got, Holder, Method};
use crate::storage::audit::Audit;
use crate::storage::run_mode::RunMode;
use crate::transfer::swarms::Swarms;

/// When files were made that caches are made of.
const MADE: SystemTime = SystemTime::UNIX_EPOCH;

/// A change of one daemon's settings.
pub(super) type Change<'a> = &'a dyn Fn(&mut Config);

/// One daemon, and its tasks.
pub(super) struct Host {
    pub(super) name: String,
    pub(super) addr: SocketAddr,
    pub(super) node: NodeId,
    pub(super) daemon: Arc<Daemon>,
    pub(super) seen: Arc<Seen>,
    tasks: JoinSet<()>,
}

/// Several of them.
pub(super) struct Site {
    pub(super) net: Arc<Net>,
    dir: TempDir,
    hosts: Vec<Host>,
    keys: Vec<(String, NodeKey, SocketAddr)>,
}

/// Whose daemon has this name: a host's, or `USER.HOST` that user's.
fn identity(name: &str) -> (String, Option<String>) {
    match name.split_once('.') {
        Some((user, _)) => (format!("user:{user}"), Some(user.to_owned())),
        None => (format!("host:{name}"), None),
    }
}

impl Site {
    /// Daemons of these names, which all know the first.
    pub(super) async fn new(names: &[&str]) -> Self {
        Self::with(names, &|_| {}).await
    }

    /// The same with other settings.
    pub(super) async fn with(names: &[&str], change: Change<'_>) -> Self {
        let mut site = Self::empty(names);
        for name in names {
            site.start(name, change);
        }
        site.all_alive().await;
        site
    }

    /// Those that will be there are trusted, and none runs.
    pub(super) fn empty(names: &[&str]) -> Self {
        let key = |(n, name): (usize, &&str)| {
            let addr = SocketAddr::from(([10, 0, 0, n as u8 + 1], 6980));
            ((*name).to_owned(), NodeKey::generate().unwrap(), addr)
        };
        let keys: Vec<_> = names.iter().enumerate().map(key).collect();
        let site = Self { net: Net::new(), dir: tempfile::tempdir().unwrap(), hosts: Vec::new(), keys };
        site.trust(names);
        site
    }

    /// From now on just these are trusted.
    pub(super) fn trust(&self, names: &[&str]) {
        let line = |(name, key, _): &(String, NodeKey, SocketAddr)| {
            format!("[[node]]\nid = \"{}\"\nidentity = \"{}\"\n", key.id(), identity(name).0)
        };
        let trusted = self.keys.iter().filter(|(name, ..)| names.contains(&name.as_str()));
        std::fs::write(self.dir.path().join("trust.toml"), trusted.map(line).collect::<String>()).unwrap();
    }

    /// Starts a daemon with an existing depot.
    pub(super) fn start(&mut self, name: &str, change: Change<'_>) {
        let (_, key, addr) = self.keys.iter().find(|(known, ..)| known == name).unwrap().clone();
        let mut config = self.config(name, addr);
        change(&mut config);
        let depot = Depot::open(&config.dir.join("depot"), config.depot.clone()).unwrap();
        let tls = Tls::new(&key).unwrap();
        let hello = Hello {
            name: name.into(),
            card: String::new(),
            addresses: vec![addr],
            machine: config.machine.clone(),
            started: crate::clock::now(),
            user: config.user.clone(),
            clock: 0,
        };
        let limits = Arc::new(HostLimits::without_cgroup(&config));
        let shared_port = Arc::new(SharedPort::new(&tls, addr.port(), PROTOCOL));
        let node = tls.id();
        let ground = Basis {
            key: key.clone(),
            node,
            certificate: Certificate::open(None, key).unwrap().0,
            hello,
            trust: Arc::new(Trust::open(config.trust.clone()).unwrap()),
            mode: RunMode::open(&depot).unwrap(),
            audit: Audit::open(&config.dir).unwrap(),
            swarms: Arc::new(Swarms::new(tls, shared_port, limits.throttle.clone())),
            depot,
            limits,
            wire: Arc::new(FakeWire { net: self.net.clone(), node, addr }),
            clock: Clock::of_tokio(),
            config: Arc::new(config),
        };
        let seen = Arc::<Seen>::default();
        let copier = Copier { net: self.net.clone(), addr, seen: seen.clone() };
        let (daemon, driver) = Daemon::build(ground, |_| Arc::new(copier));
        let daemon = Arc::new(daemon);
        self.net.add(addr, node, name, &daemon.links, &daemon.store);
        let mut tasks = JoinSet::new();
        daemon.start_upkeep(driver, &mut tasks);
        self.hosts.push(Host { name: name.into(), addr, node, daemon, seen, tasks });
    }

    fn config(&self, name: &str, addr: SocketAddr) -> Config {
        let dir = self.dir.path().join(name);
        std::fs::create_dir_all(&dir).unwrap();
        let first = self.keys.first().filter(|(first, ..)| first != name);
        Config {
            socket: dir.join("socket"),
            listen: Some(addr),
            name: name.into(),
            user: identity(name).1,
            // A test has one user of the system only.
            serves: Serves::Owner,
            host_uid: None,
            // No daemon of this machine is another's parent.
            machine: format!("{name} of {}", self.dir.path().display()),
            peers: first.map(|(name, _, addr)| format!("{name}={addr}")).into_iter().collect(),
            local_discovery: false,
            dht: None,
            admins: Vec::new(),
            catalogue: None,
            trust: Some(self.dir.path().join("trust.toml")),
            certificate: None,
            depot: tidecast_depot::Config {
                origin: Some(name.into()),
                reserve_bytes: 0,
                reserve_inodes: 0,
                ..tidecast_depot::Config::default()
            },
            methods: vec![Method::Swarm, Method::Direct],
            requirements: None,
            owners: Vec::new(),
            transfers: 8,
            per_source: 4,
            caps: Caps::default(),
            busy: 1.0,
            idle: None,
            confined: String::new(),
            without: Vec::new(),
            memory: 64 << 20,
            dir,
        }
    }

    pub(super) fn host(&self, name: &str) -> &Host {
        self.hosts.iter().find(|host| host.name == name).unwrap()
    }

    /// A host is switched off, without a goodbye.
    pub(super) fn kill(&mut self, name: &str) {
        let at = self.hosts.iter().position(|host| host.name == name).unwrap();
        let host = self.hosts.remove(at);
        self.net.part(&[host.addr], 99);
        self.net.remove(host.addr);
    }

    /// A host that was switched off starts again, with its disk.
    pub(super) async fn start_again(&mut self, name: &str) {
        self.kill(name);
        let at = self.keys.iter().find(|(known, ..)| known == name).unwrap().2;
        let config = self.config(name, at);
        // Transfers to it end when its failure is detected.
        let busy = || {
            matches!(
                Depot::open(&config.dir.join("depot"), config.depot.clone()),
                Err(tidecast_depot::Error::Busy { .. })
            )
        };
        eventually("its store is free", 600, || !busy()).await;
        self.start(name, &|_| {});
        self.heal();
    }

    /// These hosts no longer reach the others, but each other.
    pub(super) fn part(&self, names: &[&str]) {
        let addrs: Vec<_> = names.iter().map(|name| self.host(name).addr).collect();
        self.net.part(&addrs, 1);
    }

    /// All see each other again.
    pub(super) fn heal(&self) {
        let addrs: Vec<_> = self.hosts.iter().map(|host| host.addr).collect();
        self.net.part(&addrs, 0);
    }

    /// All that run know each other.
    pub(super) async fn all_alive(&self) {
        let others = self.hosts.len() - 1;
        let know = || self.hosts.iter().all(|host| host.daemon.membership.alive().len() == others);
        eventually("all know each other", 60, know).await;
    }
}

impl Host {
    /// Makes a cache of files, `(path, content)`.
    pub(super) async fn create(&self, who: &Caller, create: Create, files: &[(&str, &[u8])]) -> CacheInfo {
        self.try_create(who, create, files).await.unwrap()
    }

    pub(super) async fn try_create(
        &self,
        who: &Caller,
        create: Create,
        files: &[(&str, &[u8])],
    ) -> Result<CacheInfo, ApiError> {
        let (manifest, dir) = publish(&create.name, files);
        let created = self.daemon.app.create(who, create, Body::from(manifest.to_bytes().to_vec())).await?;
        let id: CacheId = created.cache.parse().unwrap();
        let top: PathBuf = dir.path().join(manifest.name().as_ref());
        let file = |index: &u32| std::fs::read(manifest.file(*index).unwrap().path().below(&top)).unwrap();
        let content: Vec<u8> = created.files.iter().flat_map(file).collect();
        self.daemon.app.uploads.take(who, id, Body::from(content)).await
    }

    /// Makes a small cache that all may read.
    pub(super) async fn make(&self, who: &Caller, name: &str, content: &str) -> CacheInfo {
        let create = Create { name: name.into(), mode: Some(0o755), ..Create::default() };
        self.create(who, create, &[("file", content.as_bytes())]).await
    }

    /// Has a cache here.
    pub(super) async fn get(&self, who: &Caller, name: &str) -> Result<CacheInfo, ApiError> {
        match self.got(who, Get { name: name.into(), ..Get::default() }).await? {
            // Its path is told to this daemon's own user only.
            Got::Ready { info, .. } => {
                let path = self.daemon.app.store.depot.view(info.cache.parse().unwrap()).ok();
                Ok(CacheInfo { path, ..*info })
            }
            Got::Wait { why, .. } => panic!("{name} does not come: {why}"),
        }
    }

    /// A get, as a copy, as no process is to be watched; for five minutes at most.
    pub(super) async fn got(&self, who: &Caller, get: Get) -> Result<Got, ApiError> {
        let get = Get { copy_for: Some(who.name.clone()), ..get };
        let name = get.name.parse().unwrap();
        self.daemon.app.getting.get(who, name, (Duration::from_secs(300), true), get).await
    }

    /// The content of the one file of a small cache.
    pub(super) fn content(&self, info: &CacheInfo) -> String {
        std::fs::read_to_string(info.path.as_ref().unwrap().join("file")).unwrap()
    }

    pub(super) async fn holders(&self, who: &Caller, name: &str) -> Result<Vec<String>, ApiError> {
        let all: Vec<Holder> = self.daemon.app.copies.holders(who, name.parse().unwrap()).await?;
        Ok(all.into_iter().map(|holder| holder.host).collect())
    }

    pub(super) async fn remove(&self, who: &Caller, info: &CacheInfo) {
        self.daemon.app.caches.remove(who, info.cache.parse().unwrap()).await.unwrap();
    }

    /// Whether a committed cache of this name is here.
    pub(super) fn has(&self, name: &str) -> bool {
        let named = |record: &Arc<tidecast_depot::CacheRecord>| {
            record.is_committed() && crate::model::name::is_called(&record.full_name(), name)
        };
        self.daemon.store.depot.caches(&tidecast_depot::Filter::default()).iter().any(named)
    }

    /// The audit log's entries of this kind, as `WHO OUTCOME`.
    pub(super) fn noted(&self, what: &str) -> Vec<String> {
        let events = self.daemon.audit.read(|event| event.what == what).unwrap();
        events.into_iter().map(|event| format!("{} {}", event.who, event.outcome)).collect()
    }

    /// Names of hosts that sent bytes.
    pub(super) fn sources(&self) -> Vec<String> {
        self.seen.sources.lock().clone()
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        self.tasks.abort_all();
    }
}

/// A user other than the one that runs the tests.
pub(super) fn user(name: &str) -> Caller {
    Caller { uid: 61_234, gid: 61_234, name: name.into(), groups: vec![name.into()], pid: None }
}

/// The user that runs the daemons.
pub(super) fn admin() -> Caller {
    let uid = rustix::process::geteuid().as_raw();
    Caller { uid, gid: 0, name: "root".into(), groups: vec!["root".into()], pid: None }
}

pub(super) fn publish(name: &str, files: &[(&str, &[u8])]) -> (Manifest, TempDir) {
    let dir = tempfile::tempdir().unwrap();
    let top = dir.path().join(name);
    for (path, content) in files {
        let path = top.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, content).unwrap();
        std::fs::File::options().write(true).open(&path).unwrap().set_modified(MADE).unwrap();
    }
    // The same files are the same content, whenever they were made.
    for path in files.iter().flat_map(|(path, _)| Path::new(path).ancestors().skip(1)) {
        std::fs::File::open(top.join(path)).unwrap().set_modified(MADE).unwrap();
    }
    let progress = Progress::new();
    let options = HashOptions { format: Format::Exactly(Version::V2), ..HashOptions::default() };
    let scanned = scan(&top, &ScanOptions::default(), &progress).unwrap();
    let manifest = hash(&scanned, &options, &progress, |_| {}).unwrap().manifest;
    (manifest, dir)
}

/// Waits until something is so, for this many seconds of the paused clock.
pub(super) async fn eventually(what: &str, seconds: u64, is: impl Fn() -> bool) {
    for _ in 0..seconds * 10 {
        if is() {
            return;
        }
        sleep(Duration::from_millis(100)).await;
    }
    panic!("not so after {seconds} s: {what}");
}
