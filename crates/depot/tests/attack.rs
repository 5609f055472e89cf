//! Attacks by users without rights, and by manifests and directories of strangers: they must fail.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::time::{Duration, Instant};

use common::*;
use tidecast_depot::{CacheId, Declare, Depot, Error, Local, Reader, Reuse, Use};
use tidecast_metainfo::Manifest;

fn reuse(depot: &Depot, manifest: &Manifest, reader: &Reader) -> Reuse {
    let declare = of(&reader.owner, &format!("probe-{}", reader.owner));
    let id = depot.declare(declare, 1).unwrap().id;
    let reservation = reserve(depot, id, Some(manifest), 1);
    let reuse = reservation.reuse(manifest, reader).unwrap();
    reservation.discard().unwrap();
    depot.remove(id, 1).unwrap();
    reuse
}

#[test]
fn only_what_the_owner_may_read_is_reused() {
    let tmp = tempfile::tempdir().unwrap();
    let depot = open(&tmp.path().join("depot"));
    let root = tree(&tmp.path().join("data"), &[("f", &[1; 50_000])]);
    let m = manifest(&root);
    let bob = Reader::owner("bob");
    let in_group = Reader { groups: vec!["physics".into()], ..Reader::owner("eve") };
    let secret = put(&depot, named("secret"), &root, 1);
    assert_eq!(reuse(&depot, &m, &Reader::owner("alice")).files, [0]);
    assert_eq!(reuse(&depot, &m, &bob), Reuse::default());
    assert_eq!(reuse(&depot, &m, &in_group), Reuse::default());
    let shared = Declare { group: Some("physics".into()), mode: 0o440, ..named("shared") };
    let shared = put(&depot, shared, &root, 1);
    assert_eq!(reuse(&depot, &m, &in_group).files, [0]);
    assert_eq!(reuse(&depot, &m, &bob), Reuse::default());
    let public = put(&depot, Declare { mode: 0o444, ..named("public") }, &root, 1);
    assert_eq!(reuse(&depot, &m, &bob).bytes, 50_000);
    // The right goes with the last cache that gave it, though the object stays.
    depot.remove(public.id, 2).unwrap();
    assert_eq!(reuse(&depot, &m, &bob), Reuse::default());
    depot.remove(shared.id, 2).unwrap();
    assert_eq!(reuse(&depot, &m, &in_group), Reuse::default());
    // A user that uploaded the bytes may read them.
    let bobs = put(&depot, of("bob", "mine"), &root, 3);
    assert_eq!(objects(&depot).len(), 1);
    depot.remove(secret.id, 4).unwrap();
    assert_eq!(reuse(&depot, &m, &bob).files, [0]);
    depot.remove(bobs.id, 5).unwrap();
    assert_clean(&depot);
}

#[test]
fn what_is_reused_stays_though_its_cache_goes() {
    let tmp = tempfile::tempdir().unwrap();
    let depot = open(&tmp.path().join("depot"));
    let v1 = tree(&tmp.path().join("1/data"), &[("f", &[1; 50_000]), ("g", b"1")]);
    let v2 = tree(&tmp.path().join("2/data"), &[("f", &[1; 50_000]), ("g", b"2"), ("f2", &[1; 50_000])]);
    fs::set_permissions(v2.join("f2"), fs::Permissions::from_mode(0o755)).unwrap();
    let old = put(&depot, named("n"), &v1, 1);
    let m = manifest(&v2);
    let id = depot.declare(named("n"), 2).unwrap().id;
    let reservation = reserve(&depot, id, Some(&m), 2);
    let reuse = reservation.reuse(&m, &Reader::owner("alice")).unwrap();
    assert_eq!((reuse.files.len(), reuse.bytes), (2, 50_000));
    depot.remove(old.id, 3).unwrap();
    assert_eq!(objects(&depot).len(), 0);
    stage(&reservation, &m, &v2, &reuse.files);
    let new = reservation.commit(&m, false, 3).unwrap().record;
    let view = depot.view(new.id).unwrap();
    assert_eq!(fs::read(view.join("f")).unwrap(), [1; 50_000]);
    assert_eq!(fs::metadata(view.join("f2")).unwrap().mode() & 0o777, 0o555);
    assert_clean(&depot);
}

/// The time of a lookup must not reveal the objects of others. This measures work, not luck: it looks at the
/// least of many.
#[test]
fn forbidden_takes_as_long_as_absent() {
    let tmp = tempfile::tempdir().unwrap();
    let depot = open(&tmp.path().join("depot"));
    let files: Vec<(String, Vec<u8>)> = (0..200).map(|i| (format!("f{i}"), vec![i as u8; 300 + i])).collect();
    let files: Vec<(&str, &[u8])> = files.iter().map(|(n, d)| (&**n, &**d)).collect();
    let there = tree(&tmp.path().join("there"), &files);
    let other: Vec<(&str, Vec<u8>)> = files.iter().map(|(n, d)| (*n, [*d, b"!"].concat())).collect();
    let other: Vec<(&str, &[u8])> = other.iter().map(|(n, d)| (*n, &**d)).collect();
    let absent = manifest(&tree(&tmp.path().join("absent"), &other));
    let forbidden = manifest(&there);
    put(&depot, named("secret"), &there, 1);
    let id = depot.declare(of("eve", "probe"), 1).unwrap().id;
    let reservation = reserve(&depot, id, None, 1);
    let eve = Reader::owner("eve");
    let mut least = [Duration::MAX; 2];
    for _ in 0..50 {
        for (best, m) in least.iter_mut().zip([&absent, &forbidden]) {
            let start = Instant::now();
            assert_eq!(reservation.reuse(m, &eve).unwrap(), Reuse::default());
            *best = start.elapsed().min(*best);
        }
    }
    let [absent, forbidden] = least.map(|d| d.as_secs_f64());
    assert!((0.5..2.0).contains(&(forbidden / absent)), "{absent} {forbidden}");
}

fn setup(tmp: &Path) -> (Depot, CacheId) {
    let depot = open(&tmp.join("depot"));
    let root = tree(&tmp.join("data"), &[("d/f", &[1; 5000]), ("e", b""), ("l -> d/f", b""), ("x", b"#!")]);
    fs::set_permissions(root.join("x"), fs::Permissions::from_mode(0o755)).unwrap();
    let id = put(&depot, named("n"), &root, 1).id;
    fs::create_dir(tmp.join("job")).unwrap();
    (depot, id)
}

#[test]
fn whoever_may_not_read_gets_nothing() {
    let tmp = tempfile::tempdir().unwrap();
    let (depot, id) = setup(tmp.path());
    let bob = Reader::owner("bob");
    assert!(matches!(depot.begin_use(id, Use::Until(9), &bob, 2), Err(Error::NoCache(_))));
    let may = tidecast_depot::Filter { reader: Some(bob), ..Default::default() };
    assert!(depot.caches(&may).is_empty());
}

#[test]
fn rights_on_disk_are_those_of_the_cache() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("SKIPPED: rights of other users can only be tested as root");
        return;
    }
    let tmp = tempfile::tempdir().unwrap();
    fs::set_permissions(tmp.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let depot = open(&tmp.path().join("depot"));
    let root = tree(&tmp.path().join("data"), &[("f", b"secret")]);
    let local = Some(Local { uid: 4242, gid: 4343 });
    let secret = put(&depot, Declare { local, ..named("secret") }, &root, 1);
    let group =
        put(&depot, Declare { local, mode: 0o440, group: Some("g".into()), ..named("group") }, &root, 1);
    let public = put(&depot, Declare { mode: 0o444, local, ..named("public") }, &root, 1);
    for id in [secret.id, group.id, public.id] {
        let cache = depot.view(id).unwrap().ancestors().nth(2).unwrap().to_owned();
        let meta = fs::metadata(&cache).unwrap();
        assert!(meta.uid() == 0 && meta.gid() == 0 && meta.mode() & 0o222 == 0, "{meta:?}");
    }
    let can_read = |uid: &str, gid: &str, path: &Path| {
        let mut cat = std::process::Command::new("setpriv");
        cat.args(["--reuid", uid, "--regid", gid, "--clear-groups", "cat"]).arg(path);
        cat.output().unwrap().status.success()
    };
    let file = |id| depot.view(id).unwrap().join("f");
    for (id, expected) in
        [(secret.id, [true, false, false]), (group.id, [true, true, false]), (public.id, [true; 3])]
    {
        let found = [("4242", "1"), ("5", "4343"), ("5", "6")].map(|(u, g)| can_read(u, g, &file(id)));
        assert_eq!(found, expected);
    }
    let list = |path: &Path| {
        let mut ls = std::process::Command::new("setpriv");
        ls.args(["--reuid", "4242", "--regid", "1", "--clear-groups", "ls"]).arg(path);
        ls.output().unwrap().status.success()
    };
    for dir in ["", "caches", "objects", "incoming", "uses"] {
        assert!(!list(&depot.dir().join(dir)), "{dir}");
    }
    for file in ["depot.redb", "lock"] {
        assert!(!can_read("4242", "1", &depot.dir().join(file)), "{file}");
    }
}

#[test]
fn a_cache_that_an_older_program_gave_away_is_taken_back_and_one_that_was_changed_is_handed_out_no_more() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("SKIPPED: only root can give a directory away");
        return;
    }
    let tmp = tempfile::tempdir().unwrap();
    let root = tree(&tmp.path().join("data"), &[("f", b"good")]);
    let local = Some(Local { uid: 4242, gid: 4343 });
    let dir = tmp.path().join("depot");
    let declare = |name: &str| Declare { local, ..named(name) };
    let (whole, moved, linked) = {
        let depot = open(&dir);
        let ids = ["whole", "moved", "linked"].map(|name| put(&depot, declare(name), &root, 1).id);
        (ids[0], ids[1], ids[2])
    };
    let cache = |id: CacheId| dir.join("caches").join(id.to_string());
    for id in [whole, moved, linked] {
        std::os::unix::fs::chown(cache(id), Some(4242), Some(4343)).unwrap();
    }
    for id in [moved, linked] {
        fs::rename(cache(id).join("tree"), cache(id).join("old")).unwrap();
    }
    tree(&cache(moved).join("tree"), &[("data/f", b"evil")]);
    for path in ["tree", "tree/data"] {
        std::os::unix::fs::chown(cache(moved).join(path), Some(4242), Some(4343)).unwrap();
    }
    symlink(tmp.path(), cache(linked).join("tree")).unwrap();

    let depot = open(&dir);
    assert_eq!(fs::read(depot.view(whole).unwrap().join("f")).unwrap(), b"good");
    for id in [whole, moved, linked] {
        let meta = fs::metadata(cache(id)).unwrap();
        assert!(meta.uid() == 0 && meta.mode() & 0o007 == 0, "{meta:?}");
    }
    for id in [moved, linked] {
        assert!(depot.view(id).is_err() && depot.open_view(id).is_err());
        assert_eq!(depot.cache(id).unwrap().state, tidecast_depot::State::Invalid);
    }
    let report = depot.fsck(tidecast_depot::Depth::Bytes, &mut |_, _| Ok(false)).unwrap();
    assert_eq!(report.restored, [moved, linked]);
    for id in [whole, moved, linked] {
        assert_eq!(fs::read(depot.view(id).unwrap().join("f")).unwrap(), b"good");
        assert!(!cache(id).join("old").exists());
    }
    assert_clean(&depot);
    assert!(tmp.path().join("data/f").exists(), "nothing outside the store was removed");
}

#[test]
fn a_view_that_changes_under_an_open_store_is_not_read() {
    let tmp = tempfile::tempdir().unwrap();
    let (depot, id) = setup(tmp.path());
    let manifest = depot.manifest(id).unwrap();
    let file = manifest.files().find(|f| f.path().name() == b"f").unwrap();
    let read = |depot: &Depot| {
        let mut text = Vec::new();
        std::io::Read::read_to_end(&mut depot.open_view(id)?.open(file)?, &mut text).unwrap();
        Ok::<_, Error>(text)
    };
    assert_eq!(read(&depot).unwrap(), [1; 5000]);
    let dir = depot.view(id).unwrap().join("d");
    let view = depot.view(id).unwrap();
    for path in [&view, &dir] {
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }
    fs::rename(&dir, view.join("moved")).unwrap();
    symlink(tmp.path().join("data/d"), &dir).unwrap();
    assert!(matches!(read(&depot), Err(Error::Changed { .. })));
}
