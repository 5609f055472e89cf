//! Gets a cache for a user of this host: the local copy, or the newest version from another host.

use std::sync::Arc;
use std::time::Duration;

use axum::http::StatusCode;
use tidecast_depot::{CacheId, CacheRecord, Filter, Reader, State, Use};

use super::records::Records;
use crate::directory::newest_version::NewestVersion;
use crate::host::caller::{Caller, is_stranger};
use crate::host::limits::HostLimits;
use crate::model::api_error::{ApiError, ErrorKind};
use crate::model::name::CacheName;
use crate::model::types::{CacheInfo, Get, Got, Method};
use crate::storage::run_mode::{Mode, RunMode};
use crate::transfer::fetch_state::{Failed, FetchState};
use crate::transfer::requests::Requests;

/// Hands caches to users.
pub(crate) struct Getting {
    pub(crate) records: Arc<Records>,
    pub(crate) newest: NewestVersion,
    pub(crate) requests: Arc<Requests>,
    pub(crate) limits: Arc<HostLimits>,
    pub(crate) mode: Arc<RunMode>,
}

impl Getting {
    /// Has a cache here for `caller`, and kept while a process of his (by default the caller's parent) runs.
    /// `fetches`: from other hosts too, if need be.
    pub(crate) async fn get(
        &self,
        caller: &Caller,
        name: CacheName,
        (wait, fetches): (Duration, bool),
        get: Get,
    ) -> Result<Got, ApiError> {
        // Another user's daemon takes the bytes itself: no process of its is minded.
        if is_stranger(caller.uid, self.records.config.serves)
            && (get.copy_for.is_none() || get.place.is_some())
        {
            return Err(ApiError::forbidden("this daemon serves its own user only"));
        }
        if get.place.is_some() {
            let why = "this daemon does not write into directories of clients: use a tidecast of the same version, which creates \
                       the files itself";
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
        let here = self.records.store.here(&name, &reader);
        let (newer, mut older) = match &here {
            Some(record) if name.version.is_none() && !get.offline => {
                self.newest.renewed(record, &name, &reader).await
            }
            _ => (None, None),
        };
        if !fetches && (here.is_none() || newer.is_some()) {
            return Err(ApiError::absent(&name.to_string()));
        }
        let name = match (&here, newer) {
            (Some(record), None) => return self.hand(caller, record.id, user, (0.0, None), older).await,
            (_, newer) => newer.unwrap_or(name),
        };
        if name.origin.as_ref().is_none_or(|origin| *origin == self.records.config.name) {
            if let Some(damaged) = self.damaged(&name, &reader) {
                return Err(damaged);
            }
            if name.origin.is_some() {
                return Err(ApiError::absent(&name.to_string()));
            }
        }
        if self.mode.now() != Mode::Running {
            let why = "this daemon accepts no new caches: it is paused or drained";
            return match here {
                Some(record) => {
                    self.hand(caller, record.id, user, (0.0, None), not_received_reason(&record, &name, why))
                        .await
                }
                None => Err(Failed::new(ErrorKind::Denied, why).into()),
            };
        }
        let mut state = match (self.requests.fetch(name.clone(), reader, false), &here) {
            (Err(error), Some(record)) => {
                older = not_received_reason(record, &name, &error.why);
                return self.hand(caller, record.id, user, (0.0, None), older).await;
            }
            (state, _) => state?,
        };
        let settled = state.wait_for(|state| !matches!(state, FetchState::Waiting { .. }));
        let settled = tokio::time::timeout(wait, settled).await.map(|ended| ended.map(|state| state.clone()));
        if let Ok(Err(_)) = settled {
            let why = "the daemon is stopping; try again when it has started";
            return Err(ApiError::new(StatusCode::SERVICE_UNAVAILABLE, ErrorKind::Stopping, why));
        }
        let now = state.borrow().clone();
        match now {
            FetchState::Waiting { why, bytes, total } => Ok(Got::Wait { why, bytes, total }),
            FetchState::Failed(failed) => match here {
                Some(record) => {
                    self.hand(
                        caller,
                        record.id,
                        user,
                        (0.0, None),
                        not_received_reason(&record, &name, &failed.why),
                    )
                    .await
                }
                None => Err(failed.into()),
            },
            FetchState::Done { id, method, seconds } => {
                self.hand(caller, id, user, (seconds, Some(method)), None).await
            }
        }
    }

    async fn hand(
        &self,
        caller: &Caller,
        id: CacheId,
        user: Option<Use>,
        (seconds, method): (f64, Option<Method>),
        older: Option<String>,
    ) -> Result<Got, ApiError> {
        let record = self.records.readable(caller, id)?;
        let reader = caller.reader();
        let inode = self
            .records
            .store
            .on_disk(move |depot| {
                match user {
                    Some(user) => crate::local::uses::begin(depot, id, user, &reader)?,
                    // It is about to be copied: it counts as used.
                    None => drop(depot.busy(id, crate::clock::now())?),
                }
                depot.inode(id)
            })
            .await?;
        self.limits.adapt_to_jobs(&self.records.store.depot);
        let info = self.records.info(&record);
        let info = match is_stranger(caller.uid, self.records.config.serves) {
            // It receives the bytes: where they are and who uses them is of this user only.
            true => CacheInfo { path: None, users: 0, ..info },
            false => CacheInfo { inode: Some(inode), ..info },
        };
        Ok(Got::Ready { info: Box::new(info), seconds, method, older })
    }

    /// The error for a damaged cache of this host that no other host can replace: what to do about it.
    fn damaged(&self, name: &CacheName, reader: &Reader) -> Option<ApiError> {
        let filter = Filter {
            origin: Some(self.records.config.name.clone()),
            name: Some(name.name.clone()),
            state: Some(State::Invalid),
            reader: Some(reader.clone()),
            ..Default::default()
        };
        let mut all = self.records.store.depot.caches(&filter);
        all.retain(|record| name.version.is_none_or(|version| record.version == Some(version)));
        let found = all.into_iter().max_by_key(|record| record.version)?;
        let why = format!(
            "{} is damaged (INVALID) and was created on this host: remove it, then create it again from its files",
            found.full_name()
        );
        Some(ApiError::new(StatusCode::CONFLICT, ErrorKind::Invalid, why))
    }
}

/// Why an older version is given than the one that is known.
fn not_received_reason(here: &CacheRecord, newer: &CacheName, why: &str) -> Option<String> {
    Some(format!("{} is not the newest version; cannot get {newer}: {why}", here.full_name()))
}
