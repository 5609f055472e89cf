//! Announces the caches of this host to the other members, and withdraws removed ones, by scanning the store,
//! whichever operation changed it.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use tidecast_depot::{CacheId, CacheRecord, Filter, State};
use tidecast_members::{Claim, Key, Slot};
use tokio::sync::Notify;
use tokio::time::timeout;

use crate::directory::membership::Membership;
use crate::directory::names;
use crate::model::attributes::Attributes;
use crate::model::signed_name::held;
use crate::storage::store::Store;

/// The store is scanned this often, and when it has changed.
const LOOK: Duration = Duration::from_secs(5);

/// The announcements of one cache.
struct Announced {
    held: [u8; 32],
    name: Option<Slot>,
    /// The claim about its name, if every user may read it.
    open: Option<Claim>,
}

/// Runs until the task is ended. `copies` is notified of new caches.
pub(crate) async fn run(store: Arc<Store>, membership: Arc<Membership>, host: String, copies: Arc<Notify>) {
    let mut announced: HashMap<CacheId, Announced> = HashMap::new();
    loop {
        let here = store.depot.caches(&Filter { state: Some(State::Committed), ..Filter::default() });
        // Removed caches first: a cache may have come again under another number.
        let ids: HashSet<CacheId> = here.iter().map(|record| record.id).collect();
        for (_, old) in announced.extract_if(|id, _| !ids.contains(id)) {
            membership.holds_not(&old.held).await;
            if let Some(slot) = old.name {
                membership.forget(slot).await;
            }
        }
        let mut new = false;
        for record in here {
            let open = open(&record);
            let old = announced.get(&record.id);
            let Some(content) = record.content.filter(|_| old.is_none_or(|old| old.open != open)) else {
                continue;
            };
            let held = held(&record.full_name(), &content);
            membership.holds(held, true).await;
            let name = announce_name(&membership, &host, &record).await;
            // Its owner has changed it since.
            if let Some(slot) = old.and_then(|old| old.name).filter(|slot| name != Some(*slot)) {
                membership.withdraw(slot).await;
            }
            announced.insert(record.id, Announced { held, name, open });
            new = true;
        }
        if new {
            copies.notify_one();
        }
        let _ = timeout(LOOK, store.has_changed()).await;
    }
}

/// The claim about its name, if every user may read it.
fn open(record: &CacheRecord) -> Option<Claim> {
    if record.private || record.mode & 0o004 == 0 { None } else { names::claim(record) }
}

/// Announces the meaning of a cache's name, or passes on its origin's signed record. Only for caches that
/// every user may read: by storing records, the daemon of any user could learn the names of other caches.
async fn announce_name(membership: &Membership, host: &str, record: &CacheRecord) -> Option<Slot> {
    let claim = open(record)?;
    if record.origin == host {
        let version = u32::try_from(record.version?).ok()?;
        let slot = Slot { key: Key::name(&record.origin, &record.name), signer: membership.me(), version };
        membership.name(claim).await;
        return Some(slot);
    }
    let word = Attributes::of(record).named?;
    membership.carry(word.record()?).await;
    word.slot()
}
