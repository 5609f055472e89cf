//! Tells the circle what this host holds, and takes back what it holds no more: by looking at the store, whatever it was
//! that changed it.

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

/// The store is looked at this often, and when it is known to have changed.
const LOOK: Duration = Duration::from_secs(5);

/// What is said of one cache.
struct Said {
    held: [u8; 32],
    name: Option<Slot>,
    /// What everybody may know of it.
    open: Option<Claim>,
}

/// Until the task is ended. `copies` hears of what is new here.
pub(crate) async fn keep(store: Arc<Store>, membership: Arc<Membership>, host: String, copies: Arc<Notify>) {
    let mut said: HashMap<CacheId, Said> = HashMap::new();
    loop {
        let here = store.depot.caches(&Filter { state: Some(State::Committed), ..Filter::default() });
        // First what is gone: it may have come again under another number.
        let ids: HashSet<CacheId> = here.iter().map(|record| record.id).collect();
        for (_, old) in said.extract_if(|id, _| !ids.contains(id)) {
            membership.holds_not(&old.held).await;
            if let Some(slot) = old.name {
                membership.forget(slot).await;
            }
        }
        let mut new = false;
        for record in here {
            let open = open(&record);
            let old = said.get(&record.id);
            let Some(content) = record.content.filter(|_| old.is_none_or(|old| old.open != open)) else {
                continue;
            };
            let held = held(&record.full_name(), &content);
            membership.holds(held, true).await;
            let name = say_name(&membership, &host, &record).await;
            // Its owner has said something else of it since.
            if let Some(slot) = old.and_then(|old| old.name).filter(|slot| name != Some(*slot)) {
                membership.withdraw(slot).await;
            }
            said.insert(record.id, Said { held, name, open });
            new = true;
        }
        if new {
            copies.notify_one();
        }
        let _ = timeout(LOOK, store.has_changed()).await;
    }
}

/// What its name means, if everybody may read it.
fn open(record: &CacheRecord) -> Option<Claim> {
    if record.private || record.mode & 0o004 == 0 { None } else { names::claim(record) }
}

/// Says what the name of a cache means, or carries what its origin says. Only of what everybody may read: of other caches
/// a daemon of some user could learn the names by keeping records.
async fn say_name(circle: &Membership, host: &str, record: &CacheRecord) -> Option<Slot> {
    let claim = open(record)?;
    if record.origin == host {
        let version = u32::try_from(record.version?).ok()?;
        let slot = Slot { key: Key::name(&record.origin, &record.name), signer: circle.me(), version };
        circle.name(claim).await;
        return Some(slot);
    }
    let word = Attributes::of(record).named?;
    circle.carry(word.record()?).await;
    word.slot()
}
