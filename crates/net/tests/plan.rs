//! Nodes that follow a plan, over real sockets: the trees are given by hand.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs, unreachable_pub)]

mod common;

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use common::fake::{Fake, Heard};
use common::{assert_same, finish, log, options, publish, publish_with, soon};
use tidecast_hash::LEAF;
use tidecast_identity::{Authority, ManifestId, NodeId, NodeKey, SwarmId, Tls, Token};
use tidecast_metainfo::{Manifest, Version};
use tidecast_net::{
    Complained, Complaint, Edges, Fetch, Member, Membership, Role, Security, Swarm, SwarmOptions,
    fetch_manifest,
};
use tidecast_store::{DownloadOptions, SeedOptions, Store};
use tidecast_wire::ext::{Message as Ext, Mode, describe};
use tokio::net::TcpListener;

const MIB: u64 = 1 << 20;

/// Bytes that differ everywhere.
fn noise(len: u64) -> Vec<u8> {
    (0..len as u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect()
}

/// The part of `member` in an epoch of which each stripe is a list of (parent, child).
fn role(member: u32, stripes: &[&[(u32, u32)]]) -> Role {
    let edges = |stripe: &&[(u32, u32)]| Edges {
        parent: stripe.iter().find(|e| e.1 == member).map(|e| e.0),
        children: stripe.iter().filter(|e| e.0 == member).map(|e| e.1).collect(),
    };
    Role { epoch: 1, member, sources: vec![0], stripes: stripes.iter().map(edges).collect() }
}

/// A node without the data, in a folder of its own.
fn receiver(manifest: &Arc<Manifest>, to: &Path, listens: bool) -> Swarm {
    let opened = Store::download(manifest.clone(), to, &DownloadOptions::default()).unwrap();
    let usual = options(opened, Security::Open);
    let listen = if listens { usual.listen } else { Vec::new() };
    Swarm::start(SwarmOptions { planned: true, listen, ..usual }).unwrap()
}

fn member(swarm: &Swarm) -> Member {
    let (peer_id, addrs) = (Some(swarm.peer_id()), swarm.listen_addrs().to_vec());
    Member { peer_id, addrs, ..Member::default() }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broadcast_leaves_its_origin_about_once() {
    log();
    let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let source = from.path().join("data");
    std::fs::write(&source, noise(48 * MIB)).unwrap();
    let manifest = publish(&source, Version::V2);
    let opened = Store::seed(manifest.clone(), &source, &SeedOptions::default()).unwrap();
    let origin = SwarmOptions { seed_only: true, planned: true, ..options(opened, Security::Open) };
    let mut nodes = vec![Swarm::start(origin).unwrap()];
    for n in 1..4 {
        let dir = to.path().join(n.to_string());
        std::fs::create_dir(&dir).unwrap();
        // The last one cannot be reached: it is a leaf of both stripes.
        nodes.push(receiver(&manifest, &dir, n < 3));
    }
    soon(nodes[0].complete()).await.unwrap();
    let members: Vec<Member> = nodes.iter().map(member).collect();
    let stripes: [&[_]; 2] = [&[(0, 1), (1, 2), (1, 3)], &[(0, 2), (2, 1), (2, 3)]];
    for (n, node) in (0..).zip(&nodes) {
        node.plan(role(n, &stripes), members.clone()).await.unwrap();
    }
    for node in &nodes[1..] {
        soon(node.complete()).await.unwrap();
    }
    let mut nodes = nodes.into_iter();
    let origin = nodes.next().unwrap();
    for (n, node) in (1..).zip(nodes) {
        let summary = finish(node).await;
        println!("{n}: {:?}", summary.progress);
        assert_same(&source, &to.path().join(n.to_string()).join("data"));
        assert_eq!(summary.progress.corrupt_bytes, 0);
    }
    let sent = origin.stop().await.unwrap().progress.sent_bytes;
    println!("the origin has sent {:.3} copies", sent as f64 / (48 * MIB) as f64);
    // Three without a plan; a little more than one where the machine pauses and a stripe is considered dead.
    assert!((48 * MIB..2 * 48 * MIB).contains(&sent), "{sent}");
}

/// The data of a ticket of a private swarm.
struct Private {
    manifest: Arc<Manifest>,
    id: SwarmId,
    owner: NodeId,
    token: Token,
}

impl Private {
    /// A node that has enrolled with the owner: a node that gets the manifest does so anyway.
    async fn enrol(&self, key: &NodeKey, owner: SocketAddr) -> Security {
        let member = |credential| {
            let (tls, token) = (Tls::new(key).unwrap(), Some(self.token.clone()));
            Security::Private(Box::new(Membership::member(tls, self.id, self.owner, token, credential)))
        };
        let security = Arc::new(member(None));
        let (found, peers) = tokio::sync::mpsc::channel(1);
        found.try_send(owner).unwrap();
        let fetch = Fetch {
            hashes: self.manifest.swarm_hashes(),
            hash_v2: self.manifest.hash_v2(),
            security: security.clone(),
            sources: Vec::new(),
            timeout: Duration::from_secs(60),
            failed_tries: tokio::sync::mpsc::channel(1).0,
        };
        fetch_manifest(fetch, peers).await.unwrap();
        let Security::Private(enrolled) = &*security else { unreachable!() };
        member(enrolled.credential())
    }
}

/// In a private swarm members are identified by their keys: their peer ids are not announced here.
#[tokio::test(flavor = "multi_thread")]
async fn a_private_broadcast_goes_along_a_chain() {
    log();
    let dirs: Vec<_> = (0..4).map(|_| tempfile::tempdir().unwrap()).collect();
    let source = dirs[0].path().join("data");
    std::fs::write(&source, noise(8 * MIB)).unwrap();
    let manifest = publish(&source, Version::V2);
    let id = ManifestId::V2(manifest.hash_v2().unwrap()).swarm();
    let owner = NodeKey::load_or_create(dirs[3].path()).unwrap();
    let authority = Authority::open(dirs[3].path(), &owner).unwrap();
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
    let token = authority.issue(id, None, now).unwrap();
    let security = Membership::owner(Tls::new(&owner).unwrap(), id, authority);
    let swarm = Private { manifest: manifest.clone(), id, owner: owner.id(), token };
    let opened = Store::seed(manifest.clone(), &source, &SeedOptions::default()).unwrap();
    let usual = options(opened, Security::Private(Box::new(security)));
    let origin = Swarm::start(SwarmOptions { seed_only: true, planned: true, ..usual }).unwrap();
    soon(origin.complete()).await.unwrap();
    let mut members =
        vec![Member { node: Some(owner.id()), addrs: origin.listen_addrs().to_vec(), ..Member::default() }];

    let mut nodes = Vec::new();
    for dir in &dirs[1..3] {
        let key = NodeKey::generate().unwrap();
        let security = swarm.enrol(&key, origin.listen_addrs()[0]).await;
        let opened = Store::download(manifest.clone(), dir.path(), &DownloadOptions::default()).unwrap();
        let node = Swarm::start(SwarmOptions { planned: true, ..options(opened, security) }).unwrap();
        members.push(Member {
            node: Some(key.id()),
            addrs: node.listen_addrs().to_vec(),
            ..Member::default()
        });
        nodes.push(node);
    }
    let chain: &[&[_]] = &[&[(0, 1), (1, 2)]];
    for (n, node) in (0..).zip(std::iter::once(&origin).chain(&nodes)) {
        node.plan(role(n, chain), members.clone()).await.unwrap();
    }
    for (node, dir) in nodes.iter().zip(&dirs[1..]) {
        soon(node.complete()).await.unwrap();
        let store = node.store().clone();
        tokio::task::spawn_blocking(move || store.finish()).await.unwrap().unwrap();
        assert_same(&source, &dir.path().join("data"));
    }
    let mut relayed = nodes.remove(0).stop().await.unwrap().peers;
    relayed.retain(|peer| peer.node == members[2].node);
    println!("relayed: {relayed:?}");
    assert!(relayed.iter().map(|peer| peer.sent_bytes).sum::<u64>() > 4 * MIB);
    nodes.remove(0).stop().await.unwrap();
    origin.stop().await.unwrap();
}

/// A fake parent (member 0), the node between (1), and its fake child (2), in one stripe.
struct Line {
    parent: Fake,
    node: Swarm,
    child: Fake,
    bytes: Vec<u8>,
    _dirs: [tempfile::TempDir; 2],
}

async fn line(len: u64, piece_length: u32) -> Line {
    log();
    let dirs = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let source = dirs[0].path().join("data");
    let bytes = noise(len);
    std::fs::write(&source, &bytes).unwrap();
    let manifest = publish_with(&source, Version::V2, Some(piece_length));
    let node = receiver(&manifest, dirs[1].path(), true);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let [first, last] = [*b"-TC0100-the first...", *b"-TC0100-the last...."];
    let addrs = vec![listener.local_addr().unwrap()];
    let members = vec![
        Member { peer_id: Some(first), addrs, ..Member::default() },
        member(&node),
        Member { peer_id: Some(last), ..Member::default() },
    ];
    let mut child = Fake::dial(node.listen_addrs()[0], &manifest, last).await;
    // Nothing is pushed to a peer that has not announced its pieces.
    for nothing in describe(0, Mode::Reset, &[]) {
        child.say(nothing).await;
    }
    node.plan(role(1, &[&[(0, 1), (1, 2)]]), members).await.unwrap();
    let parent = soon(Fake::accept(&listener, &manifest, first)).await;
    Line { parent, node, child, bytes, _dirs: dirs }
}

impl Line {
    async fn offer(&mut self, piece: u32, bytes: &[u8]) -> Vec<[u8; 32]> {
        let mut hashes = vec![[0; 32]; bytes.len().div_ceil(LEAF)];
        tidecast_hash::leaves(bytes, &mut hashes);
        self.parent.say(Ext::Leaves { channel: 0, piece, first: 0, hashes: hashes.clone() }).await;
        self.parent.say(Ext::Offer { channel: 0, stripe: 0, piece }).await;
        hashes
    }

    /// The child's next message, without availability and introductions.
    async fn child_hears(&mut self) -> Heard {
        loop {
            match soon(self.child.hear()).await.expect("the node has closed the connection") {
                Heard::Message(Ext::Availability(_) | Ext::AvailabilityBits(_) | Ext::Peers { .. }) => {}
                other => return other,
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_block_goes_on_before_its_piece_is_whole() {
    let mut line = line(MIB, 1 << 20).await;
    let bytes = line.bytes.clone();
    let hashes = line.offer(0, &bytes).await;
    // By way of a buffer, and from the file by the kernel alone.
    for (from, to) in [(0, LEAF), (LEAF, 9 * LEAF)] {
        line.parent.send(0, from as u32, &bytes[from..to]).await;
        if from == 0 {
            let leaves = Ext::Leaves { channel: 0, piece: 0, first: 0, hashes: hashes.clone() };
            assert_eq!(line.child_hears().await, Heard::Message(leaves));
            let offer = Ext::Offer { channel: 0, stripe: 0, piece: 0 };
            assert_eq!(line.child_hears().await, Heard::Message(offer));
        }
        let mut at = from;
        while at < to {
            let Heard::Block(header, payload) = line.child_hears().await else { panic!("not a block") };
            assert_eq!((header.piece, header.begin, header.pushed), (0, at as u32, false));
            assert_eq!(payload, bytes[at..at + payload.len()]);
            at += payload.len();
        }
        assert_eq!(at, to);
    }
    assert_eq!(line.node.progress().borrow().verified_pieces, 0);
    for (from, to) in [(9, 16), (16, 32), (32, 48), (48, 64)] {
        line.parent.send(0, (from * LEAF) as u32, &bytes[from * LEAF..to * LEAF]).await;
    }
    soon(line.node.complete()).await.unwrap();
    line.node.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_block_goes_nowhere() {
    let mut line = line(MIB, 1 << 20).await;
    let bytes = line.bytes.clone();
    line.offer(0, &bytes).await;
    line.parent.send(0, 0, &bytes[..LEAF]).await;
    let mut wrong = bytes[LEAF..2 * LEAF].to_vec();
    wrong[77] ^= 1;
    line.parent.send(0, LEAF as u32, &wrong).await;
    soon(async { while line.parent.hear().await.is_some() {} }).await;
    loop {
        if let Heard::Block(header, payload) = line.child_hears().await {
            assert_eq!((header.begin, &payload[..]), (0, &bytes[..LEAF]));
            break;
        }
    }
    assert_eq!(line.node.progress().borrow().verified_pieces, 0);
    let summary = line.node.stop().await.unwrap();
    assert_eq!(summary.progress.corrupt_bytes, LEAF as u64);
    assert!(summary.progress.sent_bytes <= LEAF as u64);
}

/// Prints how long a block takes through a relay, from the last byte written by its parent to the last
/// byte read by its child: a figure for people, on a machine that has nothing else to do.
#[tokio::test(flavor = "multi_thread")]
async fn the_way_through_a_relay() {
    let mut line = line(16 * MIB, 1 << 20).await;
    let bytes = line.bytes.clone();
    let mut took = Vec::new();
    for (piece, whole) in (0..).zip(bytes.chunks(1 << 20)) {
        line.offer(piece, whole).await;
        for (leaf, part) in (0..).zip(whole.chunks(LEAF)) {
            let begin = leaf * LEAF as u32;
            let start = Instant::now();
            line.parent.send(piece, begin, part).await;
            loop {
                if let Heard::Block(header, payload) = line.child_hears().await {
                    assert_eq!((header.piece, header.begin, &payload[..]), (piece, begin, part));
                    break;
                }
            }
            took.push(start.elapsed());
        }
    }
    took.sort_unstable();
    let at = |part: usize| took[took.len() * part / 100];
    println!("a block of 16 KiB through a relay: median {:?}, of 100 the 90th {:?}", at(50), at(90));
    line.node.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn who_makes_the_plan_hears_of_a_parent_that_is_not_there() {
    log();
    let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let source = from.path().join("data");
    std::fs::write(&source, noise(MIB)).unwrap();
    let manifest = publish(&source, Version::V2);
    let mut node = receiver(&manifest, to.path(), true);
    let mut complaints = node.complaints().unwrap();
    let nowhere =
        Member { peer_id: Some([1; 20]), addrs: vec!["127.0.0.1:9".parse().unwrap()], ..Member::default() };
    let strange = role(1, &[&[(7, 1)]]);
    assert!(node.plan(strange, vec![nowhere.clone(), member(&node)]).await.is_err());
    node.plan(role(1, &[&[(0, 1)]]), vec![nowhere, member(&node)]).await.unwrap();
    let complaint = soon(complaints.recv()).await.unwrap();
    assert_eq!(complaint, Complained { member: 0, stripe: 0, why: Complaint::Gone });
    node.stop().await.unwrap();
}
