//! How many events a second the engine handles: 100 peers, 100,000 pieces of 1 MiB, all busy.
//!
//! `cargo run --release -p tidecast-swarm --example load`
#![allow(clippy::single_range_in_vec_init, clippy::unwrap_used, clippy::print_stdout)]

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use tidecast_swarm::{Action, Block, Engine, Event, Limits, PeerId, Policy, Protocol, Setup, Time};

const PIECES: u32 = 100_000;
const PEERS: u32 = 100;
const PIECE: u32 = 1 << 20;
const BLOCK: u32 = 256 << 10;

struct Load {
    engine: Engine,
    now: u64,
    events: u64,
    spent: Duration,
    worst: Duration,
    worst_name: String,
    inbox: VecDeque<Event>,
    stored: BTreeMap<u32, u32>,
}

impl Load {
    fn give(&mut self, event: Event) {
        self.now += 500;
        self.events += 1;
        let name = format!("{event:?}");
        let start = Instant::now();
        self.engine.handle(Time(self.now), event);
        let mut out = Vec::new();
        while let Some(action) = self.engine.poll() {
            out.push(action);
        }
        let took = start.elapsed();
        self.spent += took;
        if took > self.worst {
            self.worst = took;
            self.worst_name = name;
        }
        for action in out {
            self.act(action);
        }
    }

    fn act(&mut self, action: Action) {
        match action {
            Action::RequestPieces { peer, pieces } => {
                for piece in pieces {
                    for begin in (0..PIECE).step_by(BLOCK as usize) {
                        let block = Block { piece, begin, len: BLOCK };
                        self.inbox.push_back(Event::Received { peer, block });
                    }
                }
            }
            Action::Request { peer, block } => {
                self.inbox.push_back(Event::Received { peer, block });
            }
            Action::Serve { peer, block } => self.inbox.push_back(Event::Sent { peer, block }),
            _ => {}
        }
    }

    /// Handles waiting actions; a received block is stored, a full piece verified.
    fn drain(&mut self, most: u32) {
        for _ in 0..most {
            let Some(event) = self.inbox.pop_front() else { return };
            let stored = match &event {
                Event::Received { peer, block } => Some((*peer, *block)),
                _ => None,
            };
            self.give(event);
            let Some((peer, block)) = stored else { continue };
            self.give(Event::Stored { peer, block, proven: true });
            let bytes = self.stored.entry(block.piece).or_default();
            *bytes += block.len;
            if *bytes == PIECE {
                self.stored.remove(&block.piece);
                self.give(Event::PieceVerified { piece: block.piece });
            }
        }
    }
}

fn main() {
    let setup = Setup {
        lengths: vec![PIECE; PIECES as usize].into(),
        have: vec![],
        want: vec![0..PIECES],
        policy: Policy::TIDECAST,
        limits: Limits::default(),
        seed: 1,
    };
    let mut load = Load {
        engine: Engine::new(setup, Time(0)).unwrap(),
        now: 0,
        events: 0,
        spent: Duration::ZERO,
        worst: Duration::ZERO,
        worst_name: String::new(),
        inbox: VecDeque::new(),
        stored: BTreeMap::new(),
    };
    for i in 0..PEERS {
        let (peer, protocol) = (PeerId(i), Protocol::Tidecast { max_block: 1 << 20 });
        load.give(Event::PeerUp { peer, protocol, candidate: None });
        load.give(Event::Interested { peer });
        if i < 4 {
            load.give(Event::HasAll { peer });
        }
    }
    // Every leecher announces pieces in an order of its own; each verified piece is asked of us.
    let mut round = 0u32;
    while !load.engine.is_complete() && load.spent < Duration::from_secs(15) {
        let peer = PeerId(4 + round % (PEERS - 4));
        let piece = (round.wrapping_mul(7919) ^ (peer.0 * 977)) % PIECES;
        load.give(Event::Has { peer, pieces: piece..piece + 1 });
        let wanted = round.wrapping_mul(31) % PIECES;
        if load.engine.have(wanted) {
            load.give(Event::RequestedPieces { peer, pieces: wanted..wanted + 1 });
        }
        load.drain(6);
        round += 1;
    }
    let rate = load.events as u128 * 1_000_000_000 / load.spent.as_nanos().max(1);
    println!("{} events in {:?}: {rate} a second", load.events, load.spent);
    println!("worst: {:?} for {}", load.worst, load.worst_name);
    println!("{:?}", load.engine.stats());
}
