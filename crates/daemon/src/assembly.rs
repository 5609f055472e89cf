//! The daemon itself: what all its parts share, how it starts and how it ends.

use std::collections::HashMap;
use std::future::Future;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tidecast_depot::{CacheId, Depot, Filter};
use tidecast_identity::{NodeKey, Tls};
use tidecast_metainfo::Manifest;
use tidecast_net::Door;
use tokio::net::TcpListener;
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;

use crate::config::{Config, Serves};
use crate::directory::catalogue::Found;
use crate::directory::membership::{Driver, Membership};
use crate::directory::newest_version::Silent;
use crate::host::caller::Caller;
use crate::host::election::Election;
use crate::host::limits::HostLimits;
use crate::http::Door as ApiDoor;
use crate::http::files::Sessions;
use crate::links::certificate::Certificate;
use crate::links::peers::{PROTOCOL, Peers};
use crate::links::trust::Trust;
use crate::local::upload::{Uploads, forget_broken};
use crate::model::api_error::ApiError;
use crate::model::attributes::Attributes;
use crate::model::error::Error;
use crate::model::message::Hello;
use crate::model::types::{Came, Event, Limit, Status};
use crate::policy::ads;
use crate::serving::answers::Seekers;
use crate::storage::audit::Audit;
use crate::transfer::delta::Told;
use crate::transfer::requests::Fetches;
use crate::transfer::swarms::Swarms;

/// The store is looked over this often.
const SWEEP: Duration = Duration::from_secs(5);
/// What the depot keeps a [`Mode`] by.
const MODE: &str = "mode";
/// Files that are read at once for others that compare versions.
const COMPARING: usize = 2;
/// Manifests kept parsed.
const PARSED: usize = 64;

/// Takes new work, takes none, or sends its caches away too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    Running,
    Paused,
    Draining,
}

impl Mode {
    fn word(self) -> &'static str {
        match self {
            Mode::Running => "running",
            Mode::Paused => "paused",
            Mode::Draining => "draining",
        }
    }

    /// By its number, as the database keeps it.
    fn of(number: u64) -> Self {
        match number {
            0 => Mode::Running,
            1 => Mode::Paused,
            _ => Mode::Draining,
        }
    }
}

/// A manifest, and when it was used last.
type Parsed = (Arc<Manifest>, Instant);

/// What all parts of a daemon share.
pub struct Daemon {
    pub(crate) config: Config,
    pub(crate) depot: Depot,
    pub(crate) peers: Peers,
    pub(crate) swarms: Swarms,
    pub(crate) fetches: Fetches,
    pub(crate) silent: Silent,
    /// Turns to read files for others that compare versions.
    pub(crate) comparing: tokio::sync::Semaphore,
    pub(crate) told_before: Told,
    pub(crate) uploads: Uploads,
    pub(crate) sessions: Sessions,
    pub(crate) seekers: Seekers,
    pub(crate) election: Election,
    pub(crate) limits: HostLimits,
    /// The parent at the last look.
    parent: Mutex<Option<String>>,
    came: Mutex<Came>,
    /// When somebody asked for something last.
    asked: Mutex<Instant>,
    idle: Notify,
    pub(crate) membership: Membership,
    /// The store has changed: for what is said of it, and for the copies that are to be kept.
    pub(crate) changed: Notify,
    pub(crate) copies: Notify,
    pub(crate) found: Found,
    /// Held by who checks the store.
    pub(crate) checking: tokio::sync::Mutex<()>,
    audit: Audit,
    manifests: Mutex<HashMap<[u8; 32], Parsed>>,
    mode: Mutex<Mode>,
    node: String,
    pub(crate) certified: NodeKey,
    certificate: Certificate,
}

impl Daemon {
    /// Opens everything and serves until `stop`. Then ends in good order. When `hangups` changes, certificate and trust are
    /// read again.
    ///
    /// # Errors
    /// The store is in use or damaged, an address is taken, a file of keys or trust cannot be read.
    pub async fn run(
        config: Config,
        ready: impl FnOnce(&Status),
        stop: impl Future<Output = ()>,
        hangups: watch::Receiver<u64>,
    ) -> Result<(), Error> {
        let listener = match config.listen {
            Some(addr) => Some(TcpListener::from_std(tidecast_net::listen(addr)?)?),
            None => None,
        };
        let port = listener.as_ref().map_or(Ok(0), |l| l.local_addr().map(|a| a.port()))?;
        let (socket, bound) = crate::http::listen(&config.socket, config.serves)
            .map_err(|source| Error::Socket { path: config.socket.clone(), source })?;
        let (daemon, door, driver) = Self::open(config, port).await?;
        let mut tasks = JoinSet::new();
        if let Some(listener) = listener {
            let visited = daemon.clone();
            let visit = move |visitor| {
                let daemon = visited.clone();
                async move { daemon.peers.welcome(visitor, daemon.clone()).await }
            };
            tasks.spawn(door.run(listener, visit));
        }
        let serving = daemon.clone();
        tasks.spawn(async move {
            if let Err(error) = crate::http::serve(serving, socket, ApiDoor::Users).await {
                tracing::error!(%error, "the socket serves no more");
            }
        });
        match daemon.election.listen() {
            Ok(kin) => {
                let serving = daemon.clone();
                tasks.spawn(async move { drop(crate::http::serve(serving, kin, ApiDoor::Daemons).await) });
            }
            Err(error) => tracing::warn!(%error, "daemons of this machine do not find this one"),
        }
        tasks.spawn(keep(daemon.clone(), hangups));
        tasks.spawn(driver.run(daemon.clone()));
        tasks.spawn(crate::directory::holdings::keep(daemon.clone()));
        tasks.spawn(crate::directory::bootstrap::keep(daemon.clone()));
        tasks.spawn(crate::transfer::replicas::keep(daemon.clone()));
        tasks.spawn(crate::directory::catalogue::keep(daemon.clone()));
        ready(&daemon.status().map_err(|e| Error::Start(e.why))?);
        crate::host::service::notify("READY=1");
        tokio::select! {
            () = stop => {}
            () = daemon.idle.notified() => {}
        }
        crate::host::service::notify("STOPPING=1");
        daemon.membership.leave().await;
        tasks.shutdown().await;
        crate::directory::catalogue::leave(&daemon).await;
        daemon.fetches.stop().await;
        daemon.swarms.stop_all().await;
        if let Some(bound) = bound {
            bound.remove();
        }
        Ok(())
    }

    async fn open(config: Config, port: u16) -> Result<(Arc<Self>, Arc<Door>, Driver), Error> {
        let (key, depot, mode) = {
            let origin = Some(config.name.clone());
            let (dir, limits) =
                (config.dir.clone(), tidecast_depot::Config { origin, ..config.depot.clone() });
            let name = config.name.clone();
            let open = move || -> Result<_, Error> {
                crate::host::state_dir::secure(&dir)?;
                let key = NodeKey::load_or_create(&dir)?;
                let depot = Depot::open(&dir.join("depot"), limits)?;
                allow_what_is_kept(&depot);
                forget_broken(&depot, &name);
                let mode = Mode::of(depot.kept(MODE)?);
                Ok((key, depot, mode))
            };
            tokio::task::spawn_blocking(open).await.map_err(|_| Error::Start("a thread failed".into()))??
        };
        let tls = Tls::new(&key)?;
        let trust = Arc::new(Trust::open(config.trust.clone())?);
        let (certificate, card) = Certificate::open(config.certificate.clone(), key.clone())?;
        let hello = Hello {
            name: config.name.clone(),
            card,
            addresses: crate::links::addresses::of(config.listen, port),
            machine: config.machine.clone(),
            started: crate::now(),
            user: config.user.clone(),
            clock: 0,
        };
        if let Some(path) = &config.certificate {
            crate::links::certificate::check(path, &trust, &hello, key.id())?;
        }
        let (membership, driver) = Membership::new(&key, &hello.card, hello.addresses.clone());
        let audit =
            Audit::open(&config.dir).map_err(|source| Error::Dir { path: config.dir.clone(), source })?;
        let door = Arc::new(Door::new(&tls, port, PROTOCOL));
        let limits_of_host = HostLimits::new(&config);
        let daemon = Arc::new(Self {
            node: tls.id().to_string(),
            depot,
            peers: Peers::new(tls.clone(), trust, hello),
            swarms: Swarms::new(tls, door.clone(), limits_of_host.throttle.clone()),
            limits: limits_of_host,
            fetches: Fetches::new(config.transfers, config.per_source),
            silent: Silent::default(),
            comparing: tokio::sync::Semaphore::new(COMPARING),
            told_before: Told::default(),
            uploads: Uploads::default(),
            sessions: Sessions::default(),
            seekers: Seekers::default(),
            election: Election::new(&config.machine, config.serves, config.host_uid),
            parent: Mutex::default(),
            came: Mutex::default(),
            asked: Mutex::new(Instant::now()),
            idle: Notify::new(),
            membership,
            changed: Notify::new(),
            copies: Notify::new(),
            found: Found::default(),
            certified: key.clone(),
            certificate,
            checking: tokio::sync::Mutex::default(),
            audit,
            manifests: Mutex::default(),
            mode: Mutex::new(mode),
            config,
        });
        Ok((daemon, door, driver))
    }

    /// Whether it serves all users of the host, not only the one who runs it.
    #[must_use]
    pub fn serves_all(&self) -> bool {
        self.config.serves == Serves::Everyone
    }

    /// Does something that waits for the disk.
    pub(crate) async fn on_disk<T: Send + 'static, E: Into<ApiError> + Send + 'static>(
        &self,
        work: impl FnOnce(&Depot) -> Result<T, E> + Send + 'static,
    ) -> Result<T, ApiError> {
        let depot = self.depot.clone();
        tokio::task::spawn_blocking(move || work(&depot))
            .await
            .map_err(ApiError::internal)?
            .map_err(Into::into)
    }

    /// The manifest of a cache that is here. Blocks on the disk.
    pub(crate) fn manifest(&self, id: CacheId, content: [u8; 32]) -> Result<Arc<Manifest>, Error> {
        if let Some((manifest, used)) = self.manifests.lock().get_mut(&content) {
            *used = Instant::now();
            return Ok(manifest.clone());
        }
        let manifest = Arc::new(self.depot.manifest(id)?);
        let mut parsed = self.manifests.lock();
        if parsed.len() >= PARSED
            && let Some(oldest) = parsed.iter().min_by_key(|(_, (_, used))| *used).map(|(key, _)| *key)
        {
            parsed.remove(&oldest);
        }
        parsed.insert(content, (manifest.clone(), Instant::now()));
        Ok(manifest)
    }

    /// Writes into the audit log.
    pub(crate) fn note(&self, who: &str, what: &str, cache: &str, outcome: &str) {
        let [who, what, cache, outcome] = [who, what, cache, outcome].map(str::to_owned);
        self.audit.note(&Event { at: crate::now(), who, what, cache, outcome });
    }

    /// What has happened to caches that the caller may know of: his own doings, and all about a name that he may read.
    pub(crate) async fn history(
        &self,
        caller: &Caller,
        name: Option<String>,
    ) -> Result<Vec<Event>, ApiError> {
        let reader = caller.reader();
        let readable = self.depot.caches(&Filter { reader: Some(reader), ..Filter::default() });
        let mine: std::collections::HashSet<String> = readable.iter().map(|r| r.full_name()).collect();
        let about = |event: &Event| {
            let named = name.as_ref().is_none_or(|name| crate::model::name::is_called(&event.cache, name));
            named && (caller.rules() || event.who == caller.name || mine.contains(&event.cache))
        };
        tokio::task::block_in_place(|| self.audit.read(about)).map_err(ApiError::internal)
    }

    pub(crate) fn mode(&self) -> Mode {
        *self.mode.lock()
    }

    /// Kept for the next start too. Where the disk does not take it, it holds as long as this daemon runs.
    fn set_mode(&self, mode: Mode) {
        *self.mode.lock() = mode;
        if let Err(error) = tokio::task::block_in_place(|| self.depot.keep(MODE, mode as u64)) {
            tracing::error!(%error, "this daemon will not be {} after its next start", mode.word());
        }
    }

    /// What an administrator has the daemon do.
    pub(crate) fn admin(&self, caller: &Caller, what: &str, limit: Limit) -> Result<Status, ApiError> {
        if !caller.rules() {
            return Err(ApiError::forbidden("only the administrator of this daemon may do that"));
        }
        self.obey(what, limit)
    }

    /// Does what an administrator wants, of this host or of the site.
    pub(crate) fn obey(&self, what: &str, limit: Limit) -> Result<Status, ApiError> {
        match what {
            "status" => return self.status(),
            "resume" => self.set_mode(Mode::Running),
            "pause" => self.set_mode(Mode::Paused),
            "drain" => self.set_mode(Mode::Draining),
            "limit" => {
                if limit.busy.is_some_and(|share| !(0.0..=1.0).contains(&share)) {
                    return Err(ApiError::malformed("busy is a share: 0 to 1"));
                }
                if let Some(capacity) = limit.capacity {
                    self.hold_at_most(capacity)?;
                }
                if let Some(transfers) = limit.transfers {
                    self.fetches.allow(transfers as usize);
                }
                self.limits.limit(&limit);
            }
            other => return Err(ApiError::malformed(format!("{other:?}: drain, pause, resume or limit"))),
        }
        self.status()
    }

    /// Changes the capacity; not to one that would take from users what was made here and is still wanted.
    fn hold_at_most(&self, capacity: u64) -> Result<(), ApiError> {
        let least = tokio::task::block_in_place(|| self.depot.least_capacity(crate::now()));
        if capacity < least {
            let why = format!(
                "caches that were made here and whose leases last need a capacity of {least} bytes: remove some, or wait"
            );
            return Err(ApiError::new(axum::http::StatusCode::CONFLICT, "leased", why));
        }
        let limits = self.depot.config();
        self.depot.configure(tidecast_depot::Config { max_bytes: Some(capacity), excess: None, ..limits });
        Ok(())
    }

    /// How it is.
    pub(crate) fn status(&self) -> Result<Status, ApiError> {
        let usage = self.depot.usage().map_err(ApiError::internal)?;
        let (sent, received) = self.swarms.traffic();
        let hello = self.peers.hello();
        Ok(Status {
            name: self.config.name.clone(),
            node: self.node.clone(),
            version: env!("CARGO_PKG_VERSION").into(),
            addresses: hello.addresses,
            started: hello.started,
            state: self.mode().word().into(),
            caches: self.depot.caches(&Filter::default()).len() as u64,
            bytes: usage.kept.bytes,
            capacity: usage.capacity.bytes,
            configured: self.depot.config().max_bytes,
            reserved: usage.promised.bytes,
            members: self.membership.alive().len() as u64 + 1,
            peers: self.peers.all().iter().map(|link| link.peer.hello.name.clone()).collect(),
            uses: self.all_uses(|_, _| true),
            sent,
            received,
            came: *self.came.lock(),
            parent: self.parent.lock().clone(),
            limits: self.limits.limits(),
            serves: if self.serves_all() { "everyone" } else { "owner" }.into(),
            user: rustix::process::geteuid().as_raw(),
            confined: self.config.confined.clone(),
            without: self.config.without.clone(),
            ..Status::default()
        }
        .with_coming(self.fetches.under_way(|_| true)))
    }

    /// Whether another daemon of this machine brings caches for this one.
    pub(crate) fn has_parent(&self) -> bool {
        self.parent.lock().is_some()
    }

    /// A cache has come.
    pub(crate) async fn arrived(&self, id: CacheId, came: Came) {
        {
            let mut all = self.came.lock();
            all.origin += came.origin;
            all.peers += came.peers;
            all.parent += came.parent;
            all.link += came.link;
        }
        let Some(record) = self.depot.cache(id) else { return };
        let mut attributes = Attributes::of(&record);
        attributes.came = Some(came);
        if let Err(error) = self.on_disk(move |depot| depot.set_attributes(id, attributes.to_map())).await {
            tracing::warn!(why = error.why, "it is not noted how a cache came");
        }
    }

    /// Somebody asks for something.
    pub(crate) fn asked(&self) {
        *self.asked.lock() = Instant::now();
    }

    /// Ends the daemon if nobody has needed it for as long as it was told to wait.
    fn rest_if_idle(&self) {
        let Some(patience) = self.config.idle else { return };
        let at_work = self.depot.in_use(crate::now())
            || !self.fetches.under_way(|_| true).is_empty()
            || self.swarms.any();
        if at_work {
            self.asked();
        } else if self.asked.lock().elapsed() > patience {
            self.idle.notify_one();
        }
    }

    fn renew_card(&self, asked: bool) {
        let fits = |card: &str| {
            let hello = Hello { card: card.to_owned(), ..self.peers.hello() };
            let path = self.config.certificate.as_deref().unwrap_or(Path::new(""));
            crate::links::certificate::check(path, self.peers.trust(), &hello, self.certified.id())
        };
        if let Some(card) = self.certificate.renew(asked, fits) {
            self.peers.set_card(card);
        }
    }

    /// This daemon's ad.
    pub(crate) fn ad(&self) -> Result<tidecast_classad::Ad, Error> {
        let usage = self.depot.usage()?;
        Ok(ads::daemon(&ads::Host {
            name: &self.config.name,
            machine: &self.config.machine,
            started: self.peers.hello().started,
            disk: (
                // Not what others leave: a full disk is for admission to see, and passes.
                usage.total.bytes,
                usage.capacity.bytes.saturating_sub(usage.kept.bytes + usage.promised.bytes),
            ),
            methods: &self.config.methods,
            requirements: self.config.requirements.as_deref(),
        })?)
    }
}

/// A capacity that is too small for what was made here and is still wanted is not taken at its word.
fn allow_what_is_kept(depot: &Depot) {
    if let (Some(capacity), Some(meanwhile)) = (depot.config().max_bytes, depot.allow_excess(crate::now())) {
        tracing::warn!(
            capacity,
            meanwhile,
            "the store keeps more than its capacity until leases of caches that were made here end, or others need the room"
        );
    }
}

/// What has to be done again and again.
async fn keep(daemon: Arc<Daemon>, mut hangups: watch::Receiver<u64>) {
    let mut tick = tokio::time::interval(SWEEP);
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        let asked = tokio::select! {
            _ = tick.tick() => false,
            Ok(()) = hangups.changed() => true,
        };
        if asked {
            tracing::info!("reading certificate, key, trust and revocation lists again");
            daemon.peers.trust().read_again();
        }
        daemon.renew_card(asked);
        daemon.forget_stale_uploads().await;
        daemon.mind_jobs();
        daemon.rest_if_idle();
        *daemon.parent.lock() = daemon.election.parent().await.map(|parent| parent.name);
        daemon.swarms.rest().await;
        daemon.swarms.expel(&daemon.peers.judge_again(&daemon));
        let swept = daemon.on_disk(|depot| depot.sweep(crate::now()).map_err(Error::from)).await;
        match swept {
            Ok(evicted) => {
                if !evicted.gone.is_empty() {
                    daemon.changed.notify_one();
                }
                for cache in evicted.gone {
                    daemon.note("tidecast", "evict", &cache.to_string(), "ok");
                }
            }
            Err(error) => tracing::error!(why = error.why, "the store cannot be swept"),
        }
    }
}
