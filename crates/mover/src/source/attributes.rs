//! Reads the names of the owners of files.

use std::collections::HashMap;
use std::sync::Arc;

use nix::unistd::{Gid, Group, Uid, User};
use parking_lot::Mutex;

use super::Seen;
use crate::entry::{Attributes, Owner};

/// Names of users and groups that were looked up.
#[derive(Debug, Default)]
pub(super) struct Owners(Mutex<HashMap<(u32, u32), Owner>>);

impl Owners {
    pub(super) fn get(&self, uid: u32, gid: u32) -> Owner {
        if let Some(owner) = self.0.lock().get(&(uid, gid)) {
            return owner.clone();
        }
        // Looked up without the lock: a directory service may take its time.
        let user = User::from_uid(Uid::from_raw(uid)).ok().flatten().map(|u| u.name).unwrap_or_default();
        let group = Group::from_gid(Gid::from_raw(gid)).ok().flatten().map(|g| g.name).unwrap_or_default();
        let owner = Owner { uid, gid, user: Arc::from(user), group: Arc::from(group) };
        self.0.lock().entry((uid, gid)).or_insert(owner).clone()
    }

    /// All but extended attributes.
    pub(super) fn attributes(&self, seen: &Seen) -> Attributes {
        Attributes { mode: seen.mode, mtime: seen.mtime, owner: self.get(seen.uid, seen.gid), xattrs: None }
    }
}
