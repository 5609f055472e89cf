//! A disk that fails to read, by strace's injection of errors: that is a trouble of this host, and never called damage of the data.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::path::{Path, PathBuf};
use std::process::Command;

use common::*;
use tidecast_depot::{Depth, Report, State};

/// The store that a child of this test checks, where reading one file of it fails.
const STORE: &str = "TIDECAST_TEST_FAILING_STORE";

fn check(store: &Path) -> Report {
    open(store).fsck(Depth::Bytes, &mut |_, _| panic!("nothing is to be brought")).unwrap()
}

/// Runs only as a child of the tests below.
#[test]
#[ignore = "for the other tests of this file"]
fn checked() {
    let report = check(Path::new(&std::env::var_os(STORE).unwrap()));
    println!(
        "bad {} invalid {} orphans {} recounted {} unread {:?}",
        report.bad.len() + report.mended.len(),
        report.invalid.len(),
        report.orphans,
        report.recounted,
        report.unread
    );
}

/// The report of a check while reading `file` fails; None without strace, or if it may not trace.
fn checked_while_failing(store: &Path, file: &Path) -> Option<String> {
    let done = Command::new("strace")
        .args(["-f", "-o", "/dev/null", "-e", "inject=read,pread64:error=EIO", "-P"])
        .arg(file)
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "checked", "--ignored", "--nocapture"])
        .env(STORE, store)
        .output();
    let done = match done {
        Ok(done) if !String::from_utf8_lossy(&done.stderr).contains("Operation not permitted") => done,
        _ => {
            println!("SKIPPED: no strace that may trace");
            return None;
        }
    };
    assert!(done.status.success(), "{done:?}");
    Some(String::from_utf8(done.stdout).unwrap())
}

fn fails(which: impl Fn(&Path, &Path) -> PathBuf) {
    let tmp = tempfile::tempdir().unwrap();
    let store = tmp.path().join("depot");
    let depot = open(&store);
    let root = tree(&tmp.path().join("data"), &[("f", &[1; 5000]), ("d/g", b"2")]);
    let other = tree(&tmp.path().join("other"), &[("h", &[3; 5000])]);
    let (a, b) = (put(&depot, named("a"), &root, 1), put(&depot, named("b"), &other, 1));
    let (view, used) = (depot.view(a.id).unwrap(), depot.used_by("alice"));
    let file = which(&store.join("caches").join(a.id.to_string()), &view);
    drop(depot);
    let Some(said) = checked_while_failing(&store, &file) else { return };
    assert!(said.contains("bad 0 invalid 0 orphans 0 recounted false unread [Unread"), "{said}");
    assert!(said.contains("Input/output error") && said.contains(&format!("caches: [{:?}]", a.id)), "{said}");
    // The disk works again.
    let depot = open(&store);
    assert!([a.id, b.id].iter().all(|id| depot.cache(*id).unwrap().state == State::Committed));
    assert_eq!(std::fs::read(view.join("f")).unwrap(), [1; 5000]);
    assert_eq!(depot.used_by("alice"), used);
    assert_clean(&depot);
}

#[test]
fn a_manifest_that_cannot_be_read_condemns_no_cache() {
    fails(|cache, _| cache.join("manifest"));
}

#[test]
fn a_content_that_cannot_be_read_condemns_no_cache() {
    // The object and the name in the view are one file; the check reads the object.
    fails(|cache, view| {
        let inode = |path: &Path| std::os::unix::fs::MetadataExt::ino(&std::fs::metadata(path).unwrap());
        let objects = cache.parent().unwrap().parent().unwrap().join("objects");
        let dirs = std::fs::read_dir(objects).unwrap();
        let files = dirs.flat_map(|dir| std::fs::read_dir(dir.unwrap().path()).unwrap());
        files.map(|file| file.unwrap().path()).find(|path| inode(path) == inode(&view.join("f"))).unwrap()
    });
}
