//! Caches that come: one task for each, whoever of this host waits for it. The request goes to the parent or the origin,
//! which grants, has us wait, or rejects; what was rejected is remembered (the paper's figure 1).

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tidecast_depot::{CacheId, CacheRecord, Reader};
use tidecast_identity::NodeId;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::JoinHandle;

use crate::assembly::{Daemon, Mode};
use crate::host::caller::{Caller, is_stranger};
use crate::model::api_error::ApiError;
use crate::model::name::CacheName;
use crate::model::types::{CacheInfo, Get, Got, Method, Underway};
use crate::transfer::fetch;

/// A rejection is not asked about again for so long.
const REJECTED: Duration = Duration::from_secs(15 * 60);
/// A source that failed is left alone for so long, then twice as long, up to an hour.
const SHUNNED: Duration = Duration::from_secs(30);
/// One that is not even reached may just be starting.
const UNREACHED: Duration = Duration::from_secs(10);
const SHUNNED_MOST: Duration = Duration::from_secs(3600);
/// How long the outcome of a fetch is told to who asks later.
const TOLD: Duration = Duration::from_secs(30);
/// Rejections and failures remembered.
const REMEMBERED: usize = 10_000;

/// How a fetch stands.
#[derive(Clone, Debug)]
pub(crate) enum Stand {
    /// What it waits for; bytes here and in all.
    Waiting { why: String, bytes: u64, total: u64 },
    /// Here.
    Done { id: CacheId, method: Method, seconds: f64 },
    /// It will not come.
    Failed(Failed),
}

/// Why a cache does not come.
#[derive(Clone, Debug)]
pub(crate) struct Failed {
    pub(crate) kind: &'static str,
    pub(crate) why: String,
}

impl Failed {
    pub(crate) fn new(kind: &'static str, why: impl Into<String>) -> Self {
        Self { kind, why: why.into() }
    }
}

impl From<Failed> for ApiError {
    fn from(failed: Failed) -> Self {
        let status = match failed.kind {
            "absent" => axum::http::StatusCode::NOT_FOUND,
            "denied" => axum::http::StatusCode::INSUFFICIENT_STORAGE,
            "rejected" => axum::http::StatusCode::FORBIDDEN,
            _ => axum::http::StatusCode::BAD_GATEWAY,
        };
        ApiError::new(status, failed.kind, failed.why)
    }
}

/// A name, and for whom.
type Key = (CacheName, String);

struct Fetch {
    stand: watch::Receiver<Stand>,
    task: JoinHandle<()>,
    ended: Option<Instant>,
}

/// All that are on their way, and what went wrong before.
pub(crate) struct Fetches {
    running: Mutex<HashMap<Key, Fetch>>,
    rejected: Mutex<HashMap<Key, (Instant, Failed)>>,
    /// What caches will be that are on their way.
    contents: Mutex<HashMap<CacheId, [u8; 32]>>,
    shunned: Mutex<HashMap<SocketAddr, (Instant, Duration)>>,
    room: Arc<Semaphore>,
    per_source: usize,
    sources: Mutex<HashMap<NodeId, Arc<Semaphore>>>,
    allowed: Mutex<usize>,
}

impl Fetches {
    pub(crate) fn new(transfers: usize, per_source: usize) -> Self {
        Self {
            running: Mutex::default(),
            rejected: Mutex::default(),
            contents: Mutex::default(),
            shunned: Mutex::default(),
            room: Arc::new(Semaphore::new(transfers)),
            per_source,
            sources: Mutex::default(),
            allowed: Mutex::new(transfers),
        }
    }

    /// A turn to take a cache from this host: so many go on at once.
    pub(crate) async fn turn(&self, source: NodeId) -> Option<OwnedSemaphorePermit> {
        let turns = {
            let mut sources = self.sources.lock();
            // Those of which nobody takes anything are no different from new ones.
            sources.retain(|node, turns| *node == source || Arc::strong_count(turns) > 1);
            sources.entry(source).or_insert_with(|| Arc::new(Semaphore::new(self.per_source))).clone()
        };
        turns.acquire_owned().await.ok()
    }

    /// From now on so many at once; those under way go on.
    pub(crate) fn allow(&self, transfers: usize) {
        let mut allowed = self.allowed.lock();
        if transfers > *allowed {
            self.room.add_permits(transfers - *allowed);
        } else {
            let (room, fewer) = (self.room.clone(), (*allowed - transfers) as u32);
            tokio::spawn(async move {
                if let Ok(permits) = room.acquire_many_owned(fewer).await {
                    permits.forget();
                }
            });
        }
        *allowed = transfers;
    }

    /// What is on its way now for these owners.
    pub(crate) fn under_way(&self, of: impl Fn(&str) -> bool) -> Vec<Underway> {
        let running = self.running.lock();
        let going_on = running.iter().filter(|((_, owner), fetch)| fetch.ended.is_none() && of(owner));
        let stands = going_on.map(|((name, owner), fetch)| {
            let known = Underway { name: name.to_string(), owner: owner.clone(), ..Underway::default() };
            match fetch.stand.borrow().clone() {
                Stand::Waiting { why, bytes, total } => Underway { why, bytes, total, ..known },
                Stand::Done { .. } | Stand::Failed(_) => known,
            }
        });
        stands.collect()
    }

    /// Ends all.
    pub(crate) async fn stop(&self) {
        let running: Vec<Fetch> = self.running.lock().drain().map(|(_, fetch)| fetch).collect();
        for fetch in running {
            fetch.task.abort();
            let _ = fetch.task.await;
        }
    }

    /// What a cache will be that is on its way.
    pub(crate) fn content(&self, id: CacheId) -> Option<[u8; 32]> {
        self.contents.lock().get(&id).copied()
    }

    /// Notes what a cache will be, until the guard is dropped.
    pub(crate) fn coming(&self, id: CacheId, content: [u8; 32]) -> Coming<'_> {
        self.contents.lock().insert(id, content);
        Coming { fetches: self, id }
    }

    /// A source has failed.
    pub(crate) fn shun(&self, addr: SocketAddr) {
        let mut shunned = self.shunned.lock();
        if shunned.len() >= REMEMBERED {
            shunned.retain(|_, (until, _)| *until > Instant::now());
        }
        let last = shunned.get(&addr).map_or(SHUNNED / 2, |(_, last)| *last);
        let time = (last * 2).min(SHUNNED_MOST);
        shunned.insert(addr, (Instant::now() + time, time));
    }

    /// An address does not answer.
    pub(crate) fn unreached(&self, addr: SocketAddr) {
        let mut shunned = self.shunned.lock();
        if shunned.len() >= REMEMBERED {
            shunned.retain(|_, (until, _)| *until > Instant::now());
        }
        let until = Instant::now() + UNREACHED;
        let (shunned_until, _) = shunned.entry(addr).or_insert((until, SHUNNED / 2));
        *shunned_until = until.max(*shunned_until);
    }

    /// A source has done well.
    pub(crate) fn forgive(&self, addr: SocketAddr) {
        self.shunned.lock().remove(&addr);
    }

    /// Whether a source is to be left alone.
    pub(crate) fn is_shunned(&self, addr: SocketAddr) -> bool {
        self.shunned.lock().get(&addr).is_some_and(|(until, _)| *until > Instant::now())
    }

    fn rejection(&self, key: &Key) -> Option<Failed> {
        let rejected = self.rejected.lock();
        rejected.get(key).filter(|(at, _)| at.elapsed() < REJECTED).map(|(_, why)| why.clone())
    }

    fn reject(&self, key: &Key, why: &Failed) {
        let mut rejected = self.rejected.lock();
        if rejected.len() >= REMEMBERED {
            rejected.retain(|_, (at, _)| at.elapsed() < REJECTED);
        }
        rejected.insert(key.clone(), (Instant::now(), why.clone()));
    }
}

/// Why an older version is given than the one that is known.
fn not_come(here: &CacheRecord, newer: &CacheName, why: &str) -> Option<String> {
    Some(format!("{} is not the newest version: {newer} cannot be had: {why}", here.full_name()))
}

/// A cache is on its way while this lives.
pub(crate) struct Coming<'a> {
    fetches: &'a Fetches,
    id: CacheId,
}

impl Drop for Coming<'_> {
    fn drop(&mut self) {
        self.fetches.contents.lock().remove(&self.id);
    }
}

impl Daemon {
    /// Has a cache here for `caller`, and kept while a process of his (by default the caller's parent) runs.
    pub(crate) async fn get(
        self: &Arc<Self>,
        caller: &Caller,
        name: CacheName,
        wait: Duration,
        get: Get,
    ) -> Result<Got, ApiError> {
        // Another user's daemon takes the bytes itself: no process of its is minded.
        if is_stranger(caller.uid, self.config.serves) && (get.copy_for.is_none() || get.place.is_some()) {
            return Err(ApiError::forbidden("this daemon serves its own user only"));
        }
        if get.place.is_some() {
            let why = "this daemon writes into no directory of its callers: use a tidecast of its version, which makes files \
                       itself";
            return Err(ApiError::malformed(why));
        }
        let (user, reader) = match &get.copy_for {
            None => {
                let (who, pid, job) = (caller.clone(), get.pid, get.job.clone());
                let found = tokio::task::spawn_blocking(move || who.process(pid, job)).await;
                (Some(found.map_err(ApiError::internal)??), caller.reader())
            }
            Some(user) => (None, caller.acts_for(user)?),
        };
        let here = self.here(&name, &reader);
        let (newer, mut older) = match &here {
            Some(record) if name.version.is_none() && !get.offline => {
                self.renewed(record, &name, &reader).await
            }
            _ => (None, None),
        };
        let name = match (&here, newer) {
            (Some(record), None) => return self.hand(caller, record.id, user, (0.0, None), older).await,
            (_, newer) => newer.unwrap_or(name),
        };
        if name.origin.as_ref().is_none_or(|origin| *origin == self.config.name) {
            if let Some(damaged) = self.damaged(&name, &reader) {
                return Err(damaged);
            }
            if name.origin.is_some() {
                return Err(ApiError::absent(&name.to_string()));
            }
        }
        if self.mode() != Mode::Running {
            let why = "this daemon takes nothing new: it is paused or drained";
            return match here {
                Some(record) => {
                    self.hand(caller, record.id, user, (0.0, None), not_come(&record, &name, why)).await
                }
                None => Err(Failed::new("denied", why).into()),
            };
        }
        let mut stand = match (self.fetch(name.clone(), reader, false), &here) {
            (Err(error), Some(record)) => {
                older = not_come(record, &name, &error.why);
                return self.hand(caller, record.id, user, (0.0, None), older).await;
            }
            (stand, _) => stand?,
        };
        let settled = stand.wait_for(|stand| !matches!(stand, Stand::Waiting { .. }));
        let settled = tokio::time::timeout(wait, settled).await.map(|ended| ended.map(|stand| stand.clone()));
        if let Ok(Err(_)) = settled {
            let why = "the daemon is being stopped; ask again when it has started";
            return Err(ApiError::new(axum::http::StatusCode::SERVICE_UNAVAILABLE, "stopping", why));
        }
        let now = stand.borrow().clone();
        match now {
            Stand::Waiting { why, bytes, total } => Ok(Got::Wait { why, bytes, total }),
            Stand::Failed(failed) => match here {
                Some(record) => {
                    self.hand(caller, record.id, user, (0.0, None), not_come(&record, &name, &failed.why))
                        .await
                }
                None => Err(failed.into()),
            },
            Stand::Done { id, method, seconds } => {
                self.hand(caller, id, user, (seconds, Some(method)), None).await
            }
        }
    }

    async fn hand(
        &self,
        caller: &Caller,
        id: CacheId,
        user: Option<tidecast_depot::Use>,
        (seconds, method): (f64, Option<Method>),
        older: Option<String>,
    ) -> Result<Got, ApiError> {
        let record = self.readable(caller, id)?;
        let reader = caller.reader();
        let inode = self
            .on_disk(move |depot| {
                match user {
                    Some(user) => crate::local::uses::begin(depot, id, user, &reader)?,
                    // It is about to be copied: it counts as used.
                    None => drop(depot.busy(id, crate::now())?),
                }
                depot.inode(id)
            })
            .await?;
        self.mind_jobs();
        let info = CacheInfo { inode: Some(inode), ..self.info(&record) };
        Ok(Got::Ready { info: Box::new(info), seconds, method, older })
    }

    /// A committed cache of this name that is here and that `reader` may read. Without an origin, this host's comes first.
    pub(crate) fn here(&self, name: &CacheName, reader: &Reader) -> Option<Arc<tidecast_depot::CacheRecord>> {
        let readable = |origin: &str| {
            let found = self.depot.find(origin, &name.name, name.version)?;
            (found.is_committed() && found.readable_by(reader)).then_some(found)
        };
        if let Some(origin) = &name.origin {
            return readable(origin);
        }
        readable(&self.config.name).or_else(|| {
            let filter = tidecast_depot::Filter {
                name: Some(name.name.clone()),
                state: Some(tidecast_depot::State::Committed),
                reader: Some(reader.clone()),
                ..Default::default()
            };
            let mut all = self.depot.caches(&filter);
            all.retain(|r| name.version.is_none_or(|v| r.version == Some(v)));
            all.into_iter().max_by_key(|r| (r.committed, r.version))
        })
    }

    /// One that was made here, and that nobody can have any more: what there is to do about it.
    fn damaged(&self, name: &CacheName, reader: &Reader) -> Option<ApiError> {
        let filter = tidecast_depot::Filter {
            origin: Some(self.config.name.clone()),
            name: Some(name.name.clone()),
            state: Some(tidecast_depot::State::Invalid),
            reader: Some(reader.clone()),
            ..Default::default()
        };
        let mut all = self.depot.caches(&filter);
        all.retain(|record| name.version.is_none_or(|version| record.version == Some(version)));
        let found = all.into_iter().max_by_key(|record| record.version)?;
        let why = format!(
            "{} is damaged (INVALID), and was made at this host: remove it, and create it again from its files",
            found.full_name()
        );
        Some(ApiError::new(axum::http::StatusCode::CONFLICT, "invalid", why))
    }

    /// The fetch of a cache for `reader`: one that runs already, or a new one. `offered`: nobody here has asked for it.
    pub(crate) fn fetch(
        self: &Arc<Self>,
        name: CacheName,
        reader: Reader,
        offered: bool,
    ) -> Result<watch::Receiver<Stand>, ApiError> {
        let key = (name.clone(), reader.owner.clone());
        if let Some(failed) = self.fetches.rejection(&key) {
            return Err(failed.into());
        }
        let mut running = self.fetches.running.lock();
        running.retain(|_, fetch| fetch.ended.is_none_or(|at| at.elapsed() < TOLD));
        if let Some(fetch) = running.get(&key) {
            let stands = match *fetch.stand.borrow() {
                Stand::Waiting { .. } => true,
                // What came may have been removed since.
                Stand::Done { id, .. } => self.depot.cache(id).is_some_and(|record| record.is_committed()),
                Stand::Failed(_) => false,
            };
            if stands {
                return Ok(fetch.stand.clone());
            }
        }
        let waiting = Stand::Waiting { why: "asking for it".into(), bytes: 0, total: 0 };
        let (tell, stand) = watch::channel(waiting);
        let (daemon, at) = (self.clone(), key.clone());
        let task = tokio::spawn(async move {
            let began = Instant::now();
            let room = daemon.fetches.room.clone();
            let Ok(permit) = room.acquire_owned().await else { return };
            let fetched = fetch::fetch(&daemon, &name, &reader, offered, &tell).await;
            drop(permit);
            let who = reader.owner.as_str();
            let stand = match fetched {
                Ok((id, method)) => {
                    daemon.note(who, "fetch", &name.to_string(), "ok");
                    Stand::Done { id, method, seconds: began.elapsed().as_secs_f64() }
                }
                Err(failed) => {
                    daemon.note(who, "fetch", &name.to_string(), &failed.why);
                    if failed.kind == "rejected" {
                        daemon.fetches.reject(&at, &failed);
                    }
                    Stand::Failed(failed)
                }
            };
            if let Some(fetch) = daemon.fetches.running.lock().get_mut(&at) {
                fetch.ended = Some(Instant::now());
            }
            tell.send_replace(stand);
        });
        running.insert(key, Fetch { stand: stand.clone(), task, ended: None });
        Ok(stand)
    }
}
