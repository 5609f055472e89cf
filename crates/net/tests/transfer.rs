//! Two or more nodes in one process, over real sockets: every format, open and private.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tidecast_identity::{Authority, ManifestId, NodeKey, Tls, Token};
use tidecast_metainfo::{Manifest, Version};
use tidecast_net::{Fetch, Membership, Security, Summary, Swarm, SwarmOptions, fetch_manifest};
use tidecast_publish::{Format, HashOptions, Progress, ScanOptions, hash, scan};
use tidecast_store::{DownloadOptions, SeedOptions, Store};

fn log() {
    let filter = tracing_subscriber::EnvFilter::from_env("TIDECAST_LOG");
    let _ = tracing_subscriber::fmt().with_env_filter(filter).with_test_writer().try_init();
}

/// Files of many sizes around leaf and piece boundaries, with content that differs everywhere.
fn make_tree(dir: &Path) {
    for (n, size) in [0, 1, 16_383, 16_384, 16_385, 300_000, 1_048_576, 5_000_001].into_iter().enumerate() {
        let bytes: Vec<u8> = (0..size).map(|i: usize| (i * 31 + i / 251 + n) as u8).collect();
        std::fs::create_dir_all(dir.join(format!("d{}", n % 3))).unwrap();
        std::fs::write(dir.join(format!("d{}/f{n}", n % 3)), bytes).unwrap();
    }
}

fn publish(path: &Path, version: Version) -> Arc<Manifest> {
    let tree = scan(path, &ScanOptions::default(), &Progress::default()).unwrap();
    let options = HashOptions { format: Format::Exactly(version), ..HashOptions::default() };
    Arc::new(hash(&tree, &options, &Progress::default(), |_| {}).unwrap().manifest)
}

fn options(opened: tidecast_store::Opened, security: Security, seed_only: bool) -> SwarmOptions {
    let listen = vec!["127.0.0.1:0".parse().unwrap()];
    SwarmOptions { opened, listen, network: None, security, policy: Default::default(), seed_only }
}

async fn seed(manifest: &Arc<Manifest>, path: &Path, security: Security) -> Swarm {
    let opened = Store::seed(manifest.clone(), path, &SeedOptions::default()).unwrap();
    let swarm = Swarm::start(options(opened, security, true)).unwrap();
    soon(swarm.complete()).await.unwrap();
    swarm
}

async fn get(manifest: &Arc<Manifest>, to: &Path, security: Security, peers: &[SocketAddr]) -> Swarm {
    let opened = Store::download(manifest.clone(), to, &DownloadOptions::default()).unwrap();
    let swarm = Swarm::start(options(opened, security, false)).unwrap();
    for peer in peers {
        swarm.add_peer(vec![*peer], true).await;
    }
    swarm
}

async fn finish(swarm: Swarm) -> Summary {
    soon(swarm.complete()).await.unwrap();
    let store = swarm.store().clone();
    tokio::task::spawn_blocking(move || store.finish()).await.unwrap().unwrap();
    swarm.stop().await.unwrap()
}

/// Long enough for any machine; only a hang takes it.
async fn soon<T>(work: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(120), work).await.expect("it hangs")
}

fn assert_same(a: &Path, b: &Path) {
    let diff = std::process::Command::new("diff").arg("-r").arg(a).arg(b).output().unwrap();
    assert!(diff.status.success(), "{}", String::from_utf8_lossy(&diff.stdout));
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
        let fetch = Fetch { hashes, hash_v2, security, sources: vec![], timeout: Duration::from_secs(2) };
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
