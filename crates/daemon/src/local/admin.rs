//! Administration of this daemon: commands, status, audit log.

use std::sync::Arc;

use axum::http::StatusCode;
use tidecast_depot::Filter;

use super::records::Records;
use super::uses::Uses;
use crate::config::{Config, Serves};
use crate::directory::membership::Membership;
use crate::host::caller::Caller;
use crate::host::election::Election;
use crate::host::limits::HostLimits;
use crate::links::peers::Links;
use crate::model::api_error::{ApiError, ErrorKind};
use crate::model::name::is_called;
use crate::model::types::{Event, Limit, Status};
use crate::storage::audit::Audit;
use crate::storage::run_mode::{Mode, RunMode};
use crate::transfer::received::ReceivedTotals;
use crate::transfer::requests::Requests;
use crate::transfer::swarms::Swarms;

/// The controls of a daemon.
pub(crate) struct Admin {
    pub(crate) config: Arc<Config>,
    /// The daemon's key.
    pub(crate) node: String,
    pub(crate) records: Arc<Records>,
    pub(crate) uses: Arc<Uses>,
    pub(crate) links: Arc<Links>,
    pub(crate) membership: Arc<Membership>,
    pub(crate) election: Arc<Election>,
    pub(crate) swarms: Arc<Swarms>,
    pub(crate) requests: Arc<Requests>,
    pub(crate) received_totals: Arc<ReceivedTotals>,
    pub(crate) limits: Arc<HostLimits>,
    pub(crate) mode: Arc<RunMode>,
    pub(crate) audit: Arc<Audit>,
}

impl Admin {
    /// The audit log of caches for a caller: his own actions, and all about a name that he may read.
    pub(crate) async fn history(
        &self,
        caller: &Caller,
        name: Option<String>,
    ) -> Result<Vec<Event>, ApiError> {
        let reader = caller.reader();
        let readable = self.records.store.depot.caches(&Filter { reader: Some(reader), ..Filter::default() });
        let mine: std::collections::HashSet<String> = readable.iter().map(|r| r.full_name()).collect();
        let (rules, who) = (caller.rules(), caller.name.clone());
        let about = move |event: &Event| {
            let named = name.as_ref().is_none_or(|name| is_called(&event.cache, name));
            named && (rules || event.who == who || mine.contains(&event.cache))
        };
        let audit = self.audit.clone();
        let read = tokio::task::spawn_blocking(move || audit.read(about)).await;
        read.map_err(ApiError::internal)?.map_err(ApiError::internal)
    }

    /// Executes a command of an administrator.
    pub(crate) async fn admin(&self, caller: &Caller, what: &str, limit: Limit) -> Result<Status, ApiError> {
        if !caller.rules() {
            return Err(ApiError::forbidden("only the administrator of this daemon may do that"));
        }
        self.execute(what, limit).await
    }

    /// Executes a command of an administrator of this host or of the site.
    pub(crate) async fn execute(&self, what: &str, limit: Limit) -> Result<Status, ApiError> {
        match what {
            "status" => return self.status(),
            "resume" => self.mode.set(Mode::Running).await,
            "pause" => self.mode.set(Mode::Paused).await,
            "drain" => self.mode.set(Mode::Draining).await,
            "limit" => {
                if limit.busy.is_some_and(|share| !(0.0..=1.0).contains(&share)) {
                    return Err(ApiError::malformed("busy must be from 0 to 1"));
                }
                if let Some(capacity) = limit.capacity {
                    self.hold_at_most(capacity).await?;
                }
                if let Some(transfers) = limit.transfers {
                    self.requests.allow(transfers as usize);
                }
                self.limits.limit(&limit);
            }
            other => {
                return Err(ApiError::malformed(format!(
                    "unknown action {other:?}; use drain, pause, resume or limit"
                )));
            }
        }
        self.status()
    }

    /// Changes the capacity; rejects one that would evict leased caches that users of this host created.
    async fn hold_at_most(&self, capacity: u64) -> Result<(), ApiError> {
        let store = &self.records.store;
        let least =
            store.on_disk(|depot| Ok::<_, ApiError>(depot.least_capacity(crate::clock::now()))).await?;
        if capacity < least {
            let why = format!(
                "leased caches that were created on this host need a capacity of {}: remove some, or wait until leases expire",
                tidecast_text::Size(least)
            );
            return Err(ApiError::new(StatusCode::CONFLICT, ErrorKind::Leased, why));
        }
        let limits = store.depot.config();
        store.depot.configure(tidecast_depot::Config { max_bytes: Some(capacity), excess: None, ..limits });
        Ok(())
    }

    /// What daemons of other users may know.
    pub(crate) fn public_status(&self) -> Status {
        Status {
            name: self.config.name.clone(),
            version: env!("CARGO_PKG_VERSION").into(),
            state: self.mode.now().word().into(),
            ..Status::default()
        }
    }

    /// How it is.
    pub(crate) fn status(&self) -> Result<Status, ApiError> {
        let usage = self.records.store.depot.usage().map_err(ApiError::internal)?;
        let (sent, received) = self.swarms.traffic();
        let hello = self.links.hello();
        Ok(Status {
            name: self.config.name.clone(),
            node: self.node.clone(),
            version: env!("CARGO_PKG_VERSION").into(),
            addresses: hello.addresses,
            started: hello.started,
            state: self.mode.now().word().into(),
            caches: self.records.store.depot.caches(&Filter::default()).len() as u64,
            bytes: usage.kept.bytes,
            capacity: usage.capacity.bytes,
            configured: self.records.store.depot.config().max_bytes,
            reserved: usage.promised.bytes,
            members: self.membership.alive().len() as u64 + 1,
            peers: self.links.all().iter().map(|link| link.peer.hello.name.clone()).collect(),
            uses: self.uses.all_uses(|_, _| true),
            sent,
            received,
            came: self.received_totals.all(),
            parent: self.election.last_parent(),
            limits: self.limits.limits(),
            serves: if self.config.serves == Serves::Everyone { "everyone" } else { "owner" }.into(),
            user: rustix::process::geteuid().as_raw(),
            confined: self.config.confined.clone(),
            without: self.config.without.clone(),
            ..Status::default()
        }
        .with_transfers(self.requests.under_way(|_| true)))
    }
}
