//! One cache from another host, from beginning to end: agree to what was granted, make room, move, commit.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use tidecast_classad::Ad;
use tidecast_depot::{Admission, CacheId, CacheRecord, Declare, Depot, Reader, Reservation};
use tidecast_metainfo::Manifest;
use tidecast_net::PeerReport;
use tidecast_store::{Base, DownloadOptions, Select};
use tokio::sync::watch;
use tokio::time::timeout;

use crate::assembly::Daemon;
use crate::directory::names::held;
use crate::links::link::Link;
use crate::model::attributes::Attributes;
use crate::model::message::{Answer, Ask, Want};
use crate::model::name::CacheName;
use crate::model::types::{Came, Method};
use crate::policy::ads;
use crate::transfer::delta;
use crate::transfer::grant::{Grant, ask};
use crate::transfer::handover;
use crate::transfer::requests::{Failed, Stand};
use crate::transfer::same_host;
use crate::transfer::swarms::{Fetching, SwarmError, SwarmId};

/// Nothing has come for so long: the source has failed.
const STALLED: Duration = Duration::from_secs(60);
/// Whoever has us wait is asked again for so long.
pub(crate) const PATIENCE: Duration = Duration::from_secs(3600);
/// Other holders that are connected to, besides the one that granted.
const NEIGHBOURS: usize = 8;
/// Nothing has come for so long, and the source is not there any more.
const LOST: Duration = Duration::from_secs(10);
/// Other sources are asked so often when one fails.
const RETRIES: u32 = 4;
/// Holders are looked for again this often while a cache comes.
const LOOK: Duration = Duration::from_secs(5);
/// Whether there is a plan is known within this time.
const PLAN: Duration = Duration::from_secs(1);
/// With a plan, others than those it names are met after so long: they are for when it does not hold.
const SPARE: Duration = Duration::from_secs(3);
/// How often progress is told.
const TELL: Duration = Duration::from_millis(250);

/// Brings the cache here. Tells how far it is as it goes.
pub(crate) async fn fetch(
    daemon: &Arc<Daemon>,
    name: &CacheName,
    reader: &Reader,
    offered: bool,
    tell: &watch::Sender<Stand>,
) -> Result<(CacheId, Method), Failed> {
    if let Some(done) = same_host::from_parent(daemon, name, reader, tell).await {
        return Ok(done);
    }
    let want = Want {
        name: name.to_string(),
        cache: None,
        reader: reader.owner.clone(),
        groups: reader.groups.clone(),
        ad: daemon.ad().map_err(|e| Failed::new("internal", e.to_string()))?.to_string(),
    };
    let mut tries = 0;
    loop {
        let grant = ask(daemon, name, &want, tell).await?;
        let source = grant.link.peer.addr;
        match bring(daemon, &grant, &want, offered, tell).await {
            // It has died, or does not give what it granted: there may be others.
            Err(failed) if failed.kind == "unreachable" && tries < RETRIES => {
                tracing::info!(%name, why = failed.why, "another source is asked");
                daemon.fetches.shun(source);
                tries += 1;
            }
            ended => return ended,
        }
    }
}

/// What was granted, from beginning to end.
async fn bring(
    daemon: &Arc<Daemon>,
    grant: &Grant,
    want: &Want,
    offered: bool,
    tell: &watch::Sender<Stand>,
) -> Result<(CacheId, Method), Failed> {
    agree(daemon, &grant.about)?;
    let method = method(daemon, grant)?;
    let manifest = Arc::new(manifest(grant).await?);
    if let Some(done) = same_host::bytes(daemon, &grant.about, &manifest, tell).await {
        return Ok(done);
    }
    let (reservation, reused) = match admit(daemon, &grant.about, &manifest, offered, tell).await? {
        Room::Kept(reservation, reused) => (reservation, reused),
        Room::Here(id) => return Ok((id, method)),
    };
    let id = manifest.hash_v2().unwrap_or_default();
    let held = held(&grant.about.full_name(), &id);
    daemon.membership.holds(held, false).await;
    let missing = select(&manifest, &reused);
    let dir = reservation.dir();
    let _turn = daemon.fetches.turn(grant.link.peer.node).await;
    let coming = daemon.fetches.coming(reservation.id(), id);
    let files = crate::model::files::missing(&manifest, &reused);
    let older = delta::bases(daemon, grant, &manifest, &dir, &files, tell).await;
    let whole = matches!(missing, Some(Select::All));
    let wanted = Bring { dir, missing, bases: older.bases };
    let moved = transfer(daemon, grant, &manifest, wanted, want, method, tell).await;
    // A swarm that has all of it serves on while its files become the store's.
    let goes_on = moved.is_ok() && method == Method::Swarm && whole;
    let swarm = if goes_on { daemon.swarms.progress(&id) } else { None };
    let peers = match &swarm {
        Some(_) => daemon.swarms.peers(&id).await,
        None => daemon.swarms.stop(&id).await.map(|summary| summary.peers).unwrap_or_default(),
    };
    let mut came = came(daemon, &grant.about, &peers);
    let is_origin = grant.link.peer.hello.name == grant.about.origin;
    *(if is_origin { &mut came.origin } else { &mut came.peers }) += older.received;
    daemon.swarms.count(0, older.received);
    if let Err(failed) = moved {
        daemon.membership.holds_not(&held).await;
        daemon.fetches.shun(grant.link.peer.addr);
        return Err(failed);
    }
    daemon.fetches.forgive(grant.link.peer.addr);
    drop(coming);
    let serves = swarm.is_some();
    let record = match swarm {
        Some(progress) => handover::commit(daemon, reservation, manifest, came, (id, progress)).await?,
        None => commit(daemon, reservation, manifest, came).await?,
    };
    daemon.changed.notify_one();
    if !serves
        && method == Method::Swarm
        && let Err(error) = daemon.serve_on(&record).await
    {
        tracing::warn!(error, cache = record.full_name(), "it is here, but not served");
    }
    Ok((record.id, method))
}

/// What has come, all of it verified, is a cache from here on.
pub(crate) async fn commit(
    daemon: &Daemon,
    reservation: Reservation,
    manifest: Arc<Manifest>,
    came: Came,
) -> Result<Arc<CacheRecord>, Failed> {
    let commit = move |_: &Depot| reservation.commit(&manifest, true, crate::now());
    let committed = daemon.on_disk(commit).await.map_err(|e| Failed::new("internal", e.why))?;
    daemon.arrived(committed.record.id, came).await;
    Ok(committed.record)
}

/// What a swarm received, by whether the cache's origin sent it.
fn came(daemon: &Daemon, about: &CacheRecord, peers: &[PeerReport]) -> Came {
    let origin = daemon.peers.find(|peer| peer.hello.name == about.origin).map(|link| link.peer.node);
    let mut came = Came::default();
    for peer in peers {
        let is_origin = peer.node.is_some() && peer.node == origin;
        *(if is_origin { &mut came.origin } else { &mut came.peers }) += peer.received_bytes;
    }
    came
}

/// Both ads are satisfied, and its owner's jobs are expected here.
pub(crate) fn agree(daemon: &Daemon, about: &CacheRecord) -> Result<(), Failed> {
    let cache = ads::cache(about).map_err(|e| Failed::new("rejected", e.to_string()))?;
    suits(daemon, &cache, &about.full_name(), &about.owner)
}

/// As [`agree`], by the ad of a cache.
pub(crate) fn suits(daemon: &Daemon, cache: &Ad, name: &str, owner: &str) -> Result<(), Failed> {
    let failed = |e: String| Failed::new("rejected", e);
    let host = daemon.ad().map_err(|e| failed(e.to_string()))?;
    if !ads::agree(cache, &host, false, crate::now()).map_err(|e| failed(e.to_string()))? {
        return Err(failed(format!("{name} and this host's requirements do not match")));
    }
    let owners = &daemon.config.owners;
    if !owners.is_empty() && !owners.iter().any(|expected| expected == owner) {
        return Err(failed(format!("no job of {owner} is expected on this host")));
    }
    Ok(())
}

/// The first of ours that the cache allows.
pub(crate) fn method(daemon: &Daemon, grant: &Grant) -> Result<Method, Failed> {
    let allowed = Attributes::of(&grant.about).methods();
    let ours = daemon.config.methods.iter().find(|method| allowed.contains(method));
    ours.copied().ok_or_else(|| {
        Failed::new("rejected", format!("{} travels by no method of this host", grant.about.full_name()))
    })
}

/// The manifest of what was granted, which is the one that it was to be.
pub(crate) async fn manifest(grant: &Grant) -> Result<Manifest, Failed> {
    let who = || grant.link.peer.hello.name.clone();
    let limit = tidecast_metainfo::MAX_LEN as u64;
    if grant.granted.manifest > limit {
        return Err(Failed::new(
            "rejected",
            format!("its manifest has {} bytes; at most {limit}", grant.granted.manifest),
        ));
    }
    let mut bytes = BytesMut::new();
    while (bytes.len() as u64) < grant.granted.manifest {
        let ask = Ask::Manifest { cache: grant.granted.cache.clone(), offset: bytes.len() as u64 };
        match grant.link.ask(&ask, Bytes::new()).await {
            Ok((Answer::Ok, payload)) if !payload.is_empty() => bytes.extend_from_slice(&payload),
            Ok(_) => return Err(Failed::new("unreachable", format!("{} does not give the manifest", who()))),
            Err(error) => return Err(Failed::new("unreachable", error.to_string())),
        }
    }
    let manifest =
        Manifest::parse(&bytes).map_err(|e| Failed::new("unreachable", format!("{}: {e}", who())))?;
    if manifest.hash_v2().is_none() || manifest.hash_v2() != grant.about.content {
        return Err(Failed::new("unreachable", format!("{} gives another manifest than it named", who())));
    }
    Ok(manifest)
}

/// What admission came to.
pub(crate) enum Room {
    /// Room is kept; these files need not come.
    Kept(Reservation, Vec<u32>),
    /// It has come meanwhile.
    Here(CacheId),
}

fn declare(daemon: &Daemon, about: &CacheRecord, manifest: &Manifest, offered: bool) -> Declare {
    let mut attributes = Attributes::of(about);
    (attributes.offered, attributes.came) = (offered, None);
    Declare {
        origin: about.origin.clone(),
        name: about.name.clone(),
        version: about.version,
        owner: about.owner.clone(),
        group: about.group.clone(),
        mode: about.mode,
        private: about.private,
        lease: Some(about.lease_until.saturating_sub(crate::now())),
        size: crate::model::files::size_of(manifest),
        local: crate::host::caller::local_of(&about.owner, about.group.as_deref(), daemon.config.serves),
        attributes: attributes.to_map(),
    }
}

pub(crate) async fn admit(
    daemon: &Arc<Daemon>,
    about: &CacheRecord,
    manifest: &Arc<Manifest>,
    offered: bool,
    tell: &watch::Sender<Stand>,
) -> Result<Room, Failed> {
    let declare = declare(daemon, about, manifest, offered);
    let began = Instant::now();
    loop {
        let (declare, manifest) = (declare.clone(), manifest.clone());
        let admitting = move |depot: &Depot| {
            let now = crate::now();
            let record = depot.declare(declare, now)?;
            if record.is_committed() {
                return Ok(Err(record.id));
            }
            let owner = Reader::owner(&record.owner);
            let admission = depot.admit(record.id, Some(&manifest), &owner, now)?;
            let reused = match &admission {
                Admission::Ok(reservation) => reservation.reuse(&manifest, &owner)?.files,
                Admission::Denied(_) => {
                    // What is refused leaves nothing, unless it comes for somebody else.
                    let _ = depot.remove(record.id, now);
                    Vec::new()
                }
                Admission::Wait(_) => Vec::new(),
            };
            Ok::<_, tidecast_depot::Error>(Ok((admission, reused)))
        };
        let denied = |why: String| Failed::new("denied", why);
        match daemon.on_disk(admitting).await.map_err(|e| denied(e.why))? {
            Err(id) => return Ok(Room::Here(id)),
            Ok((Admission::Ok(reservation), reused)) => return Ok(Room::Kept(reservation, reused)),
            Ok((Admission::Denied(reason), _)) => {
                return Err(denied(format!("there is no room for it: {reason}")));
            }
            Ok((Admission::Wait(reason), _)) if began.elapsed() < PATIENCE => {
                let why = format!("waiting for room: {reason}");
                tell.send_replace(Stand::Waiting { why, bytes: 0, total: about.bytes });
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
            Ok((Admission::Wait(reason), _)) => return Err(denied(format!("no room came free: {reason}"))),
        }
    }
}

/// What is to be brought, and where.
pub(crate) struct Bring {
    pub(crate) dir: PathBuf,
    /// None: nothing.
    pub(crate) missing: Option<Select>,
    /// Older versions that may have some of it.
    pub(crate) bases: Vec<Base>,
}

/// Moves the bytes: by the engine, from one source or from all who have it.
pub(crate) async fn transfer(
    daemon: &Arc<Daemon>,
    grant: &Grant,
    manifest: &Arc<Manifest>,
    bring: Bring,
    want: &Want,
    method: Method,
    tell: &watch::Sender<Stand>,
) -> Result<(), Failed> {
    let failed = |e: &dyn std::fmt::Display| Failed::new("unreachable", e.to_string());
    // All of it is here, in other caches of its owner.
    let Bring { dir, missing, bases } = bring;
    let above = dir.clone();
    let Some(select) = missing else { return Ok(()) };
    let (swarms, wanted) = (daemon.clone(), manifest.clone());
    let options = DownloadOptions { select, bases, ..DownloadOptions::default() };
    let start = move || {
        let dir = swarms.depot.open_dir(&dir)?;
        swarms.swarms.fetch(&wanted, dir, &options)
    };
    let (id, fetching) = begin(daemon, manifest, start).await?;
    // The store has taken from it what it can.
    if let Ok(dir) = daemon.depot.open_dir(&above).map(Arc::new) {
        delta::clear(&dir).await;
    }
    daemon.swarms.admit(id, grant.link.peer.node);
    if method == Method::Swarm {
        fetching.follow(grant.link.peer.node).await;
    }
    fetching.add(addresses(&grant.link)).await;
    let joining = async {
        if !grant.link.peer.called {
            call_back(grant, want, &id).await;
        }
        if method == Method::Swarm {
            wait_for_plan(&fetching).await;
            join(daemon, grant, want, &id, &fetching).await;
        }
        std::future::pending::<()>().await;
    };
    tokio::select! {
        watched = watch_it(grant, &fetching, tell) => watched?,
        () = joining => {}
    }
    let swarms = daemon.clone();
    let finished =
        tokio::task::spawn_blocking(move || swarms.swarms.finish(&id)).await.map_err(|e| failed(&e))?;
    finished.map(|_| ()).map_err(|e| Failed::new("internal", e.to_string()))
}

/// Starts a swarm that fetches. One of the same content that only serves another owner's cache makes way for it; one that fetches
/// is waited for.
async fn begin(
    daemon: &Arc<Daemon>,
    manifest: &Manifest,
    start: impl Fn() -> Result<(SwarmId, Fetching), SwarmError> + Clone + Send + 'static,
) -> Result<(SwarmId, Fetching), Failed> {
    let internal = |e: String| Failed::new("internal", e);
    let began = Instant::now();
    loop {
        let started =
            tokio::task::spawn_blocking(start.clone()).await.map_err(|e| internal(e.to_string()))?;
        match started {
            Err(SwarmError::Fetching) if began.elapsed() < PATIENCE => {}
            other => return other.map_err(|e| internal(e.to_string())),
        }
        let id = manifest.hash_v2().unwrap_or_default();
        if daemon.swarms.only_seeds(&id) {
            daemon.swarms.stop(&id).await;
        } else {
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    }
}

/// All but what is here; None: nothing has to come.
fn select(manifest: &Manifest, reused: &[u32]) -> Option<Select> {
    if reused.is_empty() {
        return Some(Select::All);
    }
    let missing = crate::model::files::missing(manifest, reused);
    (!missing.is_empty()).then_some(Select::Files(missing))
}

/// Until all is there and verified, or nothing has come for too long.
async fn watch_it(grant: &Grant, fetching: &Fetching, tell: &watch::Sender<Stand>) -> Result<(), Failed> {
    let mut progress = fetching.progress.clone();
    let (mut last, mut moved) = (0, Instant::now());
    loop {
        let now = progress.borrow_and_update().clone();
        if now.complete {
            return Ok(());
        }
        if now.received_bytes + now.verified_bytes != last {
            (last, moved) = (now.received_bytes + now.verified_bytes, Instant::now());
        }
        if moved.elapsed() > STALLED || moved.elapsed() > LOST && !grant.link.is_up() {
            let name = &grant.link.peer.hello.name;
            return Err(Failed::new(
                "unreachable",
                format!("nothing has come from {name} for {} s", moved.elapsed().as_secs()),
            ));
        }
        let why = format!("{} is coming from {} hosts", grant.about.full_name(), now.peers);
        tell.send_replace(Stand::Waiting { why, bytes: now.verified_bytes, total: now.wanted_bytes });
        tokio::select! {
            changed = progress.changed() => if changed.is_err() {
                return Err(Failed::new("internal", "the swarm ended by itself"));
            },
            () = tokio::time::sleep(TELL) => {}
        }
    }
}

/// Has the one that granted it connect to us, as it did before: it may be behind a NAT.
async fn call_back(grant: &Grant, want: &Want, id: &SwarmId) {
    let want = Want { cache: Some(data_encoding::HEXLOWER.encode(id)), ..want.clone() };
    if let Err(error) = grant.link.ask(&Ask::Join(want), Bytes::new()).await {
        tracing::debug!(%error, "the source was not asked to connect");
    }
}

/// Until it is known that there is no plan, or the plan may have failed.
async fn wait_for_plan(fetching: &Fetching) {
    let mut progress = fetching.progress.clone();
    let _ = timeout(PLAN, progress.wait_for(|now| !now.gathering)).await;
    let planned = progress.borrow().planned;
    if planned {
        tokio::time::sleep(SPARE).await;
    }
}

/// Makes the acquaintance of others who have it, or are fetching it: those whom the source has named, and those who say so.
async fn join(daemon: &Arc<Daemon>, grant: &Grant, want: &Want, id: &[u8; 32], fetching: &Fetching) {
    let want = Want { cache: Some(data_encoding::HEXLOWER.encode(id)), ..want.clone() };
    let named = async {
        for addresses in grant.granted.holders.iter().take(NEIGHBOURS) {
            if let Ok(link) = daemon.peers.at(addresses, daemon).await {
                meet(daemon, &link, &want, id, fetching).await;
            }
        }
    };
    let said = async {
        let held = held(&grant.about.full_name(), id);
        let mut known = vec![grant.link.peer.node];
        while known.len() <= 2 * NEIGHBOURS {
            for link in daemon.reach_holders(&held, &known, NEIGHBOURS / 2).await {
                known.push(link.peer.node);
                meet(daemon, &link, &want, id, fetching).await;
            }
            tokio::time::sleep(LOOK).await;
        }
    };
    tokio::join!(named, said);
}

async fn meet(daemon: &Daemon, link: &Link, want: &Want, id: &[u8; 32], fetching: &Fetching) {
    if let Ok((Answer::Ok, _)) = link.ask(&Ask::Join(want.clone()), Bytes::new()).await {
        daemon.swarms.admit(*id, link.peer.node);
        fetching.add(addresses(link)).await;
    }
}

/// Where a daemon's door is: the address that serves first.
fn addresses(link: &Link) -> Vec<SocketAddr> {
    let mut all = link.peer.hello.addresses.clone();
    // What it was reached by is right, if it was dialled: its port is the door's.
    if let Some(at) = all.iter().position(|addr| *addr == link.peer.addr) {
        all.swap(0, at);
    } else if let Some(port) = all.first().map(SocketAddr::port) {
        all.insert(0, SocketAddr::new(link.peer.addr.ip(), port));
    }
    all.truncate(2);
    all
}
