//! 50,000 files of 10 KB, beside `tar x` and `sync`: a measurement, by hand, on a real disk.
//!
//! `TIDECAST_BENCH_DIR=/some/disk cargo test -p tidecast-store --test small_files -- --ignored --nocapture`

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use common::{bytes, file, publish};
use tidecast_metainfo::Version;
use tidecast_store::{DownloadOptions, Store};

#[test]
#[ignore = "a measurement"]
fn beside_tar() {
    let base = std::env::var("TIDECAST_BENCH_DIR").map_or(std::env::temp_dir(), PathBuf::from);
    let count = std::env::var("COUNT").map_or(50_000, |n| n.parse().unwrap());
    let items: Vec<_> = (0..count)
        .map(|i| {
            let mut item = file(&format!("d{}/f{i}", i % 500), bytes(i, 10_000));
            item.entry.mtime = common::mtime(1_600_000_000 + i as i64, 1);
            item.entry.mode = Some(0o644);
            item
        })
        .collect();
    let fixture = publish("many", Version::V2, &items);
    let leaves: Vec<_> = fixture.data.iter().map(|d| common::leaf_digests(d)).collect();
    let seconds = |t: Instant| t.elapsed().as_secs_f64();
    let sync = || assert!(Command::new("sync").status().unwrap().success());

    let source = tempfile::tempdir_in("/dev/shm").unwrap();
    fixture.write_to(&source.path().join("many"));
    let archive = source.path().join("many.tar");
    let tar = |args: &[&str]| assert!(Command::new("tar").args(args).status().unwrap().success());
    let path = |p: &std::path::Path| p.to_str().unwrap().to_owned();
    tar(&["cf", &path(&archive), "-C", &path(source.path()), "many"]);

    // Nothing is removed in between: ext4 is slow to give out inodes that were just freed.
    let mut kept = Vec::new();
    for round in 0..3 {
        let to = tempfile::tempdir_in(&base).unwrap();
        sync();
        let start = Instant::now();
        tar(&["xf", &path(&archive), "-C", &path(to.path())]);
        sync();
        let tar_time = seconds(start);
        kept.push(to);

        let to = tempfile::tempdir_in(&base).unwrap();
        sync();
        let start = Instant::now();
        let mut options = DownloadOptions::default();
        if std::env::var("NONE").is_ok() {
            options.durability = tidecast_store::Durability::None;
        }
        let opened = Store::download(fixture.manifest.clone(), to.path(), &options).unwrap();
        let store = &opened.store;
        std::thread::scope(|scope| {
            for thread in 0..2 {
                let (fixture, leaves) = (&fixture, &leaves);
                scope.spawn(move || {
                    for file in (0..fixture.data.len()).skip(thread).step_by(2) {
                        let piece = fixture.manifest.file_pieces(file as u32).start;
                        store.write(piece, 0, &fixture.data[file]).unwrap();
                        store.set_leaves(piece, &leaves[file]).unwrap();
                        store.piece_done(piece).unwrap();
                    }
                });
            }
            scope.spawn(|| {
                while store.missing() > 0 {
                    store.sync().unwrap();
                    std::thread::sleep(Duration::from_secs(1));
                }
            });
        });
        let written = seconds(start);
        let summary = store.finish().unwrap();
        let ours = seconds(start);
        assert!(summary.warnings.is_empty());
        drop(opened);
        kept.push(to);
        println!(
            "round {round}: tar x + sync {tar_time:.2} s; store {ours:.2} s (written {written:.2} s); {:.2} x tar's rate",
            tar_time / ours
        );
    }
}
