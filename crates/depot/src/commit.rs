//! The commit: staged files become a durable cache.
//!
//! Everything is on disk, the view under its final name too, before the one transaction that commits it. A crash
//! before it leaves a view without a record, with a manifest by which its objects are found and removed.

use std::collections::{BTreeMap, HashMap};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

use tidecast_hash::Digest;
use tidecast_metainfo::Manifest;

use crate::Error;
use crate::db::{Name, Tables};
use crate::layout::Layout;
use crate::object::{ObjectKey, Parts};
use crate::open_dir::OpenDir;
use crate::os::Unsynced;
use crate::place::{Placing, check};
use crate::record::Past;
use crate::reserve::Held;
use crate::root::root_of;
use crate::{CacheId, CacheRecord, Depot, Reservation, State};

/// The result of a commit.
#[derive(Clone, Debug)]
pub struct Committed {
    /// The cache; an older one if that has the same name and content.
    pub record: Arc<CacheRecord>,
    /// Files that needed no inode of their own.
    pub linked: u64,
}

pub(crate) fn commit(
    reservation: &Reservation,
    record: &CacheRecord,
    manifest: &Manifest,
    trusted: bool,
    now: u64,
) -> Result<Committed, Error> {
    let depot = reservation.depot();
    let parts = Parts::of(manifest)?;
    let content = manifest.hash_v2().ok_or(Error::Unfit("the manifest has no v2 info-hash"))?;
    let staged = reservation.dir().join(OsStr::from_bytes(manifest.name_bytes()));
    let reused = reservation.reused();
    check(&depot.0.layout, manifest, &staged, &reused, !trusted)?;
    // Most of the waiting for the disk is done before the lock is taken.
    presync(&depot.0.layout, manifest, &staged)?;
    let proven = prove(depot, manifest, &reused)?;

    let disk = depot.0.disk.lock();
    if let Some(known) = same_content(depot, record, &content) {
        return adopt(reservation, record, known);
    }
    let (view, cache) = (reservation.staging().join("cache"), depot.0.layout.cache(record.id));
    let done = assemble(reservation, manifest, proven, &view).and_then(|placing| {
        let (extra, linked) = (placing.extra, placing.linked);
        publish(depot, record, &view)?;
        let new = filled(record, manifest, &parts, content, now);
        enter(depot, &new, &parts, &extra, now)?;
        Ok(linked)
    });
    let linked = match done {
        Ok(linked) => linked,
        Err(e) => {
            // As after a crash; if it cannot be done now, it is done when the store is opened.
            let _ = reservation.undo(&cache);
            let _ = reservation.undo(&view);
            return Err(e);
        }
    };
    depot.0.memory.write().promises.remove(&record.id);
    let record = depot.cache(record.id).ok_or(Error::NoCache(record.id))?;
    drop(disk);
    // The cache is complete again: the damaged record is no longer needed. If a job uses it, a sweep removes it.
    let old: Vec<CacheId> = depot.damaged(&record).iter().map(|r| r.id).collect();
    if !old.is_empty() {
        depot.drop_caches(&old, now)?;
    }
    Ok(Committed { record, linked })
}

/// Objects that replace staged files and are undamaged: verified data is not discarded for a decayed object. The
/// inode of each.
fn prove(
    depot: &Depot,
    manifest: &Manifest,
    reused: &BTreeMap<Digest, Held>,
) -> Result<HashMap<ObjectKey, u64>, Error> {
    let objects = depot.0.objects()?;
    let mut proven = HashMap::new();
    let files = manifest.files().filter(|f| !f.is_empty());
    // By key: objects of one directory follow each other.
    let keys: BTreeMap<ObjectKey, u64> = files.filter_map(|f| Some((ObjectKey::of(f)?, f.len()))).collect();
    let mut open_dir = OpenDir::new(&depot.0.layout);
    for (key, len) in keys {
        if reused.contains_key(&key.root) || objects.get(&key)?.is_none() {
            continue;
        }
        let found = open_dir
            .open(&depot.0.layout.object(&key))
            .and_then(|f| Ok((f.metadata()?.ino(), root_of(&f, len)?)));
        if let Some((inode, _)) = found.ok().filter(|(_, root)| *root == key.root) {
            proven.insert(key, inode);
        }
    }
    Ok(proven)
}

/// Has the bulk of the data on disk.
fn presync(layout: &Layout, manifest: &Manifest, staged: &Path) -> Result<(), Error> {
    let (mut unsynced, mut open_dir) = (Unsynced::default(), OpenDir::new(layout));
    for file in manifest.files().filter(|f| !f.is_empty()) {
        if unsynced.is_all() {
            break;
        }
        let path = file.path().below(staged);
        if open_dir.look(&path).is_ok_and(|m| m.is_file()) {
            unsynced.file(&path);
        }
    }
    unsynced.sync(layout)
}

/// The committed cache of the same name, owner and content, if this one takes its version from there.
fn same_content(depot: &Depot, record: &CacheRecord, content: &[u8; 32]) -> Option<CacheId> {
    let memory = depot.0.memory.read();
    let same = |r: &CacheRecord| {
        r.is_committed()
            && r.content.as_ref() == Some(content)
            && r.origin == record.origin
            && r.name == record.name
            && r.owner == record.owner
            && record.version.is_none_or(|v| r.version == Some(v))
    };
    memory.caches.values().find(|r| same(r) && !memory.leaving.contains(&r.id)).map(|r| r.id)
}

/// The declared cache is one that is there: it gives its lease and goes.
fn adopt(reservation: &Reservation, record: &CacheRecord, known: CacheId) -> Result<Committed, Error> {
    let depot = reservation.depot();
    depot.0.write(|t| {
        let old = depot.cache(known).ok_or(Error::NoCache(known))?;
        let mut old = CacheRecord::clone(&old);
        old.lease_until = old.lease_until.max(record.lease_until);
        t.put(old)?;
        t.delete(record.id)
    })?;
    let record = depot.cache(known).ok_or(Error::NoCache(known))?;
    let linked = record.files;
    Ok(Committed { record, linked })
}

/// Makes the view in the staging directory, durable.
fn assemble<'a>(
    reservation: &'a Reservation,
    manifest: &'a Manifest,
    proven: HashMap<ObjectKey, u64>,
    view: &Path,
) -> Result<Placing<'a>, Error> {
    let layout = &reservation.depot().0.layout;
    let staging = reservation.staging();
    layout.remove_all(view)?;
    layout.make_dir(view)?;
    // The manifest first: it tells what to remove if this ends halfway.
    layout.write_manifest(view, manifest)?;
    layout.sync(view)?;
    layout.sync(&staging)?;
    let tree = view.join("tree");
    layout.make_dir(&tree)?;
    let top = OsStr::from_bytes(manifest.name_bytes());
    let mut placing = Placing {
        layout,
        objects: reservation.depot().0.objects()?,
        manifest,
        staged: reservation.dir().join(top),
        reused: reservation.reused(),
        proven,
        links: reservation.takes_links(),
        scratch: staging.join("scratch"),
        unsynced: Unsynced::default(),
        sources: OpenDir::new(layout),
        stored: OpenDir::new(layout),
        placed: OpenDir::new(layout),
        extra: BTreeMap::new(),
        linked: 0,
    };
    placing.all(&tree.join(top))?;
    layout.chmod(&tree, 0o555)?;
    placing.unsynced.dir(&tree);
    placing.unsynced.dir(view);
    std::mem::take(&mut placing.unsynced).sync(layout)?;
    Ok(placing)
}

/// Gives the view its final name, and to its top directory the right to read.
fn publish(depot: &Depot, record: &CacheRecord, view: &Path) -> Result<(), Error> {
    let layout = &depot.0.layout;
    let cache = layout.cache(record.id);
    layout.remove_all(&cache)?;
    layout.rename(view, &cache)?;
    depot.expose(record)?;
    layout.sync(&layout.caches())
}

fn filled(
    record: &CacheRecord,
    manifest: &Manifest,
    parts: &Parts,
    content: [u8; 32],
    now: u64,
) -> CacheRecord {
    CacheRecord {
        state: State::Committed,
        content: Some(content),
        top: manifest.name_bytes().to_vec(),
        size: parts.size(),
        own: parts.own,
        files: manifest.file_count().into(),
        bytes: manifest.total_len(),
        committed: Some(now),
        last_used: record.last_used.max(now),
        ..record.clone()
    }
}

/// The transaction.
fn enter(
    depot: &Depot,
    record: &CacheRecord,
    parts: &Parts,
    extra: &BTreeMap<ObjectKey, u32>,
    now: u64,
) -> Result<(), Error> {
    depot.0.write(|t| {
        // Changes made meanwhile (lease, pin, attributes) count.
        let current = depot.cache(record.id).ok_or(Error::NoCache(record.id))?;
        if current.state != State::Uploading {
            let why = "only a cache that is being uploaded can be committed";
            return Err(Error::State { id: record.id, state: current.state, why });
        }
        let mut record = CacheRecord {
            lease_until: current.lease_until,
            pinned: current.pinned,
            attributes: current.attributes.clone(),
            ..record.clone()
        };
        record.version = Some(version(t, &record, now)?);
        for old in depot.damaged(&record) {
            record.lease_until = record.lease_until.max(old.lease_until);
            record.pinned |= old.pinned;
            t.put(CacheRecord { pinned: false, ..CacheRecord::clone(&old) })?;
        }
        t.take(&record, &parts.objects, extra)?;
        t.put(record)
    })
}

/// The version of a cache that is about to be committed, remembered from here on.
fn version(t: &mut Tables<'_>, record: &CacheRecord, now: u64) -> Result<u64, Error> {
    let (origin, name) = (&*record.origin, &*record.name);
    let known = t.pasts(origin, name)?;
    let blank = || Name { owner: record.owner.clone(), last: 0, other: BTreeMap::new() };
    let mut of_name = t.name(origin, name)?.unwrap_or_else(blank);
    let version = match record.version {
        Some(v) => {
            if known.iter().any(|p| p.version == v && p.content != record.content) {
                return Err(Error::Conflict { origin: origin.into(), name: name.into(), version: v });
            }
            v
        }
        // Content that was here before gets its old version again.
        None => match known.iter().rev().find(|p| p.content == record.content) {
            Some(past) => past.version,
            None => of_name.last + 1,
        },
    };
    of_name.last = of_name.last.max(version);
    t.set_name(origin, name, &of_name)?;
    let past = Past {
        version,
        content: record.content,
        owner: record.owner.clone(),
        bytes: record.bytes,
        files: record.files,
        committed: now,
        removed: None,
        other: BTreeMap::new(),
    };
    t.remember(origin, name, &past)?;
    Ok(version)
}
