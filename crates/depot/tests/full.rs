//! A disk that is full, by bytes and by inodes; and hard links that run out.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use common::*;
use tidecast_depot::{Admission, Depot, Filter, Reader, Size, State};

/// A small file system of its own, unmounted when dropped; `None` when only root may mount.
struct Disk(PathBuf);

impl Disk {
    fn mount(at: &Path, options: &str) -> Option<Self> {
        fs::create_dir_all(at).unwrap();
        let mut mount = Command::new("mount");
        let mounted = mount.args(["-t", "tmpfs", "-o", options, "tmpfs"]).arg(at).output();
        if mounted.is_ok_and(|o| o.status.success()) {
            return Some(Disk(at.to_owned()));
        }
        eprintln!("SKIPPED: a small file system can only be mounted as root");
        None
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

/// Many small caches on a disk that is too small, some of them without asking for room: it may fail, and nothing breaks.
fn crowd(disk: &Path, tmp: &Path) {
    let depot = Depot::open(&disk.join("depot"), config()).unwrap();
    let mut full = 0;
    for i in 0..60u32 {
        let name = format!("n{i}");
        let files: Vec<(String, Vec<u8>)> =
            (0..20).map(|f| (format!("f{f}"), [i, f].map(u32::to_le_bytes).concat().repeat(1000))).collect();
        let files: Vec<(&str, &[u8])> = files.iter().map(|(n, d)| (&**n, &**d)).collect();
        let root = tree(&tmp.join("data").join(&name), &files);
        let m = manifest(&root);
        // One in three lies about its size.
        let lies = i % 3 == 0;
        let id = depot.declare(named(&name), i.into());
        let Ok(record) = id else {
            full += 1;
            continue;
        };
        let asked = depot.admit(record.id, Some(&m), &Reader::owner("alice"), i.into());
        let Ok(Admission::Ok(reservation)) = asked else {
            full += 1;
            continue;
        };
        if lies {
            // Another program fills the disk meanwhile.
            let junk = disk.join("junk");
            let _ = fs::write(&junk, vec![0; 64 << 20]);
            let staged = try_stage(&reservation, &m, &root, &[]);
            let done = reservation.commit(&m, false, i.into());
            full += usize::from(staged.is_err() || done.is_err());
            fs::remove_file(junk).unwrap();
        } else {
            let staged = try_stage(&reservation, &m, &root, &[]);
            if let (Ok(()), Err(e)) = (staged, reservation.commit(&m, false, i.into())) {
                assert!(e.is_full(), "{e}");
                full += 1;
            }
        }
        depot.sweep(i.into()).unwrap();
    }
    assert!(full > 0, "the disk was never full");
    let committed =
        |depot: &Depot| depot.caches(&Filter { state: Some(State::Committed), ..Filter::default() }).len();
    let there = committed(&depot);
    assert!(there > 0);
    assert_clean(&depot);
    drop(depot);
    let depot = Depot::open(&disk.join("depot"), config()).unwrap();
    assert_eq!(committed(&depot), there);
    assert_clean(&depot);
    // The disk is full to the last byte: removing still works.
    let _ = fs::write(disk.join("junk"), vec![0; 64 << 20]);
    for record in depot.caches(&Filter::default()) {
        depot.remove(record.id, 100).unwrap();
    }
    assert_eq!(depot.usage().unwrap().kept, Size::ZERO);
}

#[test]
fn full_by_bytes() {
    let tmp = tempfile::tempdir().unwrap();
    if let Some(disk) = Disk::mount(&tmp.path().join("disk"), "size=16m") {
        crowd(&disk.0, tmp.path());
    }
}

#[test]
fn full_by_inodes() {
    let tmp = tempfile::tempdir().unwrap();
    if let Some(disk) = Disk::mount(&tmp.path().join("disk"), "size=64m,nr_inodes=700") {
        crowd(&disk.0, tmp.path());
    }
}

#[test]
#[ignore = "it makes 65,100 files: run it with --ignored"]
fn when_links_run_out_another_inode_serves() {
    // As many as ext4 allows, and some.
    const FILES: u32 = 65_100;
    let tmp = tempfile::tempdir().unwrap();
    let depot = open(&tmp.path().join("depot"));
    let root = tmp.path().join("data");
    for dir in 0..FILES / 1000 + 1 {
        fs::create_dir_all(root.join(dir.to_string())).unwrap();
    }
    let time = std::time::UNIX_EPOCH;
    for i in 0..FILES {
        let path = root.join((i / 1000).to_string()).join(i.to_string());
        fs::write(&path, b"same").unwrap();
        fs::File::open(&path).unwrap().set_modified(time).unwrap();
    }
    let m = manifest(&root);
    let id = depot.declare(named("n"), 1).unwrap().id;
    let reservation = reserve(&depot, id, Some(&m), 1);
    // Of equal files the first is enough.
    let first = m.file(0).unwrap().path();
    let to = first.under(&reservation.dir());
    fs::create_dir_all(to.parent().unwrap()).unwrap();
    fs::copy(first.below(&root), to).unwrap();
    let done = reservation.commit(&m, false, 1).unwrap();
    let view = depot.view(done.record.id).unwrap();
    let inodes: std::collections::HashSet<u64> =
        m.files().map(|f| fs::metadata(f.path().below(&view)).unwrap().ino()).collect();
    eprintln!("{} inodes for {FILES} files", inodes.len());
    assert!(inodes.len() <= 2);
    assert_eq!(objects(&depot).len(), 1);
    assert_clean(&depot);
    depot.remove(done.record.id, 2).unwrap();
    assert_eq!(depot.usage().unwrap().kept, Size::ZERO);
}
