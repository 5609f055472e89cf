//! The records that this node publishes: its own, and names of others that it carries.
//!
//! Rendezvous hashing selects the members that keep a record. They receive it in batches, repeatedly until they confirm it,
//! and again before it expires; newly selected members receive it too.

use std::collections::BTreeMap;

use tidecast_identity::NodeId;

use crate::frame::FULL;
use crate::{Claim, Keys, Limits, Record, Rng, Slot, rank};

/// Maximum number of records for one member in one round.
const BATCH: usize = 500;
/// Interval at which a record that is not signed again (another node's record, a tombstone) is sent, milliseconds: so a
/// carrier learns of a newer record of the origin.
const RETRY_DELAY: u64 = 600_000;

#[derive(Debug)]
struct Own {
    record: Record,
    /// The validity of each signature, milliseconds; `None`: another node's record, which we cannot sign.
    life: Option<u64>,
    renew_at: u64,
    /// The members that should keep it, with their scores, and those that do.
    placed: Vec<(u64, NodeId)>,
    kept_by: Vec<NodeId>,
    tries: u32,
    due: u64,
}

impl Own {
    fn tell_all(&mut self, now: u64) {
        self.kept_by.clear();
        (self.tries, self.due) = (0, now);
    }

    fn is_kept(&self) -> bool {
        self.placed.iter().all(|(_, node)| self.kept_by.contains(node))
    }
}

/// The records that this node publishes.
#[derive(Debug, Default)]
pub(crate) struct Published {
    records: BTreeMap<Slot, Own>,
    tags: BTreeMap<u64, Slot>,
}

impl Published {
    pub(crate) fn len(&self) -> usize {
        self.records.len()
    }

    pub(crate) fn get(&self, slot: &Slot) -> Option<&Record> {
        self.records.get(slot).map(|own| &own.record)
    }

    /// Publishes `record`, in place of an older one of its slot.
    pub(crate) fn update(
        &mut self,
        record: Record,
        life: Option<u64>,
        members: impl Iterator<Item = NodeId>,
        (limits, rng, now): (&Limits, &mut Rng, u64),
    ) {
        let slot = record.slot();
        let renew_at = life.map_or(u64::MAX, |life| now + life / 2 + rng.below(life / 4 + 1));
        let placed = match self.records.remove(&slot) {
            Some(old) => {
                self.tags.remove(&old.record.tag());
                old.placed
            }
            None => rank::best(&slot.key, members, limits.copies),
        };
        self.tags.insert(record.tag(), slot);
        let own = Own { record, life, renew_at, placed, kept_by: Vec::new(), tries: 0, due: now };
        self.records.insert(slot, own);
    }

    /// Signs a record with a higher sequence than before, and no earlier expiry, so that an older record cannot become
    /// valid again when this one has expired.
    pub(crate) fn sign(
        &self,
        keys: &dyn Keys,
        claim: Claim,
        end: u64,
        withdrawn: bool,
        now: u64,
    ) -> Option<Record> {
        let record = Record::sign(keys, claim.clone(), now, end, withdrawn)?;
        let Some(old) = self.get(&record.slot()) else { return Some(record) };
        let (seq, end) = (now.max(old.seq + 1), end.max(old.expires));
        Record::sign(keys, claim, seq, end, withdrawn)
    }

    /// Stops publishing it; members keep it until it expires.
    pub(crate) fn forget(&mut self, slot: &Slot) {
        if let Some(own) = self.records.remove(slot) {
            self.tags.remove(&own.record.tag());
        }
    }

    /// A member has joined.
    pub(crate) fn up(&mut self, node: NodeId, limits: &Limits, now: u64) {
        for own in self.records.values_mut() {
            let score = rank::score(&own.record.slot().key, &node);
            let back = own.kept_by.iter().position(|n| *n == node);
            // The member may have lost the records that it kept.
            back.map(|at| own.kept_by.swap_remove(at));
            if rank::enter(&mut own.placed, (score, node), limits.copies) || back.is_some() {
                (own.tries, own.due) = (0, now);
            }
        }
    }

    /// A member has left; `members` are the remaining ones.
    pub(crate) fn down(&mut self, node: NodeId, members: &[NodeId], limits: &Limits, now: u64) {
        for own in self.records.values_mut() {
            own.kept_by.retain(|n| *n != node);
            if own.placed.iter().any(|(_, n)| *n == node) {
                own.placed = rank::best(&own.record.slot().key, members.iter().copied(), limits.copies);
                (own.tries, own.due) = (0, now);
            }
        }
    }

    /// `node` keeps the records with these tags.
    pub(crate) fn kept(&mut self, node: NodeId, tags: &[u64], now: u64) {
        for tag in tags {
            let Some(own) = self.tags.get(tag).and_then(|slot| self.records.get_mut(slot)) else { continue };
            if own.placed.iter().any(|(_, n)| *n == node) && !own.kept_by.contains(&node) {
                own.kept_by.push(node);
            }
            if own.is_kept() {
                (own.tries, own.due) = (0, own.life.map_or(now + RETRY_DELAY, |_| u64::MAX));
            }
        }
    }

    /// A member keeps a newer record than ours. If it is signed by this node, in an earlier run, publish one with a higher
    /// sequence; if by another node, the newer record wins.
    pub(crate) fn newer(&mut self, record: Record, keys: &dyn Keys, now: u64) {
        let Some(own) = self.records.get_mut(&record.slot()) else { return };
        if !record.supersedes(&own.record) || !record.is_signed(keys) {
            return;
        }
        self.tags.remove(&own.record.tag());
        if record.signer == keys.node() {
            let old = &own.record;
            let (seq, end) = (record.seq.saturating_add(1), old.expires.max(record.expires));
            if let Some(mine) = Record::sign(keys, old.claim.clone(), seq, end, old.withdrawn) {
                own.record = mine;
            }
        } else {
            own.record = record;
        }
        self.tags.insert(own.record.tag(), own.record.slot());
        own.tell_all(now);
    }

    /// The records that are due, by member. Called about once a second.
    pub(crate) fn round(&mut self, keys: &dyn Keys, rng: &mut Rng, now: u64) -> Vec<(NodeId, Vec<Record>)> {
        let gone: Vec<_> =
            self.records.iter().filter(|(_, own)| own.record.expires <= now).map(|(s, _)| *s).collect();
        gone.iter().for_each(|slot| self.forget(slot));
        let mut batches: BTreeMap<NodeId, Vec<Record>> = BTreeMap::new();
        for (slot, own) in &mut self.records {
            if let Some(life) = own.life.filter(|_| own.renew_at <= now) {
                let (seq, end) = (now.max(own.record.seq + 1), own.record.expires.max(now + life));
                if let Some(record) = Record::sign(keys, own.record.claim.clone(), seq, end, false) {
                    self.tags.remove(&own.record.tag());
                    self.tags.insert(record.tag(), *slot);
                    own.record = record;
                    own.renew_at = now + life / 2 + rng.below(life / 4 + 1);
                    own.tell_all(now);
                }
            }
            if own.due > now {
                continue;
            }
            if own.is_kept() {
                own.kept_by.clear();
            }
            let mut all = true;
            for (_, node) in own.placed.iter().filter(|(_, n)| !own.kept_by.contains(n)) {
                let batch = batches.entry(*node).or_default();
                if batch.len() < BATCH {
                    batch.push(own.record.clone());
                } else {
                    all = false;
                }
            }
            // Records that did not fit are sent in the next round; unconfirmed ones at growing intervals.
            if all {
                let wait = 2_000u64 << own.tries.min(5);
                (own.tries, own.due) = (own.tries + 1, now + wait + rng.below(wait / 2));
            }
        }
        batches
            .into_iter()
            .flat_map(|(node, records)| frames(records).map(move |part| (node, part)))
            .collect()
    }
}

/// Records in parts that fit into a frame each.
pub(crate) fn frames(records: Vec<Record>) -> impl Iterator<Item = Vec<Record>> {
    let mut parts = vec![Vec::new()];
    let mut len = 0;
    for record in records {
        len += record.encode().len() + 2;
        if let Some(part) = parts.last_mut() {
            part.push(record);
        }
        if len >= FULL {
            parts.push(Vec::new());
            len = 0;
        }
    }
    parts.into_iter().filter(|part| !part.is_empty())
}
