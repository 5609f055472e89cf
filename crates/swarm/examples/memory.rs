//! Bytes that an engine takes: many of them with 1,000 pieces, 32 peers and 40 addresses, in the middle
//! of a download.
//!
//! `cargo run --release -p tidecast-swarm --example memory`
#![allow(clippy::single_range_in_vec_init, clippy::unwrap_used, clippy::print_stdout)]

use std::sync::Arc;

use tidecast_swarm::{
    Action, Block, Candidate, Engine, Event, Limits, PeerId, Policy, Protocol, Setup, Time,
};

const ENGINES: u64 = 2_000;
const PIECES: u32 = 1_000;
const PIECE: u32 = 256 << 10;
const PEERS: u32 = 32;
const CANDIDATES: u32 = 40;

/// Bytes of memory that this process holds (Linux).
fn resident() -> u64 {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
    pages.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4096
}

fn give(engine: &mut Engine, now: &mut u64, event: Event) -> Vec<Action> {
    *now += 100_000;
    engine.handle(Time(*now), event);
    std::iter::from_fn(|| engine.poll()).collect()
}

/// An engine that has lived through half of a download from 32 peers and serves it to them.
fn grown(lengths: &Arc<[u32]>, seed: u64) -> Engine {
    let setup = Setup {
        lengths: lengths.clone(),
        have: vec![],
        want: vec![0..PIECES],
        policy: Policy::TIDECAST,
        limits: Limits::default(),
        seed,
    };
    let mut engine = Engine::new(setup, Time(0)).unwrap();
    let mut now = 0;
    let protocol = Protocol::Tidecast { max_block: 1 << 20 };
    for c in 0..CANDIDATES {
        give(&mut engine, &mut now, Event::Candidate { candidate: Candidate(c), told: false });
    }
    for i in 0..PEERS {
        let candidate = (i % 2 == 0).then_some(Candidate(i));
        give(&mut engine, &mut now, Event::PeerUp { peer: PeerId(i), protocol, candidate });
    }
    let mut inbox = Vec::new();
    for piece in 0..PIECES / 2 {
        for peer in 0..PEERS {
            let (peer, at) = (PeerId(peer), (piece * 7 + peer * 31) % PIECES);
            inbox.extend(give(&mut engine, &mut now, Event::Has { peer, pieces: at..at + 1 }));
        }
        let got: Vec<Action> = std::mem::take(&mut inbox);
        for action in got {
            match action {
                Action::RequestPieces { peer, pieces } => {
                    for piece in pieces {
                        let block = Block { piece, begin: 0, len: PIECE };
                        inbox.extend(give(&mut engine, &mut now, Event::Received { peer, block }));
                        inbox.extend(give(
                            &mut engine,
                            &mut now,
                            Event::Stored { peer, block, proven: true },
                        ));
                        inbox.extend(give(&mut engine, &mut now, Event::PieceVerified { piece }));
                        let pieces = piece..piece + 1;
                        inbox.extend(give(&mut engine, &mut now, Event::RequestedPieces { peer, pieces }));
                    }
                }
                Action::Serve { peer, block } => {
                    inbox.extend(give(&mut engine, &mut now, Event::Sent { peer, block }));
                }
                _ => {}
            }
        }
    }
    engine
}

fn main() {
    let lengths: Arc<[u32]> = vec![PIECE; PIECES as usize].into();
    let before = resident();
    let engines: Vec<Engine> = (0..ENGINES).map(|seed| grown(&lengths, seed)).collect();
    let each = (resident() - before) / ENGINES;
    let first = engines[0].stats();
    println!("{each} bytes an engine: {PIECES} pieces, {} peers, {} known", first.peers, first.verified);
}
