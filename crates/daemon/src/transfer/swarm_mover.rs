//! Moves bytes by the engine: from the one daemon that granted a cache, or from all that have it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use tidecast_metainfo::Manifest;
use tidecast_net::PeerReport;
use tidecast_store::DownloadOptions;
use tokio::sync::watch;
use tokio::time::timeout;

use super::delta;
use super::fetch_state::{Failed, FetchState, PATIENCE};
use super::grant::Grant;
use super::mover::{Bring, Mover, Moving, Serving};
use super::swarms::{Fetching, SwarmError, SwarmId, Swarms};
use crate::directory::sources::Directory;
use crate::links::link::Link;
use crate::model::api_error::ErrorKind;
use crate::model::message::{Answer, Ask, Want};
use crate::model::signed_name::held;
use crate::model::types::{Method, ReceivedBytes};
use crate::storage::store::Store;

/// Nothing has come for this long: the source has failed.
const STALLED: Duration = Duration::from_secs(60);
/// Other holders that are connected to, besides the one that granted.
const NEIGHBOURS: usize = 8;
/// Nothing has come for this long, and the source is not there any more.
const LOST: Duration = Duration::from_secs(10);
/// Holders are looked for again this often while a cache comes.
const LOOK: Duration = Duration::from_secs(5);
/// Whether there is a plan is known within this time.
const PLAN: Duration = Duration::from_secs(1);
/// With a broadcast plan, other peers are contacted only after this time: they are needed only if the plan
/// fails.
const SPARE: Duration = Duration::from_secs(3);
/// Interval of progress reports.
const TELL: Duration = Duration::from_millis(250);

/// The engine, and the search for more sources while it runs.
pub(crate) struct SwarmMover {
    pub(crate) store: Arc<Store>,
    pub(crate) directory: Arc<Directory>,
    pub(crate) swarms: Arc<Swarms>,
}

impl Mover for SwarmMover {
    fn bring<'a>(
        &'a self,
        grant: &'a Grant,
        bring: Bring,
        want: &'a Want,
        method: Method,
        tell: &'a watch::Sender<FetchState>,
    ) -> Moving<'a, Result<(), Failed>> {
        Box::pin(self.transfer(grant, bring, want, method, tell))
    }

    fn end<'a>(&'a self, content: &'a [u8; 32], origin: &'a str) -> Moving<'a, ReceivedBytes> {
        Box::pin(async move {
            let ended = self.swarms.stop(content).await;
            self.came(origin, &ended.map(|summary| summary.peers).unwrap_or_default())
        })
    }

    fn serve_on<'a>(
        &'a self,
        content: &'a [u8; 32],
        origin: &'a str,
    ) -> Moving<'a, (ReceivedBytes, Option<Serving>)> {
        Box::pin(async move {
            match self.swarms.progress(content) {
                Some(progress) => (self.came(origin, &self.swarms.peers(content).await), Some(progress)),
                None => (self.end(content, origin).await, None),
            }
        })
    }
}

impl SwarmMover {
    /// Moves the bytes with the engine, from one source or from all that have it.
    async fn transfer(
        &self,
        grant: &Grant,
        bring: Bring,
        want: &Want,
        method: Method,
        tell: &watch::Sender<FetchState>,
    ) -> Result<(), Failed> {
        let failed = |e: &dyn std::fmt::Display| Failed::new(ErrorKind::Unreachable, e.to_string());
        // All of it is here, in other caches of its owner.
        let Bring { manifest, dir, missing, bases } = bring;
        let above = dir.clone();
        let Some(select) = missing else { return Ok(()) };
        let (depot, swarms, wanted) = (self.store.depot.clone(), self.swarms.clone(), manifest.clone());
        let options = DownloadOptions { select, bases, ..DownloadOptions::default() };
        let start = move || {
            let dir = depot.open_dir(&dir)?;
            swarms.fetch(&wanted, dir, &options)
        };
        let (id, fetching) = self.begin(&manifest, start).await?;
        // The store has reused as much of it as it can.
        if let Ok(dir) = self.store.depot.open_dir(&above).map(Arc::new) {
            delta::clear(&dir).await;
        }
        self.swarms.admit(id, grant.link.peer.node);
        if method == Method::Swarm {
            fetching.follow(grant.link.peer.node).await;
        }
        fetching.add(addresses(&grant.link)).await;
        let joining = async {
            if !grant.link.peer.called {
                request_connection(grant, want, &id).await;
            }
            if method == Method::Swarm {
                wait_for_plan(&fetching).await;
                self.join(grant, want, &id, &fetching).await;
            }
            std::future::pending::<()>().await;
        };
        tokio::select! {
            watched = watch_progress(grant, &fetching, tell) => watched?,
            () = joining => {}
        }
        let swarms = self.swarms.clone();
        let finished =
            tokio::task::spawn_blocking(move || swarms.finish(&id)).await.map_err(|e| failed(&e))?;
        finished.map(|_| ()).map_err(|e| Failed::new(ErrorKind::Internal, e.to_string()))
    }

    /// Starts a swarm that fetches. One of the same content that only serves another owner's cache makes way for it; one that fetches
    /// is waited for.
    async fn begin(
        &self,
        manifest: &Manifest,
        start: impl Fn() -> Result<(SwarmId, Fetching), SwarmError> + Clone + Send + 'static,
    ) -> Result<(SwarmId, Fetching), Failed> {
        let internal = |e: String| Failed::new(ErrorKind::Internal, e);
        let began = Instant::now();
        loop {
            let started =
                tokio::task::spawn_blocking(start.clone()).await.map_err(|e| internal(e.to_string()))?;
            match started {
                Err(SwarmError::Fetching) if began.elapsed() < PATIENCE => {}
                other => return other.map_err(|e| internal(e.to_string())),
            }
            let id = manifest.hash_v2().unwrap_or_default();
            if self.swarms.only_seeds(&id) {
                self.swarms.stop(&id).await;
            } else {
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        }
    }

    /// Connects to more peers that have or fetch the cache: those that the source named, and those that
    /// announce it.
    async fn join(&self, grant: &Grant, want: &Want, id: &[u8; 32], fetching: &Fetching) {
        let want = Want { cache: Some(data_encoding::HEXLOWER.encode(id)), ..want.clone() };
        let named = async {
            for addresses in grant.granted.holders.iter().take(NEIGHBOURS) {
                if let Ok(link) = self.directory.links.at(addresses).await {
                    self.meet(&link, &want, id, fetching).await;
                }
            }
        };
        let said = async {
            let held = held(&grant.about.full_name(), id);
            let mut known = vec![grant.link.peer.node];
            while known.len() <= 2 * NEIGHBOURS {
                for link in self.directory.reach_holders(&held, &known, NEIGHBOURS / 2).await {
                    known.push(link.peer.node);
                    self.meet(&link, &want, id, fetching).await;
                }
                tokio::time::sleep(LOOK).await;
            }
        };
        tokio::join!(named, said);
    }

    async fn meet(&self, link: &Link, want: &Want, id: &[u8; 32], fetching: &Fetching) {
        if let Ok((Answer::Ok, _)) = link.ask(&Ask::Join(want.clone()), Bytes::new()).await {
            self.swarms.admit(*id, link.peer.node);
            fetching.add(addresses(link)).await;
        }
    }

    /// The bytes that a swarm received, by whether the cache's origin sent them.
    fn came(&self, origin: &str, peers: &[PeerReport]) -> ReceivedBytes {
        let origin = self.directory.links.find(|peer| peer.hello.name == origin).map(|link| link.peer.node);
        let mut came = ReceivedBytes::default();
        for peer in peers {
            let is_origin = peer.node.is_some() && peer.node == origin;
            *(if is_origin { &mut came.origin } else { &mut came.peers }) += peer.received_bytes;
        }
        came
    }
}

/// Until all is there and verified, or nothing has come for too long.
async fn watch_progress(
    grant: &Grant,
    fetching: &Fetching,
    tell: &watch::Sender<FetchState>,
) -> Result<(), Failed> {
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
                ErrorKind::Unreachable,
                format!("no data from {name} for {} s", moved.elapsed().as_secs()),
            ));
        }
        let why = format!("receiving {} from {} hosts", grant.about.full_name(), now.peers);
        tell.send_replace(FetchState::Waiting { why, bytes: now.verified_bytes, total: now.wanted_bytes });
        tokio::select! {
            changed = progress.changed() => if changed.is_err() {
                return Err(Failed::new(ErrorKind::Internal, "the swarm ended unexpectedly"));
            },
            () = tokio::time::sleep(TELL) => {}
        }
    }
}

/// Has the one that granted it connect to us, as it did before: it may be behind a NAT.
async fn request_connection(grant: &Grant, want: &Want, id: &SwarmId) {
    let want = Want { cache: Some(data_encoding::HEXLOWER.encode(id)), ..want.clone() };
    if let Err(error) = grant.link.ask(&Ask::Join(want), Bytes::new()).await {
        tracing::debug!(%error, "cannot ask the source to connect");
    }
}

/// Waits until it is known that there is no plan, or that the plan may have failed.
async fn wait_for_plan(fetching: &Fetching) {
    let mut progress = fetching.progress.clone();
    let _ = timeout(PLAN, progress.wait_for(|now| !now.gathering)).await;
    let planned = progress.borrow().planned;
    if planned {
        tokio::time::sleep(SPARE).await;
    }
}

/// Where a daemon listens: the address that serves first.
fn addresses(link: &Link) -> Vec<SocketAddr> {
    let mut all = link.peer.hello.addresses.clone();
    // The dialled address is right: its port is the listening one.
    if let Some(at) = all.iter().position(|addr| *addr == link.peer.addr) {
        all.swap(0, at);
    } else if let Some(port) = all.first().map(SocketAddr::port) {
        all.insert(0, SocketAddr::new(link.peer.addr.ip(), port));
    }
    all.truncate(2);
    all
}
