//! Data that flows while it is being hashed: drafts, over real sockets.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs, unreachable_pub)]

mod common;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use common::fake::{Fake, Heard};
use common::{assert_same, log, options, publish_with, soon};
use tempfile::TempDir;
use tidecast_identity::NodeKey;
use tidecast_metainfo::{Manifest, Version};
use tidecast_net::{Edges, Error, Member, Notice, Role, RootsKey, Security, Swarm, SwarmOptions};
use tidecast_publish::{Progress, ScanOptions, draft, scan};
use tidecast_store::{DownloadOptions, Replace, SeedOptions, Store};
use tidecast_wire::ext::{Availability, Message as Ext, Mode};

const PIECE: u32 = 64 << 10;

fn noise(seed: u32, len: u32) -> Vec<u8> {
    (0..len).map(|i| (i.wrapping_add(seed).wrapping_mul(2_654_435_761) >> 13) as u8).collect()
}

/// A peer id by which a Tidecast is recognised.
fn id(of: u8) -> [u8; 20] {
    let mut id = [of; 20];
    id[..8].copy_from_slice(b"-TC0100-");
    id
}

fn draft_of(path: &Path) -> Arc<Manifest> {
    let tree = scan(path, &ScanOptions::default(), &Progress::default()).unwrap();
    Arc::new(draft(&tree, PIECE).unwrap())
}

/// Many files, empty ones, links, holes.
fn tree(at: &Path) {
    std::fs::create_dir_all(at.join("deep/er")).unwrap();
    std::fs::create_dir(at.join("hollow")).unwrap();
    std::fs::write(at.join("big"), noise(1, 5_000_000)).unwrap();
    std::fs::write(at.join("copy"), noise(1, 5_000_000)).unwrap();
    std::fs::hard_link(at.join("big"), at.join("deep/link")).unwrap();
    for n in 0..200 {
        std::fs::write(at.join(format!("deep/er/{n}")), noise(n, n * 37)).unwrap();
    }
    let sparse = std::fs::File::create(at.join("sparse")).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&sparse, &noise(7, 100_000), 2_000_000).unwrap();
    sparse.set_len(4_000_000).unwrap();
}

fn origin(manifest: &Arc<Manifest>, source: &Path, key: &NodeKey) -> SwarmOptions {
    let opened = Store::seed(manifest.clone(), source, &SeedOptions::default()).unwrap();
    let roots = Some(RootsKey::Own(key.clone()));
    SwarmOptions { seed_only: true, roots, ..options(opened, Security::Open) }
}

/// A node that has checked its data before any peer sends anything.
fn receiver(manifest: &Manifest, to: &Path, key: &NodeKey) -> SwarmOptions {
    std::fs::create_dir_all(to).unwrap();
    // Each node reads the draft for itself.
    let manifest = Arc::new(Manifest::parse_draft(&manifest.to_bytes()).unwrap());
    // Files of an earlier round may be replaced: they are recorded.
    let replace = Replace { records: Some(to.join("records")), ..Replace::default() };
    let options_of_store = DownloadOptions { replace, ..DownloadOptions::default() };
    let mut opened = Store::download(manifest, to, &options_of_store).unwrap();
    opened.check(&std::sync::atomic::AtomicU64::new(0)).unwrap();
    SwarmOptions { roots: Some(RootsKey::Of(key.id())), ..options(opened, Security::Open) }
}

async fn place(swarm: &Swarm) -> Result<tidecast_store::Summary, Error> {
    soon(swarm.complete()).await.unwrap();
    tokio::task::spawn_blocking(swarm.finisher()).await.unwrap()
}

/// A file of this many bytes at an origin, its draft, and a place for a copy.
struct Scene {
    /// Where the file is.
    _from: TempDir,
    to: TempDir,
    source: PathBuf,
    key: NodeKey,
    manifest: Arc<Manifest>,
}

fn scene(bytes: u32) -> Scene {
    log();
    let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let source = from.path().join("data");
    std::fs::write(&source, noise(5, bytes)).unwrap();
    let manifest = draft_of(&source);
    Scene { _from: from, to, source, key: NodeKey::generate().unwrap(), manifest }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tree_flows_while_it_is_hashed_and_only_what_differs_flows_again() {
    log();
    let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let source = from.path().join("tree");
    tree(&source);
    let key = NodeKey::generate().unwrap();
    let mut received = Vec::new();
    for round in 0..3 {
        if round == 2 {
            std::fs::write(source.join("deep/er/7"), noise(99, 7 * 37)).unwrap();
        }
        let manifest = draft_of(&source);
        let seed = Swarm::start(origin(&manifest, &source, &key)).unwrap();
        let mut nodes = Vec::new();
        for n in 0..3 {
            let node = Swarm::start(receiver(&manifest, &to.path().join(n.to_string()), &key)).unwrap();
            node.add_peer(seed.listen_addrs().to_vec(), true).await;
            nodes.push(node);
        }
        let mut bytes = 0;
        for (n, node) in nodes.into_iter().enumerate() {
            place(&node).await.unwrap();
            assert_same(&source, &to.path().join(n.to_string()).join("tree"));
            let linked =
                |at: &str| std::fs::metadata(to.path().join(n.to_string()).join("tree").join(at)).unwrap();
            use std::os::unix::fs::MetadataExt;
            assert_eq!(linked("big").ino(), linked("deep/link").ino(), "one file");
            let summary = node.stop().await.unwrap();
            assert_eq!(summary.progress.corrupt_bytes, 0);
            bytes += summary.progress.received_bytes;
        }
        assert!(seed.hashing_took().is_some());
        let sealed = manifest.seal().unwrap();
        assert_eq!(sealed.hash_v2(), publish_with(&source, Version::V2, Some(PIECE)).hash_v2());
        seed.stop().await.unwrap();
        received.push(bytes);
    }
    assert!(received[0] >= 3 * 15_000_000, "{received:?}");
    assert_eq!(received[1], 0, "a complete one fetches nothing");
    assert!((3 * 7 * 37..1_000_000).contains(&received[2]), "{received:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plan_carries_a_draft() {
    let Scene { _from, to, source, key, manifest } = scene(20_000_000);
    let start = |options: SwarmOptions| Swarm::start(SwarmOptions { planned: true, ..options }).unwrap();
    let mut nodes = vec![start(origin(&manifest, &source, &key))];
    for n in 1..4 {
        nodes.push(start(receiver(&manifest, &to.path().join(n.to_string()), &key)));
    }
    let member = |swarm: &Swarm| {
        let (peer_id, addrs) = (Some(swarm.peer_id()), swarm.listen_addrs().to_vec());
        Member { peer_id, addrs, ..Member::default() }
    };
    let members: Vec<Member> = nodes.iter().map(member).collect();
    let stripes: [&[(u32, u32)]; 2] = [&[(0, 1), (1, 2), (1, 3)], &[(0, 2), (2, 1), (2, 3)]];
    for (member, node) in (0..).zip(&nodes) {
        let edges = |stripe: &&[(u32, u32)]| Edges {
            parent: stripe.iter().find(|e| e.1 == member).map(|e| e.0),
            children: stripe.iter().filter(|e| e.0 == member).map(|e| e.1).collect(),
        };
        let role = Role { epoch: 1, member, sources: vec![0], stripes: stripes.iter().map(edges).collect() };
        node.plan(role, members.clone()).await.unwrap();
    }
    for (n, node) in nodes.iter().enumerate().skip(1) {
        place(node).await.unwrap();
        assert_same(&source, &to.path().join(n.to_string()).join("data"));
    }
    let mut nodes = nodes.into_iter();
    let sent = nodes.next().unwrap().stop().await.unwrap().progress.sent_bytes;
    assert!((20_000_000..2 * 20_000_000).contains(&sent), "{sent}");
    for node in nodes {
        node.stop().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_interrupted_one_goes_on_but_believes_nothing() {
    let Scene { _from, to, source, key, manifest } = scene(6_000_000);
    // A part is there, as a run that was cut off leaves it: some right, one piece of it wrong.
    let mut part = noise(5, 6_000_000);
    part[3 * PIECE as usize + 5] ^= 1;
    {
        let opened = Store::download(manifest.clone(), to.path(), &DownloadOptions::default()).unwrap();
        for piece in 0..40 {
            let at = piece as usize * PIECE as usize;
            opened.store.write(piece, 0, &part[at..at + PIECE as usize]).unwrap();
            opened.store.piece_done(piece).unwrap();
        }
        opened.store.sync().unwrap();
    }
    let seed = Swarm::start(origin(&manifest, &source, &key)).unwrap();
    let node = Swarm::start(receiver(&manifest, to.path(), &key)).unwrap();
    node.add_peer(seed.listen_addrs().to_vec(), true).await;
    place(&node).await.unwrap();
    assert_same(&source, &to.path().join("data"));
    let received = node.stop().await.unwrap().progress.received_bytes;
    let missing = 6_000_000 - 39 * u64::from(PIECE);
    assert!((missing..missing + 500_000).contains(&received), "{received} for {missing}");
}

/// A node's messages about its roots: all of them, to a peer that requests nothing.
async fn roots_of(node: &Swarm, manifest: &Manifest) -> Vec<Ext> {
    let mut fake = Fake::dial(node.listen_addrs()[0], manifest, id(b'F')).await;
    let mut said = Vec::new();
    loop {
        let Some(Heard::Message(message)) = soon(fake.hear()).await else { panic!("it is cut off") };
        match message {
            Ext::Roots { .. } => said.push(message),
            Ext::Seal { .. } => {
                said.push(message);
                return said;
            }
            Ext::Availability(a) => {
                let told: usize =
                    said.iter().map(|m| if let Ext::Roots { roots, .. } = m { roots.len() } else { 0 }).sum();
                assert!(a.pieces().all(|p| p.end as usize <= told), "a piece is announced before its root");
            }
            _ => {}
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_relay_that_lies_is_let_go_and_named() {
    let Scene { _from, to, source, key, manifest } = scene(1_000_000);
    let seed = Swarm::start(origin(&manifest, &source, &key)).unwrap();
    let said = roots_of(&seed, &manifest).await;
    let mut node = Swarm::start(receiver(&manifest, to.path(), &key)).unwrap();
    let mut notices = node.notices().unwrap();
    let mut bent = said[0].clone();
    if let Ext::Roots { roots, .. } = &mut bent {
        roots[1][0] ^= 1;
    }
    let announce = |end| {
        let (channel, mode, exceptions) = (0, Mode::Reset, Vec::new());
        Ext::Availability(Availability { channel, mode, watermark: end, exceptions })
    };
    // A root with a wrong signature; a seal out of turn; a piece without its root; a block without one.
    let lies: [(&str, Vec<Ext>); 4] = [
        ("without a valid signature", vec![bent]),
        ("out of order", vec![said.last().unwrap().clone()]),
        ("before its root", vec![announce(1)]),
        ("before its root", vec![Ext::Offer { channel: 0, stripe: 0, piece: 0 }]),
    ];
    for (n, (reason, lie)) in (0..).zip(lies) {
        // Each from an address of its own, as the one before is banned.
        let from = std::net::SocketAddr::from(([127, 0, 0, 10 + n], 0));
        let mut fake = Fake::dial_from(from, node.listen_addrs()[0], &manifest, id(n)).await;
        for message in lie {
            fake.say(message).await;
        }
        while soon(fake.hear()).await.is_some() {}
        let why = loop {
            if let Notice::Banned { why, .. } = soon(notices.recv()).await.unwrap() {
                break why;
            }
        };
        assert!(why.contains(reason), "{why}");
    }
    // True roots and a wrong byte: the byte is rejected, and its sender is named.
    let mut fake =
        Fake::dial_from(([127, 0, 0, 30], 0).into(), node.listen_addrs()[0], &manifest, id(77)).await;
    for message in &said {
        fake.say(message.clone()).await;
    }
    let mut data = noise(5, 1_000_000)[..PIECE as usize].to_vec();
    let mut leaves = vec![[0; 32]; 4];
    tidecast_hash::leaves(&data, &mut leaves);
    data[70] ^= 1;
    fake.say(announce(manifest.piece_count())).await;
    loop {
        match soon(fake.hear()).await {
            Some(Heard::Message(Ext::RequestPieces(_) | Ext::RequestBlock(_))) => break,
            Some(_) => {}
            None => panic!("it is cut off before it lied"),
        }
    }
    fake.say(Ext::Leaves { channel: 0, piece: 0, first: 0, hashes: leaves }).await;
    fake.send(0, 0, &data).await;
    while soon(fake.hear()).await.is_some() {}
    // The right data comes from the origin all the same.
    node.add_peer(seed.listen_addrs().to_vec(), true).await;
    place(&node).await.unwrap();
    assert_same(&source, &to.path().join("data"));
    assert!(node.stop().await.unwrap().progress.corrupt_bytes >= u64::from(PIECE) / 4);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_sealed_otherwise_gets_no_name() {
    let Scene { _from, to, source, key, manifest } = scene(300_000);
    let seed = Swarm::start(origin(&manifest, &source, &key)).unwrap();
    let mut said = roots_of(&seed, &manifest).await;
    let Some(Ext::Seal { info_hash, number, signature, .. }) = said.last_mut() else { unreachable!() };
    info_hash[0] ^= 1;
    let signed =
        [b"tidecast seal 1\0", &manifest.hash_v2().unwrap()[..], &number.to_be_bytes(), &info_hash[..]]
            .concat();
    *signature = key.sign(&signed);
    let node = Swarm::start(receiver(&manifest, to.path(), &key)).unwrap();
    let mut fake = Fake::dial(node.listen_addrs()[0], &manifest, id(8)).await;
    for message in said {
        fake.say(message).await;
    }
    // The pieces come from an origin that signs another seal than the one that the node has.
    let all = noise(5, 300_000);
    for (piece, part) in (0..).zip(all.chunks(PIECE as usize)) {
        fake.say(Ext::Offer { channel: 0, stripe: 0, piece }).await;
        fake.send(piece, 0, part).await;
    }
    assert!(matches!(place(&node).await, Err(Error::Seal)));
    assert!(!to.path().join("data").exists());
    node.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_source_that_changes_under_way_is_named() {
    let Scene { _from, to, source, key, manifest } = scene(300_000);
    let options = origin(&manifest, &source, &key);
    std::fs::write(&source, noise(6, 299_000)).unwrap();
    let mut seed = Swarm::start(options).unwrap();
    let node = Swarm::start(receiver(&manifest, to.path(), &key)).unwrap();
    node.add_peer(seed.listen_addrs().to_vec(), true).await;
    let error = match soon(seed.notices().unwrap().recv()).await.unwrap() {
        Notice::Store { error } => error,
        other => panic!("{other:?}"),
    };
    assert!(error.is_source_changed() && error.to_string().contains("data"), "{error}");
    assert!(seed.hashing_took().is_none());
    assert!(tokio::task::spawn_blocking(node.finisher()).await.unwrap().is_err());
    assert!(!to.path().join("data").exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_former_version_is_left_alone() {
    let Scene { _from, to, source, key, manifest } = scene(300_000);
    std::fs::write(to.path().join("data"), noise(9_999_999, 300_000)).unwrap();
    let seed = Swarm::start(origin(&manifest, &source, &key)).unwrap();
    let mut node = Swarm::start(receiver(&manifest, to.path(), &key)).unwrap();
    node.add_peer(seed.listen_addrs().to_vec(), true).await;
    let mut notices = node.notices().unwrap();
    match soon(notices.recv()).await.unwrap() {
        Notice::Store { error } => assert!(error.to_string().contains("--force"), "{error}"),
        other => panic!("{other:?}"),
    }
    assert_eq!(std::fs::read(to.path().join("data")).unwrap(), noise(9_999_999, 300_000));
    drop(seed);
}
