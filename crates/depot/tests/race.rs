//! Directories of the store are swapped for links to a directory of another user, in a loop, while the store
//! runs all its operations: nothing there is opened, read, changed or removed.
//!
//! `TIDECAST_RACE_SECONDS=60` makes it last longer.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::mem::MaybeUninit;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use common::*;
use rustix::fs::inotify::{CreateFlags, Reader as Events, WatchFlags, add_watch, init};
use tidecast_depot::{Admission, Depot, Depth, Reader, Use};
use tidecast_metainfo::Manifest;

/// Rounds when no time is set.
const ROUNDS: u64 = 150;

/// A directory that the store has no business with, with names in it that the store looks for.
struct Victim {
    dir: PathBuf,
    before: BTreeMap<PathBuf, String>,
    events: rustix::fd::OwnedFd,
}

impl Victim {
    fn new(dir: PathBuf, manifest: &Manifest) -> Self {
        let bytes = manifest.to_bytes();
        for top in ["", "data", "cache", "tree", "tree/data", "reused", "repairs", "ab"] {
            fs::create_dir_all(dir.join(top)).unwrap();
        }
        for id in 1..40 {
            let id = dir.join(format!("{id:016x}"));
            tree(&id, &[("manifest", &bytes), ("tree/data/f", b"secret"), ("data/data/f", b"secret")]);
        }
        for file in
            ["manifest", "data/f", "cache/manifest", "tree/data/f", "reused/x", "0-0", "1-0", "mending"]
        {
            fs::write(dir.join(file), "secret").unwrap();
        }
        let events = init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC).unwrap();
        let mut dirs = Vec::new();
        let mut stack = vec![dir.clone()];
        while let Some(path) = stack.pop() {
            for entry in fs::read_dir(&path).unwrap() {
                let entry = entry.unwrap();
                if entry.file_type().unwrap().is_dir() {
                    stack.push(entry.path());
                }
            }
            dirs.push(path);
        }
        let before = picture(&dir);
        for path in &dirs {
            let all = WatchFlags::OPEN | WatchFlags::ACCESS | WatchFlags::MODIFY | WatchFlags::ATTRIB;
            let all = all | WatchFlags::CREATE | WatchFlags::DELETE | WatchFlags::MOVE;
            add_watch(&events, path, all).unwrap();
        }
        Victim { dir, before, events }
    }

    fn assert_untouched(&self) {
        let mut buf = [MaybeUninit::uninit(); 4096];
        let mut events = Events::new(&self.events, &mut buf);
        if let Ok(event) = events.next() {
            panic!("{:?} {:?} in a directory outside of the store", event.events(), event.file_name());
        }
        assert_eq!(picture(&self.dir), self.before);
    }
}

/// The complete state of a tree.
fn picture(top: &Path) -> BTreeMap<PathBuf, String> {
    let mut all = BTreeMap::new();
    let mut stack = vec![top.to_path_buf()];
    while let Some(path) = stack.pop() {
        let m = fs::symlink_metadata(&path).unwrap();
        let bytes = if m.is_dir() {
            stack.extend(fs::read_dir(&path).unwrap().map(|e| e.unwrap().path()));
            Vec::new()
        } else {
            fs::read(&path).unwrap()
        };
        let times = (m.mtime(), m.mtime_nsec(), m.ctime(), m.ctime_nsec());
        all.insert(path, format!("{:o} {} {} {} {times:?} {bytes:?}", m.mode(), m.uid(), m.gid(), m.nlink()));
    }
    all
}

/// The store's directories, down to views.
fn directories(store: &Path) -> Vec<PathBuf> {
    let mut all = Vec::new();
    let mut level: Vec<PathBuf> =
        ["caches", "objects", "incoming", "trash", "uses"].iter().map(|n| store.join(n)).collect();
    for _ in 0..4 {
        let mut below = Vec::new();
        for dir in &level {
            for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
                if entry.file_type().is_ok_and(|t| t.is_dir()) {
                    below.push(entry.path());
                }
            }
        }
        all.append(&mut level);
        level = below;
    }
    all
}

/// Swaps one directory after the other for a link to the victim, and back.
fn swap(store: &Path, victim: &Path, stop: &AtomicBool) -> u64 {
    let aside = store.with_extension("aside");
    let mut swaps = 0_u64;
    while !stop.load(Ordering::Relaxed) {
        for dir in directories(store) {
            if stop.load(Ordering::Relaxed) {
                break;
            }
            // A directory that may not be written cannot be moved by a user without privilege.
            let _ = fs::set_permissions(&dir, fs::Permissions::from_mode(0o755));
            if let Some(above) = dir.parent().filter(|above| above.starts_with(store) && above != &store) {
                let _ = fs::set_permissions(above, fs::Permissions::from_mode(0o755));
            }
            if fs::rename(&dir, &aside).is_err() {
                continue;
            }
            if symlink(victim, &dir).is_ok() {
                swaps += 1;
                std::thread::yield_now();
                let _ = fs::remove_file(&dir);
            }
            if fs::rename(&aside, &dir).is_err() {
                let _ = fs::remove_dir_all(&aside);
            }
            // Now and then the store is left alone for long enough to open, and to come to its removals and checks.
            if swaps.is_multiple_of(7) {
                std::thread::sleep(Duration::from_micros(swaps * 7919 % 3000));
            }
        }
    }
    swaps
}

/// Every operation once. Failures because of the swaps are ignored here.
fn round(depot: &Depot, manifest: &Manifest, source: &Path, now: u64) {
    let name = format!("n{}", now % 7);
    if let Ok(record) = depot.declare(named(&name), now) {
        let reader = Reader::owner("alice");
        if let Ok(Admission::Ok(reservation)) = depot.admit(record.id, Some(manifest), &reader, now) {
            let reuse = reservation.reuse(manifest, &reader).unwrap_or_default();
            let files = manifest.files().filter(|f| !f.is_symlink() && !reuse.files.contains(&f.index()));
            for file in files {
                let bytes = fs::read(file.path().below(source)).unwrap();
                let made = reservation.create(&file.path().below(Path::new("data")));
                let _ = made.map(|mut f| f.write_all(&bytes));
            }
            let _ = if now.is_multiple_of(5) {
                reservation.remove(Path::new("data"))
            } else if now.is_multiple_of(11) {
                reservation.discard()
            } else {
                reservation.commit(manifest, now.is_multiple_of(2), now).map(drop)
            };
        }
    }
    for record in depot.caches(&Default::default()) {
        if record.is_committed() {
            let _ = depot.manifest(record.id);
            if let Ok(id) = depot.begin_use(record.id, Use::Until(now + 1), &Reader::owner("alice"), now) {
                let _ = depot.end_use(id);
            }
        }
    }
    match now % 6 {
        0 => drop(depot.fsck(Depth::Bytes, &mut |_, _| Ok(false))),
        1 => drop(depot.fsck(Depth::Names, &mut |_, to| to.write_all(b"no").map(|()| true))),
        2 => drop(depot.sweep(now)),
        3 => drop(depot.repairs()),
        _ => {}
    }
    let caches = depot.caches(&Default::default());
    if let Some(record) = caches.get(now as usize % caches.len().max(1)).filter(|_| caches.len() > 4) {
        let _ = depot.remove(record.id, now);
    }
}

#[test]
fn directories_that_are_swapped_for_links_lead_nowhere() {
    let tmp = tempfile::tempdir().unwrap();
    let source = tree(
        &tmp.path().join("data"),
        &[("f", &[1; 20_000]), ("sub/g", b"g"), ("sub/h", &[2; 5000]), ("sub/empty", b""), ("l -> f", b"")],
    );
    let m = manifest(&source);
    let victim = Victim::new(tmp.path().join("victim"), &m);
    let store = tmp.path().join("depot");
    let seconds = std::env::var("TIDECAST_RACE_SECONDS").ok().and_then(|s| s.parse::<u64>().ok());
    let end = seconds.map(|s| Instant::now() + Duration::from_secs(s));
    let (stop, rounds) = (AtomicBool::new(false), AtomicU64::new(0));
    drop(open(&store));
    let swaps = std::thread::scope(|scope| {
        let swapper = scope.spawn(|| swap(&store, &victim.dir, &stop));
        let mut now = 1;
        while end.map_or(now < ROUNDS, |end| Instant::now() < end) {
            // Opening, too, meets links: it is refused then.
            if let Ok(depot) = Depot::open(&store, config()) {
                for _ in 0..10 {
                    round(&depot, &m, &source, now);
                    now += 1;
                    rounds.fetch_add(1, Ordering::Relaxed);
                }
            } else {
                now += 1;
            }
        }
        stop.store(true, Ordering::Relaxed);
        swapper.join().unwrap()
    });
    eprintln!("{swaps} swaps, {} rounds", rounds.load(Ordering::Relaxed));
    assert!(swaps > 10);
    victim.assert_untouched();
}

/// A link that exists from the beginning: rejected, with the reason.
#[test]
fn a_store_with_a_link_for_a_directory_is_refused() {
    let tmp = tempfile::tempdir().unwrap();
    let source = tree(&tmp.path().join("data"), &[("f", b"f")]);
    let victim = Victim::new(tmp.path().join("victim"), &manifest(&source));
    for name in ["caches", "objects", "incoming", "trash", "uses"] {
        let store = tmp.path().join(format!("depot-{name}"));
        drop(open(&store));
        fs::remove_dir(store.join(name)).unwrap();
        symlink(&victim.dir, store.join(name)).unwrap();
        let refused = Depot::open(&store, config()).map(drop).unwrap_err().to_string();
        assert!(refused.contains(name) && refused.contains("symbolic link"), "{refused}");
    }
    victim.assert_untouched();
}

/// The same while the store is open.
#[test]
fn a_directory_that_becomes_a_link_is_refused() {
    let tmp = tempfile::tempdir().unwrap();
    let source = tree(&tmp.path().join("data"), &[("f", &[3; 9000]), ("sub/g", b"g")]);
    let m = manifest(&source);
    let victim = Victim::new(tmp.path().join("victim"), &m);
    for name in ["caches", "objects", "incoming", "trash"] {
        let store = tmp.path().join(format!("depot-{name}"));
        let depot = open(&store);
        let old = put(&depot, named("old"), &source, 1);
        let id = depot.declare(named("new"), 1).unwrap().id;
        let reservation = reserve(&depot, id, Some(&m), 1);
        fs::rename(store.join(name), store.join("aside")).unwrap();
        symlink(&victim.dir, store.join(name)).unwrap();
        for file in m.files() {
            let made = reservation.create(&file.path().below(Path::new("data")));
            let bytes = fs::read(file.path().below(&source)).unwrap();
            let _ = made.map(|mut f| f.write_all(&bytes));
        }
        let done = [
            reservation.commit(&m, false, 2).map(drop),
            depot.fsck(Depth::Bytes, &mut |_, _| Ok(false)).map(drop),
            depot.remove(old.id, 3).map(drop),
            depot.sweep(4).map(drop),
        ];
        let words: Vec<String> = done.into_iter().filter_map(|d| d.err().map(|e| e.to_string())).collect();
        assert!(
            words.iter().any(|w| w.contains("symbolic link") || w.contains("is missing")),
            "{name}: {words:?}"
        );
    }
    victim.assert_untouched();
}
