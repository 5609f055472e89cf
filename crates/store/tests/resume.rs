//! Starting again when the files of an earlier run have changed.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::single_range_in_vec_init)]

mod common;

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use common::{Fixture, PIECE, Rng, VERSIONS, bytes, file, publish, tree};
use tidecast_store::{DownloadOptions, Opened, Replace, Store};

fn open(fixture: &Fixture, to: &Path) -> Opened {
    let replace = Replace { force: true, ..Default::default() };
    let options = DownloadOptions { replace, ..Default::default() };
    Store::download(fixture.manifest.clone(), to, &options).unwrap()
}

/// The staging area below a directory that holds nothing else hidden.
fn staging(to: &Path) -> std::path::PathBuf {
    let all = fs::read_dir(to).unwrap().map(|e| e.unwrap().path());
    all.into_iter().find(|p| p.file_name().unwrap().to_string_lossy().starts_with('.')).unwrap()
}

/// A finish that was interrupted has moved the data and left the journal. The journal's entries about the moved
/// data must not apply to later data at its old place.
#[test]
fn a_journal_that_outlived_its_data_vouches_for_nothing() {
    for version in VERSIONS {
        let to = tempfile::tempdir().unwrap();
        let fixture = publish("data", version, &tree(5));
        let home = to.path().join("data");
        {
            let store = open(&fixture, to.path()).store;
            (0..fixture.manifest.piece_count())
                .for_each(|p| fixture.deliver(&store, p, &mut Rng(1)).unwrap());
            store.sync().unwrap();
        }
        fs::rename(staging(to.path()).join("tree"), &home).unwrap();
        // Two pieces go bad in the user's hands, and one of them is brought in again.
        let big = fixture.index("big");
        let mut data = fixture.data[big as usize].clone();
        let at = [PIECE as usize + 5, 4 * PIECE as usize + 5];
        at.iter().for_each(|i| data[*i] ^= 1);
        fs::write(home.join("big"), &data).unwrap();
        let start = fixture.manifest.layout().file_start(big);
        let [first, second] = at.map(|i| ((start + i as u64) / u64::from(PIECE)) as u32);
        {
            let opened = open(&fixture, to.path());
            opened.to_check.iter().cloned().flatten().for_each(|p| {
                let _ = opened.store.check(p).unwrap();
            });
            assert!(!opened.store.has(first) && !opened.store.has(second), "{version}");
            fixture.deliver(&opened.store, first, &mut Rng(1)).unwrap();
        }
        let opened = open(&fixture, to.path());
        assert!(!opened.store.has(second), "{version}: piece {second} is wrong and counts");
        assert_eq!(fixture.complete(&opened, &mut Rng(1)).unwrap(), 1, "{version}");
        fixture.assert_at(&home);
    }
}

/// A file that is not there reads as zeros, so one of zeros is right before it exists.
#[test]
fn a_missing_file_of_zeros_is_made() {
    for version in VERSIONS {
        let to = tempfile::tempdir().unwrap();
        let zeros = file("b", vec![0; 100]);
        let fixture = publish("data", version, &[file("a", bytes(1, 50)), zeros, file("c", bytes(2, 50))]);
        let home = to.path().join("data");
        fixture.write_to(&home);
        fs::remove_file(home.join("b")).unwrap();
        fixture.complete(&open(&fixture, to.path()), &mut Rng(1)).unwrap();
        fixture.assert_at(&home);
    }
}

/// Data that is checked at once counts from the start: the right pieces, and nothing else.
#[test]
fn all_that_is_right_counts_once_it_is_checked() {
    for version in VERSIONS {
        let to = tempfile::tempdir().unwrap();
        let fixture = publish("data", version, &tree(5));
        let home = to.path().join("data");
        fixture.write_to(&home);
        let mut opened = open(&fixture, to.path());
        opened.check(&std::sync::atomic::AtomicU64::new(0)).unwrap();
        assert_eq!(opened.have, [0..fixture.manifest.piece_count()], "{version}");
        drop(opened);
        let big = fixture.index("big");
        let mut data = fixture.data[big as usize].clone();
        data[PIECE as usize + 5] ^= 1;
        fs::write(home.join("big"), &data).unwrap();
        let start = fixture.manifest.layout().file_start(big);
        let wrong = ((start + u64::from(PIECE) + 5) / u64::from(PIECE)) as u32;
        let mut opened = open(&fixture, to.path());
        opened.check(&std::sync::atomic::AtomicU64::new(0)).unwrap();
        assert!(opened.to_check.is_empty() && !opened.store.has(wrong), "{version}");
        let all = 0..fixture.manifest.piece_count();
        for piece in all.filter(|p| *p != wrong) {
            assert!(opened.have.iter().any(|r| r.contains(&piece)), "{version}: piece {piece}");
        }
        assert!(!opened.have.iter().any(|r| r.contains(&wrong)), "{version}");
    }
}

#[test]
fn what_is_journalled_counts_only_in_a_file_that_nobody_has_changed() {
    for version in VERSIONS {
        let to = tempfile::tempdir().unwrap();
        let fixture = publish("data", version, &tree(6));
        let count = fixture.manifest.piece_count();
        {
            let store = open(&fixture, to.path()).store;
            (0..count).for_each(|piece| fixture.deliver(&store, piece, &mut Rng(1)).unwrap());
            store.sync().unwrap();
        }
        let opened = open(&fixture, to.path());
        assert_eq!((&opened.have[..], opened.to_check.len()), (&[0..count][..], 0), "{version}");
        opened.store.sync().unwrap();
        drop(opened);
        // Another program damages a file, and sets its time back.
        let path = staging(to.path()).join("tree/big");
        let before = fs::metadata(&path).unwrap();
        let mut data = fs::read(&path).unwrap();
        data[5] ^= 1;
        while fs::metadata(&path).unwrap().ctime_nsec() == before.ctime_nsec() {
            fs::write(&path, &data).unwrap();
            fs::File::open(&path).unwrap().set_modified(before.modified().unwrap()).unwrap();
        }
        let opened = open(&fixture, to.path());
        let start = fixture.manifest.layout().file_start(fixture.index("big"));
        let piece = (start / u64::from(PIECE)) as u32;
        assert!(!opened.store.has(piece), "{version}: piece {piece} is damaged and counts");
        assert_eq!(fixture.complete(&opened, &mut Rng(2)).unwrap(), 1, "{version}");
        fixture.assert_at(&to.path().join("data"));
    }
}
