//! Reading what belongs to a file beside its bytes: names of owners, extended attributes.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Arc;

use nix::unistd::{Gid, Group, Uid, User};
use parking_lot::Mutex;
use rustix::fd::AsFd;
use rustix::fs::{fgetxattr, flistxattr};
use rustix::io::Errno;

use super::Seen;
use crate::entry::{Attributes, Owner};
use crate::part::MAX_XATTRS;

/// Longest list of names, and longest value, that the kernel gives.
const LONGEST: usize = 65_536;
/// Most are shorter.
const USUAL: usize = 256;

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
        Attributes {
            mode: seen.mode,
            mtime: seen.mtime,
            owner: self.get(seen.uid, seen.gid),
            xattrs: Vec::new(),
        }
    }
}

thread_local! {
    static BUFFER: RefCell<Vec<u8>> = RefCell::new(vec![0; LONGEST]);
}

/// Names and values.
type Xattrs = Vec<(Vec<u8>, Vec<u8>)>;

/// Extended attributes that a copy takes along: the user's, access control lists, and as root those that only root may set.
/// Labels of security modules belong to a host and stay there.
pub(super) fn xattrs(fd: impl AsFd, root: bool) -> Result<Xattrs, Errno> {
    BUFFER.with_borrow_mut(|buffer| {
        let names = match read(buffer, |buffer| flistxattr(&fd, buffer)) {
            Ok(0) | Err(Errno::OPNOTSUPP) => return Ok(Vec::new()),
            Ok(len) => buffer[..len].to_vec(),
            Err(e) => return Err(e),
        };
        let mut all = Vec::new();
        for name in names.split(|b| *b == 0).filter(|name| travels(name, root)) {
            if all.len() == MAX_XATTRS {
                return Err(Errno::TOOBIG);
            }
            match read(buffer, |buffer| fgetxattr(&fd, name, buffer)) {
                Ok(len) => all.push((name.to_vec(), buffer[..len].to_vec())),
                // It went meanwhile.
                Err(Errno::NODATA) => {}
                Err(e) => return Err(e),
            }
        }
        Ok(all)
    })
}

/// With little room first: the kernel allocates as much as it is offered.
fn read(buffer: &mut [u8], call: impl Fn(&mut [u8]) -> Result<usize, Errno>) -> Result<usize, Errno> {
    match call(&mut buffer[..USUAL]) {
        Err(Errno::RANGE) => call(buffer),
        other => other,
    }
}

fn travels(name: &[u8], root: bool) -> bool {
    name.starts_with(b"user.")
        || name.starts_with(b"system.posix_acl_")
        || (root && (name == b"security.capability" || name.starts_with(b"trusted.")))
}
