//! One cache from elsewhere, from beginning to end: from another daemon of this machine; else granted by another host, agreed
//! to, admitted, moved, committed. A source that fails is left alone, and others are asked.

use std::sync::Arc;
use std::time::Duration;

use tidecast_depot::{CacheId, Reader};
use tidecast_metainfo::Manifest;
use tidecast_store::Select;
use tokio::sync::watch;
use tokio::time::Instant;

use super::admission::{Admission, Room};
use super::delta;
use super::fetch_state::{Failed, FetchState};
use super::grant::{Grant, ask, manifest};
use super::handover::Handover;
use super::mover::{Bring, Mover};
use super::pending::PendingContents;
use super::permits::SourcePermits;
use super::same_host::SameHost;
use super::seeding::Seeding;
use super::swarms::Swarms;
use crate::directory::sources::Directory;
use crate::host::limits::HostLimits;
use crate::model::api_error::ErrorKind;
use crate::model::files::missing as missing_of;
use crate::model::message::Want;
use crate::model::name::CacheName;
use crate::model::signed_name::held;
use crate::model::types::Method;
use crate::storage::host_ad::HostAd;
use crate::storage::store::Store;

/// Other sources are asked so often when one fails.
const RETRIES: u32 = 4;

/// A cache that no source gives any longer is asked for again for this long once its transfer has begun: a link may have been cut.
const RECONNECT: Duration = Duration::from_secs(120);
/// Interval of these attempts.
const AGAIN: Duration = Duration::from_secs(2);

/// Brings caches.
pub(crate) struct Fetcher {
    pub(crate) ad: Arc<HostAd>,
    pub(crate) store: Arc<Store>,
    pub(crate) directory: Arc<Directory>,
    pub(crate) same_host: SameHost,
    pub(crate) admission: Arc<Admission>,
    pub(crate) mover: Arc<dyn Mover>,
    pub(crate) swarms: Arc<Swarms>,
    pub(crate) seeding: Arc<Seeding>,
    pub(crate) handover: Arc<Handover>,
    pub(crate) limits: Arc<HostLimits>,
    pub(crate) permits: Arc<SourcePermits>,
    pub(crate) contents: Arc<PendingContents>,
}

impl Fetcher {
    /// Brings the cache here. Tells how far it is as it goes.
    pub(crate) async fn fetch(
        &self,
        name: &CacheName,
        reader: &Reader,
        offered: bool,
        tell: &watch::Sender<FetchState>,
    ) -> Result<(CacheId, Method), Failed> {
        if let Some(done) = self.same_host.whole_cache(name, reader, tell).await {
            return Ok(done);
        }
        let want = Want {
            name: name.to_string(),
            cache: None,
            reader: reader.owner.clone(),
            groups: reader.groups.clone(),
            ad: self.ad.now().map_err(|e| Failed::new(ErrorKind::Internal, e.to_string()))?.to_string(),
        };
        let mut tries = 0;
        let mut interrupted: Option<Instant> = None;
        loop {
            let grant = match ask(&self.directory, name, &want, tell).await {
                Err(failed)
                    if matches!(failed.kind, ErrorKind::Unreachable | ErrorKind::Absent)
                        && interrupted.is_some_and(|since| since.elapsed() < RECONNECT) =>
                {
                    let why = format!("the transfer was interrupted, and {}", failed.why);
                    tell.send_replace(FetchState::Waiting { why, bytes: 0, total: 0 });
                    tokio::time::sleep(AGAIN).await;
                    continue;
                }
                asked => asked?,
            };
            let (source, began) = (grant.link.peer.addr, Instant::now());
            match self.bring(&grant, &want, offered, tell).await {
                // The source failed, or did not send the granted cache: other sources may have it.
                Err(failed) if failed.kind == ErrorKind::Unreachable && tries < RETRIES => {
                    tracing::info!(%name, why = failed.why, "trying another source");
                    if !self.directory.backoff.has(source) {
                        self.directory.backoff.add(source);
                    }
                    // From the first failure on, unless data came for long since.
                    let since = interrupted.filter(|_| began.elapsed() < RECONNECT);
                    interrupted = Some(since.unwrap_or_else(Instant::now));
                    tries += 1;
                }
                ended => return ended,
            }
        }
    }

    /// Fetches a granted cache, from beginning to end.
    async fn bring(
        &self,
        grant: &Grant,
        want: &Want,
        offered: bool,
        tell: &watch::Sender<FetchState>,
    ) -> Result<(CacheId, Method), Failed> {
        self.admission.agree(&grant.about)?;
        let method = self.admission.method(&grant.about)?;
        let manifest = Arc::new(manifest(grant).await?);
        if let Some(done) = self.same_host.bytes(&grant.about, &manifest, tell).await {
            return Ok(done);
        }
        let (reservation, reused) = match self.admission.admit(&grant.about, &manifest, offered, tell).await?
        {
            Room::Kept(reservation, reused) => (reservation, reused),
            Room::Here(id) => return Ok((id, method)),
        };
        let id = manifest.hash_v2().unwrap_or_default();
        let held = held(&grant.about.full_name(), &id);
        self.directory.membership.holds(held, false).await;
        let missing = select(&manifest, &reused);
        let dir = reservation.dir();
        let _permit = self.permits.acquire(grant.link.peer.node).await;
        let coming = self.contents.coming(reservation.id(), id);
        let files = missing_of(&manifest, &reused);
        let older =
            delta::bases(&self.store, &self.limits.throttle, grant, &manifest, &dir, &files, tell).await;
        let whole = matches!(missing, Some(Select::All));
        let wanted = Bring { manifest: manifest.clone(), dir, missing, bases: older.bases };
        let moved = self.mover.bring(grant, wanted, want, method, tell).await;
        // A swarm that has all of it serves on while its files become the store's.
        let (mut came, swarm) = if moved.is_ok() && method == Method::Swarm && whole {
            self.mover.serve_on(&id, &grant.about.origin).await
        } else {
            (self.mover.end(&id, &grant.about.origin).await, None)
        };
        let is_origin = grant.link.peer.hello.name == grant.about.origin;
        *(if is_origin { &mut came.origin } else { &mut came.peers }) += older.received;
        self.swarms.count(0, older.received);
        if let Err(failed) = moved {
            self.directory.membership.holds_not(&held).await;
            self.directory.backoff.add(grant.link.peer.addr);
            return Err(failed);
        }
        self.directory.backoff.forgive(grant.link.peer.addr);
        drop(coming);
        let serves = swarm.is_some();
        let record = match swarm {
            Some(progress) => self.handover.commit(reservation, manifest, came, (id, progress)).await?,
            None => self.admission.commit(reservation, manifest, came).await?,
        };
        self.store.changed();
        if !serves
            && method == Method::Swarm
            && let Err(error) = self.seeding.serve_on(&record).await
        {
            tracing::warn!(error, cache = record.full_name(), "cannot serve a received cache to other hosts");
        }
        Ok((record.id, method))
    }
}

/// All files that the store lacks; None: nothing has to be transferred.
fn select(manifest: &Manifest, reused: &[u32]) -> Option<Select> {
    if reused.is_empty() {
        return Some(Select::All);
    }
    let missing = missing_of(manifest, reused);
    (!missing.is_empty()).then_some(Select::Files(missing))
}
