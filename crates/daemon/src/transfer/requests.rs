//! Fetches of caches: one task for each, however many callers of this host wait for it. Rejections are
//! remembered (the paper's figure 1).

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tidecast_depot::Reader;
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::fetch::Fetcher;
use super::fetch_state::{Failed, FetchState};
use crate::host::shares::Shares;
use crate::model::api_error::{ApiError, ErrorKind};
use crate::model::name::CacheName;
use crate::model::types::TransferProgress;
use crate::storage::audit::Audit;
use crate::storage::store::Store;

/// A rejection is not asked about again for this long.
const REJECTED: Duration = Duration::from_secs(15 * 60);
/// Later callers get the result of a fetch for this long.
const TOLD: Duration = Duration::from_secs(30);
/// Fetches of one owner that are in progress or wait.
const WAITING: usize = 1000;
/// Rejections remembered.
const REMEMBERED: usize = 10_000;

/// A name, and the reader.
type Key = (CacheName, String);

struct Fetch {
    state: watch::Receiver<FetchState>,
    task: JoinHandle<()>,
    ended: Option<Instant>,
}

/// All fetches in progress, and recent failures.
pub(crate) struct Requests {
    fetcher: Arc<Fetcher>,
    store: Arc<Store>,
    audit: Arc<Audit>,
    running: Mutex<HashMap<Key, Fetch>>,
    rejected: Mutex<HashMap<Key, (Instant, Failed)>>,
    room: Arc<Semaphore>,
    /// Of each owner one fetch waits for room: those of others take their turns between an owner's many.
    turns: Shares<String>,
    allowed: Mutex<usize>,
}

impl Requests {
    /// `transfers`: maximum of concurrent fetches.
    pub(crate) fn new(fetcher: Arc<Fetcher>, store: Arc<Store>, audit: Arc<Audit>, transfers: usize) -> Self {
        Self {
            fetcher,
            store,
            audit,
            running: Mutex::default(),
            rejected: Mutex::default(),
            room: Arc::new(Semaphore::new(transfers)),
            turns: Shares::new(1),
            allowed: Mutex::new(transfers),
        }
    }

    /// Sets the maximum of concurrent fetches; running ones continue.
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

    /// Fetches in progress for these owners.
    pub(crate) fn under_way(&self, of: impl Fn(&str) -> bool) -> Vec<TransferProgress> {
        let running = self.running.lock();
        let going_on = running.iter().filter(|((_, owner), fetch)| fetch.ended.is_none() && of(owner));
        let reusable = going_on.map(|((name, owner), fetch)| {
            let known = TransferProgress {
                name: name.to_string(),
                owner: owner.clone(),
                ..TransferProgress::default()
            };
            match fetch.state.borrow().clone() {
                FetchState::Waiting { why, bytes, total } => TransferProgress { why, bytes, total, ..known },
                FetchState::Done { .. } | FetchState::Failed(_) => known,
            }
        });
        reusable.collect()
    }

    /// Ends all.
    pub(crate) async fn stop(&self) {
        let running: Vec<Fetch> = self.running.lock().drain().map(|(_, fetch)| fetch).collect();
        for fetch in running {
            fetch.task.abort();
            let _ = fetch.task.await;
        }
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

    /// The fetch of a cache for `reader`: a running one, or a new one. `offered`: no user of this host
    /// requested it.
    pub(crate) fn fetch(
        self: &Arc<Self>,
        name: CacheName,
        reader: Reader,
        offered: bool,
    ) -> Result<watch::Receiver<FetchState>, ApiError> {
        let key = (name.clone(), reader.owner.clone());
        if let Some(failed) = self.rejection(&key) {
            return Err(failed.into());
        }
        let mut running = self.running.lock();
        running.retain(|_, fetch| fetch.ended.is_none_or(|at| at.elapsed() < TOLD));
        if let Some(fetch) = running.get(&key) {
            let reusable = match *fetch.state.borrow() {
                FetchState::Waiting { .. } => true,
                // A fetched cache may have been removed since.
                FetchState::Done { id, .. } => {
                    self.store.depot.cache(id).is_some_and(|record| record.is_committed())
                }
                FetchState::Failed(_) => false,
            };
            if reusable {
                return Ok(fetch.state.clone());
            }
        }
        let own =
            running.iter().filter(|((_, owner), fetch)| *owner == reader.owner && fetch.ended.is_none());
        if own.count() >= WAITING {
            let why = format!("{WAITING} fetches for {} are in progress; try again later", reader.owner);
            return Err(Failed::new(ErrorKind::Wait, why).into());
        }
        let waiting = FetchState::Waiting { why: "looking for a source".into(), bytes: 0, total: 0 };
        let (tell, state) = watch::channel(waiting);
        let (requests, at) = (self.clone(), key.clone());
        let task = tokio::spawn(async move {
            let began = Instant::now();
            let turn = requests.turns.of(reader.owner.clone()).acquire_owned().await;
            let Ok(permit) = requests.room.clone().acquire_owned().await else { return };
            drop(turn);
            let fetched = requests.fetcher.fetch(&name, &reader, offered, &tell).await;
            drop(permit);
            let who = reader.owner.as_str();
            let state = match fetched {
                Ok((id, method)) => {
                    requests.audit.note(who, "fetch", &name.to_string(), "ok");
                    FetchState::Done { id, method, seconds: began.elapsed().as_secs_f64() }
                }
                Err(failed) => {
                    requests.audit.note_shared(who, "fetch", &name.to_string(), &failed.why);
                    if failed.kind == ErrorKind::Rejected {
                        requests.reject(&at, &failed);
                    }
                    FetchState::Failed(failed)
                }
            };
            if let Some(fetch) = requests.running.lock().get_mut(&at) {
                fetch.ended = Some(Instant::now());
            }
            tell.send_replace(state);
        });
        running.insert(key, Fetch { state: state.clone(), task, ended: None });
        Ok(state)
    }
}
