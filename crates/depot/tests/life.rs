//! The life of caches: declared, filled, shared, versioned, used, evicted.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use common::*;
use tidecast_depot::{
    Admission, CacheId, Config, Declare, Depot, Depth, Error, Filter, Reader, Reason, Size, State, Use,
};

const KIB: u64 = 1024;

#[test]
fn a_cache_is_declared_filled_and_read() {
    let tmp = tempfile::tempdir().unwrap();
    let root = tree(
        &tmp.path().join("data"),
        &[("a/x", b"hello"), ("a/empty", b""), ("void/", b""), ("l -> a/x", b""), ("run.sh", b"#!/bin/sh\n")],
    );
    fs::set_permissions(root.join("run.sh"), fs::Permissions::from_mode(0o755)).unwrap();
    let depot = open(&tmp.path().join("depot"));
    let record = put(&depot, named("n"), &root, 5);
    assert_eq!((record.state, record.version, record.files), (State::Committed, Some(1), 4));
    let view = depot.view(record.id).unwrap();
    assert_eq!(fs::read(view.join("l")).unwrap(), b"hello");
    assert_eq!(fs::read(view.join("a/empty")).unwrap(), b"");
    assert!(view.join("void").is_dir());
    let meta = fs::metadata(view.join("a/x")).unwrap();
    assert_eq!((meta.mode() & 0o777, meta.mtime(), meta.nlink()), (0o444, 1_000_000, 2));
    assert_eq!(fs::metadata(view.join("run.sh")).unwrap().mode() & 0o777, 0o555);
    assert_eq!(fs::metadata(view.join("a")).unwrap().mode() & 0o777, 0o555);
    assert_eq!(depot.manifest(record.id).unwrap().hash_v2(), record.content);
    assert_eq!(depot.find("here", "n", None).unwrap().id, record.id);
    assert!(!depot.dir().join("incoming").join(record.id.to_string()).exists());
    assert_clean(&depot);
    drop(depot);
    let depot = open(&tmp.path().join("depot"));
    assert_eq!(depot.cache(record.id).unwrap().state, State::Committed);
    assert_clean(&depot);
}

#[test]
fn equal_files_are_one_inode_and_go_with_the_last_cache() {
    let tmp = tempfile::tempdir().unwrap();
    let depot = open(&tmp.path().join("depot"));
    let big = vec![7; 100_000];
    let a = put(&depot, named("a"), &tree(&tmp.path().join("a"), &[("big", &big), ("x", b"1")]), 1);
    let before = depot.usage().unwrap().kept;
    let b = put(&depot, named("b"), &tree(&tmp.path().join("b"), &[("big", &big), ("y", b"2")]), 1);
    let more = depot.usage().unwrap().kept.minus(before);
    assert!(more.bytes < 100_000, "{more:?}");
    assert_eq!(objects(&depot).len(), 3);
    let ino = |id| fs::metadata(depot.view(id).unwrap().join("big")).unwrap().ino();
    assert_eq!(ino(a.id), ino(b.id));
    let freed = depot.remove(a.id, 2).unwrap().freed;
    assert!(freed.bytes < 100_000, "{freed:?}");
    assert_clean(&depot);
    let freed = depot.remove(b.id, 2).unwrap().freed;
    assert!(freed.bytes >= 100_000, "{freed:?}");
    assert_eq!(depot.usage().unwrap().kept, Size::ZERO);
    assert_eq!(objects(&depot).len(), 0);
    assert_clean(&depot);
}

#[test]
fn variants_of_a_content_are_inodes_of_their_own() {
    let tmp = tempfile::tempdir().unwrap();
    let depot = open(&tmp.path().join("depot"));
    let a = tree(&tmp.path().join("a"), &[("f", b"same"), ("g", b"same")]);
    fs::set_permissions(a.join("g"), fs::Permissions::from_mode(0o700)).unwrap();
    let a = put(&depot, named("a"), &a, 1);
    let b = tree(&tmp.path().join("b"), &[("f", b"same")]);
    fs::File::open(b.join("f")).unwrap().set_modified(std::time::UNIX_EPOCH).unwrap();
    let b = put(&depot, named("b"), &b, 1);
    assert_eq!(objects(&depot).len(), 3);
    let view = depot.view(a.id).unwrap();
    assert_eq!(fs::metadata(view.join("f")).unwrap().mode() & 0o777, 0o444);
    assert_eq!(fs::metadata(view.join("g")).unwrap().mode() & 0o777, 0o555);
    assert_eq!(fs::metadata(depot.view(b.id).unwrap().join("f")).unwrap().mtime(), 0);
    assert_clean(&depot);
}

#[test]
fn equal_content_is_the_same_version_and_other_content_the_next() {
    let tmp = tempfile::tempdir().unwrap();
    let depot = open(&tmp.path().join("depot"));
    let one = tree(&tmp.path().join("1/data"), &[("f", b"one")]);
    let two = tree(&tmp.path().join("2/data"), &[("f", b"two")]);
    let first = put(&depot, named("n"), &one, 1);
    let again = put(&depot, named("n"), &one, 2);
    assert_eq!((first.id, again.version), (again.id, Some(1)));
    assert_eq!(depot.caches(&Filter::default()).len(), 1);
    let second = put(&depot, named("n"), &two, 3);
    assert_eq!(second.version, Some(2));
    assert_eq!(depot.find("here", "n", None).unwrap().id, second.id);
    // Removed and made again it is still version 1, and the next one is version 3.
    depot.remove(first.id, 4).unwrap();
    assert_eq!(put(&depot, named("n"), &one, 5).version, Some(1));
    depot.remove(second.id, 6).unwrap();
    let three = tree(&tmp.path().join("3/data"), &[("f", b"three")]);
    assert_eq!(put(&depot, named("n"), &three, 6).version, Some(3));
    let versions: Vec<_> =
        depot.history("here", "n").unwrap().iter().map(|p| (p.version, p.removed)).collect();
    assert_eq!(versions, [(1, None), (2, Some(6)), (3, None)]);
    assert!(matches!(depot.declare(of("bob", "n"), 7), Err(Error::Taken { .. })));
}

#[test]
fn a_replica_that_says_something_else_of_a_version_is_refused() {
    let tmp = tempfile::tempdir().unwrap();
    let depot = open(&tmp.path().join("depot"));
    let there = |version| Declare { origin: "there".into(), version: Some(version), ..named("n") };
    let one = tree(&tmp.path().join("1/data"), &[("f", b"one")]);
    let two = tree(&tmp.path().join("2/data"), &[("f", b"two")]);
    let r = put(&depot, there(4), &one, 1);
    assert_eq!(r.version, Some(4));
    assert_eq!(depot.declare(there(4), 2).unwrap().id, r.id);
    depot.remove(r.id, 3).unwrap();
    let m = manifest(&two);
    let id = depot.declare(there(4), 4).unwrap().id;
    let reservation = reserve(&depot, id, Some(&m), 4);
    stage(&reservation, &m, &two, &[]);
    assert!(matches!(reservation.commit(&m, false, 4), Err(Error::Conflict { version: 4, .. })));
    assert_eq!(depot.cache(id).unwrap().state, State::Uncommitted);
    assert_eq!(objects(&depot).len(), 0);
    assert_clean(&depot);
}

#[test]
fn more_than_was_declared_ends_it() {
    let tmp = tempfile::tempdir().unwrap();
    let depot = open(&tmp.path().join("depot"));
    let root = tree(&tmp.path().join("data"), &[("f", &[1; 5000]), ("g", &[2; 5000])]);
    let m = manifest(&root);
    let little = Declare { size: Size { bytes: 9_999, inodes: 9 }, ..named("n") };
    let id = depot.declare(little.clone(), 1).unwrap().id;
    let reservation = reserve(&depot, id, None, 1);
    reservation.grown(Size { bytes: 9_000, inodes: 2 }).unwrap();
    assert!(matches!(reservation.grown(Size { bytes: 10_000, inodes: 2 }), Err(Error::Exceeded { .. })));
    drop(reservation);
    assert_eq!(depot.cache(id).unwrap().state, State::Invalid);
    assert!(!depot.dir().join("incoming").join(id.to_string()).exists());
    // Not said while it grew, it is found out at the commit; said by the manifest, before.
    let id = depot.declare(little.clone(), 1).unwrap().id;
    let reservation = reserve(&depot, id, None, 1);
    stage(&reservation, &m, &root, &[]);
    assert!(matches!(reservation.commit(&m, false, 1), Err(Error::Exceeded { .. })));
    let id = depot.declare(Declare { size: Size { bytes: 20_000, inodes: 2 }, ..little }, 1).unwrap().id;
    let asked = depot.admit(id, Some(&m), &Reader::owner("alice"), 1);
    assert!(matches!(asked, Err(Error::Exceeded { .. })));
    depot.sweep(u64::MAX).unwrap();
    assert!(depot.caches(&Filter::default()).is_empty());
}

#[test]
fn links_in_place_of_uploads_are_removed_and_not_followed() {
    let tmp = tempfile::tempdir().unwrap();
    let depot = open(&tmp.path().join("depot"));
    let incoming = depot.dir().join("incoming");
    drop(depot);
    let others = tree(&tmp.path().join("others"), &[("cache/f", b"kept")]);
    std::os::unix::fs::symlink(&others, incoming.join("link")).unwrap();
    fs::write(incoming.join("file"), b"").unwrap();
    let depot = open(&tmp.path().join("depot"));
    assert_eq!(fs::read_dir(&incoming).unwrap().count(), 0);
    assert!(others.join("cache/f").exists());
    assert_clean(&depot);
}

#[test]
fn what_does_not_fit_the_manifest_is_not_committed() {
    let tmp = tempfile::tempdir().unwrap();
    let depot = open(&tmp.path().join("depot"));
    let root = tree(&tmp.path().join("data"), &[("f", &[1; 5000]), ("g", b"2")]);
    let m = manifest(&root);
    let id = depot.declare(named("n"), 1).unwrap().id;
    type Spoil = fn(&Path);
    let spoil: [(Spoil, &str); 4] = [
        (|p| fs::remove_file(p).unwrap(), "missing"),
        (|p| fs::write(p, [1; 4999]).unwrap(), "length"),
        (|p| fs::write(p, [2; 5000]).unwrap(), "content"),
        (
            |p| {
                fs::remove_file(p).unwrap();
                std::os::unix::fs::symlink("/etc/passwd", p).unwrap();
            },
            "",
        ),
    ];
    for (spoil, why) in spoil {
        let reservation = reserve(&depot, id, Some(&m), 1);
        let _ = fs::remove_dir_all(reservation.dir().join("data"));
        stage(&reservation, &m, &root, &[]);
        spoil(&reservation.dir().join("data/f"));
        let error = reservation.commit(&m, false, 1).unwrap_err();
        assert!(error.to_string().contains(why), "{error}");
    }
    // A file with a name elsewhere is copied, not linked.
    let reservation = reserve(&depot, id, Some(&m), 1);
    let _ = fs::remove_dir_all(reservation.dir().join("data"));
    stage(&reservation, &m, &root, &[]);
    fs::remove_file(reservation.dir().join("data/f")).unwrap();
    fs::hard_link(root.join("f"), reservation.dir().join("data/f")).unwrap();
    let record = reservation.commit(&m, false, 1).unwrap().record;
    fs::write(root.join("f"), "scribble").unwrap();
    assert_eq!(fs::read(depot.view(record.id).unwrap().join("f")).unwrap(), [1; 5000]);
    assert_clean(&depot);
}

#[test]
fn an_attempt_that_broke_off_goes_on() {
    let tmp = tempfile::tempdir().unwrap();
    let dir = tmp.path().join("depot");
    let depot = open(&dir);
    let root = tree(&tmp.path().join("data"), &[("f", &[1; 5000]), ("g", b"2")]);
    let m = manifest(&root);
    let id = depot.declare(named("n"), 1).unwrap().id;
    let reservation = reserve(&depot, id, Some(&m), 1);
    stage(&reservation, &m, &root, &[]);
    std::mem::forget(reservation);
    let crashed = dir.with_extension("copy");
    let copied = std::process::Command::new("cp").arg("-a").arg(&dir).arg(&crashed).status().unwrap();
    assert!(copied.success());
    let depot = open(&crashed);
    assert_eq!(depot.cache(id).unwrap().state, State::Uncommitted);
    assert!(depot.usage().unwrap().promised.bytes > 5000);
    let reservation = reserve(&depot, id, Some(&m), 1);
    assert!(reservation.dir().join("data/g").exists());
    reservation.commit(&m, false, 1).unwrap();
    assert_eq!(depot.usage().unwrap().promised, Size::ZERO);
    assert_clean(&depot);
}

#[test]
fn what_is_read_by_its_staged_names_keeps_them_over_a_commit() {
    let tmp = tempfile::tempdir().unwrap();
    let depot = open(&tmp.path().join("depot"));
    let root = tree(&tmp.path().join("data"), &[("f", &[1; 5000]), ("g", b"2")]);
    let m = manifest(&root);
    let commit = |name| {
        let id = depot.declare(named(name), 1).unwrap().id;
        let reservation = reserve(&depot, id, Some(&m), 1);
        stage(&reservation, &m, &root, &[]);
        let dir = reservation.dir();
        let (done, staged) = reservation.commit_in_use(&m, 1).unwrap();
        (done.record.id, dir.join("data/f"), staged)
    };
    let (first, at, staged) = commit("n");
    assert_eq!(fs::read(&at).unwrap(), [1; 5000]);
    assert_eq!(fs::read(depot.view(first).unwrap().join("f")).unwrap(), [1; 5000]);
    assert_clean(&depot);
    drop(staged);
    assert!(!at.exists() && depot.view(first).unwrap().join("f").exists());
    // One that is here already, by the same name; it had reserved room for the staged files.
    let (second, at, staged) = commit("n");
    assert!(second == first && at.exists());
    drop(staged);
    assert!(!at.exists());
    assert_eq!(depot.usage().unwrap().promised, Size::ZERO);
    // The cache goes first.
    let (third, at, staged) = commit("other");
    depot.remove(third, 2).unwrap();
    assert!(!at.exists());
    drop(staged);
    assert_eq!(depot.usage().unwrap().promised, Size::ZERO);
    assert_clean(&depot);
}

/// A cache of one file of its own.
fn filled(depot: &Depot, tmp: &Path, declare: Declare, len: u64, now: u64) -> tidecast_depot::CacheId {
    let mut data = vec![0; len as usize];
    data[..8].copy_from_slice(&now.to_le_bytes());
    data[8..8 + declare.name.len()].copy_from_slice(declare.name.as_bytes());
    let root = tmp.join(format!("{}-{now}", declare.name));
    put(depot, declare, &tree(&root, &[("f", &data)]), now).id
}

#[test]
fn room_is_made_by_leases_use_and_greed_but_never_by_what_is_pinned_or_in_use() {
    let tmp = tempfile::tempdir().unwrap();
    let depot = Depot::open(&tmp.path().join("depot"), small(1000 * KIB)).unwrap();
    let p = tmp.path();
    let pinned = filled(&depot, p, named("pinned"), 100 * KIB, 1);
    depot.pin(pinned).unwrap();
    let used = filled(&depot, p, named("used"), 100 * KIB, 2);
    let job =
        depot.begin_use(used, Use::process(std::process::id()).unwrap(), &Reader::owner("alice"), 2).unwrap();
    let old = filled(&depot, p, named("old"), 100 * KIB, 3);
    let new = filled(&depot, p, named("new"), 100 * KIB, 4);
    let bobs = filled(&depot, p, of("bob", "b"), 100 * KIB, 1);
    let short = filled(&depot, p, Declare { lease: Some(10), ..of("bob", "short") }, 100 * KIB, 5);
    // 600 KiB are there, and their directories. Expired caches are evicted first, then those that alice used
    // least recently.
    let big = filled(&depot, p, of("carol", "c"), 500 * KIB, 100);
    assert!(depot.cache(short).is_none() && depot.cache(old).is_none());
    assert!(depot.cache(new).is_some() && depot.cache(bobs).is_some());
    filled(&depot, p, of("carol", "d"), 100 * KIB, 101);
    assert!(depot.cache(big).is_none(), "carol was the greediest");
    assert!(depot.cache(new).is_some());
    let asked = |bytes, now| {
        let declare = Declare { size: Size { bytes, inodes: 2 }, ..of("dave", &format!("x{bytes}-{now}")) };
        let id = depot.declare(declare, now).unwrap().id;
        depot.admit(id, None, &Reader::owner("dave"), now).unwrap()
    };
    assert!(matches!(asked(2000 * KIB, 102), Admission::Denied(Reason::TooLarge { .. })));
    assert!(matches!(asked(900 * KIB, 102), Admission::Denied(Reason::Pinned)));
    assert!(matches!(asked(800 * KIB, 102), Admission::Wait(Reason::InUse)));
    let Admission::Ok(held) = asked(600 * KIB, 103) else { panic!() };
    assert!(matches!(asked(600 * KIB, 103), Admission::Wait(Reason::Promised)));
    assert!(depot.cache(new).is_none());
    assert!(depot.cache(pinned).is_some() && depot.cache(used).is_some());
    assert!(matches!(depot.remove(pinned, 104), Err(Error::Pinned(_))));
    assert!(matches!(depot.remove(used, 104), Err(Error::InUse(_))));
    held.discard().unwrap();
    depot.end_use(job).unwrap();
    let Admission::Ok(_held) = asked(800 * KIB, 105) else { panic!() };
    assert!(depot.cache(used).is_none());
    assert_clean(&depot);
}

#[test]
fn a_sweep_goes_down_to_the_low_watermark() {
    let tmp = tempfile::tempdir().unwrap();
    let depot = open(&tmp.path().join("depot"));
    for now in 1..=10 {
        filled(&depot, tmp.path(), named(&format!("n{now}")), 100 * KIB, now);
    }
    assert_eq!(depot.sweep(11).unwrap().gone, []);
    depot.configure(Config { high: 90, low: 50, ..small(1000 * KIB) });
    let swept = depot.sweep(12).unwrap();
    let usage = depot.usage().unwrap();
    assert!(
        usage.kept.bytes <= usage.low.bytes && usage.kept.bytes > usage.low.bytes - 150 * KIB,
        "{usage:?}"
    );
    assert!(swept.freed.bytes >= 500 * KIB);
    assert!(depot.find("here", "n10", None).is_some() && depot.find("here", "n1", None).is_none());
}

#[test]
fn quotas_bind_each_owner_alone() {
    let tmp = tempfile::tempdir().unwrap();
    let quota = Size { bytes: 300 * KIB, inodes: 100 };
    let config = Config { quotas: [("alice".to_owned(), quota)].into(), ..config() };
    let depot = Depot::open(&tmp.path().join("depot"), config).unwrap();
    let first = filled(&depot, tmp.path(), named("a"), 120 * KIB, 1);
    let second = filled(&depot, tmp.path(), named("b"), 120 * KIB, 2);
    let bobs = filled(&depot, tmp.path(), of("bob", "c"), 400 * KIB, 3);
    // Her own least recently used cache is evicted, not one of another user.
    filled(&depot, tmp.path(), named("d"), 120 * KIB, 4);
    assert!(depot.cache(first).is_none() && depot.cache(second).is_some() && depot.cache(bobs).is_some());
    let ask = |bytes| {
        let declare = Declare { size: Size { bytes, inodes: 2 }, ..named(&format!("x{bytes}")) };
        let id = depot.declare(declare, 5).unwrap().id;
        depot.admit(id, None, &Reader::owner("alice"), 5).unwrap()
    };
    assert!(matches!(ask(301 * KIB), Admission::Denied(Reason::Quota { .. })));
    depot.pin(second).unwrap();
    assert!(matches!(ask(200 * KIB), Admission::Denied(Reason::Quota { .. })));
    assert!(depot.used_by("alice").bytes <= 300 * KIB);
}

#[test]
fn leases_are_capped_and_extended() {
    let tmp = tempfile::tempdir().unwrap();
    let config = Config { lease: 10, lease_cap: 100, ..config() };
    let depot = Depot::open(&tmp.path().join("depot"), config.clone()).unwrap();
    let id = depot.declare(Declare { lease: Some(1_000_000), ..named("n") }, 50).unwrap().id;
    assert_eq!(depot.cache(id).unwrap().lease_until, 150);
    assert_eq!(depot.extend(id, 10, 60).unwrap(), 150, "never shorter");
    assert_eq!(depot.extend(id, 1_000, 60).unwrap(), 160);
    drop(depot);
    let depot = Depot::open(&tmp.path().join("depot"), config).unwrap();
    assert_eq!(depot.cache(id).unwrap().lease_until, 160);
    depot.sweep(160).unwrap();
    assert!(depot.cache(id).is_none());
}

#[test]
fn only_one_process_has_the_store() {
    let tmp = tempfile::tempdir().unwrap();
    let depot = open(tmp.path());
    assert!(matches!(Depot::open(tmp.path(), config()), Err(Error::Busy { .. })));
    drop(depot);
    open(tmp.path());
}

#[test]
fn damage_is_found_mended_or_said() {
    let tmp = tempfile::tempdir().unwrap();
    let depot = open(&tmp.path().join("depot"));
    let root = tree(&tmp.path().join("data"), &[("f", &[1; 5000]), ("d/g", b"2"), ("e", b"")]);
    let a = put(&depot, named("a"), &root, 1);
    let b = put(&depot, named("b"), &tree(&tmp.path().join("other"), &[("f", &[1; 5000])]), 1);
    let view = depot.view(a.id).unwrap();
    let scribble = |data: &[u8]| {
        let path = view.join("f");
        let time = fs::metadata(&path).unwrap().modified().unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        fs::write(&path, data).unwrap();
        fs::File::open(&path).unwrap().set_modified(time).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o444)).unwrap();
    };
    scribble(&[9; 5000]);
    // Names alone do not show it.
    assert!(depot.fsck(Depth::Names, &mut |_, _| Ok(false)).unwrap().is_clean());
    let mut asked = 0;
    let report = depot
        .fsck(Depth::Bytes, &mut |bad, file| {
            asked += 1;
            assert_eq!((bad.len, bad.caches.len()), (5000, 2));
            std::io::Write::write_all(file, &[1; 5000])?;
            Ok(true)
        })
        .unwrap();
    assert_eq!((asked, report.mended.len(), report.bad.len()), (1, 1, 0));
    assert_eq!(fs::read(view.join("f")).unwrap(), [1; 5000]);
    assert_eq!(fs::read(depot.view(b.id).unwrap().join("f")).unwrap(), [1; 5000]);
    assert_clean(&depot);
    // Uploaded data is accepted only if it is correct.
    scribble(&[9; 5000]);
    fs::write(depot.dir().join("objects/orphan"), "").unwrap();
    let report = depot
        .fsck(Depth::Bytes, &mut |_, file| {
            std::io::Write::write_all(file, &[3; 5000])?;
            Ok(true)
        })
        .unwrap();
    assert_eq!((report.bad.len(), report.invalid.len(), report.orphans), (1, 2, 1));
    assert_eq!(depot.cache(a.id).unwrap().state, State::Invalid);
    assert!(matches!(depot.view(a.id), Err(Error::State { .. })));
    depot.remove(a.id, 2).unwrap();
    depot.remove(b.id, 2).unwrap();
    assert_eq!(objects(&depot).len(), 0);
    assert_clean(&depot);
}

#[test]
fn names_in_a_view_are_put_right() {
    let tmp = tempfile::tempdir().unwrap();
    let depot = open(&tmp.path().join("depot"));
    let root =
        tree(&tmp.path().join("data"), &[("f", &[1; 5000]), ("d/g", b"2"), ("e", b""), ("l -> f", b"")]);
    let a = put(&depot, named("a"), &root, 1);
    let view = depot.view(a.id).unwrap();
    for dir in [view.clone(), view.join("d")] {
        fs::set_permissions(dir, fs::Permissions::from_mode(0o755)).unwrap();
    }
    fs::remove_dir_all(view.join("d")).unwrap();
    fs::remove_file(view.join("l")).unwrap();
    fs::remove_file(view.join("f")).unwrap();
    std::os::unix::fs::symlink("/etc/passwd", view.join("f")).unwrap();
    let report = depot.fsck(Depth::Names, &mut |_, _| Ok(false)).unwrap();
    assert_eq!(report.views, [a.id]);
    assert_eq!(fs::read(view.join("l")).unwrap(), [1; 5000]);
    assert_eq!(fs::read(view.join("d/g")).unwrap(), b"2");
    assert_eq!(fs::metadata(view.join("d")).unwrap().mode() & 0o777, 0o555);
    assert_clean(&depot);
}

#[test]
fn declarations_that_never_come_are_bounded_and_lowered_quotas_bind() {
    let tmp = tempfile::tempdir().unwrap();
    let depot = Depot::open(&tmp.path().join("depot"), Config { declared: 3, ..config() }).unwrap();
    for name in ["a", "b", "c"] {
        depot.declare(named(name), 1).unwrap();
    }
    assert!(matches!(depot.declare(named("d"), 1), Err(Error::Declared { most: 3, .. })));
    depot.declare(of("bob", "d"), 1).unwrap();
    let gone = depot.cache(CacheId(1)).unwrap();
    depot.remove(gone.id, 2).unwrap();
    let first = filled(&depot, tmp.path(), named("e"), 50_000, 3);
    let second = filled(&depot, tmp.path(), named("f"), 60_000, 4);
    let quotas = [("alice".to_owned(), Size { bytes: 100_000, inodes: 1000 })].into();
    depot.configure(Config { quotas, ..config() });
    assert_eq!(depot.sweep(5).unwrap().gone, [first]);
    assert!(depot.cache(second).is_some());
    assert_clean(&depot);
}

#[test]
fn a_wrong_account_is_put_right() {
    let tmp = tempfile::tempdir().unwrap();
    let dir = tmp.path().join("depot");
    let depot = open(&dir);
    filled(&depot, tmp.path(), named("a"), 50_000, 1);
    let right = depot.usage().unwrap().kept;
    drop(depot);
    const USAGE: redb::TableDefinition<'_, &str, (u64, u64)> = redb::TableDefinition::new("usage");
    let db = redb::Database::create(dir.join("depot.redb")).unwrap();
    let txn = db.begin_write().unwrap();
    txn.open_table(USAGE).unwrap().insert("", (1, 1)).unwrap();
    txn.open_table(USAGE).unwrap().insert("nobody", (1, 1)).unwrap();
    txn.commit().unwrap();
    drop(db);
    let depot = open(&dir);
    let report = depot.fsck(Depth::Names, &mut |_, _| Ok(false)).unwrap();
    assert!(report.recounted);
    assert_eq!((depot.usage().unwrap().kept, depot.used_by("nobody")), (right, Size::ZERO));
    assert_clean(&depot);
}

#[test]
fn what_the_caller_keeps_is_there_after_a_restart() {
    let tmp = tempfile::tempdir().unwrap();
    let depot = open(tmp.path());
    assert_eq!(depot.kept("next").unwrap(), 0, "the store's own numbers are others");
    depot.keep("next", 7).unwrap();
    let cache = depot.declare(named("n"), 1).unwrap();
    drop(depot);
    let depot = open(tmp.path());
    assert_eq!((depot.kept("next").unwrap(), depot.kept("mode").unwrap()), (7, 0));
    assert_eq!(depot.caches(&Filter::default()), [cache]);
}
