//! Attributes of a cache that the daemon keeps in the depot, which does not interpret them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use tidecast_depot::CacheRecord;

use crate::model::signed_name::SignedName;
use crate::model::types::{Create, Method, ReceivedBytes};

/// The daemon's own attributes of a cache.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Attributes {
    #[serde(deserialize_with = "known")]
    methods: Vec<Method>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) policy: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) requirements: Option<String>,
    pub(crate) replicas: u32,
    /// How it came to this host; None at the origin.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) came: Option<ReceivedBytes>,
    /// The origin's signed record; None at the origin.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) named: Option<SignedName>,
    /// It was fetched because of an offer: a copy that is kept only while it is needed.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(crate) offered: bool,
    #[serde(flatten)]
    other: BTreeMap<String, Value>,
}

/// The methods that this program knows: a newer one may have others.
fn known<'de, D: serde::Deserializer<'de>>(d: D) -> Result<Vec<Method>, D::Error> {
    let all = Vec::<Value>::deserialize(d)?;
    let some = !all.is_empty();
    let known: Vec<Method> = all.into_iter().filter_map(|one| serde_json::from_value(one).ok()).collect();
    // An empty list would mean any method; direct only is the closest to the intended restriction.
    Ok(if some && known.is_empty() { vec![Method::Direct] } else { known })
}

impl Attributes {
    pub(crate) fn of(record: &CacheRecord) -> Self {
        let map: serde_json::Map<String, Value> =
            record.attributes.iter().map(|(key, value)| (key.clone(), value.clone())).collect();
        // Attributes of an unknown form were written by a newer program: then the defaults apply.
        let mut read: Self = serde_json::from_value(Value::Object(map)).unwrap_or_default();
        if record.private {
            read.methods = vec![Method::Direct];
        }
        read
    }

    pub(crate) fn new(create: &Create) -> Self {
        Self {
            methods: create.methods.clone(),
            policy: create.policy.clone(),
            requirements: create.requirements.clone(),
            replicas: create.replicas.max(1),
            ..Self::default()
        }
    }

    /// Changes attributes of an existing cache; those not given stay. `opened`: it was private and is no
    /// longer.
    pub(crate) fn change(&mut self, create: &Create, opened: bool) {
        if opened || !create.methods.is_empty() {
            self.methods = create.methods.clone();
        }
        self.policy = create.policy.clone().or_else(|| self.policy.take());
        self.requirements = create.requirements.clone().or_else(|| self.requirements.take());
        if create.replicas > 0 {
            self.replicas = create.replicas;
        }
    }

    /// As the depot keeps it.
    pub(crate) fn to_map(&self) -> BTreeMap<String, Value> {
        match serde_json::to_value(self) {
            Ok(Value::Object(map)) => map.into_iter().collect(),
            _ => BTreeMap::new(),
        }
    }

    /// How it may travel, preferred first.
    pub(crate) fn methods(&self) -> Vec<Method> {
        if self.methods.is_empty() { vec![Method::Swarm, Method::Direct] } else { self.methods.clone() }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn record(attributes: Value, private: bool) -> CacheRecord {
        let size = serde_json::json!({ "bytes": 1, "inodes": 1 });
        serde_json::from_value(serde_json::json!({
            "id": 1, "origin": "head", "name": "nt", "version": 2, "owner": "alice", "mode": 0o444, "private": private,
            "state": "COMMITTED", "declared": size, "created": 1, "last_used": 1, "lease_until": 1,
            "attributes": attributes,
        }))
        .unwrap()
    }

    #[test]
    fn what_a_newer_program_has_written_is_kept() {
        let newer =
            serde_json::json!({ "methods": ["direct"], "replicas": 2, "colour": { "of": "the sky" } });
        let map = Attributes::of(&record(newer.clone(), false)).to_map();
        assert_eq!(map.get("colour"), newer.get("colour"));
        assert_eq!(map.get("replicas"), newer.get("replicas"));
    }

    #[test]
    fn methods_that_are_not_known_are_passed_over_but_never_taken_for_any() {
        let of =
            |methods| Attributes::of(&record(serde_json::json!({ "methods": methods }), false)).methods();
        assert_eq!(of(serde_json::json!([])), [Method::Swarm, Method::Direct]);
        assert_eq!(of(serde_json::json!(["pigeon", "swarm"])), [Method::Swarm]);
        assert_eq!(of(serde_json::json!(["pigeon"])), [Method::Direct]);
    }

    #[test]
    fn a_private_cache_goes_by_direct_alone_whatever_is_written() {
        let private = record(serde_json::json!({ "methods": ["swarm", "direct"] }), true);
        assert_eq!(Attributes::of(&private).methods(), [Method::Direct]);
    }

    #[test]
    fn what_makes_no_sense_counts_as_nothing() {
        let read = Attributes::of(&record(serde_json::json!({ "replicas": "many" }), false));
        assert_eq!((read.replicas, read.policy), (0, None));
    }

    #[test]
    fn a_cache_has_one_copy_at_least() {
        assert_eq!(Attributes::new(&Create::default()).replicas, 1);
        assert_eq!(Attributes::new(&Create { replicas: 3, ..Create::default() }).replicas, 3);
    }
}
