//! Lookups: asks all members that should keep a key, and merges their answers.
//!
//! One answer is enough. Only if fewer than half have answered and no record was found, the next members in the order are
//! asked too: then many members have died so recently that their deaths are not known yet.

use std::collections::{BTreeMap, BTreeSet};

use tidecast_identity::NodeId;

use crate::{Key, Keys, Record, Slot};

/// The result of a lookup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// Number of the lookup.
    pub id: u64,
    /// The key that was looked up.
    pub key: Key,
    /// The newest record of each slot, without withdrawn ones.
    pub records: Vec<Record>,
    /// Members that were asked.
    pub asked: usize,
    /// Members that have answered.
    pub answered: usize,
}

#[derive(Debug)]
pub(crate) struct Lookup {
    key: Key,
    found: BTreeMap<Slot, Record>,
    waiting: BTreeSet<NodeId>,
    asked: BTreeSet<NodeId>,
    answered: usize,
    pub(crate) deadline: u64,
    second: bool,
}

impl Lookup {
    pub(crate) fn new(key: Key, whom: &[NodeId], deadline: u64) -> Self {
        let waiting: BTreeSet<_> = whom.iter().copied().collect();
        let asked = waiting.clone();
        Self { key, found: BTreeMap::new(), waiting, asked, answered: 0, deadline, second: false }
    }

    pub(crate) fn key(&self) -> Key {
        self.key
    }

    /// The answer of `from`; false if it has a record that is not signed.
    pub(crate) fn answer(&mut self, from: NodeId, records: Vec<Record>, keys: &dyn Keys, now: u64) -> bool {
        if !self.waiting.remove(&from) {
            return true;
        }
        self.answered += 1;
        let mut honest = true;
        for record in records {
            let slot = record.slot();
            let newer =
                record.expires > now && self.found.get(&slot).is_none_or(|have| record.supersedes(have));
            if slot.key != self.key || newer && !record.is_signed(keys) {
                honest = false;
            } else if newer {
                self.found.insert(slot, record);
            }
        }
        honest
    }

    pub(crate) fn is_over(&self, now: u64) -> bool {
        self.waiting.is_empty() || now >= self.deadline
    }

    /// Further members to ask, once, if too few have answered: those of `ranked` that were not asked yet.
    pub(crate) fn more(&mut self, ranked: impl Iterator<Item = NodeId>, deadline: u64) -> Vec<NodeId> {
        let enough = !self.found.is_empty() || 2 * self.answered > self.asked.len() || self.second;
        if enough {
            return Vec::new();
        }
        self.second = true;
        let more: Vec<_> = ranked.filter(|node| !self.asked.contains(node)).collect();
        self.waiting = more.iter().copied().collect();
        self.asked.extend(&more);
        self.deadline = deadline;
        more
    }

    pub(crate) fn finish(self, id: u64) -> Found {
        let records = self.found.into_values().filter(|r| !r.withdrawn).collect();
        Found { id, key: self.key, records, asked: self.asked.len(), answered: self.answered }
    }
}
