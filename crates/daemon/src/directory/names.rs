//! The meaning of a name, signed with the origin's key: a holder can show it when the origin is not
//! reachable, and no host or user can give a name to other content, or content to another owner.

use std::sync::Arc;

use tidecast_depot::CacheRecord;
use tidecast_hash::sha256;
use tidecast_identity::{Identity, NodeKey};
use tidecast_members::{Claim, Record};

use crate::links::peers::Links;
use crate::links::trust::Trust;
use crate::model::attributes::Attributes;
use crate::model::name::is_of_user;
use crate::model::signed_name::SignedName;

/// A signed name is good for this long, milliseconds: as long as records are kept at most.
pub(crate) const LIFE: u64 = 30 * 24 * 3600 * 1000;

/// The origin's claim about a cache; None if it is not committed, or its version is out of bounds.
pub(crate) fn claim(about: &CacheRecord) -> Option<Claim> {
    Some(Claim::Name {
        origin: about.origin.clone(),
        name: about.name.clone(),
        version: u32::try_from(about.version?).ok()?,
        manifest: about.content?,
        ad: digest(about).to_vec(),
    })
}

/// Digest of the properties that only the origin may change: owner, readers, and transfer methods.
fn digest(about: &CacheRecord) -> [u8; 32] {
    let a = Attributes::of(about);
    let decided = serde_json::json!([
        1,
        about.owner,
        about.group,
        about.mode,
        about.private,
        a.methods(),
        a.policy,
        a.requirements,
        a.replicas
    ]);
    sha256(decided.to_string().as_bytes())
}

/// Signs this host's claims about the caches that it created.
pub(crate) struct Signer {
    name: String,
    key: NodeKey,
    links: Arc<Links>,
}

impl Signer {
    pub(crate) fn new(name: String, key: NodeKey, links: Arc<Links>) -> Self {
        Self { name, key, links }
    }

    /// The record as it is given to others: with the origin's word for it.
    pub(crate) fn told(&self, record: &CacheRecord) -> CacheRecord {
        let mut told = record.clone();
        if record.origin == self.name {
            let (card, now) = (self.links.hello().card, crate::clock::millis());
            let mut attributes = Attributes::of(record);
            attributes.named = sign(record, &self.key, &card, now);
            told.attributes = attributes.to_map();
        }
        told
    }
}

/// The word of this host, which is the origin.
fn sign(about: &CacheRecord, key: &NodeKey, card: &str, now: u64) -> Option<SignedName> {
    let record = Record::sign(key, claim(about)?, now, now + LIFE, false)?;
    Some(SignedName::new(&record, card))
}

/// Whether the origin of `about` has signed exactly this record, with a key that `trust` accepts.
pub(crate) fn proves(
    said: &SignedName,
    about: &CacheRecord,
    trust: &Trust,
    key: &NodeKey,
) -> Result<(), &'static str> {
    let record = said.record().ok_or("the origin's signed record is malformed")?;
    if claim(about).as_ref() != Some(&record.claim) || record.withdrawn {
        return Err("the origin's signed record is about another cache or was withdrawn");
    }
    if record.expires / 1000 <= crate::clock::now() || !record.is_signed(key) {
        return Err("the origin's signed record has expired, or its signature is wrong");
    }
    let identity = trust.identity(&said.card, record.signer, true);
    let identity = identity.map_err(|_| "the certificate of the signed record was rejected")?;
    if speaks_for(&identity, about) { Ok(()) } else { Err("the signer may not name caches of this origin") }
}

/// Whether a daemon of this identity may make caches of this origin and owner.
pub(crate) fn speaks_for(identity: &Identity, about: &CacheRecord) -> bool {
    match identity {
        Identity::Host(host) => about.origin == *host,
        Identity::User(user) => is_of_user(&about.origin, user) && about.owner == *user,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn about() -> CacheRecord {
        let size = serde_json::json!({ "bytes": 1, "inodes": 1 });
        serde_json::from_value(serde_json::json!({
            "id": 1, "origin": "head", "name": "nt", "version": 2, "owner": "alice", "mode": 0o444, "state": "COMMITTED",
            "declared": size, "created": 1, "last_used": 1, "lease_until": 1, "content": "00".repeat(32),
        }))
        .unwrap()
    }

    fn trust(lines: &str) -> (tempfile::TempDir, Trust) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("trust.toml");
        std::fs::write(&path, lines).unwrap();
        let trust = Trust::open(Some(path)).unwrap();
        (dir, trust)
    }

    #[test]
    fn a_name_is_believed_from_its_origin_only_and_as_it_was_said() {
        let (head, other) = (NodeKey::generate().unwrap(), NodeKey::generate().unwrap());
        let lines = |key: &NodeKey, who| format!("[[node]]\nid = \"{}\"\nidentity = \"{who}\"\n", key.id());
        let (_dir, site) = trust(&(lines(&head, "host:head") + &lines(&other, "host:other")));
        let now = crate::clock::now() * 1000;
        let said = sign(&about(), &head, "", now).unwrap();
        assert_eq!(proves(&said, &about(), &site, &other), Ok(()));
        let changes: [fn(&mut CacheRecord); 6] = [
            |about| about.owner = "bob".into(),
            |about| about.mode = 0o440,
            |about| about.version = Some(3),
            |about| about.content = Some([1; 32]),
            |about| about.name = "nr".into(),
            |about| about.private = true,
        ];
        for change in changes {
            let mut changed = about();
            change(&mut changed);
            assert!(proves(&said, &changed, &site, &other).is_err(), "{changed:?}");
        }
        let imposter = sign(&about(), &other, "", now).unwrap();
        assert!(proves(&imposter, &about(), &site, &head).is_err());
        let old = sign(&about(), &head, "", now - LIFE).unwrap();
        assert!(proves(&old, &about(), &site, &other).is_err());
        let (_dir, stranger) = trust(&lines(&other, "host:other"));
        assert!(proves(&said, &about(), &stranger, &other).is_err());
    }
}
