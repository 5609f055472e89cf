//! `kill -9` of a real process at random instants: verified data is never fetched again, and the data is right in
//! the end.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::single_range_in_vec_init)]

mod common;

use std::collections::BTreeSet;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use common::{Fixture, Rng, bytes, file, publish};
use tidecast_metainfo::Version;
use tidecast_store::{DownloadOptions, Store};

const CHILD: &str = "TIDECAST_TEST_KILL_DIR";
const KILLS: u64 = 20;

fn fixture() -> Fixture {
    let mut items: Vec<_> =
        (0..60).map(|i| file(&format!("d{}/{i}", i % 5), bytes(i, 3000 + 999 * i as usize))).collect();
    items.push(file("big", bytes(77, 6 << 20)));
    publish("data", Version::Hybrid, &items)
}

/// The process that is killed: downloads, and notes each piece once it counts.
#[test]
#[ignore = "the child of the test below"]
fn child() {
    let Ok(dir) = std::env::var(CHILD) else { return };
    let fixture = fixture();
    let options = DownloadOptions::default();
    let opened = Store::download(fixture.manifest.clone(), Path::new(&dir), &options).unwrap();
    let store = &opened.store;
    for piece in opened.to_check.iter().cloned().flatten() {
        store.check(piece).unwrap();
    }
    let mut log = fs::File::options().append(true).create(true).open(log_of(&dir)).unwrap();
    let mut rng = Rng(u64::from(std::process::id()));
    let mut rest: Vec<u32> = (0..fixture.manifest.piece_count()).filter(|p| !store.has(*p)).collect();
    rng.shuffle(&mut rest);
    for piece in rest {
        fixture.deliver(store, piece, &mut rng).unwrap();
        log.write_all(&piece.to_le_bytes()).unwrap();
        std::thread::sleep(Duration::from_micros(500));
        if rng.one_in(10) {
            store.sync().unwrap();
        }
    }
    store.finish().unwrap();
}

fn log_of(dir: &str) -> PathBuf {
    PathBuf::from(format!("{dir}.log"))
}

#[test]
fn a_kill_at_any_instant_costs_nothing_verified() {
    let fixture = fixture();
    let to = tempfile::tempdir().unwrap();
    let dir = to.path().join("to").to_str().unwrap().to_owned();
    let run = || {
        let me = std::env::current_exe().unwrap();
        let mut command = Command::new(me);
        command.args(["child", "--exact", "--ignored", "--quiet"]).env(CHILD, &dir);
        command.stdout(std::process::Stdio::null()).spawn().unwrap()
    };
    let mut rng = Rng(now());
    let mut kills = 0;
    for _ in 0..KILLS {
        let mut child = run();
        std::thread::sleep(Duration::from_millis(5 + rng.below(60)));
        child.kill().unwrap();
        kills += u64::from(!child.wait().unwrap().success());
    }
    assert!(kills > 0, "every run ended before it was killed");
    assert!(run().wait().unwrap().success());
    fixture.assert_at(&Path::new(&dir).join("data"));

    let log = fs::read(log_of(&dir)).unwrap();
    let fetched: Vec<&[u8]> = log.chunks(4).collect();
    let distinct: BTreeSet<&[u8]> = fetched.iter().copied().collect();
    assert_eq!(distinct.len(), fetched.len(), "a verified piece was fetched twice");
}

/// Another instant on every run.
fn now() -> u64 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_nanos() as u64
}
