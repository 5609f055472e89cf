//! Receiving and relaying: the swarm of one broadcast on one host.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tidecast_identity::{Credential, ManifestId, NodeId, NodeKey, Tls};
use tidecast_metainfo::Manifest;
use tidecast_net::{
    Complained, LocalAddress, Membership, Network, Notice, RootsKey, Security, Swarm, SwarmOptions,
};
use tidecast_store::{Opened, Replace, Summary};
use tidecast_swarm::{Complaint, Policy};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::source::{Offer, Source};
use super::{Connection, Disconnect, WorkerEvent, base, place};
use crate::control::message::{Action, Done, ExistingFiles, Member, News, Right, Start, ToCoordinator};
use crate::error::Error;

/// Without a coordinator: the time without data after which an incomplete worker fails, and a complete one leaves.
const INCOMPLETE_TIMEOUT: Duration = Duration::from_secs(15);
const COMPLETE_TIMEOUT: Duration = Duration::from_secs(5);

/// One host's part in the swarm.
pub(super) struct Session {
    swarm: Swarm,
    notices: Option<mpsc::Receiver<Notice>>,
    complaints: Option<mpsc::Receiver<Complained>>,
    me: u32,
    planned: bool,
    members: BTreeMap<u32, Member>,
    /// The member that serves a share of the source from this host.
    source: Option<Source>,
    source_notices: Option<mpsc::Receiver<Notice>>,
    began: Instant,
    /// The connection to the coordinator is lost.
    alone: bool,
    /// The bytes moved so far, and when they last changed.
    moved: (u64, Instant),
    placing: Option<JoinHandle<Result<Summary, tidecast_net::Error>>>,
    placed: bool,
    /// Bytes of fingerprints that the origin sent for older versions on this host.
    compared: u64,
}

impl Session {
    /// Opens the destination and joins the swarm.
    pub(super) async fn open(
        start: Start,
        key: &NodeKey,
        (listener, offer): (std::net::TcpListener, Option<Offer>),
        local: &[LocalAddress],
        connection: &mut Connection,
    ) -> Result<Self, Error> {
        let began = Instant::now();
        let garbled = |what: &str| Error::Coordinator(format!("malformed {what} from the coordinator"));
        let manifest = Arc::new(Manifest::parse_draft(&start.manifest).map_err(|_| garbled("manifest"))?);
        connection.progress.wanted = manifest.total_len();
        let asking = security(&manifest, start.right.clone(), key)?;
        let security = security(&manifest, start.right, key)?;
        let origin = start.news.members.iter().find(|m| m.number == 0).map(|m| RootsKey::Of(NodeId(m.node)));
        let roots = origin.filter(|_| manifest.is_draft());
        let network = start.network.map(|(ip, bits)| Network::Prefix(ip, bits));
        let mut source = match (offer, start.source_member, &start.news.issue) {
            (Some(offer), Some(source_member), Some(issue)) => {
                let known = start.news.members.iter().map(|m| (m.number, m.clone())).collect();
                let of = (manifest.clone(), roots.clone());
                let opened =
                    Source::open(offer, source_member, of, (network.clone(), local), (issue, &known)).await;
                served(opened, connection).await
            }
            _ => None,
        };
        let source_notices = source.as_mut().and_then(|s| s.notices.take());
        let mut news = vec![start.news];
        let dest: std::ffi::OsString = std::os::unix::ffi::OsStringExt::from_vec(start.dest);
        // The source itself is never replaced or deleted.
        let is_source = start.source_identity.is_source(dest.as_ref(), start.force || start.delete)?;
        if let Some(records) = start.source_identity.records() {
            connection.records = Ok(Some(records));
        }
        let (force, delete) = (start.force && !is_source, start.delete && !is_source);
        // The user chose names and content, as with rsync and cp, so an older copy of unknown origin is replaced.
        let unknown = !is_source && !start.source_identity.lies_in(dest.as_ref());
        let records = connection.records.clone().unwrap_or_default();
        let replace = Replace { force, unknown, delete, records };
        let member = news.first().and_then(|news| news.members.iter().find(|m| m.number == 0));
        let origin = member.map(|member| member.addresses.clone()).unwrap_or_default();
        let checked = connection.checked.clone();
        let comparing = counted(base::compare_bases(start.bases, &manifest, origin, asking), &checked);
        let compared = connection.during(comparing, &mut news).await?;
        let how = place::How { durable: start.durable, replace, bases: compared.bases };
        let opened = place::open(&manifest, dest.as_ref(), how, connection, &mut news).await?;
        let (me, planned) = (start.me, start.planned);
        let mut options = options(opened, listener, security, network, local);
        options.planned = planned;
        options.roots = roots;
        if start.classic {
            options.policy = Policy::CLASSIC;
        }
        let mut swarm = Swarm::start(options)?;
        let notices = swarm.notices();
        let complaints = swarm.complaints();
        let members = BTreeMap::new();
        let (alone, moved, placing, placed) = (false, (0, began), None, false);
        let mut session = Self {
            swarm,
            notices,
            complaints,
            me,
            planned,
            members,
            source,
            source_notices,
            began,
            alone,
            moved,
            placing,
            placed,
            compared: compared.received,
        };
        for news in news {
            session.learn(news).await?;
        }
        Ok(session)
    }

    /// Adds members, and adopts its part in a plan.
    async fn learn(&mut self, news: News) -> Result<(), Error> {
        for member in news.members {
            let dialled = member.number != self.me && !member.addresses.is_empty();
            if dialled && !self.planned {
                // The origin is always connected to, of the others only a few.
                self.swarm.add_peer(member.addresses.clone(), member.number == 0).await;
            }
            self.members.insert(member.number, member);
        }
        if let Some(issue) = news.issue {
            let part = issue.part(self.me, &self.members);
            let (role, members) =
                part.map_err(|e| Error::Coordinator(format!("invalid plan from the coordinator: {e}")))?;
            self.swarm.plan(role, members).await?;
            if let Some(source) = &self.source {
                source.follow(&issue, &self.members).await?;
            }
        }
        Ok(())
    }

    /// Runs until the coordinator ends the broadcast or, without a coordinator, until no data moves.
    pub(super) async fn run(mut self, connection: &mut Connection) -> Result<(), Error> {
        let result = self.serve(connection).await;
        let store = self.swarm.store().clone();
        if result.is_err() {
            store.stop_waiting();
        }
        // A placing in progress is not interrupted, so that it leaves either the old or the new version.
        let _ = self.swarm.stop().await;
        if result.is_err() {
            store.abandon();
        }
        if let Some(source) = self.source {
            source.stop().await;
        }
        result
    }

    async fn serve(&mut self, connection: &mut Connection) -> Result<(), Error> {
        let mut progress = self.swarm.progress();
        loop {
            let idle = self.placing.is_none() && !self.placed;
            tokio::select! {
                complete = async { progress.wait_for(|p| p.complete).await.map(drop) }, if idle => {
                    complete.map_err(|_| tidecast_net::Error::Stopped)?;
                    self.placing = Some(tokio::task::spawn_blocking(self.swarm.finisher()));
                }
                placed = placed(&mut self.placing) => self.report_done(placed?, connection).await,
                complained = next(&mut self.complaints) => {
                    let why = match complained.why {
                        Complaint::Gone => 0,
                        Complaint::Silent => 1,
                        Complaint::Slow => 2,
                    };
                    connection.send(&ToCoordinator::Complaint { member: complained.member, why }).await;
                }
                notice = next(&mut self.notices) => {
                    if let Notice::Store { error } = notice {
                        return Err(Error::Coordinator(error.to_string()));
                    }
                }
                notice = next(&mut self.source_notices) => {
                    if let Notice::Store { error } = notice {
                        let error = Error::Coordinator(error.to_string());
                        self.source = served(Err(error), connection).await;
                    }
                }
                event = connection.next() => match event {
                    WorkerEvent::News(news) => self.learn(news).await?,
                    WorkerEvent::Tick => self.report(connection).await?,
                    // All hosts are served: the source ends, and reports exactly how much it sent.
                    WorkerEvent::Count => {
                        self.note_progress(connection);
                        if let Some(source) = self.source.take() {
                            connection.progress.served = source.stop().await;
                        }
                        connection.send(&ToCoordinator::Counted(connection.progress)).await;
                    }
                    WorkerEvent::Disconnect(Disconnect::Finished) => return Ok(()),
                    WorkerEvent::Disconnect(Disconnect::Lost) => {
                        tracing::warn!("lost the connection to the coordinator; continuing with the other members");
                        self.alone = true;
                        self.moved.1 = Instant::now();
                    }
                    WorkerEvent::Disconnect(disconnect) => return Err(disconnect.into()),
                },
            }
            if self.alone && self.placed && self.moved.1.elapsed() > COMPLETE_TIMEOUT {
                return Ok(());
            }
        }
    }

    /// Once a second: reports the progress, and checks for a stall.
    async fn report(&mut self, connection: &mut Connection) -> Result<(), Error> {
        self.note_progress(connection);
        connection.report_progress().await;
        let now = &connection.progress;
        let sum = now.verified + now.received + now.sent;
        if sum != self.moved.0 {
            self.moved = (sum, Instant::now());
        }
        let stuck = self.alone && !self.placed && self.placing.is_none();
        if stuck && self.moved.1.elapsed() > INCOMPLETE_TIMEOUT {
            return Err(Error::Coordinator(
                "lost the connection to the coordinator, and the other members do not have all data".into(),
            ));
        }
        Ok(())
    }

    fn note_progress(&self, connection: &mut Connection) {
        let now = self.swarm.progress().borrow().clone();
        let good = now.received_bytes.saturating_sub(now.duplicate_bytes + now.corrupt_bytes);
        let progress = &mut connection.progress;
        progress.waiting = self.swarm.store().waits_for().is_some();
        progress.wanted = progress.wanted.max(now.wanted_bytes);
        progress.verified = now.verified_bytes;
        progress.had = now.verified_bytes.saturating_sub(good);
        (progress.received, progress.sent) = (good + self.compared, now.sent_bytes);
        (progress.duplicate, progress.corrupt) = (now.duplicate_bytes, now.corrupt_bytes);
        progress.served = self.source.as_ref().map_or(progress.served, Source::sent);
    }

    async fn report_done(&mut self, mut summary: Summary, connection: &mut Connection) {
        if let (Err(why), true) = (&connection.records, summary.kept < summary.files) {
            let at = &summary.path;
            summary.warnings.push(tidecast_store::unrecorded(at, why));
        }
        self.placing = None;
        self.placed = true;
        self.moved.1 = Instant::now();
        if let Some(tell) = connection.placed.take() {
            tell();
        }
        self.note_progress(connection);
        let done = Done {
            progress: connection.progress,
            millis: u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX),
            files: summary.files,
            kept: summary.kept,
            action: match summary.fresh {
                true => Action::Delivered,
                false if summary.kept >= summary.files && summary.deleted == 0 => Action::Unchanged,
                false => Action::Replaced,
            },
            found: ExistingFiles {
                replaced: summary.replaced,
                replaced_foreign: summary.replaced_foreign,
                stale: summary.stale,
                foreign: summary.foreign,
                deleted: summary.deleted,
            },
            warnings: summary.warnings,
        };
        connection.send(&ToCoordinator::Done(Box::new(done))).await;
    }
}

/// Runs work that does not say how far it is, and ends by itself: its seconds count as progress.
async fn counted<T>(work: impl Future<Output = T>, seconds: &AtomicU64) -> T {
    let mut work = std::pin::pin!(work);
    loop {
        match tokio::time::timeout(Duration::from_secs(1), &mut work).await {
            Ok(done) => return done,
            Err(_) => seconds.fetch_add(1, Ordering::Relaxed),
        };
    }
}

/// Reports a source that could not be opened to the coordinator, which then plans without it.
async fn served(opened: Result<Source, Error>, connection: &mut Connection) -> Option<Source> {
    match opened {
        Ok(source) => Some(source),
        Err(error) => {
            connection.send(&ToCoordinator::SourceUnavailable(error.to_string())).await;
            None
        }
    }
}

pub(super) fn security(manifest: &Manifest, right: Option<Right>, key: &NodeKey) -> Result<Security, Error> {
    let Some(right) = right else { return Ok(Security::Open) };
    let bad = || Error::Coordinator("malformed credential from the coordinator".into());
    let swarm = ManifestId::V2(manifest.hash_v2().ok_or_else(bad)?).swarm();
    let credential = Credential::from_bytes(&right.credential).map_err(|_| bad())?;
    let owner = NodeId(right.owner);
    let membership = Membership::member(Tls::new(key)?, swarm, owner, None, Some(credential));
    Ok(Security::Private(Box::new(membership)))
}

pub(super) fn options(
    opened: Opened,
    listener: std::net::TcpListener,
    security: Security,
    network: Option<Network>,
    local: &[LocalAddress],
) -> SwarmOptions {
    SwarmOptions {
        opened,
        listen: Vec::<SocketAddr>::new(),
        listeners: vec![listener],
        shared_port: None,
        port: None,
        // A host without an address on it uses any network.
        network: network.filter(|n| local.iter().any(|a| n.holds(a))),
        security,
        policy: Policy::TIDECAST,
        seed_only: false,
        on_demand: None,
        group: Default::default(),
        planned: false,
        roots: None,
        web_seeds: false,
        throttle: None,
    }
}

async fn placed(
    placing: &mut Option<JoinHandle<Result<Summary, tidecast_net::Error>>>,
) -> Result<Summary, Error> {
    match placing {
        Some(task) => {
            let ended = task.await;
            Ok(ended.map_err(|e| Error::Coordinator(format!("a thread of the worker failed: {e}")))??)
        }
        None => std::future::pending().await,
    }
}

/// The next message; waits forever if the channel is closed.
async fn next<T>(from: &mut Option<mpsc::Receiver<T>>) -> T {
    match from {
        Some(from) => match from.recv().await {
            Some(next) => next,
            None => std::future::pending().await,
        },
        None => std::future::pending().await,
    }
}
