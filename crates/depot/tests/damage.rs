//! Files that decayed on disk, or were changed by another program: found, never handed out, and repaired.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use common::*;
use tidecast_depot::{Access, Declare, Depot, Depth, Filter, Reader, Report, State, Use};

const RIGHT: [u8; 5000] = [1; 5000];

/// Other bytes in the same inode, which looks as before.
fn scribble(path: &Path) {
    let time = fs::metadata(path).unwrap().modified().unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o644)).unwrap();
    fs::write(path, [9; 5000]).unwrap();
    fs::File::open(path).unwrap().set_modified(time).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o444)).unwrap();
}

fn check(depot: &Depot) -> Report {
    depot.fsck(Depth::Bytes, &mut |_, _| Ok(false)).unwrap()
}

fn bring(_: &tidecast_depot::Bad, file: &mut fs::File) -> std::io::Result<bool> {
    std::io::Write::write_all(file, &RIGHT)?;
    Ok(true)
}

#[test]
fn nobody_is_given_what_is_damaged_and_it_comes_anew() {
    let tmp = tempfile::tempdir().unwrap();
    let depot = open(&tmp.path().join("depot"));
    let root = tree(&tmp.path().join("data"), &[("f", &RIGHT), ("g", b"2")]);
    let m = manifest(&root);
    let there = || Declare { origin: "there".into(), version: Some(3), ..named("a") };
    let a = put(&depot, there(), &root, 1);
    depot.pin(a.id).unwrap();
    scribble(&depot.view(a.id).unwrap().join("f"));
    // A transfer is about to reuse it.
    let alice = Reader::owner("alice");
    let late = reserve(&depot, depot.declare(named("late"), 1).unwrap().id, Some(&m), 1);
    assert_eq!(late.reuse(&m, &alice).unwrap().files.len(), 2);
    let used = depot.used_by("alice");
    let report = check(&depot);
    assert_eq!((report.bad.len(), &report.invalid), (1, &vec![a.id]));
    assert!(!report.recounted && depot.used_by("alice").bytes < used.bytes);
    late.commit(&m, true, 2).unwrap_err();
    assert!(depot.begin_use(a.id, Use::Until(100), &alice, 2).is_err(), "nor to a job");
    let dir = depot.dir().join("caches").join(a.id.to_string());
    assert_eq!(fs::metadata(dir).unwrap().mode() & 0o077, 0, "nor by its path");
    // A later check finds the same, and no more.
    let again = check(&depot);
    assert_eq!((again.bad.len(), &again.invalid, again.recounted), (1, &vec![a.id], false));
    let id = depot.declare(there(), 3).unwrap().id;
    assert_ne!(id, a.id);
    let reservation = reserve(&depot, id, Some(&m), 3);
    assert_eq!(reservation.reuse(&m, &alice).unwrap().files, [0; 0], "all of it has to come");
    stage(&reservation, &m, &root, &[]);
    let anew = reservation.commit(&m, true, 3).unwrap().record;
    assert_eq!(fs::read(depot.view(anew.id).unwrap().join("f")).unwrap(), RIGHT);
    assert_eq!((anew.version, anew.pinned), (Some(3), true));
    assert!(depot.cache(a.id).is_none(), "what was damaged has gone");
    assert_clean(&depot);
    assert_eq!(depot.used_by("alice"), used);
}

#[test]
fn a_damaged_cache_that_is_mended_is_the_same_as_before() {
    let tmp = tempfile::tempdir().unwrap();
    let depot = open(&tmp.path().join("depot"));
    let root = tree(&tmp.path().join("data"), &[("f", &RIGHT), ("g", b"2"), ("x/again", &RIGHT)]);
    let (a, b) = (put(&depot, named("a"), &root, 1), put(&depot, of("bob", "b"), &root, 1));
    let (alices, kept) = (depot.used_by("alice"), depot.usage().unwrap().kept);
    scribble(&depot.view(a.id).unwrap().join("f"));
    assert_eq!(check(&depot).invalid.len(), 2, "they share it");
    let (m, lacking) = depot.lacks(a.id).unwrap();
    assert_eq!((lacking.len(), m.hash_v2()), (1, a.content));
    let none = depot.repair(a.id, &mut |_, _| Ok(false)).unwrap();
    assert_eq!((none.bad.len(), none.restored.len()), (1, 0));
    let repaired = depot.repair(a.id, &mut bring).unwrap();
    assert_eq!((repaired.mended.len(), &repaired.restored), (1, &vec![a.id]));
    assert_eq!(depot.lacks(b.id).unwrap().1, [0; 0]);
    assert_eq!(depot.repair(b.id, &mut |_, _| Ok(false)).unwrap().restored, [b.id]);
    for (id, version) in [(a.id, a.version), (b.id, b.version)] {
        let record = depot.cache(id).unwrap();
        assert_eq!((record.state, record.version, &record.reason), (State::Committed, version, &None));
        for name in ["f", "x/again"] {
            assert_eq!(fs::read(depot.view(id).unwrap().join(name)).unwrap(), RIGHT);
        }
    }
    assert_eq!((depot.used_by("alice"), depot.usage().unwrap().kept), (alices, kept));
    assert_clean(&depot);
    let reservation = reserve(&depot, depot.declare(named("c"), 2).unwrap().id, Some(&m), 2);
    assert_eq!(reservation.reuse(&m, &Reader::owner("alice")).unwrap().files.len(), 3, "and is reused");
}

#[test]
fn a_manifest_that_is_brought_again_finds_what_its_cache_had() {
    let tmp = tempfile::tempdir().unwrap();
    let depot = open(&tmp.path().join("depot"));
    let root = tree(&tmp.path().join("data"), &[("f", &RIGHT), ("g", b"2")]);
    let a = put(&depot, named("a"), &root, 1);
    let (m, used) = (manifest(&root), depot.used_by("alice"));
    let at = depot.dir().join("caches").join(a.id.to_string()).join("manifest");
    fs::remove_file(&at).unwrap();
    fs::write(&at, "d1:xe").unwrap();
    for _ in 0..2 {
        assert_eq!(check(&depot).invalid, [a.id], "again, so that it is tried again");
        assert!(depot.lacks(a.id).is_err());
    }
    let other = tree(&tmp.path().join("other"), &[("f", b"3")]);
    depot.put_manifest(a.id, &manifest(&other)).unwrap_err();
    depot.put_manifest(a.id, &m).unwrap();
    let report = check(&depot);
    assert_eq!((report.bad.len(), report.restored), (0, vec![a.id]));
    assert_eq!(fs::read(depot.view(a.id).unwrap().join("f")).unwrap(), RIGHT);
    assert_eq!(depot.used_by("alice"), used);
    assert_clean(&depot);
}

/// The format that a program must know to open the store, which is closed.
fn needs(dir: &Path) -> u64 {
    let meta = redb::TableDefinition::<&str, u64>::new("meta");
    let db = redb::Database::open(dir.join("depot.redb")).unwrap();
    let read = redb::ReadableDatabase::begin_read(&db).unwrap();
    read.open_table(meta).unwrap().get("needs").unwrap().unwrap().value()
}

#[test]
fn a_program_that_knows_nothing_of_damaged_caches_does_not_touch_them() {
    let tmp = tempfile::tempdir().unwrap();
    let dir = tmp.path().join("depot");
    let depot = open(&dir);
    let root = tree(&tmp.path().join("data"), &[("f", &RIGHT), ("g", b"2")]);
    let (a, b) = (put(&depot, named("a"), &root, 1), put(&depot, of("bob", "b"), &root, 1));
    scribble(&depot.view(a.id).unwrap().join("f"));
    let again = |depot: Depot, format| {
        drop(depot);
        assert_eq!(needs(&dir), format);
        open(&dir)
    };
    let depot = again(depot, 1);
    assert_eq!(check(&depot).invalid.len(), 2, "they share it");
    let depot = again(depot, 2);
    assert_eq!(depot.repair(a.id, &mut bring).unwrap().restored, [a.id]);
    let depot = again(depot, 2);
    depot.remove(b.id, 2).unwrap();
    assert_clean(&again(depot, 1));
}

#[test]
fn what_is_still_in_the_store_needs_nobody() {
    let tmp = tempfile::tempdir().unwrap();
    let depot = open(&tmp.path().join("depot"));
    let root = tree(&tmp.path().join("data"), &[("f", &RIGHT), ("run", &RIGHT)]);
    fs::set_permissions(root.join("run"), fs::Permissions::from_mode(0o755)).unwrap();
    let a = put(&depot, named("a"), &root, 1);
    let view = depot.view(a.id).unwrap();
    // The other variant of the same content is good.
    scribble(&view.join("f"));
    let report = check(&depot);
    assert_eq!((report.mended.len(), report.bad.len(), report.views.len()), (1, 0, 1));
    assert_eq!(fs::read(view.join("f")).unwrap(), RIGHT);
    // The objects were removed, not the views.
    objects(&depot).iter().for_each(|path| fs::remove_file(path).unwrap());
    assert_eq!(check(&depot).bad.len(), 0);
    assert_clean(&depot);
}

#[test]
fn what_comes_verified_is_not_given_up_for_what_has_decayed() {
    let tmp = tempfile::tempdir().unwrap();
    let depot = open(&tmp.path().join("depot"));
    let root = tree(&tmp.path().join("data"), &[("f", &RIGHT)]);
    let a = put(&depot, named("a"), &root, 1);
    scribble(&depot.view(a.id).unwrap().join("f"));
    // Bob may read nothing of hers: he brings all of it.
    let b = put(&depot, of("bob", "b"), &root, 2);
    assert_eq!(fs::read(depot.view(b.id).unwrap().join("f")).unwrap(), RIGHT);
    let report = check(&depot);
    assert_eq!((report.bad.len(), &report.views), (0, &vec![a.id]), "it is good for hers too");
    assert_eq!(fs::read(depot.view(a.id).unwrap().join("f")).unwrap(), RIGHT);
    depot.remove(a.id, 3).unwrap();
    depot.remove(b.id, 3).unwrap();
    assert_clean(&depot);
}

#[test]
fn who_may_read_changes_in_the_index_too() {
    let tmp = tempfile::tempdir().unwrap();
    let depot = open(&tmp.path().join("depot"));
    let root = tree(&tmp.path().join("data"), &[("f", &RIGHT)]);
    let a = put(&depot, Declare { mode: 0o444, ..named("a") }, &root, 1);
    let m = manifest(&root);
    let spared = |name: &str, reader: &str| {
        let reservation = reserve(&depot, depot.declare(of(reader, name), 2).unwrap().id, Some(&m), 2);
        let spared = reservation.reuse(&m, &Reader::owner(reader)).unwrap().files.len();
        reservation.discard().unwrap();
        spared
    };
    let access = |mode, private| Access { mode, private, local: a.local, ..Access::default() };
    assert_eq!((spared("1", "alice"), spared("2", "bob")), (1, 1));
    depot.set_access(a.id, &access(0o400, true)).unwrap();
    assert_eq!((spared("3", "alice"), spared("4", "bob")), (1, 0));
    assert!(depot.cache(a.id).unwrap().private);
    depot.set_access(a.id, &access(0o444, false)).unwrap();
    assert_eq!((spared("5", "alice"), spared("6", "bob")), (1, 1));
    assert_clean(&depot);
    depot.remove(a.id, 3).unwrap();
    assert_eq!((spared("7", "alice"), spared("8", "bob")), (0, 0));
}

#[test]
fn a_name_is_claimed_by_what_is_there_or_coming_only() {
    let tmp = tempfile::tempdir().unwrap();
    let depot = open(&tmp.path().join("depot"));
    let id = depot.declare(named("n"), 1).unwrap().id;
    let error = depot.declare(of("bob", "n"), 1).unwrap_err();
    assert!(!error.to_string().contains("alice") && !error.to_string().contains("owner"), "{error}");
    depot.remove(id, 2).unwrap();
    let root = tree(&tmp.path().join("data"), &[("f", &RIGHT)]);
    let bobs = put(&depot, of("bob", "n"), &root, 2);
    depot.declare(named("n"), 3).unwrap_err();
    depot.remove(bobs.id, 3).unwrap();
    // A version never gets other content.
    depot.declare(named("n"), 4).unwrap_err();
    assert_eq!(depot.caches(&Filter::default()), []);
}

#[test]
fn a_store_that_has_lost_its_database_is_left_as_it_is() {
    let tmp = tempfile::tempdir().unwrap();
    let dir = tmp.path().join("depot");
    let depot = open(&dir);
    let root = tree(&tmp.path().join("data"), &[("f", &RIGHT)]);
    let cache = put(&depot, named("a"), &root, 1);
    let file = depot.view(cache.id).unwrap().join("f");
    drop(depot);
    let (database, aside) = (dir.join("depot.redb"), tmp.path().join("aside"));
    fs::rename(&database, &aside).unwrap();
    for empty in [false, true] {
        if empty {
            fs::write(&database, []).unwrap();
        }
        let refused = Depot::open(&dir, config()).map(drop).unwrap_err().to_string();
        assert!(refused.contains("missing or empty"), "{refused}");
        assert_eq!(fs::read(&file).unwrap(), RIGHT);
    }
    fs::write(&database, &fs::read(&aside).unwrap()[..5000]).unwrap();
    let refused = Depot::open(&dir, config()).map(drop).unwrap_err().to_string();
    assert!(refused.contains("is damaged") && refused.contains("to begin with an empty store"), "{refused}");
    fs::rename(&aside, &database).unwrap();
    assert_eq!(open(&dir).caches(&Filter::default()).len(), 1);
}
