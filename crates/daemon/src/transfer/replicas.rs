//! Keeps the number of copies of a cache that its owner wants. The origin does so while it runs and holds the
//! cache, else the holder that rendezvous hashing selects; a copy that was offered and never used is removed
//! when there are enough others. Both happen only after a delay, so that a host that restarts causes no
//! transfers.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tidecast_depot::{CacheId, CacheRecord, Filter, State};
use tidecast_identity::NodeId;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

use super::offer::{offer, suits};
use super::swarms::Swarms;
use crate::directory::sources::Directory;
use crate::model::attributes::Attributes;
use crate::model::message::{Answer, Ask, Want};
use crate::model::signed_name::{SignedName, held};
use crate::policy::ads;
use crate::policy::replicas::{Judged, judge, lasts, rank};
use crate::storage::audit::Audit;
use crate::storage::host_ad::HostAd;
use crate::storage::run_mode::{Mode, RunMode};
use crate::storage::store::Store;

/// A cache is checked this often while the members stay the same, and soon after they changed.
const LOOK: Duration = Duration::from_secs(30);
const SOON: Duration = Duration::from_secs(1);
/// Copies are missing for this long before others are offered any.
const MISSING: Duration = Duration::from_secs(5);
/// There are too many for this long before one goes.
const SURPLUS: Duration = Duration::from_secs(30);
/// A host that was offered a copy, and has not begun to fetch it, is not offered it again for this long.
const OFFERED: Duration = Duration::from_secs(60);
/// Caches checked in one pass.
const AT_ONCE: usize = 64;

/// State of a cache between two checks.
#[derive(Default)]
struct Seen {
    missing: Option<Instant>,
    surplus: Option<Instant>,
    offered: HashMap<NodeId, Instant>,
}

/// Keeps copies alive.
pub(crate) struct Replicas {
    pub(crate) name: String,
    pub(crate) store: Arc<Store>,
    pub(crate) directory: Arc<Directory>,
    pub(crate) swarms: Arc<Swarms>,
    pub(crate) ad: Arc<HostAd>,
    pub(crate) audit: Arc<Audit>,
    pub(crate) mode: Arc<RunMode>,
    /// Notified of new caches.
    pub(crate) copies: Arc<Notify>,
}

/// Until the task is ended.
pub(crate) async fn keep(replicas: Arc<Replicas>) {
    let mut changes = replicas.directory.membership.changes();
    let mut all: HashMap<CacheId, Seen> = HashMap::new();
    loop {
        let mut here =
            replicas.store.depot.caches(&Filter { state: Some(State::Committed), ..Filter::default() });
        here.retain(|record| Attributes::of(record).replicas > 1);
        let mut before = std::mem::take(&mut all);
        let mut looking = JoinSet::new();
        let mut unsettled = false;
        for record in here {
            if looking.len() >= AT_ONCE {
                unsettled |= settle(&mut all, looking.join_next().await);
            }
            let (replicas, mut seen) = (replicas.clone(), before.remove(&record.id).unwrap_or_default());
            looking.spawn(async move {
                replicas.look_after(&record, &mut seen).await;
                (record.id, seen)
            });
        }
        while let Some(looked) = looking.join_next().await {
            unsettled |= settle(&mut all, Some(looked));
        }
        let wait = if unsettled { SOON * 2 } else { LOOK };
        let woken = async {
            tokio::select! {
                _ = changes.changed() => {}
                () = replicas.copies.notified() => {}
            }
        };
        if timeout(wait, woken).await.is_ok() {
            // Several come and go at once.
            tokio::time::sleep(SOON).await;
        }
    }
}

/// Records the observed state; true if there is something to wait for.
fn settle(
    all: &mut HashMap<CacheId, Seen>,
    looked: Option<Result<(CacheId, Seen), tokio::task::JoinError>>,
) -> bool {
    let Some(Ok((id, seen))) = looked else { return false };
    let waits = seen.missing.is_some() || seen.surplus.is_some();
    all.insert(id, seen);
    waits
}

impl Replicas {
    async fn look_after(&self, record: &CacheRecord, seen: &mut Seen) {
        let Some(content) = record.content else { return };
        let (attributes, membership) = (Attributes::of(record), &self.directory.membership);
        let (me, held) = (membership.me(), held(&record.full_name(), &content));
        let holders = membership.holders(&held).await;
        let origin = if record.origin == self.name {
            Some(me)
        } else {
            attributes.named.as_ref().and_then(SignedName::signer)
        };
        let wanted = attributes.replicas as usize;
        let Judged { complete, missing, surplus } = judge(&held, me, origin, &holders, wanted);
        // A member that has taken it, or has failed, will not take it.
        let alive = membership.alive();
        let may_come = |node: &NodeId| alive.contains_key(node) && !complete.contains(node);
        seen.offered.retain(|node, at| at.elapsed() < OFFERED && may_come(node));
        if lasts(&mut seen.missing, missing > 0, MISSING) && self.mode.now() != Mode::Paused {
            let others = holders.iter().map(|(node, _)| *node).filter(|node| *node != me);
            let at: Vec<NodeId> = others.chain([me]).collect();
            self.offer_copies(record, (&held, &at), missing, seen).await;
        }
        let goes = surplus && self.is_spare(record, &attributes);
        if lasts(&mut seen.surplus, goes, SURPLUS) {
            self.drop_copy(record, complete.get(..wanted).unwrap_or_default()).await;
            seen.surplus = None;
        }
    }

    /// Offers the cache to members without a copy, best ranked first, until enough accept.
    async fn offer_copies(
        &self,
        record: &CacheRecord,
        (held, holders): (&[u8; 32], &[NodeId]),
        missing: usize,
        seen: &mut Seen,
    ) {
        let mut others: Vec<_> = self.directory.membership.alive().into_iter().collect();
        let coming = seen.offered.keys().filter(|node| !holders.contains(node)).count();
        others.retain(|(node, _)| !holders.contains(node) && !seen.offered.contains_key(node));
        others.sort_by_key(|(node, _)| rank(held, *node));
        let mut left = missing.saturating_sub(coming);
        let Ok(cache) = ads::cache(record) else { return };
        for (node, addresses) in others {
            if left == 0 {
                return;
            }
            let Ok(link) = self.directory.links.reach(node, &addresses).await else { continue };
            if !suits(&cache, &link).await {
                continue;
            }
            let reply = offer(record, &link).await;
            let is_taken = reply.is_taken();
            let offered = reply.told(link.peer.hello.name.clone());
            let outcome = offered.why.as_deref().unwrap_or(&offered.answer);
            let outcome = format!("{}: {outcome}", offered.host);
            self.audit.note("tidecast", "replicate", &record.full_name(), &outcome);
            if is_taken {
                seen.offered.insert(node, Instant::now());
                left -= 1;
            }
        }
    }

    /// Whether this host does not need it: it came by an offer, and was never used.
    fn is_spare(&self, record: &CacheRecord, attributes: &Attributes) -> bool {
        attributes.offered
            && !record.pinned
            && record.committed.is_some_and(|at| record.last_used <= at)
            && self.store.depot.uses(record.id, crate::clock::now()).is_empty()
    }

    /// Removes a copy, if all of these still have it: announcements may be outdated.
    async fn drop_copy(&self, record: &CacheRecord, keepers: &[NodeId]) {
        let Ok(ad) = self.ad.now() else { return };
        let want = Want {
            name: record.full_name(),
            cache: None,
            reader: record.owner.clone(),
            groups: Vec::new(),
            ad: ad.to_string(),
        };
        let alive = self.directory.membership.alive();
        for node in keepers {
            let Some(addresses) = alive.get(node) else { return };
            let Ok(link) = self.directory.links.reach(*node, addresses).await else { return };
            let asked = link.ask(&Ask::Holds(want.clone()), Bytes::new()).await;
            if !matches!(asked, Ok((Answer::Cache(_), _))) {
                return;
            }
        }
        // It may have been used since the check.
        let Some(record) = self.store.depot.cache(record.id) else { return };
        if !self.is_spare(&record, &Attributes::of(&record)) {
            return;
        }
        if let Some(content) = record.content {
            self.swarms.stop(&content).await;
        }
        let id = record.id;
        let done = self.store.on_disk(move |depot| depot.remove(id, crate::clock::now())).await;
        self.store.changed();
        let outcome = done.err().map_or_else(|| "ok".into(), |error| error.why);
        self.audit.note("tidecast", "trim", &record.full_name(), &outcome);
    }
}
