//! An interrupted run resumes where it stopped, and ignores stale and torn records.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::fs;
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::Duration;

use common::*;
use tempfile::TempDir;
use tidecast_metainfo::Version;
use tidecast_publish::{Error, HashOptions, Progress, hash};

const FILES: [(&str, usize); 4] = [("a", 500_000), ("b", 70_000), ("c", 900_000), ("z", 100)];

/// Files of which all but `z` have been hashed, by a run that then failed; and the options of that run.
fn interrupted(version: Version, leaves: bool) -> (TempDir, PathBuf, HashOptions) {
    let (temp, root) = tree("resume", &FILES);
    // Files just written are not put on record: their times may not show another change.
    sleep(Duration::from_millis(150));
    let options = HashOptions {
        state: Some(temp.path().join("state")),
        leaves: leaves.then(|| temp.path().join("leaves")),
        threads: NonZero::new(1),
        ..options(version, 32 << 10)
    };
    let scan = scanned(&root);
    fs::write(root.join("z"), b"changed").unwrap();
    let error = hash(&scan, &options, &Progress::new(), |_| ()).unwrap_err();
    assert!(matches!(error, Error::Changed { .. }), "{error}");
    (temp, root, options)
}

/// Runs to the end, holds the result to the plain computation, and says how many bytes were not read again.
fn finish(root: &Path, options: &HashOptions) -> u64 {
    let progress = Progress::new();
    let scan = scanned(root);
    let manifest = hash(&scan, options, &progress, |_| ()).unwrap().manifest;
    assert_hashes(&manifest, root);
    assert_eq!(progress.bytes(), scan.total_len());
    assert!(!options.state.as_ref().unwrap().exists(), "the state is gone when all is done");
    if let Some(path) = &options.leaves {
        let table = fs::read(path).unwrap();
        let table = table.as_chunks::<32>().0;
        for piece in (0..manifest.piece_count()).filter(|_| manifest.version().has_v2()) {
            let range = manifest.leaf_range(piece);
            let leaves = &table[range.start as usize..range.end as usize];
            assert_eq!(manifest.check_leaves(piece, leaves), Some(true), "leaves of {piece}");
        }
    }
    progress.reused()
}

#[test]
fn what_was_hashed_is_not_read_again() {
    for version in [Version::V1, Version::V2, Version::Hybrid] {
        for leaves in [false, true] {
            let (_temp, root, options) = interrupted(version, leaves);
            let reused = finish(&root, &options);
            // v1: the data that is read together with `z`, up to half a MiB, was not hashed.
            let least = if version == Version::V1 { 1_470_000 - (512 << 10) } else { 1_470_000 };
            assert!((least..=1_470_000).contains(&reused), "{version}: {reused}");
        }
    }
}

#[test]
fn leaves_that_were_not_kept_are_made() {
    let (temp, root, mut options) = interrupted(Version::V2, false);
    options.leaves = Some(temp.path().join("leaves"));
    assert_eq!(finish(&root, &options), 0);
}

#[test]
fn a_changed_file_is_read_again_even_if_its_time_is_set_back() {
    let (_temp, root, options) = interrupted(Version::V2, true);
    let path = root.join("a");
    let before = fs::metadata(&path).unwrap().modified().unwrap();
    fs::write(&path, noise(500_000, 99)).unwrap();
    fs::File::options().write(true).open(&path).unwrap().set_modified(before).unwrap();
    assert_eq!(finish(&root, &options), 970_000);
}

#[test]
fn a_file_more_at_the_front_does_not_spoil_the_rest() {
    for version in [Version::V2, Version::Hybrid] {
        let (_temp, root, options) = interrupted(version, true);
        fs::write(root.join("0"), noise(123_456, 7)).unwrap();
        assert_eq!(finish(&root, &options), 1_470_000);
    }
}

#[test]
fn other_settings_do_not_mix() {
    let (_temp, root, mut options) = interrupted(Version::V2, false);
    options.piece_length = Some(64 << 10);
    // Pieces that are the same bytes under both lengths may be taken; all others not.
    assert!(finish(&root, &options) < 70_000);
}

#[test]
fn a_torn_or_damaged_log_costs_time_only() {
    let (_temp, root, options) = interrupted(Version::Hybrid, true);
    let state = options.state.clone().unwrap();
    let log = fs::read(&state).unwrap();
    let cuts = [0, 1, 20, 25, 26, 44, 45, 46, log.len() / 2, log.len() - 1];
    for cut in cuts {
        fs::write(&state, &log[..cut]).unwrap();
        assert_eq!(finish(&root, &options), 0, "cut to {cut} of {} bytes", log.len());
    }
    for flip in (25..log.len()).step_by(97) {
        let mut bad = log.clone();
        bad[flip] ^= 1;
        fs::write(&state, &bad).unwrap();
        assert_eq!(finish(&root, &options), 0, "bit {flip}");
    }
    fs::write(&state, &log).unwrap();
    assert_eq!(finish(&root, &options), 1_470_000);
}

#[test]
fn a_log_grows_over_several_interruptions() {
    let (_temp, root, options) = interrupted(Version::V2, true);
    sleep(Duration::from_millis(150));
    let scan = scanned(&root);
    fs::write(root.join("z"), b"changed again").unwrap();
    fs::write(root.join("a0"), noise(40_000, 3)).unwrap();
    hash(&scan, &options, &Progress::new(), |_| ()).unwrap_err();
    assert_eq!(finish(&root, &options), 1_470_000);
}

#[test]
fn a_foreign_file_is_not_overwritten() {
    let (temp, root) = tree("foreign", &[("a", 10)]);
    let state = temp.path().join("precious");
    fs::write(&state, "something else entirely").unwrap();
    let options = HashOptions { state: Some(state.clone()), ..HashOptions::default() };
    let error = hash(&scanned(&root), &options, &Progress::new(), |_| ()).unwrap_err();
    assert!(error.to_string().contains("precious"), "{error}");
    assert_eq!(fs::read(&state).unwrap(), b"something else entirely");
}

#[test]
fn a_log_that_another_run_has_is_left_alone() {
    let (_temp, root, options) = interrupted(Version::V2, true);
    let state = options.state.clone().unwrap();
    let other = fs::File::open(&state).unwrap();
    other.lock().unwrap();
    let before = fs::read(&state).unwrap();
    let progress = Progress::new();
    let manifest = hash(&scanned(&root), &options, &progress, |_| ()).unwrap().manifest;
    assert_hashes(&manifest, &root);
    assert_eq!(progress.reused(), 0);
    assert_eq!(fs::read(&state).unwrap(), before);
    drop(other);
    assert_eq!(finish(&root, &options), 1_470_000);
}
