//! Blocks through the settling threads, to a store on disk.
#![allow(clippy::unwrap_used)]

use std::os::unix::fs::FileExt;
use std::path::Path;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tidecast_metainfo::Version;
use tidecast_publish::{Format, HashOptions, Progress, ScanOptions, hash, scan};
use tidecast_store::DownloadOptions;

use super::*;
use crate::pool::Pool;

const A: PeerId = PeerId(1);
const LEAF_LEN: u32 = LEAF as u32;

struct Node {
    settler: Settler,
    inbox: mpsc::Receiver<Input>,
    pool: Pool,
    manifest: Arc<Manifest>,
    /// Blocks are settled by the reading task, not by the threads.
    light: bool,
    _to: tempfile::TempDir,
}

/// One file of these bytes, to be downloaded.
fn node(bytes: &[u8], light: bool) -> Node {
    let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let path = from.path().join("file");
    std::fs::write(&path, bytes).unwrap();
    let manifest = publish(&path);
    let opened = Store::download(manifest.clone(), to.path(), &DownloadOptions::default()).unwrap();
    let (sender, inbox) = mpsc::channel(64);
    let settler = Settler::start(manifest.clone(), Arc::new(opened.store), None, sender, Arc::default(), 2);
    Node { settler: settler.unwrap(), inbox, pool: Pool::new(4, 256 << 10), manifest, light, _to: to }
}

fn publish(path: &Path) -> Arc<Manifest> {
    let tree = scan(path, &ScanOptions::default(), &Progress::default()).unwrap();
    let format = Format::Exactly(Version::V2);
    let options = HashOptions { format, piece_length: Some(256 << 10), ..HashOptions::default() };
    Arc::new(hash(&tree, &options, &Progress::default(), |_| {}).unwrap().manifest)
}

impl Node {
    /// Passes on a block as a peer sends it; the events for the engine.
    async fn give(&mut self, block: Block, piece: &[u8]) -> Vec<Event> {
        let slot = self.settler.slot().await.unwrap();
        let mut data = self.pool.get().await.unwrap();
        let from = block.begin as usize;
        data[..block.len as usize].copy_from_slice(&piece[from..from + block.len as usize]);
        let first = if self.light {
            let mut desk = Desk::default();
            assert!(self.settler.is_for_reader(block, true));
            self.settler.settle(A, block, &data, &mut desk);
            assert_eq!(desk.heard.len(), 1);
            let first = desk.heard.pop().unwrap();
            assert!(!self.settler.said(&mut desk));
            first
        } else {
            self.settler.block(slot, A, block, data);
            self.inbox.recv().await.unwrap()
        };
        events(first)
    }
}

fn events(input: Input) -> Vec<Event> {
    match input {
        Input::Event(event) => vec![event],
        Input::Settled(stored, verdict) => vec![stored, verdict],
        _ => panic!("neither an event nor a verdict"),
    }
}

fn leaves_of(bytes: &[u8]) -> Vec<Digest> {
    let mut leaves = vec![Digest::default(); bytes.len().div_ceil(LEAF)];
    tidecast_hash::leaves(bytes, &mut leaves);
    leaves
}

#[tokio::test]
async fn a_proven_block_can_be_sent_from_where_it_is_before_its_piece_is_whole() {
    for light in [false, true] {
        pass_on(light).await;
    }
}

#[tokio::test]
async fn a_reader_settles_its_block_while_others_wait_for_the_threads() {
    let mut node = node(&[7; 3 * LEAF], true);
    // No thread takes what is in this queue.
    let (jobs, _queue) = bounded(1);
    node.settler.jobs = jobs;
    let small = Block { piece: 0, begin: 0, len: SMALL };
    let large = Block { len: 2 * SMALL, ..small };
    assert!(node.settler.is_for_reader(small, true));
    assert!(!node.settler.is_for_reader(small, false) && !node.settler.is_for_reader(large, true));
    let slot = node.settler.slot().await.unwrap();
    node.settler.block(slot, A, small, node.pool.get().await.unwrap());
    assert!(node.settler.is_for_reader(large, false), "a block waits");
    node.settler.shared.slow_until.store(u64::MAX, Ordering::Relaxed);
    assert!(!node.settler.is_for_reader(large, false), "the disk lets connections wait");
}

async fn pass_on(light: bool) {
    let bytes: Vec<u8> = (0..5 * LEAF as u32).map(|i| (i * 7 + i / 251) as u8).collect();
    let mut node = node(&bytes, light);
    assert_eq!(node.manifest.piece_count(), 1);
    let block = |leaf: u32, leaves: u32| Block { piece: 0, begin: leaf * LEAF_LEN, len: leaves * LEAF_LEN };
    let stored = |block, proven| Event::Stored { peer: A, block, proven };

    assert_eq!(node.give(block(4, 1), &bytes).await, [stored(block(4, 1), false)], "leaves not known");
    let mut lie = leaves_of(&bytes);
    lie[0][0] ^= 1;
    assert!(!node.settler.learn(0, lie));
    assert_eq!(node.settler.leaves(0), None);
    assert!(node.settler.learn(0, leaves_of(&bytes)));
    assert_eq!(node.settler.leaves(0), Some(leaves_of(&bytes)), "to be passed on ahead of the data");
    assert_eq!(node.settler.held(block(1, 2)), Held::No);
    assert_eq!(node.give(block(1, 2), &bytes).await, [stored(block(1, 2), true)]);
    assert_eq!(node.settler.held(block(1, 2)), Held::Proven);
    assert_eq!(node.settler.held(block(4, 1)), Held::No, "stored before the leaves were known");

    let store = node.settler.shared.store.clone();
    assert!(store.send_spans(0, LEAF_LEN, LEAF_LEN).is_err(), "the piece is not verified");
    let mut sent = Vec::new();
    for span in store.send_spans_unverified(0, LEAF_LEN, 2 * LEAF_LEN).unwrap() {
        let mut part = vec![0; span.len as usize];
        span.file.unwrap().read_exact_at(&mut part, span.offset).unwrap();
        sent.extend(part);
    }
    assert_eq!(sent, bytes[LEAF..3 * LEAF]);
    let mut read = vec![0; LEAF];
    store.read_unverified(0, 2 * LEAF_LEN, &mut read).unwrap();
    assert_eq!(read, bytes[2 * LEAF..3 * LEAF]);

    node.give(block(0, 1), &bytes).await;
    let verified = [stored(block(3, 1), true), Event::PieceVerified { piece: 0 }];
    let mut told = node.give(block(3, 1), &bytes).await;
    if told.len() == 1 {
        // The thread that had the block before is about to leave: it says the verdict.
        told.extend(events(node.inbox.recv().await.unwrap()));
    }
    assert_eq!(told, verified);
    assert_eq!(node.settler.held(block(0, 5)), Held::Whole);
    assert_eq!(node.settler.leaves(0), Some(leaves_of(&bytes)));
}

#[tokio::test]
async fn a_piece_of_one_leaf_is_proven_by_the_manifest() {
    let bytes = [7; 1000];
    let mut node = node(&bytes, false);
    let block = Block { piece: 0, begin: 0, len: 1000 };
    assert_eq!(node.give(block, &[8; 1000]).await, [Event::BlockBad { peer: A, block }]);
    let proven = Event::Stored { peer: A, block, proven: true };
    assert_eq!(node.give(block, &bytes).await, [proven, Event::PieceVerified { piece: 0 }]);
}

/// The quarters of a piece of 256 KiB that an engine believes to be on disk.
#[derive(Default)]
struct Engine {
    stored: [bool; 4],
    verified: bool,
    failures: usize,
}

impl Engine {
    fn hear(&mut self, desk: &mut Desk) {
        for event in desk.heard.drain(..).flat_map(events) {
            match event {
                Event::Stored { block, .. } | Event::Duplicate { block, .. } => {
                    self.stored[block.begin as usize / QUARTER] = true;
                }
                Event::PieceFailed { .. } => {
                    self.stored = [false; 4];
                    self.failures += 1;
                }
                Event::PieceVerified { .. } => self.verified = true,
                _ => {}
            }
        }
    }
}

const QUARTER: usize = 64 << 10;

/// Three connections send blocks of a piece, some of them wrong. Each is settled, and said in a step of its own. An engine
/// that believes a block to be on disk that is not would never ask for it again.
#[tokio::test]
async fn no_verdict_comes_after_the_failure_of_its_piece() {
    let pieces = 50;
    let bytes: Vec<u8> = (0..pieces * 4 * QUARTER).map(|i| (i * 7 + i / 251) as u8).collect();
    let node = node(&bytes, true);
    assert_eq!(node.manifest.piece_count() as usize, pieces);
    let mut rng = StdRng::seed_from_u64(7);
    let mut failures = 0;
    for (number, piece) in (0..).zip(bytes.chunks(4 * QUARTER)) {
        let (mut engine, mut desks) = (Engine::default(), [const { None::<Desk> }; 3]);
        let mut steps = 0;
        while engine.stored != [true; 4] || desks.iter().any(Option::is_some) {
            steps += 1;
            assert!(steps < 10_000, "piece {number} never came: {:?}", engine.stored);
            let who = rng.random_range(0..desks.len());
            if let Some(desk) = &mut desks[who] {
                engine.hear(desk);
                if !node.settler.said(desk) {
                    desks[who] = None;
                }
                continue;
            }
            // The same block may be asked of several.
            let at = rng.random_range(0..4);
            if engine.stored[at] {
                continue;
            }
            let block = Block { piece: number, begin: (at * QUARTER) as u32, len: QUARTER as u32 };
            let mut data = node.pool.get().await.unwrap();
            data[..QUARTER].copy_from_slice(&piece[at * QUARTER..][..QUARTER]);
            data[0] ^= u8::from(steps < 60 && rng.random_bool(0.2));
            node.settler.settle(PeerId(who as u32), block, &data, desks[who].insert(Desk::default()));
        }
        assert!(engine.verified, "piece {number} is complete for the engine only");
        failures += engine.failures;
    }
    assert!(failures > pieces, "{failures}");
}
