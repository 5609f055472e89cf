//! The parts of a daemon, built from the ground up.

use std::sync::Arc;

use tidecast_depot::Depot;
use tidecast_identity::{NodeId, NodeKey};
use tokio::sync::Notify;

use crate::clock::Clock;
use crate::config::Config;
use crate::directory::backoff::Backoff;
use crate::directory::bootstrap::Bootstrap;
use crate::directory::catalogue::Keeper;
use crate::directory::catalogue::known_peers::KnownPeers;
use crate::directory::membership::{Driver, Membership};
use crate::directory::names::Signer;
use crate::directory::newest_version::NewestVersion;
use crate::directory::sources::Directory;
use crate::host::activity::Activity;
use crate::host::election::Election;
use crate::host::limits::HostLimits;
use crate::http::app::App;
use crate::http::manifests::Manifests;
use crate::http::sessions::Sessions;
use crate::http::shares::UserShares;
use crate::links::certificate::Certificate;
use crate::links::peers::Links;
use crate::links::trust::Trust;
use crate::links::wire::Wire;
use crate::local::admin::Admin;
use crate::local::caches::Caches;
use crate::local::copies::Copies;
use crate::local::get::Getting;
use crate::local::records::Records;
use crate::local::site::Site;
use crate::local::update_attributes::AttributeUpdate;
use crate::local::upload::Uploads;
use crate::local::uses::Uses;
use crate::model::message::Hello;
use crate::serving::answers::Answers;
use crate::serving::fetching_peers::FetchingPeers;
use crate::serving::fingerprints::FingerprintServer;
use crate::site::{Registrar, SiteDir};
use crate::storage::audit::Audit;
use crate::storage::host_ad::HostAd;
use crate::storage::run_mode::RunMode;
use crate::storage::store::Store;
use crate::transfer::admission::Admission;
use crate::transfer::fetch::Fetcher;
use crate::transfer::handover::Handover;
use crate::transfer::mover::Mover;
use crate::transfer::pending::PendingContents;
use crate::transfer::permits::SourcePermits;
use crate::transfer::received::ReceivedTotals;
use crate::transfer::repair::Repair;
use crate::transfer::replicas::Replicas;
use crate::transfer::requests::Requests;
use crate::transfer::same_host::SameHost;
use crate::transfer::seeding::Seeding;
use crate::transfer::swarm_mover::SwarmMover;
use crate::transfer::swarms::Swarms;

/// A daemon.
pub struct Daemon {
    pub(super) config: Arc<Config>,
    pub(super) key: NodeKey,
    pub(super) certificate: Certificate,
    pub(super) store: Arc<Store>,
    pub(super) audit: Arc<Audit>,
    pub(super) activity: Arc<Activity>,
    pub(super) election: Arc<Election>,
    pub(super) limits: Arc<HostLimits>,
    pub(super) links: Arc<Links>,
    pub(super) membership: Arc<Membership>,
    pub(super) catalogue: Arc<Keeper>,
    pub(super) swarms: Arc<Swarms>,
    pub(super) requests: Arc<Requests>,
    pub(super) replicas: Arc<Replicas>,
    pub(super) app: Arc<App>,
    /// Answers as long as it lives: links hold it weakly.
    _answers: Arc<Answers>,
}

/// The base of a daemon.
pub(super) struct Basis {
    pub(super) config: Arc<Config>,
    pub(super) key: NodeKey,
    pub(super) node: NodeId,
    pub(super) certificate: Certificate,
    pub(super) hello: Hello,
    pub(super) trust: Arc<Trust>,
    pub(super) depot: Depot,
    pub(super) mode: RunMode,
    pub(super) audit: Audit,
    pub(super) limits: Arc<HostLimits>,
    pub(super) swarms: Arc<Swarms>,
    pub(super) wire: Arc<dyn Wire>,
    pub(super) clock: Clock,
}

/// Shared by most parts.
#[derive(Clone)]
struct Shared {
    config: Arc<Config>,
    store: Arc<Store>,
    audit: Arc<Audit>,
    mode: Arc<RunMode>,
    ad: Arc<HostAd>,
    limits: Arc<HostLimits>,
    election: Arc<Election>,
    activity: Arc<Activity>,
    swarms: Arc<Swarms>,
    directory: Arc<Directory>,
    signer: Arc<Signer>,
}

/// The parts that fetch caches.
struct Transfer {
    admission: Arc<Admission>,
    received_totals: Arc<ReceivedTotals>,
    contents: Arc<PendingContents>,
    permits: Arc<SourcePermits>,
    seeding: Arc<Seeding>,
    mover: Arc<dyn Mover>,
    requests: Arc<Requests>,
}

impl Daemon {
    /// All parts, and the tasks to run besides. `mover`: moves the bytes; the engine unless a test passes
    /// another.
    pub(super) fn build(ground: Basis, mover: impl FnOnce(SwarmMover) -> Arc<dyn Mover>) -> (Self, Driver) {
        let (key, certificate) = (ground.key.clone(), ground.certificate);
        let store = Arc::new(Store::new(ground.depot, ground.config.name.clone()));
        let ad = HostAd::new(ground.config.clone(), store.clone(), ground.hello.started);
        let (membership, driver) =
            Membership::new(&key, &ground.hello.card, ground.hello.addresses.clone(), ground.clock);
        let links = Arc::new(Links::new(ground.node, ground.wire, ground.trust, ground.hello));
        let config = ground.config;
        let election = Arc::new(Election::new(&config.machine, config.serves, config.host_uid));
        let directory = Arc::new(Directory {
            config: config.clone(),
            links: links.clone(),
            membership: Arc::new(membership),
            found: Arc::new(KnownPeers::default()),
            election: election.clone(),
            backoff: Backoff::default(),
            key: key.clone(),
        });
        let shared = Shared {
            signer: Arc::new(Signer::new(config.name.clone(), key.clone(), links)),
            config,
            store,
            audit: Arc::new(ground.audit),
            mode: Arc::new(ground.mode),
            ad: Arc::new(ad),
            limits: ground.limits,
            election,
            activity: Arc::new(Activity::new()),
            swarms: ground.swarms,
            directory,
        };
        let transfer = shared.transfer(mover);
        let app = Arc::new(shared.app(&transfer, ground.node));
        let answers = Arc::new(shared.answers(&transfer, &app));
        shared.directory.links.answer_with(&answers);
        let daemon = Self {
            key,
            certificate,
            catalogue: Arc::new(shared.catalogue()),
            replicas: Arc::new(shared.replicas()),
            requests: transfer.requests,
            membership: shared.directory.membership.clone(),
            links: shared.directory.links.clone(),
            config: shared.config,
            store: shared.store,
            audit: shared.audit,
            activity: shared.activity,
            election: shared.election,
            limits: shared.limits,
            swarms: shared.swarms,
            app,
            _answers: answers,
        };
        (daemon, driver)
    }

    pub(super) fn bootstrap(&self) -> Bootstrap {
        Bootstrap {
            config: self.config.clone(),
            links: self.links.clone(),
            membership: self.membership.clone(),
            found: self.catalogue.found.clone(),
        }
    }
}

impl Shared {
    fn transfer(&self, mover: impl FnOnce(SwarmMover) -> Arc<dyn Mover>) -> Transfer {
        let received_totals = Arc::new(ReceivedTotals::new(self.store.clone()));
        let admission = Arc::new(Admission {
            config: self.config.clone(),
            store: self.store.clone(),
            ad: self.ad.clone(),
            received_totals: received_totals.clone(),
        });
        let mover = mover(SwarmMover {
            store: self.store.clone(),
            directory: self.directory.clone(),
            swarms: self.swarms.clone(),
        });
        let permits = Arc::new(SourcePermits::new(self.config.per_source));
        let contents = Arc::new(PendingContents::default());
        let seeding = Arc::new(Seeding::new(self.store.clone(), self.swarms.clone(), &self.config.dir));
        let handover = Handover {
            store: self.store.clone(),
            swarms: self.swarms.clone(),
            seeding: seeding.clone(),
            received_totals: received_totals.clone(),
        };
        let same_host = SameHost {
            election: self.election.clone(),
            admission: admission.clone(),
            received_totals: received_totals.clone(),
            store: self.store.clone(),
            limits: self.limits.clone(),
            user: self.config.user.clone(),
        };
        let fetcher = Fetcher {
            ad: self.ad.clone(),
            store: self.store.clone(),
            directory: self.directory.clone(),
            same_host,
            admission: admission.clone(),
            mover: mover.clone(),
            swarms: self.swarms.clone(),
            seeding: seeding.clone(),
            handover: Arc::new(handover),
            limits: self.limits.clone(),
            permits: permits.clone(),
            contents: contents.clone(),
        };
        let (store, audit) = (self.store.clone(), self.audit.clone());
        let requests = Requests::new(Arc::new(fetcher), store, audit, self.config.transfers);
        Transfer {
            admission,
            received_totals,
            contents,
            permits,
            seeding,
            mover,
            requests: Arc::new(requests),
        }
    }

    fn app(&self, transfer: &Transfer, node: NodeId) -> App {
        let records = Arc::new(Records { config: self.config.clone(), store: self.store.clone() });
        let uses = Arc::new(Uses::new(self.store.clone()));
        let uploads = Arc::new(Uploads::new(records.clone(), self.limits.clone()));
        let admin = Arc::new(self.admin(transfer, node, &records, &uses));
        let newest = NewestVersion::new(self.config.name.clone(), self.directory.clone(), self.ad.clone());
        App {
            config: self.config.clone(),
            store: self.store.clone(),
            audit: self.audit.clone(),
            activity: self.activity.clone(),
            signer: self.signer.clone(),
            requests: transfer.requests.clone(),
            repair: self.repair(transfer),
            caches: Caches {
                records: records.clone(),
                uses: uses.clone(),
                uploads: uploads.clone(),
                update: AttributeUpdate {
                    records: records.clone(),
                    directory: self.directory.clone(),
                    swarms: self.swarms.clone(),
                    audit: self.audit.clone(),
                },
                swarms: self.swarms.clone(),
                mode: self.mode.clone(),
            },
            getting: Getting {
                records: records.clone(),
                newest,
                requests: transfer.requests.clone(),
                limits: self.limits.clone(),
                mode: self.mode.clone(),
            },
            copies: Copies {
                records: records.clone(),
                directory: self.directory.clone(),
                ad: self.ad.clone(),
            },
            site: Site { admin: admin.clone() },
            sessions: Sessions::default(),
            manifests: Manifests::default(),
            transfers: UserShares::new(crate::http::TRANSFERS),
            declarations: UserShares::new(crate::http::REQUESTS),
            answers: UserShares::new(crate::http::REQUESTS),
            records,
            uses,
            uploads,
            admin,
        }
    }

    fn admin(&self, transfer: &Transfer, node: NodeId, records: &Arc<Records>, uses: &Arc<Uses>) -> Admin {
        Admin {
            config: self.config.clone(),
            node: node.to_string(),
            records: records.clone(),
            uses: uses.clone(),
            links: self.directory.links.clone(),
            membership: self.directory.membership.clone(),
            election: self.election.clone(),
            swarms: self.swarms.clone(),
            requests: transfer.requests.clone(),
            received_totals: transfer.received_totals.clone(),
            limits: self.limits.clone(),
            mode: self.mode.clone(),
            audit: self.audit.clone(),
        }
    }

    fn repair(&self, transfer: &Transfer) -> Repair {
        Repair {
            store: self.store.clone(),
            directory: self.directory.clone(),
            admission: transfer.admission.clone(),
            mover: transfer.mover.clone(),
            swarms: self.swarms.clone(),
            permits: transfer.permits.clone(),
            ad: self.ad.clone(),
            audit: self.audit.clone(),
            checking: tokio::sync::Mutex::default(),
        }
    }

    fn answers(&self, transfer: &Transfer, app: &App) -> Answers {
        Answers {
            config: self.config.clone(),
            store: self.store.clone(),
            audit: self.audit.clone(),
            mode: self.mode.clone(),
            activity: self.activity.clone(),
            ad: self.ad.clone(),
            links: self.directory.links.clone(),
            membership: self.directory.membership.clone(),
            signer: self.signer.clone(),
            swarms: self.swarms.clone(),
            seeding: transfer.seeding.clone(),
            admission: transfer.admission.clone(),
            contents: transfer.contents.clone(),
            requests: transfer.requests.clone(),
            admin: app.admin.clone(),
            fingerprints: FingerprintServer::new(
                self.store.clone(),
                self.swarms.clone(),
                self.limits.clone(),
            ),
            fetching_peers: FetchingPeers::default(),
            registrar: Registrar::new(
                SiteDir::of(&self.config.dir),
                self.directory.key.id(),
                self.audit.clone(),
            ),
        }
    }

    fn replicas(&self) -> Replicas {
        Replicas {
            name: self.config.name.clone(),
            store: self.store.clone(),
            directory: self.directory.clone(),
            swarms: self.swarms.clone(),
            ad: self.ad.clone(),
            audit: self.audit.clone(),
            mode: self.mode.clone(),
            copies: Arc::new(Notify::new()),
        }
    }

    fn catalogue(&self) -> Keeper {
        Keeper {
            config: self.config.clone(),
            links: self.directory.links.clone(),
            store: self.store.clone(),
            ad: self.ad.clone(),
            found: self.directory.found.clone(),
        }
    }
}
