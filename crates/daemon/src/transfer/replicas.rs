//! Keeps as many copies of a cache alive as its owner wants. The origin sees to it while it lives and holds the cache, else
//! the holder that rendezvous hashing names; a copy that was offered and never used goes when others are enough. Both only
//! after a while, so that a host that starts anew moves nothing.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use tidecast_depot::{CacheId, CacheRecord, Filter, State};
use tidecast_hash::sha256;
use tidecast_identity::NodeId;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::assembly::{Daemon, Mode};
use crate::directory::names::held;
use crate::model::attributes::Attributes;
use crate::model::message::{Answer, Ask, Want};
use crate::policy::ads;

/// A cache is looked at this often when nobody comes or goes, and soon after somebody did.
const LOOK: Duration = Duration::from_secs(30);
const SOON: Duration = Duration::from_secs(1);
/// Copies are missing for so long before others are offered any.
const MISSING: Duration = Duration::from_secs(5);
/// There are too many for so long before one goes.
const SURPLUS: Duration = Duration::from_secs(30);
/// Whoever was offered a copy, and has not begun to take it, is not offered it again for so long.
const OFFERED: Duration = Duration::from_secs(60);
/// Caches looked at in one go.
const AT_ONCE: usize = 64;

/// What is remembered of a cache between two looks.
#[derive(Default)]
struct Seen {
    missing: Option<Instant>,
    surplus: Option<Instant>,
    offered: HashMap<NodeId, Instant>,
}

/// Until the task is ended.
pub(crate) async fn keep(daemon: Arc<Daemon>) {
    let mut changes = daemon.membership.changes();
    let mut all: HashMap<CacheId, Seen> = HashMap::new();
    loop {
        let mut here = daemon.depot.caches(&Filter { state: Some(State::Committed), ..Filter::default() });
        here.retain(|record| Attributes::of(record).replicas > 1);
        let mut before = std::mem::take(&mut all);
        let mut looking = JoinSet::new();
        let mut unsettled = false;
        for record in here {
            if looking.len() >= AT_ONCE {
                unsettled |= settle(&mut all, looking.join_next().await);
            }
            let (daemon, mut seen) = (daemon.clone(), before.remove(&record.id).unwrap_or_default());
            looking.spawn(async move {
                daemon.look_after(&record, &mut seen).await;
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
                () = daemon.copies.notified() => {}
            }
        };
        if timeout(wait, woken).await.is_ok() {
            // Several come and go at once.
            tokio::time::sleep(SOON).await;
        }
    }
}

/// Remembers what was seen; true if there is something to wait for.
fn settle(
    all: &mut HashMap<CacheId, Seen>,
    looked: Option<Result<(CacheId, Seen), tokio::task::JoinError>>,
) -> bool {
    let Some(Ok((id, seen))) = looked else { return false };
    let waits = seen.missing.is_some() || seen.surplus.is_some();
    all.insert(id, seen);
    waits
}

/// The order of holders: those that keep a copy first.
fn rank(held: &[u8; 32], node: NodeId) -> [u8; 32] {
    sha256(&[held.as_slice(), &node.0].concat())
}

/// Whether this is so since `at` at least for `wait`.
fn lasts(since: &mut Option<Instant>, is: bool, wait: Duration) -> bool {
    if !is {
        *since = None;
        return false;
    }
    since.get_or_insert_with(Instant::now).elapsed() >= wait
}

impl Daemon {
    async fn look_after(self: &Arc<Self>, record: &CacheRecord, seen: &mut Seen) {
        let Some(content) = record.content else { return };
        let (attributes, me) = (Attributes::of(record), self.membership.me());
        let held = held(&record.full_name(), &content);
        let mut holders = self.membership.holders(&held).await;
        holders.retain(|(node, _)| *node != me);
        holders.push((me, true));
        let origin = if record.origin == self.config.name {
            Some(me)
        } else {
            attributes.named.as_ref().and_then(crate::directory::names::SignedName::signer)
        };
        let mut complete: Vec<NodeId> =
            holders.iter().filter(|(_, all)| *all).map(|(node, _)| *node).collect();
        complete.sort_by_key(|node| (Some(*node) != origin, rank(&held, *node)));
        let wanted = attributes.replicas as usize;
        let missing = wanted.saturating_sub(holders.len());
        // Who has taken it, or has died, is none that will.
        let alive = self.membership.alive();
        let may_come = |node: &NodeId| alive.contains_key(node) && !complete.contains(node);
        seen.offered.retain(|node, at| at.elapsed() < OFFERED && may_come(node));
        let acts = complete.first() == Some(&me);
        if lasts(&mut seen.missing, acts && missing > 0, MISSING) && self.mode() != Mode::Paused {
            let at: Vec<NodeId> = holders.iter().map(|(node, _)| *node).collect();
            self.offer_copies(record, (&held, &at), missing, seen).await;
        }
        let place = complete.iter().position(|node| *node == me).unwrap_or(0);
        let goes = place >= wanted && self.is_spare(record, &attributes);
        if lasts(&mut seen.surplus, goes, SURPLUS) {
            self.drop_copy(record, complete.get(..wanted).unwrap_or_default()).await;
            seen.surplus = None;
        }
    }

    /// Offers it to members that have none, best ranked first, until as many as are missing take it.
    async fn offer_copies(
        self: &Arc<Self>,
        record: &CacheRecord,
        (held, holders): (&[u8; 32], &[NodeId]),
        missing: usize,
        seen: &mut Seen,
    ) {
        let mut others: Vec<_> = self.membership.alive().into_iter().collect();
        let coming = seen.offered.keys().filter(|node| !holders.contains(node)).count();
        others.retain(|(node, _)| !holders.contains(node) && !seen.offered.contains_key(node));
        others.sort_by_key(|(node, _)| rank(held, *node));
        let mut left = missing.saturating_sub(coming);
        let Ok(cache) = ads::cache(record) else { return };
        for (node, addresses) in others {
            if left == 0 {
                return;
            }
            let Ok(link) = self.peers.reach(node, &addresses, self).await else { continue };
            let Ok((Answer::Ok, ad)) = link.ask(&Ask::Ad, Bytes::new()).await else { continue };
            let Ok(ad) = tidecast_classad::Ad::parse(&ad) else { continue };
            if !matches!(ads::agree(&cache, &ad, true, crate::now()), Ok(true)) {
                continue;
            }
            let offered = self.offer(record, &link).await;
            let outcome = offered.why.as_deref().unwrap_or(&offered.answer);
            self.note("tidecast", "replicate", &record.full_name(), &format!("{}: {outcome}", offered.host));
            if offered.answer == "wait" || offered.answer == "ok" {
                seen.offered.insert(node, Instant::now());
                left -= 1;
            }
        }
    }

    /// Whether nobody of this host needs it: it came by an offer, and was never used.
    fn is_spare(&self, record: &CacheRecord, attributes: &Attributes) -> bool {
        attributes.offered
            && !record.pinned
            && record.committed.is_some_and(|at| record.last_used <= at)
            && self.depot.uses(record.id, crate::now()).is_empty()
    }

    /// Lets a copy go, if all of these still have it: what is heard of them may be old.
    async fn drop_copy(self: &Arc<Self>, record: &CacheRecord, keepers: &[NodeId]) {
        let Ok(ad) = self.ad() else { return };
        let want = Want {
            name: record.full_name(),
            cache: None,
            reader: record.owner.clone(),
            groups: Vec::new(),
            ad: ad.to_string(),
        };
        let alive = self.membership.alive();
        for node in keepers {
            let Some(addresses) = alive.get(node) else { return };
            let Ok(link) = self.peers.reach(*node, addresses, self).await else { return };
            let asked = link.ask(&Ask::Holds(want.clone()), Bytes::new()).await;
            if !matches!(asked, Ok((Answer::Cache(_), _))) {
                return;
            }
        }
        // It may be wanted since this was looked at.
        let Some(record) = self.depot.cache(record.id) else { return };
        if !self.is_spare(&record, &Attributes::of(&record)) {
            return;
        }
        if let Some(content) = record.content {
            self.swarms.stop(&content).await;
        }
        let id = record.id;
        let done = self.on_disk(move |depot| depot.remove(id, crate::now())).await;
        self.changed.notify_one();
        let outcome = done.err().map_or_else(|| "ok".into(), |error| error.why);
        self.note("tidecast", "trim", &record.full_name(), &outcome);
    }
}
