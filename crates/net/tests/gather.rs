//! Those who fetch the same tree on demand, by a plan that its origin makes for whoever joins.
#![allow(clippy::unwrap_used)]

mod common;

use std::sync::Arc;
use std::time::Duration;

use common::{options, publish, soon};
use tidecast_metainfo::{Manifest, Version};
use tidecast_net::{Group, Security, Swarm, SwarmOptions, Urgency};
use tidecast_store::{DownloadOptions, SeedOptions, Store};

const FILES: usize = 40;
const LEN: usize = 300_000;

fn member(manifest: &Manifest, to: &std::path::Path, group: Group) -> Swarm {
    let manifest = Arc::new(Manifest::parse(&manifest.to_bytes()).unwrap());
    let download = DownloadOptions { on_demand: true, ..DownloadOptions::default() };
    let opened = Store::download(manifest, to, &download).unwrap();
    let on_demand = Some(Box::new(|_| {}) as tidecast_net::OnVerified);
    Swarm::start(SwarmOptions { on_demand, group, ..options(opened, Security::Open) }).unwrap()
}

async fn until(what: &str, test: impl Fn() -> bool) {
    let wait = async {
        while !test() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    assert!(tokio::time::timeout(Duration::from_secs(100), wait).await.is_ok(), "{what}");
}

/// All members want the same few files at the same moment: (bytes wanted by each, bytes the origin has sent).
async fn storm(members: usize, group: Group) -> (u64, u64) {
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("src");
    std::fs::create_dir(&source).unwrap();
    for n in 0..FILES {
        let bytes: Vec<u8> = (0..LEN).map(|i| ((i * 31 + n * 7) ^ (i >> 8)) as u8).collect();
        std::fs::write(source.join(format!("f{n:02}")), bytes).unwrap();
    }
    let manifest = publish(&source, Version::V2);
    let opened = Store::seed(manifest.clone(), &source, &SeedOptions::default()).unwrap();
    let make = if group == Group::Join { Group::Make } else { Group::None };
    let seed = SwarmOptions { seed_only: true, group: make, ..options(opened, Security::Open) };
    let origin = Swarm::start(seed).unwrap();
    soon(origin.complete()).await.unwrap();
    let at = origin.listen_addrs()[0];
    let all: Vec<Swarm> =
        (0..members).map(|n| member(&manifest, &dir.path().join(format!("n{n}")), group)).collect();
    for swarm in &all {
        swarm.add_peer(vec![at], true).await;
    }
    until("all are connected", || all.iter().all(|s| s.progress().borrow().peers > 0)).await;
    // The plan has settled when nobody has joined for a while.
    tokio::time::sleep(Duration::from_millis(700)).await;
    let wanted: Vec<_> = (0..FILES as u32).step_by(4).map(|f| manifest.file_pieces(f)).collect();
    let asking = all.iter().map(|swarm| {
        let (demand, wanted) = (swarm.demand(), wanted.clone());
        tokio::task::spawn_blocking(move || {
            for pieces in wanted {
                assert!(demand.want(pieces, Urgency::Now));
            }
        })
    });
    for asked in asking.collect::<Vec<_>>() {
        asked.await.unwrap();
    }
    let has = |s: &Swarm| wanted.iter().cloned().flatten().all(|piece| s.store().has(piece));
    until("everybody has it", || all.iter().all(has)).await;
    let bytes = wanted.iter().cloned().flatten().map(|piece| u64::from(manifest.piece_len(piece))).sum();
    for swarm in all {
        swarm.stop().await.unwrap();
    }
    (bytes, origin.stop().await.unwrap().progress.sent_bytes)
}

#[tokio::test(flavor = "multi_thread")]
async fn what_all_want_at_once_leaves_the_origin_about_once() {
    let (wanted, sent) = storm(8, Group::Join).await;
    assert!(sent >= wanted && sent * 10 <= wanted * 13, "{sent} of {wanted}");
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_plan_everybody_gets_it_too() {
    let (wanted, sent) = storm(3, Group::None).await;
    assert!(sent >= wanted, "{sent} of {wanted}");
}
