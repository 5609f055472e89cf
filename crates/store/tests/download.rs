//! Downloads on real file systems: the same tree from every format, selections, obstacles,
//! metadata, threads.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::single_range_in_vec_init)]

mod common;

use std::fs;
use std::io::Read;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink as link_to};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Barrier};

use common::sim::SimDisk;
use common::{Fixture, PIECE, Rng, VERSIONS, bytes, dir, file, publish, symlink, tree, with_holes};
use proptest::prelude::*;
use tempfile::TempDir;
use tidecast_hash::LEAF;
use tidecast_metainfo::{Content, Version};
use tidecast_store::{DownloadOptions, Durability, Error, Opened, OsDisk, Replace, Select, SendSpan, Store};

/// A directory on disk, or in RAM: both kinds of file system behave differently below.
fn target(ram: bool) -> TempDir {
    if ram && Path::new("/dev/shm").is_dir() {
        tempfile::tempdir_in("/dev/shm").unwrap()
    } else {
        tempfile::tempdir().unwrap()
    }
}

fn open(fixture: &Fixture, to: &Path) -> Result<Opened, Error> {
    Store::download(fixture.manifest.clone(), to, &DownloadOptions::default())
}

fn get(fixture: &Fixture, to: &Path) -> u64 {
    fixture.complete(&open(fixture, to).unwrap(), &mut Rng(1)).unwrap()
}

fn names(dir: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        fs::read_dir(dir).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

fn fetch(span: &SendSpan) -> Vec<u8> {
    let mut out = vec![0; span.len as usize];
    if let Some(file) = &span.file {
        file.read_exact_at(&mut out, span.offset).unwrap();
    }
    out
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_format_gives_the_same_tree(seed in 0u64..1000, ram: bool, durable: bool) {
        for version in VERSIONS {
            let to = target(ram);
            let fixture = publish("data", version, &tree(seed));
            let durability = if durable { Durability::Batched } else { Durability::None };
            let options = DownloadOptions { durability, ..DownloadOptions::default() };
            let opened = Store::download(fixture.manifest.clone(), to.path(), &options).unwrap();
            prop_assert!(opened.have.is_empty() && opened.to_check.is_empty());
            fixture.complete(&opened, &mut Rng(seed)).unwrap();
            fixture.assert_at(&to.path().join("data"));
            prop_assert_eq!(names(to.path()), ["data"]);
        }
    }

    #[test]
    fn a_selection_brings_its_files_only(seed in 0u64..1000, pick: u64) {
        for version in VERSIONS {
            let to = target(false);
            let fixture = publish("data", version, &tree(seed));
            let mut rng = Rng(pick);
            let mut some: Vec<u32> =
                (0..fixture.manifest.file_count()).filter(|_| rng.one_in(3)).collect();
            some.push(fixture.index("b/c/over"));
            let options = DownloadOptions { select: Select::Files(some.clone()), ..Default::default() };
            let opened = Store::download(fixture.manifest.clone(), to.path(), &options).unwrap();
            fixture.complete(&opened, &mut rng).unwrap();
            for f in fixture.manifest.files() {
                let found = fs::read(f.path().below(&to.path().join("data"))).ok();
                let wanted = some.contains(&f.index());
                prop_assert!(found == wanted.then(|| fixture.data[f.index() as usize].clone()));
            }
            // Edge pieces are served on, although their other half appears nowhere.
            for piece in opened.wanted.iter().cloned().flatten() {
                let len = fixture.manifest.piece_len(piece);
                let spans = opened.store.send_spans(piece, 0, len).unwrap();
                let sent: Vec<u8> = spans.iter().flat_map(fetch).collect();
                prop_assert!(sent == fixture.piece(piece));
            }
            prop_assert_eq!(names(to.path()), ["data"]);
        }
    }
}

#[test]
fn a_single_file_takes_its_name() {
    for version in VERSIONS {
        let to = target(true);
        let fixture = publish("one.bin", version, &[file("", bytes(3, 200_000))]);
        get(&fixture, to.path());
        fixture.assert_at(&to.path().join("one.bin"));
        assert_eq!(get(&fixture, to.path()), 0, "there already");
        assert_eq!(names(to.path()), ["one.bin"]);
    }
}

#[test]
fn an_empty_file_and_an_empty_directory_are_data_too() {
    let to = target(false);
    get(&publish("nothing", Version::V2, &[file("", Vec::new())]), to.path());
    assert_eq!(fs::metadata(to.path().join("nothing")).unwrap().len(), 0);
    let items = [dir("empty/inner"), file("x", vec![1])];
    get(&publish("tree", Version::V2, &items), to.path());
    assert!(to.path().join("tree/empty/inner").is_dir());
}

#[test]
fn nothing_appears_before_all_is_there() {
    let to = target(false);
    let fixture = publish("data", Version::V2, &tree(5));
    let opened = open(&fixture, to.path()).unwrap();
    let store = &opened.store;
    let last = fixture.manifest.piece_count() - 1;
    for piece in 0..last {
        fixture.deliver(store, piece, &mut Rng(1)).unwrap();
    }
    assert!(matches!(store.finish(), Err(Error::Incomplete { missing: 1 })));
    assert!(!to.path().join("data").exists());
    fixture.deliver(store, last, &mut Rng(1)).unwrap();
    store.finish().unwrap();
    assert!(to.path().join("data").exists());
    // Serving continues from the final place.
    let mut found = vec![0; fixture.manifest.piece_len(0) as usize];
    store.read(0, 0, &mut found).unwrap();
    assert_eq!(found, fixture.piece(0));
    assert_eq!(store.leaves(0).unwrap().unwrap(), common::leaf_digests(&found));
}

#[test]
fn only_verified_pieces_are_served_and_they_stay_as_they_are() {
    let to = target(false);
    let fixture = publish("data", Version::Hybrid, &tree(5));
    let opened = open(&fixture, to.path()).unwrap();
    let store = &opened.store;
    let good = fixture.piece(0);
    store.write(0, 0, &vec![9; good.len()]).unwrap();
    let mut buf = vec![0; good.len()];
    assert!(matches!(store.read(0, 0, &mut buf), Err(Error::NotVerified { piece: 0 })));
    assert!(matches!(store.send_spans(0, 0, 1), Err(Error::NotVerified { piece: 0 })));
    assert!(store.leaves(0).unwrap().is_none());
    assert!(!store.check(0).unwrap());

    store.write(0, 0, &good).unwrap();
    assert!(store.check(0).unwrap());
    store.write(0, 0, &vec![9; good.len()]).unwrap(); // too late: dropped
    store.read(0, 0, &mut buf).unwrap();
    assert_eq!(buf, good);
    // The padding behind a file, that v1 peers of a hybrid ask for, reads as zeros.
    let over = fixture.manifest.file(fixture.index("z")).unwrap().first_piece();
    assert!(matches!(store.write(over, PIECE, &[1]), Err(Error::OutOfRange { .. })));
    assert!(matches!(store.write(u32::MAX, 0, &[1]), Err(Error::OutOfRange { .. })));
}

#[test]
fn what_was_written_and_not_journalled_is_checked_not_trusted() {
    for version in VERSIONS {
        let to = target(false);
        let fixture = publish("data", version, &tree(6));
        let count = fixture.manifest.piece_count();
        {
            let store = open(&fixture, to.path()).unwrap().store;
            fixture.deliver(&store, 0, &mut Rng(1)).unwrap();
            store.sync().unwrap();
            fixture.deliver(&store, 1, &mut Rng(1)).unwrap();
            store.write(2, 0, &[7; 100]).unwrap();
        }
        let opened = open(&fixture, to.path()).unwrap();
        // The file was written to after its state was journalled, which its times show if they are fine enough.
        assert!(opened.have.is_empty() || opened.have == [0..1], "{:?}", opened.have);
        assert!(opened.to_check.iter().cloned().flatten().any(|p| p == 2));
        assert_eq!(fixture.complete(&opened, &mut Rng(2)).unwrap(), u64::from(count) - 2);
        fixture.assert_at(&to.path().join("data"));
    }
}

#[test]
fn the_same_data_at_its_place_is_done_at_once_and_untouched() {
    for version in VERSIONS {
        let to = target(false);
        let fixture = publish("data", version, &tree(8));
        let home = to.path().join("data");
        fixture.write_to(&home);
        fs::write(home.join("extra"), "mine").unwrap();
        let inode = fs::metadata(home.join("big")).unwrap().ino();
        assert_eq!(get(&fixture, to.path()), 0);
        assert_eq!(fs::metadata(home.join("big")).unwrap().ino(), inode);
        assert_eq!(fs::read(home.join("extra")).unwrap(), b"mine");
        assert_eq!(names(to.path()), ["data"]);
    }
}

#[test]
fn an_older_version_gives_what_it_has_and_stays_until_the_end() {
    for version in VERSIONS {
        let to = target(false);
        let fixture = publish("data", version, &tree(8));
        let home = to.path().join("data");
        fixture.write_to(&home);
        let mut old = fixture.data[fixture.index("big") as usize].clone();
        let at = 2 * PIECE as usize + 5;
        old[at] ^= 1;
        old.extend_from_slice(b"longer");
        fs::write(home.join("big"), &old).unwrap();
        fs::remove_file(home.join("z")).unwrap();

        let replace = Replace { force: true, ..Default::default() };
        let options = DownloadOptions { replace, ..Default::default() };
        let opened = Store::download(fixture.manifest.clone(), to.path(), &options).unwrap();
        let store = &opened.store;
        for piece in opened.to_check.iter().cloned().flatten() {
            store.check(piece).unwrap();
        }
        let missing = store.missing();
        assert!((1..=3).contains(&missing), "{version}: {missing}");
        for piece in (0..fixture.manifest.piece_count()).filter(|p| !store.has(*p)) {
            fixture.deliver(store, piece, &mut Rng(1)).unwrap();
        }
        assert_eq!(fs::read(home.join("big")).unwrap(), old, "the user's until the end");
        store.finish().unwrap();
        fixture.assert_at(&home);
    }
}

#[test]
fn something_else_in_the_way_is_left_alone() {
    let fixture = publish("data", Version::V2, &tree(8));
    let single = publish("data", Version::V2, &[file("", bytes(1, 99_999))]);
    let refused = |f: &Fixture, make: &dyn Fn(&Path)| {
        let to = target(false);
        make(&to.path().join("data"));
        let error = open(f, to.path()).err().expect("must be refused");
        assert!(error.is_in_the_way(), "{error}");
        assert!(error.to_string().contains("data"), "{error}");
        assert_eq!(names(to.path()), ["data"], "no staging area left behind");
    };
    refused(&single, &|at| fs::write(at, "my thesis").unwrap());
    refused(&single, &|at| fs::create_dir(at).unwrap());
    refused(&fixture, &|at| fs::write(at, "my thesis").unwrap());
    refused(&fixture, &|at| link_to("/tmp", at).unwrap());
    refused(&fixture, &|at| {
        fs::create_dir(at).unwrap();
        fs::write(at.join("thesis"), "mine").unwrap();
    });
    refused(&fixture, &|at| {
        fs::create_dir(at).unwrap();
        fs::write(at.join("big"), "mine, by chance of the same name").unwrap();
    });
    refused(&fixture, &|at| {
        fs::create_dir_all(at.join("big")).unwrap();
    });
}

#[test]
fn what_appears_meanwhile_is_not_replaced() {
    let to = target(false);
    let fixture = publish("data", Version::V2, &[file("", bytes(1, 99_999))]);
    let opened = open(&fixture, to.path()).unwrap();
    for piece in 0..fixture.manifest.piece_count() {
        fixture.deliver(&opened.store, piece, &mut Rng(1)).unwrap();
    }
    // The user puts a file there at the last moment: then it is looked at by the next run.
    fs::create_dir(to.path().join("data")).unwrap();
    assert!(opened.store.finish().is_err());
    fs::remove_dir(to.path().join("data")).unwrap();
    drop(opened);
    assert_eq!(get(&fixture, to.path()), 0);
}

#[test]
fn planted_links_lead_nowhere() {
    for walk in [false, true] {
        let (to, outside) = (target(false), target(false));
        fs::write(outside.path().join("big"), "precious").unwrap();
        let fixture = publish("data", Version::V2, &tree(8));
        let open = |at: &Path| {
            let disk = OsDisk::new(at).unwrap();
            let disk = if walk { disk.walking() } else { disk };
            Store::download_on(Arc::new(disk), fixture.manifest.clone(), &DownloadOptions::default())
        };
        // In the staging area, on the way to a file and as the file itself.
        let opened = open(to.path()).unwrap();
        let staging = to.path().join(&names(to.path())[0]).join("tree");
        link_to(outside.path(), staging.join("b")).unwrap();
        link_to(outside.path().join("big"), staging.join("big")).unwrap();
        for name in ["b/c/over", "big"] {
            let piece = fixture.manifest.file(fixture.index(name)).unwrap().first_piece();
            let error = opened.store.write(piece, 0, &fixture.piece(piece)[..LEAF]).unwrap_err();
            assert!(error.is_in_the_way(), "{error}");
        }
        drop(opened);
        fs::remove_dir_all(staging.parent().unwrap()).unwrap();

        // At the final place.
        let home = to.path().join("data");
        fixture.write_to(&home);
        fs::remove_file(home.join("big")).unwrap();
        link_to(outside.path().join("big"), home.join("big")).unwrap();
        assert!(open(to.path()).err().unwrap().is_in_the_way());
        fs::remove_file(home.join("big")).unwrap();
        fs::remove_dir_all(home.join("b")).unwrap();
        link_to(outside.path(), home.join("b")).unwrap();
        assert!(open(to.path()).err().unwrap().is_in_the_way());

        assert_eq!(names(outside.path()), ["big"]);
        assert_eq!(fs::read(outside.path().join("big")).unwrap(), b"precious");
    }
}

#[test]
fn two_downloads_of_the_same_do_not_collide() {
    let to = target(false);
    let fixture = publish("data", Version::V2, &tree(8));
    let first = open(&fixture, to.path()).unwrap();
    let error = open(&fixture, to.path()).err().unwrap();
    assert!(matches!(error, Error::Busy { .. }), "{error}");
    fixture.complete(&first, &mut Rng(1)).unwrap();
    drop(first);
    assert_eq!(get(&fixture, to.path()), 0);
}

#[test]
fn one_selection_after_another_adds_up() {
    let to = target(false);
    let fixture = publish("data", Version::V1, &tree(8));
    for name in ["big", "z", "a/leaf"] {
        let select = Select::Files(vec![fixture.index(name)]);
        let options = DownloadOptions { select, ..Default::default() };
        let opened = Store::download(fixture.manifest.clone(), to.path(), &options).unwrap();
        fixture.complete(&opened, &mut Rng(1)).unwrap();
    }
    assert_eq!(names(&to.path().join("data")), ["a", "big", "z"]);
    get(&fixture, to.path());
    fixture.assert_at(&to.path().join("data"));
    assert_eq!(names(to.path()), ["data"]);
}

#[test]
fn it_may_be_called_something_else() {
    for version in VERSIONS {
        let to = target(false);
        let fixture = publish("data", version, &tree(9));
        let named = |name: &str| DownloadOptions { name: Some(name.into()), ..Default::default() };
        let open = |name| Store::download(fixture.manifest.clone(), to.path(), &named(name));
        fixture.complete(&open("other").unwrap(), &mut Rng(1)).unwrap();
        fixture.assert_at(&to.path().join("other"));
        assert_eq!(names(to.path()), ["other"]);
        for bad in ["", ".", "..", "a/b", "/a", "a/"] {
            assert!(open(bad).is_err(), "{bad:?}");
        }
    }
}

#[test]
fn many_threads_write_at_once() {
    for version in VERSIONS {
        let to = target(true);
        let items: Vec<_> = (0..40).map(|i| file(&format!("d{}/f{i}", i % 7), bytes(i, 50_000))).collect();
        let fixture = publish("data", version, &items);
        let opened = open(&fixture, to.path()).unwrap();
        let pieces = fixture.manifest.piece_count();
        std::thread::scope(|scope| {
            for thread in 0..8 {
                let (fixture, store) = (&fixture, &opened.store);
                scope.spawn(move || {
                    for piece in (thread..pieces).step_by(8) {
                        fixture.deliver(store, piece, &mut Rng(u64::from(piece))).unwrap();
                        let mut back = vec![0; fixture.manifest.piece_len(piece) as usize];
                        store.read(piece, 0, &mut back).unwrap();
                        assert!(back == fixture.piece(piece));
                    }
                });
            }
            scope.spawn(|| {
                for _ in 0..20 {
                    opened.store.sync().unwrap();
                }
            });
        });
        opened.store.finish().unwrap();
        fixture.assert_at(&to.path().join("data"));
    }
}

#[test]
fn metadata_comes_back() {
    let to = target(false);
    let mut hollow = bytes(1, 3 << 20);
    hollow[65_536..2 << 20].fill(0);
    let mut items = vec![
        file("bin/tool", bytes(2, 100)),
        file("data/first", bytes(3, 40_000)),
        file("data/second", bytes(3, 40_000)),
        with_holes("sparse", hollow, vec![65_536..2 << 20]),
        with_holes("void", vec![0; 1 << 20], vec![0..1 << 20]),
        symlink("link", "bin/tool"),
        dir("empty"),
        dir("bin"),
        dir(""),
    ];
    items[0].entry.mode = Some(0o4751);
    items[0].entry.mtime = common::mtime(1_000_000_000, 123_456_789);
    items[0].entry.xattrs =
        vec![(b"user.origin".to_vec(), b"here".to_vec()), (b"security.capability".to_vec(), b"no".to_vec())];
    if let Content::File { hard_link, .. } = &mut items[2].entry.content {
        *hard_link = Some(b"data/first".to_vec());
    }
    items[5].entry.mtime = common::mtime(5, 6);
    items[6].entry.mode = Some(0o555);
    for (i, dir) in (6..).zip(&mut items[6..]) {
        dir.entry.mtime = common::mtime(1_100_000_000 + i, 42);
    }
    let fixture = publish("env", Version::V2, &items);
    let opened = open(&fixture, to.path()).unwrap();
    // All that lies in a hole needs no fetching.
    assert!(!opened.to_check.is_empty());
    fixture.complete(&opened, &mut Rng(1)).unwrap();
    let home = to.path().join("env");
    fixture.assert_at(&home);

    let meta = |p: &str| fs::symlink_metadata(home.join(p)).unwrap();
    let time = |p: &str| (meta(p).mtime(), meta(p).mtime_nsec());
    assert_eq!(meta("bin/tool").permissions().mode() & 0o7777, 0o751, "never set-id bits");
    let withheld = DownloadOptions { withheld: 0o075, ..DownloadOptions::default() };
    let narrow = tempfile::tempdir().unwrap();
    let opened = Store::download(fixture.manifest.clone(), narrow.path(), &withheld).unwrap();
    fixture.complete(&opened, &mut Rng(2)).unwrap();
    let mode = |p: &str| fs::metadata(narrow.path().join("env").join(p)).unwrap().mode() & 0o7777;
    assert_eq!((mode("bin/tool"), mode("empty")), (0o700, 0o500));
    assert_eq!(time("bin/tool"), (1_000_000_000, 123_456_789));
    assert_eq!(time("link"), (5, 6));
    assert_eq!(meta("empty").permissions().mode() & 0o777, 0o555);
    assert_eq!([time("empty"), time("bin"), time("")].map(|t| t.0 - 1_100_000_000), [6, 7, 8]);
    assert_eq!(meta("data/first").ino(), meta("data/second").ino());
    assert_eq!(meta("void").blocks(), 0);
    assert!(meta("sparse").blocks() * 512 < 2 << 20);
    let mut value = [0u8; 16];
    match rustix::fs::getxattr(home.join("bin/tool"), "user.origin", &mut value) {
        Ok(n) => assert_eq!(&value[..n], b"here"),
        Err(e) => eprintln!("SKIPPED: no user attributes on this file system: {e}"),
    }

    // A second run changes nothing and fetches nothing.
    assert_eq!(get(&fixture, to.path()), 0);
    assert_eq!(time("bin/tool"), (1_000_000_000, 123_456_789));
}

#[test]
fn a_lying_sparse_map_costs_nothing_but_space() {
    let to = target(false);
    let data = bytes(1, 200_000);
    let mut fixture = publish("f", Version::V2, &[with_holes("", data.clone(), vec![5000..150_000])]);
    fixture.data = vec![data];
    let opened = open(&fixture, to.path()).unwrap();
    // Bad bytes first, as from a peer that is found out later.
    for piece in 0..fixture.manifest.piece_count() {
        let bad = vec![0xff; fixture.manifest.piece_len(piece) as usize];
        opened.store.write(piece, 0, &bad).unwrap();
        assert!(!opened.store.check(piece).unwrap());
    }
    fixture.complete(&opened, &mut Rng(1)).unwrap();
    fixture.assert_at(&to.path().join("f"));
}

#[test]
fn bad_bytes_in_a_hole_are_covered_by_zeros() {
    let to = target(false);
    let mut data = bytes(1, 200_000);
    data[5000..150_000].fill(0);
    let fixture = publish("f", Version::V1, &[with_holes("", data, vec![5000..150_000])]);
    for reopen in [false, true] {
        let mut opened = open(&fixture, to.path()).unwrap();
        for piece in 0..fixture.manifest.piece_count() {
            opened.store.write(piece, 0, &vec![0xff; fixture.manifest.piece_len(piece) as usize]).unwrap();
        }
        if reopen {
            drop(opened);
            opened = open(&fixture, to.path()).unwrap();
        }
        fixture.complete(&opened, &mut Rng(1)).unwrap();
        fixture.assert_at(&to.path().join("f"));
        fs::remove_file(to.path().join("f")).unwrap();
    }
}

/// Nothing is written in a hole, so only the file's length, which one thread sets, makes it readable for the others.
#[test]
fn a_piece_of_a_sparse_file_is_read_by_the_thread_that_wrote_it() {
    let mut data = bytes(1, 8 * PIECE as usize);
    let hole = 5..7 * PIECE as usize;
    data[hole.clone()].fill(0);
    let hole = hole.start as u64..hole.end as u64;
    let fixture = publish("f", Version::V2, &[with_holes("", data, vec![hole])]);
    for round in 0..100 {
        let disk = SimDisk::new();
        let opened = Store::download_on(disk, fixture.manifest.clone(), &DownloadOptions::default()).unwrap();
        let start = Barrier::new(4);
        std::thread::scope(|scope| {
            for piece in [0, 1, 2, 7] {
                let (fixture, store, start) = (&fixture, &opened.store, &start);
                scope.spawn(move || {
                    start.wait();
                    fixture.deliver(store, piece, &mut Rng(round)).unwrap();
                    store.read(piece, 0, &mut vec![0; PIECE as usize]).unwrap();
                });
            }
        });
    }
}

#[test]
fn far_more_files_than_descriptors() {
    let to = target(true);
    let items: Vec<_> = (0..3000).map(|i| file(&format!("{}/{i}", i % 10), bytes(i, 50))).collect();
    let fixture = publish("many", Version::V2, &items);
    get(&fixture, to.path());
    fixture.assert_at(&to.path().join("many"));
}

#[test]
fn long_names_fit() {
    let to = target(false);
    let name = "n".repeat(255);
    let fixture = publish(&name, Version::V2, &[file("", bytes(1, 10))]);
    get(&fixture, to.path());
    let mut found = Vec::new();
    fs::File::open(to.path().join(&name)).unwrap().read_to_end(&mut found).unwrap();
    assert_eq!(found, fixture.data[0]);
}

#[test]
fn no_such_selection() {
    let to = target(false);
    let fixture = publish("data", Version::V2, &tree(1));
    for files in [vec![], vec![10_000]] {
        let options = DownloadOptions { select: Select::Files(files), ..Default::default() };
        let error = Store::download(fixture.manifest.clone(), to.path(), &options).err().unwrap();
        assert!(matches!(error, Error::Selection), "{error}");
    }
    assert_eq!(names(to.path()), Vec::<String>::new());
    let _: PathBuf = to.path().into();
}
