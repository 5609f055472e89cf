//! Handover from the swarm that fetched a cache to the one that serves it.
//!
//! Members of a broadcast plan receive their pieces from one another until the last of them has everything.
//! So the fetching swarm continues while the cache is committed, and after, by the staged names of its files;
//! if a member stopped, the peers that it feeds would complain, and all trees would be computed again. When
//! no peer is connected any more, a swarm over the store's own files takes its place: that one makes plans
//! for other peers.

use std::sync::Arc;
use std::time::Duration;

use tidecast_depot::{CacheRecord, Depot, Reservation, Staged};
use tidecast_metainfo::Manifest;
use tokio::time::{Instant, timeout};

use super::fetch_state::Failed;
use super::mover::Serving;
use super::received::ReceivedTotals;
use super::seeding::Seeding;
use super::swarms::{SwarmId, Swarms};
use crate::model::api_error::ErrorKind;
use crate::model::types::ReceivedBytes;
use crate::storage::store::Store;

/// No peer for this long: peers that lost their connection would have reconnected.
const ALONE: Duration = Duration::from_secs(5);
/// A peer that still fetches after this time reconnects.
const MOST: Duration = Duration::from_secs(600);

/// Commits caches whose swarm continues to serve.
pub(crate) struct Handover {
    pub(crate) store: Arc<Store>,
    pub(crate) swarms: Arc<Swarms>,
    pub(crate) seeding: Arc<Seeding>,
    pub(crate) received_totals: Arc<ReceivedTotals>,
}

impl Handover {
    /// As [`Admission::commit`](super::admission::Admission::commit), for a cache whose swarm continues to
    /// serve.
    pub(crate) async fn commit(
        self: &Arc<Self>,
        reservation: Reservation,
        manifest: Arc<Manifest>,
        came: ReceivedBytes,
        (id, progress): (SwarmId, Serving),
    ) -> Result<Arc<CacheRecord>, Failed> {
        let commit = move |_: &Depot| reservation.commit_in_use(&manifest, crate::clock::now());
        let (committed, staged) = match self.store.on_disk(commit).await {
            Ok(done) => done,
            Err(error) => {
                self.swarms.stop(&id).await;
                return Err(Failed::new(ErrorKind::Internal, error.why));
            }
        };
        self.received_totals.arrived(committed.record.id, came).await;
        tokio::spawn(self.clone().hand_over(committed.record.clone(), id, progress, staged));
        Ok(committed.record)
    }

    /// Waits until no peer needs the fetching swarm, then starts another to serve. `staged`: the names by
    /// which the first one reads.
    async fn hand_over(
        self: Arc<Self>,
        record: Arc<CacheRecord>,
        id: SwarmId,
        mut progress: Serving,
        staged: Staged,
    ) {
        let began = Instant::now();
        while began.elapsed() < MOST {
            let met = timeout(ALONE, progress.wait_for(|now| now.peers > 0)).await;
            if !met.is_ok_and(|met| met.is_ok()) {
                break;
            }
            let left = MOST.saturating_sub(began.elapsed());
            let alone = timeout(left, progress.wait_for(|now| now.peers == 0)).await;
            if !alone.is_ok_and(|alone| alone.is_ok()) {
                break;
            }
        }
        // One that was stopped has made way: for the end of the daemon or of the cache, or for another swarm.
        let runs = progress.has_changed().is_ok();
        if runs {
            self.swarms.stop(&id).await;
        }
        let _ = tokio::task::spawn_blocking(move || drop(staged)).await;
        if runs && let Err(error) = self.seeding.serve_on(&record).await {
            tracing::warn!(error, cache = record.full_name(), "cannot serve a received cache to other hosts");
        }
    }
}
