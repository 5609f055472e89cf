//! Who may read a cache: by the mode of its directory, where the file system can enforce it, and by the index of rights.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::Error;
use crate::object::Parts;
use crate::{CacheId, CacheRecord, Depot, Local};

/// What the owner of a cache decides about it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Access {
    /// Group of its readers.
    pub group: Option<String>,
    /// Who may read it: of 0o444, the bits for owner, group and others.
    pub mode: u32,
    /// It leaves the host only by a direct, authenticated stream (kept for the caller).
    pub private: bool,
    /// Local owner of the view.
    pub local: Option<Local>,
    /// The caller's own.
    pub attributes: BTreeMap<String, Value>,
}

impl Depot {
    /// Changes who may read a committed cache, and what the caller keeps with it.
    ///
    /// # Errors
    /// [`Error::NoCache`], [`Error::State`]; what disk and database report.
    pub fn set_access(&self, id: CacheId, access: &Access) -> Result<(), Error> {
        let _disk = self.0.disk.lock();
        let old = self.committed(id)?;
        let parts = Parts::of(&self.0.layout.manifest_in(&self.0.layout.cache(id))?)?;
        // Who may not read any more loses it first, and who may from now on gets it last: whenever it breaks off.
        let common = if old.group == access.group { 0o444 } else { 0o404 };
        self.expose(&CacheRecord { mode: old.mode & access.mode & common, ..CacheRecord::clone(&old) })?;
        let new = self.0.write(|t| {
            // What was changed meanwhile (lease, pin) counts.
            let old = self.committed(id)?;
            let new = CacheRecord {
                group: access.group.clone(),
                mode: access.mode & 0o444,
                private: access.private,
                local: access.local,
                attributes: access.attributes.clone(),
                ..CacheRecord::clone(&old)
            };
            t.withdraw(&old, &parts.objects)?;
            t.grant(&new, &parts.objects)?;
            t.put(new.clone())?;
            Ok(new)
        })?;
        self.expose(&new)
    }

    /// Gives the directory of a cache the right to read it.
    pub(crate) fn expose(&self, record: &CacheRecord) -> Result<(), Error> {
        let cache = self.0.layout.cache(record.id);
        let root = rustix::process::geteuid().is_root();
        let mode = if root { 0o500 | exposed(record.mode) } else { 0o555 };
        if let Some(local) = record.local.filter(|_| root) {
            self.0.layout.chown(&cache, local.uid, local.gid)?;
        }
        self.0.layout.chmod(&cache, mode)?;
        self.0.layout.sync(&cache)
    }

    /// Takes that right back from everybody but this store, as far as its user is another's than the readers'.
    pub(crate) fn conceal(&self, id: CacheId) -> Result<(), Error> {
        let cache = self.0.layout.cache(id);
        if !self.0.layout.is_dir(&cache) {
            return Ok(());
        }
        // Root passes all the same, and the directory may be its reader's own.
        self.0.layout.chmod(&cache, if rustix::process::geteuid().is_root() { 0 } else { 0o700 })?;
        self.0.layout.sync(&cache)
    }
}

/// Who may read may pass.
fn exposed(mode: u32) -> u32 {
    let read = mode & 0o044;
    read | read >> 2
}
