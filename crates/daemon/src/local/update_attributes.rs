//! Changes attributes of an existing cache: its readers, and its transfer methods. The origin signs them with
//! the name and every copy has them, so they can be changed only while there is no copy.

use std::sync::Arc;

use tidecast_depot::{Access, CacheRecord};
use tidecast_metainfo::Manifest;

use crate::directory::sources::Directory;
use crate::host::caller::Caller;
use crate::local::records::{READ, Records};
use crate::model::api_error::{ApiError, ErrorKind};
use crate::model::attributes::Attributes;
use crate::model::signed_name::held;
use crate::model::types::Create;
use crate::storage::audit::Audit;
use crate::transfer::swarms::Swarms;

/// Changes attributes of caches.
pub(crate) struct AttributeUpdate {
    pub(crate) records: Arc<Records>,
    pub(crate) directory: Arc<Directory>,
    pub(crate) swarms: Arc<Swarms>,
    pub(crate) audit: Arc<Audit>,
}

impl AttributeUpdate {
    /// `create` for an existing cache of the same content: given attributes are changed, others stay.
    pub(crate) async fn update(
        &self,
        caller: &Caller,
        create: &Create,
        manifest: &Manifest,
    ) -> Result<(), ApiError> {
        let Some(content) = manifest.hash_v2() else { return Ok(()) };
        let own = |r: &CacheRecord| {
            r.origin == self.records.config.name && r.name == create.name && r.owner == caller.name
        };
        let Some(old) = self.records.store.depot.with_content(&content).into_iter().find(|r| own(r)) else {
            return Ok(());
        };
        let before = Access {
            group: old.group.clone(),
            mode: old.mode,
            private: old.private,
            local: old.local,
            attributes: Attributes::of(&old).to_map(),
        };
        let mut access = changed(&old, create)?;
        if access.group != old.group {
            access.local = self.records.view_of(caller, access.group.as_deref());
        }
        if access == before {
            return Ok(());
        }
        let name = old.full_name();
        let copies = self.copies(&held(&name, &content), &content).await;
        if !copies.is_empty() {
            let why = format!(
                "{name} has copies on other hosts ({}), which keep their old attributes: remove them there \
                 first (tidecast cache rm {name}), or choose another name",
                copies.join(", ")
            );
            return Err(ApiError::new(axum::http::StatusCode::CONFLICT, ErrorKind::Copies, why));
        }
        let id = old.id;
        self.records.store.on_disk(move |depot| depot.set_access(id, &access)).await?;
        self.swarms.stop(&content).await;
        self.records.store.changed();
        self.audit.note(&caller.name, "change", &name, "ok");
        Ok(())
    }

    /// The other hosts that hold a cache, or are getting it, as far as they are known.
    async fn copies(&self, held: &[u8; 32], content: &[u8; 32]) -> Vec<String> {
        let holders = self.directory.membership.holders(held).await.into_iter().map(|(node, _)| node);
        let mut holders: std::collections::BTreeSet<_> =
            holders.chain(self.swarms.admitted_nodes(content)).collect();
        holders.remove(&self.directory.membership.me());
        let name = |node| {
            self.directory.links.find(|peer| peer.node == node).map(|link| link.peer.hello.name.clone())
        };
        holders.into_iter().map(|node| name(node).unwrap_or_else(|| node.to_string())).collect()
    }
}

/// The cache's access with the requested changes.
fn changed(old: &CacheRecord, create: &Create) -> Result<Access, ApiError> {
    let private = create.private || old.private && create.mode.is_none();
    if let Some(why) = (Create { private, ..create.clone() }).contradiction() {
        return Err(ApiError::malformed(format!("{} is private. {why}", old.full_name())));
    }
    let mode = create.mode.or(private.then_some(0o700)).map_or(old.mode, |mode| mode & READ);
    let mut attributes = Attributes::of(old);
    attributes.change(create, old.private && !private);
    Ok(Access {
        group: create.group.clone().or_else(|| old.group.clone()),
        mode,
        private,
        local: old.local,
        attributes: attributes.to_map(),
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::model::types::Method;

    fn old(private: bool) -> CacheRecord {
        let size = serde_json::json!({ "bytes": 1, "inodes": 1 });
        serde_json::from_value(serde_json::json!({
            "id": 1, "origin": "head", "name": "nt", "version": 2, "owner": "alice", "group": "users",
            "mode": if private { 0o400 } else { 0o444 }, "private": private, "state": "COMMITTED", "declared": size,
            "created": 1, "last_used": 1, "lease_until": 1, "attributes": { "methods": [], "replicas": 2, "policy": "true" },
        }))
        .unwrap()
    }

    #[test]
    fn what_is_said_changes_and_what_is_not_said_stays() {
        for private in [false, true] {
            let (old, said) = (old(private), Create::default());
            let access = changed(&old, &said).unwrap();
            assert_eq!((access.mode, access.private, access.group), (old.mode, private, old.group.clone()));
            assert_eq!(access.attributes, Attributes::of(&old).to_map());
        }
        let access = changed(&old(false), &Create { private: true, ..Create::default() }).unwrap();
        assert_eq!((access.mode, access.private), (0o400, true));
        let open = Create { mode: Some(0o755), replicas: 3, ..Create::default() };
        let access = changed(&old(true), &open).unwrap();
        assert_eq!((access.mode, access.private), (0o444, false));
        let record = CacheRecord { attributes: access.attributes, private: false, ..old(true) };
        assert_eq!(Attributes::of(&record).methods(), [Method::Swarm, Method::Direct]);
        assert_eq!(Attributes::of(&record).replicas, 3);
        let swarm = Create { methods: vec![Method::Swarm], ..Create::default() };
        assert!(changed(&old(true), &swarm).is_err() && changed(&old(false), &swarm).is_ok());
    }
}
