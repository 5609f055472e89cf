//! How a daemon starts, and how it ends.

use std::future::Future;
use std::sync::Arc;

use tidecast_depot::Depot;
use tidecast_identity::{NodeKey, Tls};
use tidecast_net::SharedPort;
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::parts::{Basis, Daemon};
use super::upkeep;
use crate::clock::Clock;
use crate::config::Config;
use crate::directory::membership::Driver;
use crate::directory::{announcements, bootstrap};
use crate::host::limits::HostLimits;
use crate::host::{service, state_dir};
use crate::http::{Audience, listen, serve};
use crate::links::addresses;
use crate::links::certificate::{self, Certificate};
use crate::links::trust::Trust;
use crate::links::wire::{PROTOCOL, Tcp, Wire};
use crate::model::error::Error;
use crate::model::message::Hello;
use crate::model::types::Status;
use crate::site::{Renewal, SiteDir};
use crate::storage::audit::Audit;
use crate::storage::run_mode::RunMode;
use crate::storage::upload::forget_broken;
use crate::transfer::replicas;
use crate::transfer::swarms::Swarms;

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
        let (socket, bound) = listen(&config.socket, config.serves)
            .map_err(|source| Error::Socket { path: config.socket.clone(), source })?;
        let (daemon, shared_port, driver, renewal) = open(config, port).await?;
        let mut tasks = JoinSet::new();
        if let Some(listener) = listener {
            let links = daemon.links.clone();
            let visit = move |visitor| {
                let links = links.clone();
                async move { links.accept(visitor).await }
            };
            tasks.spawn(shared_port.run(listener, visit));
        }
        daemon.serve_users(socket, &mut tasks);
        tasks.spawn(upkeep::keep(daemon.clone(), hangups));
        tasks.spawn(renewal.keep());
        daemon.start_upkeep(driver, &mut tasks);
        ready(&daemon.app.admin.status().map_err(|e| Error::Start(e.why))?);
        service::notify("READY=1");
        tokio::select! {
            () = stop => {}
            () = daemon.activity.ended() => {}
        }
        service::notify("STOPPING=1");
        daemon.membership.leave().await;
        tasks.shutdown().await;
        daemon.catalogue.leave().await;
        daemon.requests.stop().await;
        daemon.swarms.stop_all().await;
        if let Some(bound) = bound {
            bound.remove();
        }
        Ok(())
    }

    fn serve_users(&self, socket: UnixListener, tasks: &mut JoinSet<()>) {
        let app = self.app.clone();
        tasks.spawn(async move {
            if let Err(error) = serve(app, socket, Audience::Users).await {
                tracing::error!(%error, "the API socket no longer accepts requests");
            }
        });
        match self.election.listen() {
            Ok(socket) => {
                let app = self.app.clone();
                tasks.spawn(async move { drop(serve(app, socket, Audience::Daemons).await) });
            }
            Err(error) => tracing::warn!(%error, "cannot listen for other daemons of this machine"),
        }
    }

    /// Periodic tasks while the daemon runs, besides answering requests.
    pub(super) fn start_upkeep(&self, driver: Driver, tasks: &mut JoinSet<()>) {
        tasks.spawn(driver.run(self.links.clone()));
        tasks.spawn(announcements::run(
            self.store.clone(),
            self.membership.clone(),
            self.config.name.clone(),
            self.replicas.copies.clone(),
        ));
        tasks.spawn(bootstrap::keep(self.bootstrap()));
        tasks.spawn(replicas::keep(self.replicas.clone()));
        let catalogue = self.catalogue.clone();
        tasks.spawn(async move { catalogue.keep().await });
    }
}

async fn open(config: Config, port: u16) -> Result<(Arc<Daemon>, Arc<SharedPort>, Driver, Renewal), Error> {
    let (key, depot, mode) = {
        let origin = Some(config.name.clone());
        let (dir, limits) = (config.dir.clone(), tidecast_depot::Config { origin, ..config.depot.clone() });
        let name = config.name.clone();
        let open = move || -> Result<_, Error> {
            state_dir::secure(&dir)?;
            let key = NodeKey::load_or_create(&dir)?;
            let depot = Depot::open(&dir.join("depot"), limits)?;
            allow_what_is_kept(&depot);
            forget_broken(&depot, &name);
            let mode = RunMode::open(&depot)?;
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
        addresses: addresses::of(config.listen, port),
        machine: config.machine.clone(),
        started: crate::clock::now(),
        user: config.user.clone(),
        clock: 0,
    };
    if let Some(path) = &config.certificate {
        certificate::check(path, &trust, &hello, key.id())?;
    }
    let audit = Audit::open(&config.dir).map_err(|source| Error::Dir { path: config.dir.clone(), source })?;
    let shared_port = Arc::new(SharedPort::new(&tls, port, PROTOCOL));
    let limits = Arc::new(HostLimits::new(&config));
    let site = SiteDir::of(&config.dir);
    let wire: Arc<dyn Wire> = Arc::new(Tcp(tls.clone()));
    let ground = Basis {
        config: Arc::new(config),
        node: tls.id(),
        swarms: Arc::new(Swarms::new(tls, shared_port.clone(), limits.throttle.clone())),
        wire: wire.clone(),
        key: key.clone(),
        certificate,
        hello,
        trust,
        depot,
        mode,
        audit,
        limits,
        clock: Clock::system(),
    };
    let (daemon, driver) = Daemon::build(ground, |engine| Arc::new(engine));
    let renewal = Renewal { site, key, wire, links: daemon.links.clone() };
    Ok((Arc::new(daemon), shared_port, driver, renewal))
}

/// Raises a capacity that is too small for leased caches created on this host.
fn allow_what_is_kept(depot: &Depot) {
    if let (Some(capacity), Some(meanwhile)) =
        (depot.config().max_bytes, depot.allow_excess(crate::clock::now()))
    {
        tracing::warn!(
            capacity,
            meanwhile,
            "the store exceeds its capacity until leases of caches created here expire, or other caches need the space"
        );
    }
}
