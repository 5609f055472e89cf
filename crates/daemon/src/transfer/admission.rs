//! Decides whether a cache may come to this host, and reserves its space: the ads match, its owner is
//! accepted here, the depot has space. And its end: received and verified data becomes a cache.

use std::sync::Arc;
use std::time::Duration;

use tidecast_classad::Ad;
use tidecast_depot::{Admission as Verdict, CacheId, CacheRecord, Declare, Depot, Reader, Reservation};
use tidecast_metainfo::Manifest;
use tokio::sync::watch;
use tokio::time::Instant;

use super::fetch_state::{Failed, FetchState, PATIENCE};
use super::received::ReceivedTotals;
use crate::config::Config;
use crate::model::api_error::ErrorKind;
use crate::model::attributes::Attributes;
use crate::model::types::{Method, ReceivedBytes};
use crate::policy::ads;
use crate::storage::host_ad::HostAd;
use crate::storage::store::Store;

/// The result of admission.
pub(crate) enum Room {
    /// Room is kept; these files need not come.
    Kept(Reservation, Vec<u32>),
    /// It has come meanwhile.
    Here(CacheId),
}

/// Decides on incoming caches.
pub(crate) struct Admission {
    pub(crate) config: Arc<Config>,
    pub(crate) store: Arc<Store>,
    pub(crate) ad: Arc<HostAd>,
    pub(crate) received_totals: Arc<ReceivedTotals>,
}

impl Admission {
    /// Both ads are satisfied, and its owner's jobs are expected here.
    pub(crate) fn agree(&self, about: &CacheRecord) -> Result<(), Failed> {
        let cache = ads::cache(about).map_err(|e| Failed::new(ErrorKind::Rejected, e.to_string()))?;
        self.suits(&cache, &about.full_name(), &about.owner)
    }

    /// As [`Admission::agree`], by the ad of a cache.
    pub(crate) fn suits(&self, cache: &Ad, name: &str, owner: &str) -> Result<(), Failed> {
        let failed = |e: String| Failed::new(ErrorKind::Rejected, e);
        let host = self.ad.now().map_err(|e| failed(e.to_string()))?;
        if let Some(why) =
            ads::mismatch(cache, &host, crate::clock::now()).map_err(|e| failed(e.to_string()))?
        {
            return Err(failed(format!("{name}: {why}")));
        }
        let owners = &self.config.owners;
        if !owners.is_empty() && !owners.iter().any(|expected| expected == owner) {
            return Err(failed(format!("this host accepts no caches of user {owner}")));
        }
        Ok(())
    }

    /// The first of this host's methods that the cache allows.
    pub(crate) fn method(&self, about: &CacheRecord) -> Result<Method, Failed> {
        let allowed = Attributes::of(about).methods();
        let ours = self.config.methods.iter().find(|method| allowed.contains(method));
        ours.copied().ok_or_else(|| {
            Failed::new(
                ErrorKind::Rejected,
                format!("no transfer method of {} is enabled on this host", about.full_name()),
            )
        })
    }

    fn declare(&self, about: &CacheRecord, manifest: &Manifest, offered: bool) -> Declare {
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
            lease: Some(about.lease_until.saturating_sub(crate::clock::now())),
            size: crate::model::files::size_of(manifest),
            local: crate::host::caller::local_of(&about.owner, about.group.as_deref(), self.config.serves),
            attributes: attributes.to_map(),
        }
    }

    pub(crate) async fn admit(
        &self,
        about: &CacheRecord,
        manifest: &Arc<Manifest>,
        offered: bool,
        tell: &watch::Sender<FetchState>,
    ) -> Result<Room, Failed> {
        let declare = self.declare(about, manifest, offered);
        let began = Instant::now();
        loop {
            let (declare, manifest) = (declare.clone(), manifest.clone());
            let admitting = move |depot: &Depot| {
                let now = crate::clock::now();
                let record = depot.declare(declare, now)?;
                if record.is_committed() {
                    return Ok(Err(record.id));
                }
                let owner = Reader::owner(&record.owner);
                let admission = depot.admit(record.id, Some(&manifest), &owner, now)?;
                let reused = match &admission {
                    Verdict::Ok(reservation) => reservation.reuse(&manifest, &owner)?.files,
                    Verdict::Denied(_) => {
                        // A rejected cache leaves nothing, unless another user has declared it.
                        let _ = depot.remove(record.id, now);
                        Vec::new()
                    }
                    Verdict::Wait(_) => Vec::new(),
                };
                Ok::<_, tidecast_depot::Error>(Ok((admission, reused)))
            };
            let denied = |why: String| Failed::new(ErrorKind::Denied, why);
            match self.store.on_disk(admitting).await.map_err(|e| denied(e.why))? {
                Err(id) => return Ok(Room::Here(id)),
                Ok((Verdict::Ok(reservation), reused)) => return Ok(Room::Kept(reservation, reused)),
                Ok((Verdict::Denied(reason), _)) => {
                    return Err(denied(format!("no space in the store: {reason}")));
                }
                Ok((Verdict::Wait(reason), _)) if began.elapsed() < PATIENCE => {
                    let why = format!("waiting for space in the store: {reason}");
                    tell.send_replace(FetchState::Waiting { why, bytes: 0, total: about.bytes });
                    tokio::time::sleep(Duration::from_secs(1)).await;
                }
                Ok((Verdict::Wait(reason), _)) => {
                    return Err(denied(format!("no space became free in the store: {reason}")));
                }
            }
        }
    }

    /// Commits a cache: all of its data was received and verified.
    pub(crate) async fn commit(
        &self,
        reservation: Reservation,
        manifest: Arc<Manifest>,
        came: ReceivedBytes,
    ) -> Result<Arc<CacheRecord>, Failed> {
        let commit = move |_: &Depot| reservation.commit(&manifest, true, crate::clock::now());
        let committed =
            self.store.on_disk(commit).await.map_err(|e| Failed::new(ErrorKind::Internal, e.why))?;
        self.received_totals.arrived(committed.record.id, came).await;
        Ok(committed.record)
    }
}
