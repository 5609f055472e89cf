//! Any sequence of events, from peers that lie and a driver that keeps its contract: the engine never
//! panics, its invariants hold after every event, and its actions name live peers and present pieces.
#![allow(clippy::single_range_in_vec_init, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use tidecast_swarm::{
    Action, Block, Candidate, Engine, Event, Limits, PeerId, Policy, Protocol, Setup, Time,
};

const MS: u64 = 1_000_000;

/// The driver's view, against which every action is checked.
struct Driver {
    engine: Engine,
    now: u64,
    lengths: Vec<u32>,
    live: BTreeMap<PeerId, Protocol>,
    /// Closed by the engine, `PeerDown` not yet said.
    closing: BTreeSet<PeerId>,
    next: u32,
    requested: Vec<(PeerId, Block)>,
    received: Vec<(PeerId, Block)>,
    serving: Vec<(PeerId, Block)>,
    dialing: BTreeSet<Candidate>,
    stored: BTreeMap<u32, u32>,
    queued: usize,
}

impl Driver {
    fn new(policy: Policy, seed: u64) -> Self {
        let lengths = vec![16384, 40000, 262144, 1 << 20, 300_000, 7, 65536, 65536, 1 << 21, 50_000];
        let limits = Limits {
            peers: 5,
            queued_requests: 8,
            unsettled: 600_000,
            window: (32768, 1 << 20),
            serving: 1 << 19,
            random_neighbours: 2,
            ..Limits::default()
        };
        let setup = Setup {
            lengths: lengths.clone().into(),
            have: vec![0..2],
            want: vec![0..9],
            policy,
            limits,
            seed,
        };
        Driver {
            engine: Engine::new(setup, Time(0)).unwrap(),
            now: 0,
            lengths,
            live: BTreeMap::new(),
            closing: BTreeSet::new(),
            next: 0,
            requested: vec![],
            received: vec![],
            serving: vec![],
            dialing: BTreeSet::new(),
            stored: BTreeMap::new(),
            queued: 8,
        }
    }

    fn give(&mut self, event: Event) {
        let said = format!("{event:?}");
        self.engine.handle(Time(self.now), event);
        let mut actions = 0;
        while let Some(action) = self.engine.poll() {
            actions += 1;
            assert!(actions < 5000, "endless actions after {said}");
            self.act(action);
        }
        self.engine.check().unwrap_or_else(|e| panic!("{e}, after {said}"));
        let stats = self.engine.stats();
        assert!(stats.outstanding <= 5 * ((1 << 20) + (1 << 20)), "{stats:?}");
        for p in self.engine.peer_stats() {
            assert!(p.queued <= self.queued, "{p:?}");
        }
    }

    fn named(&self, peer: PeerId, what: &Action) {
        assert!(self.live.contains_key(&peer), "{what:?} names a peer that is gone");
        assert!(!self.closing.contains(&peer), "{what:?} names a peer that is closed");
    }

    fn act(&mut self, action: Action) {
        match &action {
            Action::Dial { candidate } => {
                assert!(self.dialing.insert(*candidate), "dialled twice");
            }
            Action::Disconnect { peer, .. } | Action::Ban { peer, .. } => {
                self.named(*peer, &action);
                self.closing.insert(*peer);
            }
            Action::Request { peer, block } => {
                self.named(*peer, &action);
                assert!(!self.engine.have(block.piece));
                let end = block.begin + block.len;
                assert!(block.len > 0 && end <= self.lengths[block.piece as usize]);
                let stock = matches!(self.live[peer], Protocol::Stock { .. });
                assert!(!stock || block.len <= 16384);
                self.requested.push((*peer, *block));
            }
            Action::RequestPieces { peer, pieces } => {
                self.named(*peer, &action);
                assert!(matches!(self.live[peer], Protocol::Tidecast { .. }));
                for piece in pieces.clone() {
                    let block = Block { piece, begin: 0, len: self.lengths[piece as usize] };
                    self.requested.push((*peer, block));
                }
            }
            Action::Serve { peer, block } => {
                self.named(*peer, &action);
                assert!(self.engine.have(block.piece), "served {block:?}");
                self.serving.push((*peer, *block));
            }
            Action::AnnounceAll { peer, have } => {
                self.named(*peer, &action);
                assert_eq!(*have, self.engine.have_ranges());
            }
            Action::Announce { peer, pieces } => {
                self.named(*peer, &action);
                assert!(!pieces.is_empty());
                assert!(pieces.iter().cloned().flatten().all(|p| self.engine.have(p)));
            }
            Action::AnnounceLost { peer, piece } => {
                self.named(*peer, &action);
                assert!(!self.engine.have(*piece));
            }
            Action::Interested { peer, .. }
            | Action::Choke { peer, .. }
            | Action::Cancel { peer, .. }
            | Action::Reject { peer, .. } => self.named(*peer, &action),
            Action::Offer { peer, .. } | Action::OfferBelow { peer, .. } | Action::Wish { peer, .. } => {
                self.named(*peer, &action);
            }
            Action::Complain { .. } => {}
            Action::Complete => assert!(self.engine.is_complete()),
        }
    }

    fn someone(&self, n: u32) -> Option<PeerId> {
        let n = n as usize % (self.live.len().max(1));
        self.live.keys().nth(n).copied()
    }

    fn down(&mut self, peer: PeerId) {
        self.live.remove(&peer);
        self.closing.remove(&peer);
        self.serving.retain(|s| s.0 != peer);
        self.requested.retain(|r| r.0 != peer);
        self.give(Event::PeerDown { peer });
    }

    /// A sound part of something that was requested, or anything at all.
    fn receive(&mut self, n: u32, wild: bool) {
        let (peer, block) = if wild || self.requested.is_empty() {
            let Some(peer) = self.someone(n) else { return };
            let piece = n % 11;
            let len = self.lengths.get(piece as usize).copied().unwrap_or(5);
            let begin = (n >> 8) % 3 * 16384;
            (peer, Block { piece, begin, len: (len.saturating_sub(begin)).clamp(1, 65536) })
        } else {
            let at = n as usize % self.requested.len();
            let (peer, mut block) = self.requested.swap_remove(at);
            if n & 1 == 1 && block.len > 65536 {
                let rest = Block { begin: block.begin + 65536, len: block.len - 65536, ..block };
                self.requested.push((peer, rest));
                block.len = 65536;
            }
            (peer, block)
        };
        if self.closing.contains(&peer) {
            return;
        }
        self.received.push((peer, block));
        self.give(Event::Received { peer, block });
    }

    fn verdict(&mut self, n: u32) {
        if self.received.is_empty() {
            return;
        }
        let at = n as usize % self.received.len();
        let (peer, block) = self.received.swap_remove(at);
        match (n >> 8) % 16 {
            0 => self.give(Event::BlockBad { peer, block }),
            1 => self.give(Event::Duplicate { peer, block }),
            _ => {
                self.give(Event::Stored { peer, block, proven: true });
                *self.stored.entry(block.piece).or_default() += block.len;
            }
        }
    }

    fn settle(&mut self, n: u32) {
        let whole = |(p, b): (&u32, &u32)| self.lengths.get(*p as usize).is_some_and(|l| b >= l);
        let Some(piece) = self.stored.iter().find(|&(p, b)| whole((p, b))).map(|s| *s.0) else {
            return;
        };
        self.stored.remove(&piece);
        if n.is_multiple_of(4) {
            self.give(Event::PieceFailed { piece });
        } else {
            self.give(Event::PieceVerified { piece });
        }
    }

    fn step(&mut self, op: u8, n: u32) {
        self.now += u64::from(n % 7) * MS;
        let (piece, some) = (n % 12, n % 10..(n % 10 + 1 + (n >> 9) % 4).min(11));
        let block = Block { piece, begin: (n >> 4) % 5 * 16384, len: [16384, 7, 65536][n as usize % 3] };
        let peer = self.someone(n >> 5);
        match (op % 32, peer) {
            (0 | 1, _) => {
                let id = PeerId(self.next);
                self.next += 1;
                let protocol = match n % 3 {
                    0 => Protocol::Stock { fast: n & 64 == 0 },
                    _ => Protocol::Tidecast { max_block: 65536 << (n % 5) },
                };
                let candidate = self.dialing.pop_first();
                self.live.insert(id, protocol);
                self.give(Event::PeerUp { peer: id, protocol, candidate });
            }
            (2, _) => {
                let candidate = Candidate(n % 9);
                self.give(Event::Candidate { candidate, told: n & 256 == 0 });
            }
            (3, _) => {
                if let Some(candidate) = self.dialing.pop_first() {
                    self.give(Event::DialFailed { candidate });
                }
            }
            (4, _) => {
                self.now += u64::from(n % 5000) * MS;
                self.give(Event::Tick);
            }
            (5..=9, _) => self.receive(n, false),
            (10..=14, _) => self.verdict(n),
            (15 | 16, _) => self.settle(n),
            (17, _) => self.give(Event::Priority { pieces: some, priority: (n % 4) as u8 }),
            (18, _) => self.give(Event::Deadline { pieces: some, at: Time(self.now + 50 * MS) }),
            (19, _) if n.is_multiple_of(5) => self.give(Event::PieceLost { piece }),
            (_, None) => {}
            (20, Some(peer)) => self.down(peer),
            (21, Some(peer)) => match n % 4 {
                0 => self.give(Event::HasNone { peer }),
                1 => self.give(Event::HasNot { peer, piece: n % 10 }),
                2 => self.give(Event::QueueLimit { peer, requests: n % 3000 }),
                _ => self.give(Event::AllowedFast { peer, piece }),
            },
            (22, Some(peer)) => self.give(Event::HasAll { peer }),
            (23, Some(peer)) => self.give(Event::HasExactly { peer, pieces: vec![some, 9..10] }),
            (24, Some(peer)) if n & 1 == 0 => self.give(Event::Has { peer, pieces: some }),
            (24, Some(peer)) => self.give(Event::HasMore { peer, pieces: vec![some, 2..4] }),
            (25, Some(peer)) if n & 1 == 0 => self.give(Event::Choked { peer }),
            (25, Some(peer)) => self.give(Event::Unchoked { peer }),
            (26, Some(peer)) if n & 1 == 0 => self.give(Event::Interested { peer }),
            (26, Some(peer)) => self.give(Event::NotInterested { peer }),
            (27, Some(peer)) => self.give(Event::Requested { peer, block }),
            (28, Some(peer)) => self.give(Event::RequestedPieces { peer, pieces: some }),
            (29, Some(peer)) => self.give(Event::Canceled { peer, block }),
            (30, Some(peer)) => self.reject(n, peer, block),
            (_, Some(_)) => {
                if !self.serving.is_empty() {
                    let (peer, block) = self.serving.remove(0);
                    self.give(Event::Sent { peer, block });
                }
            }
        }
    }

    fn reject(&mut self, n: u32, peer: PeerId, block: Block) {
        if n.is_multiple_of(3) || self.requested.is_empty() {
            return self.give(Event::Rejected { peer, block });
        }
        let (peer, block) = self.requested.swap_remove(n as usize % self.requested.len());
        if self.live.contains_key(&peer) {
            self.give(Event::Rejected { peer, block });
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn invariants_hold_whatever_comes(
        ops in prop::collection::vec((any::<u8>(), any::<u32>()), 1..400),
        policy in 0u8..32,
        seed in any::<u64>(),
    ) {
        let policy = Policy {
            choking: policy & 1 != 0,
            distribution: policy & 2 != 0,
            endgame: policy & 4 != 0,
            sequential: policy & 8 != 0,
            on_demand: policy & 16 != 0,
            stays: false,
        };
        let mut driver = Driver::new(policy, seed);
        for (op, n) in ops {
            driver.step(op, n);
        }
        // All peers leave: no state of them is left.
        let peers: Vec<PeerId> = driver.live.keys().copied().collect();
        for peer in peers {
            driver.down(peer);
        }
        let stats = driver.engine.stats();
        prop_assert_eq!((stats.outstanding, stats.serving, stats.peers), (0, 0, 0));
    }

    #[test]
    fn same_seed_and_events_give_the_same_actions(
        ops in prop::collection::vec((any::<u8>(), any::<u32>()), 1..100),
        seed in any::<u64>(),
    ) {
        let run = |seed| {
            let mut driver = Driver::new(Policy::TIDECAST, seed);
            for &(op, n) in &ops {
                driver.step(op, n);
            }
            (driver.requested, driver.serving, driver.engine.stats())
        };
        prop_assert_eq!(run(seed), run(seed));
    }
}
