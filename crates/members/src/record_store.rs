//! The records that this node keeps for others, within limits that no single member can exhaust.
//!
//! A record counts against the member that brought it, which has a card, not against its signer: keys cost nothing.

use std::collections::{BTreeMap, BTreeSet};

use tidecast_identity::NodeId;

use crate::{Key, Keys, Limits, Record, Rng, Slot};

/// The result of an offered record.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It is kept, or was kept already.
    Kept,
    /// The record kept here is newer.
    Newer(Box<Record>),
    /// Not signed, expired, or over a limit.
    Refused,
}

#[derive(Debug, Default)]
pub(crate) struct RecordStore {
    /// Each record, and the member that it counts against.
    records: BTreeMap<Slot, (Record, NodeId)>,
    by_sender: BTreeMap<NodeId, BTreeSet<(u64, Slot)>>,
    by_end: BTreeSet<(u64, Slot)>,
}

impl RecordStore {
    pub(crate) fn len(&self) -> usize {
        self.records.len()
    }

    /// Keeps `record`, brought by `from`, if it is valid. The signature is checked last, because it costs most.
    pub(crate) fn offer(
        &mut self,
        from: NodeId,
        record: &Record,
        keys: &dyn Keys,
        limits: &Limits,
        now: u64,
    ) -> Verdict {
        if record.expires <= now || record.expires > now.saturating_add(limits.longest_life) {
            return Verdict::Refused;
        }
        let slot = record.slot();
        let new = match self.records.get(&slot) {
            Some((have, _)) if have == record => return Verdict::Kept,
            Some((have, _)) if have.expires > now && have.supersedes(record) => {
                return Verdict::Newer(Box::new(have.clone()));
            }
            have => have.is_none(),
        };
        if new && !self.has_room(from, &slot.key, limits, now) || !record.is_signed(keys) {
            return Verdict::Refused;
        }
        if new && self.records.len() >= limits.records {
            self.evict_from_largest();
        }
        self.remove(&slot);
        self.by_sender.entry(from).or_default().insert((record.expires, slot));
        self.by_end.insert((record.expires, slot));
        self.records.insert(slot, (record.clone(), from));
        Verdict::Kept
    }

    fn has_room(&mut self, from: NodeId, key: &Key, limits: &Limits, now: u64) -> bool {
        self.expire(now);
        let brought = self.by_sender.get(&from).map_or(0, BTreeSet::len);
        // A member with fewer records than the one with the most may replace one of its records.
        let fair =
            self.records.len() < limits.records || brought + 1 < self.largest_sender().map_or(0, |(n, _)| n);
        let (mut all, mut its) = (0, 0);
        for (_, sender) in self.of(key) {
            all += 1;
            its += usize::from(*sender == from);
        }
        fair && brought < limits.records_per_peer
            && all < limits.records_per_key
            && its < limits.records_per_key / 32
    }

    fn largest_sender(&self) -> Option<(usize, NodeId)> {
        self.by_sender.iter().map(|(sender, slots)| (slots.len(), *sender)).max()
    }

    fn evict_from_largest(&mut self) {
        let sender = self.largest_sender().map(|(_, sender)| sender);
        let slots = sender.and_then(|sender| self.by_sender.get(&sender));
        if let Some((_, slot)) = slots.and_then(|slots| slots.first()).copied() {
            self.remove(&slot);
        }
    }

    fn remove(&mut self, slot: &Slot) {
        let Some((record, sender)) = self.records.remove(slot) else { return };
        self.by_end.remove(&(record.expires, *slot));
        if let Some(slots) = self.by_sender.get_mut(&sender) {
            slots.remove(&(record.expires, *slot));
            if slots.is_empty() {
                self.by_sender.remove(&sender);
            }
        }
    }

    /// Drops expired records.
    pub(crate) fn expire(&mut self, now: u64) {
        while let Some((end, slot)) = self.by_end.first().copied() {
            if end > now {
                break;
            }
            self.remove(&slot);
        }
    }

    fn of(&self, key: &Key) -> impl Iterator<Item = &(Record, NodeId)> {
        let key = *key;
        let first = Slot { key, signer: NodeId([0; 32]), version: 0 };
        self.records.range(first..).map(|(_, r)| r).take_while(move |(r, _)| r.slot().key == key)
    }

    /// The records of `key`, or some of them if there are many; also withdrawals, so that an older copy elsewhere loses.
    pub(crate) fn find(&self, key: &Key, limits: &Limits, rng: &mut Rng, now: u64) -> Vec<Record> {
        let mut found: Vec<_> = self.of(key).map(|(r, _)| r).filter(|r| r.expires > now).cloned().collect();
        let mut chosen = Vec::new();
        while chosen.len() < limits.answer && !found.is_empty() {
            let at = rng.below(found.len() as u64) as usize;
            chosen.push(found.swap_remove(at));
        }
        chosen
    }
}
