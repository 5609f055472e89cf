//! Full, read-only and quota-bound targets: small RAM file systems, mounted for the test (root).

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::single_range_in_vec_init)]

mod common;

use std::fs;
use std::path::Path;
use std::process::Command;

use common::{Fixture, Rng, bytes, file, is_root, publish};
use tempfile::TempDir;
use tidecast_metainfo::Version;
use tidecast_store::{DownloadOptions, Error, Store};

/// A mounted RAM file system, gone when dropped.
struct Mount(TempDir);

impl Mount {
    fn new(options: &str) -> Option<Self> {
        if !is_root() {
            eprintln!("SKIPPED: mounting a small file system needs root");
            return None;
        }
        let dir = tempfile::tempdir().unwrap();
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", options, "tidecast-test"])
            .arg(dir.path())
            .status();
        if !mounted.is_ok_and(|s| s.success()) {
            eprintln!("SKIPPED: cannot mount a RAM file system here");
            return None;
        }
        Some(Mount(dir))
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn remount(&self, options: &str) {
        let args = ["-o", &format!("remount,{options}")];
        assert!(Command::new("mount").args(args).arg(self.path()).status().unwrap().success());
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.path()).status();
    }
}

fn open(fixture: &Fixture, to: &Path) -> Result<tidecast_store::Opened, Error> {
    Store::download(fixture.manifest.clone(), to, &DownloadOptions::default())
}

#[test]
fn what_cannot_fit_is_refused_before_the_first_byte() {
    let Some(mount) = Mount::new("size=4m,nr_inodes=100") else { return };
    let big = publish("big", Version::V2, &[file("", bytes(1, 5 << 20))]);
    match open(&big, mount.path()).err().unwrap() {
        Error::NoSpace { needed, free, .. } => assert!(needed > 5 << 20 && free <= 4 << 20),
        other => panic!("{other}"),
    }
    let items: Vec<_> = (0..200).map(|i| file(&i.to_string(), vec![1])).collect();
    let many = publish("many", Version::V2, &items);
    let error = open(&many, mount.path()).err().unwrap();
    assert!(error.is_full());
    assert!(error.to_string().contains("files"), "{error}");
    match error {
        Error::NoSpace { inodes, free_inodes, .. } => {
            assert!(inodes >= 200 && free_inodes.unwrap() < 100);
        }
        other => panic!("{other}"),
    }
    assert_eq!(fs::read_dir(mount.path()).unwrap().count(), 0, "nothing left behind");
}

#[test]
fn a_disk_without_any_room_says_what_is_needed() {
    let Some(mount) = Mount::new("size=1m,nr_inodes=1") else { return };
    let fixture = publish("one", Version::V2, &[file("", bytes(1, 100_000))]);
    match open(&fixture, mount.path()).err().unwrap() {
        Error::NoSpace { needed, inodes, free_inodes, .. } => {
            assert!(needed >= 100_000 && inodes > 0 && free_inodes == Some(0));
        }
        other => panic!("{other}"),
    }
}

#[test]
fn a_disk_that_fills_up_stops_cleanly_and_goes_on_later() {
    let Some(mount) = Mount::new("size=8m") else { return };
    let fixture = publish("big", Version::V1, &[file("a", bytes(1, 5 << 20)), file("b", vec![7; 99])]);
    let hog = mount.path().join("hog");
    let mut arrived = 0;
    {
        let opened = open(&fixture, mount.path()).unwrap();
        fs::write(&hog, vec![1; 6 << 20]).unwrap();
        let mut full = None;
        for piece in 0..fixture.manifest.piece_count() {
            match fixture.deliver(&opened.store, piece, &mut Rng(1)) {
                Ok(()) => arrived += 1,
                Err(e) => {
                    full = Some(e);
                    break;
                }
            }
        }
        let full = full.expect("the disk must run full");
        assert!(full.is_full(), "{full}");
        match full {
            Error::NoSpace { needed, free, inodes, .. } => {
                assert!(needed > free && needed < 6 << 20 && inodes >= 1, "{needed} {free} {inodes}");
            }
            other => panic!("{other}"),
        }
        let _ = opened.store.sync();
    }
    // Emptied first: a process that another test is just starting may hold the file open.
    fs::write(&hog, []).unwrap();
    fs::remove_file(hog).unwrap();
    let opened = open(&fixture, mount.path()).unwrap();
    let fetched = fixture.complete(&opened, &mut Rng(1)).unwrap();
    assert_eq!(fetched, u64::from(fixture.manifest.piece_count()) - arrived);
    fixture.assert_at(&mount.path().join("big"));
}

#[test]
fn a_read_only_target_is_named_as_such() {
    let Some(mount) = Mount::new("size=8m") else { return };
    let fixture = publish("one", Version::V2, &[file("", bytes(1, 100_000))]);
    let opened = open(&fixture, mount.path()).unwrap();
    drop(opened);
    mount.remount("ro");
    let error = open(&fixture, mount.path()).err().unwrap();
    assert!(matches!(error, Error::ReadOnly { .. }) && error.is_unwritable(), "{error}");
    let error = open(&fixture, &mount.path().join("new")).err().unwrap();
    assert!(error.is_unwritable(), "{error}");
}
