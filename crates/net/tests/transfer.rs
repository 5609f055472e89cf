//! Two or more nodes in one process, over real sockets: every format, open and private.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

mod common;

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use common::fake::Fake;
use common::{assert_same, finish, log, options, publish, soon};
use tidecast_identity::{Authority, ManifestId, NodeKey, Tls, Token};
use tidecast_metainfo::{Manifest, Version};
use tidecast_net::{Fetch, Membership, Security, Swarm, SwarmOptions, fetch_manifest};
use tidecast_store::{DownloadOptions, Replace, SeedOptions, Store};
use tidecast_wire::ext::{Message, PieceRange};

/// Files of many sizes around leaf and piece boundaries, with content that differs everywhere.
fn make_tree(dir: &Path) {
    for (n, size) in [0, 1, 16_383, 16_384, 16_385, 300_000, 1_048_576, 5_000_001].into_iter().enumerate() {
        let bytes: Vec<u8> = (0..size).map(|i: usize| (i * 31 + i / 251 + n) as u8).collect();
        std::fs::create_dir_all(dir.join(format!("d{}", n % 3))).unwrap();
        std::fs::write(dir.join(format!("d{}/f{n}", n % 3)), bytes).unwrap();
    }
}

async fn seed(manifest: &Arc<Manifest>, path: &Path, security: Security) -> Swarm {
    let opened = Store::seed(manifest.clone(), path, &SeedOptions::default()).unwrap();
    let swarm = Swarm::start(SwarmOptions { seed_only: true, ..options(opened, security) }).unwrap();
    soon(swarm.complete()).await.unwrap();
    swarm
}

async fn get(manifest: &Arc<Manifest>, to: &Path, security: Security, peers: &[SocketAddr]) -> Swarm {
    let replace = Replace { force: true, ..Replace::default() };
    let opened =
        Store::download(manifest.clone(), to, &DownloadOptions { replace, ..DownloadOptions::default() });
    let swarm = Swarm::start(options(opened.unwrap(), security)).unwrap();
    for peer in peers {
        swarm.add_peer(vec![*peer], true).await;
    }
    swarm
}

async fn one_to_one(version: Version) {
    log();
    let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let source = from.path().join("tree");
    make_tree(&source);
    let manifest = publish(&source, version);
    let seeder = seed(&manifest, &source, Security::Open).await;
    let getter = get(&manifest, to.path(), Security::Open, seeder.listen_addrs()).await;
    let summary = finish(getter).await;
    assert_same(&source, &to.path().join("tree"));
    assert_eq!(summary.progress.corrupt_bytes, 0);
    let sent = seeder.stop().await.unwrap();
    assert_eq!(sent.progress.sent_bytes, summary.progress.received_bytes);
}

#[tokio::test(flavor = "multi_thread")]
async fn v1_arrives() {
    one_to_one(Version::V1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn v2_arrives() {
    one_to_one(Version::V2).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn hybrid_arrives() {
    one_to_one(Version::Hybrid).await;
}

/// Data that waits here must not count as sent in the distribution of pieces.
#[tokio::test(flavor = "multi_thread")]
async fn what_a_receiver_does_not_take_is_not_called_sent() {
    log();
    let from = tempfile::tempdir().unwrap();
    let source = from.path().join("data");
    std::fs::write(&source, vec![7; 32 << 20]).unwrap();
    let manifest = publish(&source, Version::V2);
    let seeder = seed(&manifest, &source, Security::Open).await;
    let mut silent = Fake::dial(seeder.listen_addrs()[0], &manifest, *b"-TC0100-a silent one").await;
    let all = PieceRange { channel: 0, first: 0, count: manifest.piece_count() };
    silent.say(Message::RequestPieces(all)).await;
    let sent = || seeder.progress().borrow().sent_bytes;
    soon(async {
        while sent() == 0 {
            tokio::time::sleep(Duration::from_millis(10)).await
        }
    })
    .await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    println!("{} bytes called sent", sent());
    assert!(sent() < 1 << 20, "{} bytes called sent that a receiver did not read", sent());
    seeder.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_fails_its_check_is_fetched_before_all_is_called_complete() {
    log();
    let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let source = from.path().join("tree");
    make_tree(&source);
    let manifest = publish(&source, Version::V2);
    let seeder = seed(&manifest, &source, Security::Open).await;
    let copied = std::process::Command::new("cp").arg("-a").arg(&source).arg(to.path()).status().unwrap();
    assert!(copied.success());
    let damaged = to.path().join("tree/d1/f7");
    let mut bytes = std::fs::read(&damaged).unwrap();
    bytes[2_000_000] ^= 1;
    std::fs::write(&damaged, bytes).unwrap();
    let getter = get(&manifest, to.path(), Security::Open, seeder.listen_addrs()).await;
    let summary = finish(getter).await;
    assert_eq!(summary.progress.received_bytes, u64::from(manifest.piece_length()));
    assert_same(&source, &to.path().join("tree"));
    seeder.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_that_know_only_the_origin_find_and_help_each_other() {
    log();
    let from = tempfile::tempdir().unwrap();
    let source = from.path().join("tree");
    make_tree(&source);
    std::fs::write(source.join("big"), vec![7; 48 << 20]).unwrap();
    let manifest = publish(&source, Version::V2);
    let seeder = seed(&manifest, &source, Security::Open).await;
    let dirs: Vec<_> = (0..4).map(|_| tempfile::tempdir().unwrap()).collect();
    let mut getters = Vec::new();
    for dir in &dirs {
        getters.push(get(&manifest, dir.path(), Security::Open, seeder.listen_addrs()).await);
    }
    for getter in &getters {
        soon(getter.complete()).await.unwrap();
    }
    for (getter, dir) in getters.into_iter().zip(&dirs) {
        finish(getter).await;
        assert_same(&source, &dir.path().join("tree"));
    }
    seeder.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_private_swarm_enrols_ticket_holders_and_nobody_else() {
    log();
    let (from, to, state) =
        (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let source = from.path().join("tree");
    make_tree(&source);
    let manifest = publish(&source, Version::V2);
    let owner = NodeKey::load_or_create(state.path()).unwrap();
    let authority = Authority::open(state.path(), &owner).unwrap();
    let id = ManifestId::V2(manifest.hash_v2().unwrap()).swarm();
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
    let token = authority.issue(id, None, now).unwrap();
    let membership = Membership::owner(Tls::new(&owner).unwrap(), id, authority);
    let seeder = seed(&manifest, &source, Security::Private(Box::new(membership))).await;
    let addr = seeder.listen_addrs()[0];

    let member = |key: &NodeKey, token: Option<Token>, credential| {
        let m = Membership::member(Tls::new(key).unwrap(), id, owner.id(), token, credential);
        Security::Private(Box::new(m))
    };
    let ask = |security| {
        let hashes = manifest.swarm_hashes();
        let hash_v2 = manifest.hash_v2();
        let security = Arc::new(security);
        let (timeout, (failed_tries, _)) = (Duration::from_secs(2), tokio::sync::mpsc::channel(1));
        let fetch = Fetch { hashes, hash_v2, security, sources: vec![], timeout, failed_tries };
        let (found, peers) = tokio::sync::mpsc::channel(1);
        found.try_send(addr).unwrap();
        fetch_manifest(fetch, peers)
    };
    let stranger = NodeKey::generate().unwrap();
    let forged = Token::generate().unwrap();
    assert!(ask(member(&stranger, Some(forged), None)).await.is_err());
    assert!(ask(member(&stranger, None, None)).await.is_err());
    assert!(ask(Security::Open).await.is_err());

    let key = NodeKey::generate().unwrap();
    let (got, _) = ask(member(&key, Some(token.clone()), None)).await.unwrap();
    assert_eq!(got.hash_v2(), manifest.hash_v2());
    let getter = get(&Arc::new(got), to.path(), member(&key, Some(token.clone()), None), &[addr]).await;
    finish(getter).await;
    assert_same(&source, &to.path().join("tree"));

    let elsewhere = Authority::open(state.path(), &owner).unwrap();
    elsewhere.revoke(token.id, now).unwrap();
    let late = NodeKey::generate().unwrap();
    assert!(ask(member(&late, Some(token), None)).await.is_err());
    seeder.stop().await.unwrap();
}
