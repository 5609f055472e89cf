//! Nodes that fetch the same tree, on demand or whole, by a plan that its origin makes for joining nodes.
#![allow(clippy::unwrap_used)]

mod common;

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use common::fake::{Fake, Heard};
use common::{finish, options, publish, soon};
use parking_lot::RwLock;
use tidecast_identity::{NodeId, NodeKey, Tls};
use tidecast_metainfo::{Manifest, Version};
use tidecast_net::{Group, Known, Security, Swarm, SwarmOptions, Urgency};
use tidecast_store::{DownloadOptions, SeedOptions, Store};
use tidecast_wire::ext::{self, Caps};

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
    // The plan is stable when no node has joined for a while.
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

/// A node of a swarm whose members are admitted one by one, and the nodes that it admits.
struct Keyed(Tls, Arc<RwLock<BTreeSet<NodeId>>>);

impl Keyed {
    fn new() -> Keyed {
        Keyed(Tls::new(&NodeKey::generate().unwrap()).unwrap(), Arc::default())
    }

    fn security(&self) -> Security {
        let (asked, told) = (self.1.clone(), self.1.clone());
        let admits = Box::new(move |node| asked.read().contains(&node));
        let named = Box::new(move |node| told.write().extend([node]));
        Security::Known(Known { tls: self.0.clone(), admits, named })
    }

    fn get(&self, manifest: &Arc<Manifest>, to: &Path, group: Group) -> Swarm {
        let opened = Store::download(manifest.clone(), to, &DownloadOptions::default()).unwrap();
        Swarm::start(SwarmOptions { group, ..options(opened, self.security()) }).unwrap()
    }
}

/// All of these get one tree from an origin of this group, and admit no other node at first: (bytes, bytes that the
/// origin has sent, how many each admits at the end).
async fn fetch(origin_is: Group, members: &[Group]) -> (u64, u64, Vec<usize>) {
    let dir = tempfile::tempdir().unwrap();
    let bytes: Vec<u8> = (0..8 << 20).map(|i: u32| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    std::fs::write(dir.path().join("data"), bytes).unwrap();
    let manifest = publish(&dir.path().join("data"), Version::V2);
    let (server, clients) = (Keyed::new(), members.iter().map(|_| Keyed::new()).collect::<Vec<_>>());
    server.1.write().extend(clients.iter().map(|client| client.0.id()));
    let opened = Store::seed(manifest.clone(), &dir.path().join("data"), &SeedOptions::default()).unwrap();
    let seed = SwarmOptions { seed_only: true, group: origin_is, ..options(opened, server.security()) };
    let origin = Swarm::start(seed).unwrap();
    let mut getting = Vec::new();
    for (n, (client, group)) in clients.iter().zip(members).enumerate() {
        client.1.write().insert(server.0.id());
        let swarm = client.get(&manifest, &dir.path().join(format!("n{n}")), *group);
        swarm.finder().follow(server.0.id()).await;
        getting.push(swarm);
    }
    for swarm in &getting {
        swarm.finder().call(origin.listen_addrs().to_vec()).await;
    }
    for swarm in &getting {
        soon(swarm.complete()).await.unwrap();
    }
    for swarm in getting {
        finish(swarm).await;
    }
    let sent = soon(origin.stop()).await.unwrap().progress.sent_bytes;
    (8 << 20, sent, clients.iter().map(|client| client.1.read().len()).collect())
}

#[tokio::test(flavor = "multi_thread")]
async fn who_fetches_all_at_once_gets_it_from_those_whom_the_plan_names() {
    let (bytes, sent, admitted) = fetch(Group::Whole, &[Group::Whole; 8]).await;
    // Without a plan each would get a copy from the origin, as no member admits another.
    assert!(sent >= bytes && sent <= bytes * 4, "{sent} of {bytes}");
    assert!(admitted.iter().all(|n| *n > 1), "{admitted:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn who_knows_of_no_plan_gets_it_too() {
    let (bytes, sent, admitted) = fetch(Group::Whole, &[Group::None; 2]).await;
    assert!(sent >= 2 * bytes && admitted == [1, 1], "{sent} of {bytes}, {admitted:?}");
    let (bytes, sent, admitted) = fetch(Group::None, &[Group::Whole; 2]).await;
    assert!(sent >= 2 * bytes && admitted == [1, 1], "{sent} of {bytes}, {admitted:?}");
}

/// The peer ids of its peers, as the maker has written them in the first role that has any.
async fn told_of(member: &mut Fake) -> serde_json::Value {
    loop {
        let heard = soon(member.hear()).await.unwrap();
        let Heard::Message(ext::Message::Gather { bytes, .. }) = heard else { continue };
        let said: serde_json::Value = serde_json::from_slice(&bytes).unwrap();
        if let Some(known) = said.pointer("/Part/known/0") {
            return known["peer_id"].clone();
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn who_cannot_read_hexadecimal_ids_is_told_them_as_numbers() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("data"), vec![7; LEN]).unwrap();
    let manifest = publish(&dir.path().join("data"), Version::V2);
    let opened = Store::seed(manifest.clone(), &dir.path().join("data"), &SeedOptions::default()).unwrap();
    let seed = SwarmOptions { seed_only: true, group: Group::Make, ..options(opened, Security::Open) };
    let maker = Swarm::start(seed).unwrap();
    soon(maker.complete()).await.unwrap();
    let (old, new, at) = (*b"-TC0000-older member", *b"-TC0000-newer member", maker.listen_addrs()[0]);
    let mut older = Fake::join(at, &manifest, old, Caps::default()).await;
    let mut newer = Fake::join(at, &manifest, new, Caps::GATHER_HEX).await;
    assert_eq!(told_of(&mut older).await, serde_json::json!(new));
    let digits: String = old.iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(told_of(&mut newer).await, serde_json::json!(digits));
    maker.stop().await.unwrap();
}
