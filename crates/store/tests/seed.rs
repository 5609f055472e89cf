//! Serving: sources that are missing, of the wrong size, damaged, or change while being served.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::single_range_in_vec_init)]

mod common;

use std::fs;
use std::path::Path;
use std::time::{Duration, SystemTime};

use common::{Fixture, VERSIONS, bytes, file, publish, tree};
use tempfile::TempDir;
use tidecast_metainfo::Version;
use tidecast_store::{Error, Opened, SeedOptions, Store};

fn source(fixture: &Fixture) -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    fixture.write_to(&dir.path().join("data"));
    dir
}

fn seed(fixture: &Fixture, at: &Path) -> Result<Opened, Error> {
    Store::seed(fixture.manifest.clone(), &at.join("data"), &SeedOptions::default())
}

fn checked(fixture: &Fixture, at: &Path) -> Opened {
    let opened = seed(fixture, at).unwrap();
    for piece in opened.to_check.iter().cloned().flatten() {
        assert!(opened.store.check(piece).unwrap(), "piece {piece}");
    }
    opened
}

#[test]
fn all_is_checked_and_served() {
    for version in VERSIONS {
        let fixture = publish("data", version, &tree(3));
        let at = source(&fixture);
        let opened = checked(&fixture, at.path());
        assert_eq!(opened.store.missing(), 0);
        for piece in 0..fixture.manifest.piece_count() {
            let mut found = vec![0; fixture.manifest.piece_len(piece) as usize];
            opened.store.read(piece, 0, &mut found).unwrap();
            assert_eq!(found, fixture.piece(piece));
            let leaves = opened.store.leaves(piece).unwrap().unwrap();
            assert_eq!(leaves, common::leaf_digests(&found));
        }
        assert!(matches!(opened.store.write(0, 0, &[1]), Err(Error::ReadOnlyStore)));
    }
}

#[test]
fn padding_of_a_hybrid_is_served_as_zeros() {
    let fixture = publish("data", Version::Hybrid, &tree(3));
    let at = source(&fixture);
    let opened = checked(&fixture, at.path());
    let m = &fixture.manifest;
    let piece = (0..m.piece_count()).find(|p| m.wire_len(*p) > m.piece_len(*p)).unwrap();
    let mut found = vec![1; m.wire_len(piece) as usize];
    opened.store.read(piece, 0, &mut found).unwrap();
    assert!(found[m.piece_len(piece) as usize..].iter().all(|b| *b == 0));
    let spans = opened.store.send_spans(piece, m.piece_len(piece), 1).unwrap();
    assert!(spans.len() == 1 && spans[0].file.is_none());
}

#[test]
fn what_does_not_fit_is_named() {
    let fixture = publish("data", Version::V2, &tree(3));
    let at = source(&fixture);
    let home = at.path().join("data");
    fs::remove_file(home.join("z")).unwrap();
    let error = seed(&fixture, at.path()).err().unwrap();
    assert!(matches!(&error, Error::Missing { path } if path.ends_with("z")), "{error}");
    fs::write(home.join("big"), "short").unwrap();
    let error = seed(&fixture, at.path()).err().unwrap();
    let text = error.to_string();
    assert!(matches!(error, Error::Sources { count: 2, .. }) && error.is_source_changed());
    assert!(text.contains("/z") && text.contains("big has 5 bytes"), "{text}");
    let error = seed(&fixture, &at.path().join("nowhere")).err().unwrap();
    assert!(matches!(error, Error::Missing { .. }));
    let single = publish("data", Version::V2, &[file("", vec![1])]);
    assert!(matches!(seed(&single, at.path()), Err(Error::WrongKind { .. })));
}

#[test]
fn a_damaged_piece_is_reported() {
    let fixture = publish("data", Version::V2, &tree(3));
    let at = source(&fixture);
    let mut bad = fixture.data[fixture.index("big") as usize].clone();
    bad[0] ^= 1;
    fs::write(at.path().join("data/big"), bad).unwrap();
    let opened = seed(&fixture, at.path()).unwrap();
    let piece = fixture.manifest.file(fixture.index("big")).unwrap().first_piece();
    assert!(!opened.store.check(piece).unwrap());
    assert!(opened.store.check(piece + 1).unwrap());
    assert!(matches!(opened.store.read(piece, 0, &mut [0]), Err(Error::NotVerified { .. })));
}

#[test]
fn a_change_while_serving_is_noticed() {
    let fixture = publish("data", Version::V2, &tree(3));
    let piece = fixture.manifest.file(fixture.index("big")).unwrap().first_piece();
    type Change = (&'static str, fn(&Path));
    let changes: [Change; 4] = [
        ("time", |p| {
            let f = fs::File::options().write(true).open(p).unwrap();
            f.set_modified(SystemTime::now() + Duration::from_secs(9)).unwrap();
        }),
        ("size", |p| fs::File::options().write(true).open(p).unwrap().set_len(5).unwrap()),
        ("gone", |p| fs::remove_file(p).unwrap()),
        ("replaced", |p| {
            fs::write(p.with_extension("new"), "x").unwrap();
            fs::rename(p.with_extension("new"), p).unwrap();
        }),
    ];
    for (what, change) in changes {
        for warm in [true, false] {
            let at = source(&fixture);
            let opened = checked(&fixture, at.path());
            if warm {
                opened.store.read(piece, 0, &mut [0]).unwrap();
            }
            change(&at.path().join("data/big"));
            let read = opened.store.read(piece, 0, &mut [0]).unwrap_err();
            let sent = opened.store.send_spans(piece, 0, 1).unwrap_err();
            assert!(read.is_source_changed() && sent.is_source_changed(), "{what}: {read}");
            assert!(read.to_string().contains("big"), "{read}");
            // Other files are served on.
            let other = fixture.manifest.file(fixture.index("z")).unwrap().first_piece();
            opened.store.read(other, 0, &mut [0]).unwrap();
        }
    }
}

#[test]
fn what_verified_is_remembered_while_the_files_stay_the_same() {
    for version in VERSIONS {
        let fixture = publish("data", version, &tree(3));
        let (at, state) = (source(&fixture), tempfile::tempdir().unwrap());
        let home = at.path().join("data");
        let old = SystemTime::now() - Duration::from_secs(100);
        for f in fixture.manifest.files() {
            let file = fs::File::options().write(true).open(f.path().below(&home)).unwrap();
            file.set_modified(old).unwrap();
        }
        let options = SeedOptions { state: Some(state.path().to_path_buf()) };
        let open = || Store::seed(fixture.manifest.clone(), &home, &options).unwrap();
        let all = fixture.manifest.piece_count();

        let opened = open();
        assert!(opened.have.is_empty());
        (0..all).for_each(|p| assert!(opened.store.check(p).unwrap()));
        opened.store.sync().unwrap();
        drop(opened);
        let opened = open();
        assert_eq!((opened.have, opened.to_check), (vec![0..all], vec![]));
        assert!(opened.store.leaves(0).unwrap().is_some());
        drop(opened.store);

        fs::write(home.join("big"), bytes(99, fixture.data[fixture.index("big") as usize].len())).unwrap();
        let opened = open();
        let doubtful: Vec<u32> = opened.to_check.into_iter().flatten().collect();
        assert_eq!(
            doubtful,
            fixture.manifest.file(fixture.index("big")).unwrap().pieces().collect::<Vec<_>>()
        );
        // Too fresh to be remembered: it might change again within the same tick.
        opened.store.sync().unwrap();
        drop(opened.store);

        // A damaged memory is no memory.
        for entry in fs::read_dir(state.path()).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_some_and(|e| e == "seen") {
                let mut seen = fs::read(&path).unwrap();
                let last = seen.len() - 40;
                seen[last] ^= 1;
                fs::write(&path, seen).unwrap();
            }
        }
        assert!(open().have.is_empty());
    }
}
