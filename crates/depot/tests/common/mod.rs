//! Trees, manifests and caches for the tests.
#![allow(dead_code, clippy::unwrap_used, clippy::expect_used, unreachable_pub)]

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tidecast_depot::{Admission, CacheId, CacheRecord, Config, Declare, Depot, Reader, Reservation, Size};
use tidecast_metainfo::{Manifest, Version};
use tidecast_publish::{Format, HashOptions, Progress, ScanOptions, hash, scan};

/// Limits that never bind.
pub fn config() -> Config {
    Config { reserve_bytes: 0, reserve_inodes: 0, high: 100, low: 100, ..Config::default() }
}

/// Room for this much, whatever the disk has.
pub fn small(bytes: u64) -> Config {
    Config { max_bytes: Some(bytes), ..config() }
}

pub fn open(dir: &Path) -> Depot {
    Depot::open(dir, config()).unwrap()
}

/// Writes files below `root`: `dir/` names are directories, `name -> target` symbolic links.
pub fn tree(root: &Path, files: &[(&str, &[u8])]) -> PathBuf {
    fs::create_dir_all(root).unwrap();
    for (name, data) in files {
        let path = root.join(name);
        if let Some(dir) = name.strip_suffix('/') {
            fs::create_dir_all(root.join(dir)).unwrap();
            continue;
        }
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        if let Some((link, target)) = name.split_once(" -> ") {
            std::os::unix::fs::symlink(target, root.join(link)).unwrap();
            continue;
        }
        fs::write(&path, data).unwrap();
        let time = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000);
        fs::File::open(&path).unwrap().set_modified(time).unwrap();
    }
    root.to_owned()
}

pub fn manifest(root: &Path) -> Manifest {
    manifest_as(root, Version::V2)
}

pub fn manifest_as(root: &Path, version: Version) -> Manifest {
    let progress = Progress::new();
    let scanned = scan(root, &ScanOptions::default(), &progress).unwrap();
    let options = HashOptions { format: Format::Exactly(version), ..HashOptions::default() };
    hash(&scanned, &options, &progress, |_| {}).unwrap().manifest
}

/// A cache that alice declares.
pub fn named(name: &str) -> Declare {
    Declare {
        origin: "here".into(),
        name: name.into(),
        owner: "alice".into(),
        mode: 0o400,
        size: Size { bytes: 1 << 30, inodes: 1_000_000 },
        ..Declare::default()
    }
}

pub fn of(owner: &str, name: &str) -> Declare {
    Declare { owner: owner.into(), ..named(name) }
}

pub fn reserve(depot: &Depot, id: CacheId, manifest: Option<&Manifest>, now: u64) -> Reservation {
    let owner = depot.cache(id).unwrap().owner.clone();
    match depot.admit(id, manifest, &Reader::owner(&owner), now).unwrap() {
        Admission::Ok(r) => r,
        other => panic!("{other:?}"),
    }
}

/// Copies the tree at `root` into the reservation, except these files.
pub fn stage(reservation: &Reservation, manifest: &Manifest, root: &Path, but: &[u32]) {
    try_stage(reservation, manifest, root, but).unwrap();
}

/// As [`stage`], where the disk may be full.
pub fn try_stage(
    reservation: &Reservation,
    manifest: &Manifest,
    root: &Path,
    but: &[u32],
) -> std::io::Result<()> {
    let top = reservation.dir().join(manifest.name().as_ref());
    for dir in manifest.dirs() {
        fs::create_dir_all(dir.path().below(&top))?;
    }
    for file in manifest.files().filter(|f| !f.is_symlink() && !but.contains(&f.index())) {
        let to = file.path().below(&top);
        let _ = fs::remove_file(&to);
        fs::copy(file.path().below(root), to)?;
    }
    Ok(())
}

/// Declares, admits, reuses, stages and commits the tree at `root`.
pub fn put(depot: &Depot, declare: Declare, root: &Path, now: u64) -> Arc<CacheRecord> {
    let m = manifest(root);
    let reader = Reader::owner(&declare.owner);
    let id = depot.declare(declare, now).unwrap().id;
    let reservation = reserve(depot, id, Some(&m), now);
    let reuse = reservation.reuse(&m, &reader).unwrap();
    stage(&reservation, &m, root, &reuse.files);
    reservation.commit(&m, false, now).unwrap().record
}

/// Nothing is wrong with the store.
pub fn assert_clean(depot: &Depot) {
    let report = depot.fsck(tidecast_depot::Depth::Bytes, &mut |_, _| Ok(false)).unwrap();
    assert!(report.is_clean(), "{report:?}");
}

/// Files below `objects/`.
pub fn objects(depot: &Depot) -> Vec<PathBuf> {
    let dirs = fs::read_dir(depot.dir().join("objects")).unwrap();
    dirs.flat_map(|d| fs::read_dir(d.unwrap().path()).unwrap()).map(|e| e.unwrap().path()).collect()
}
