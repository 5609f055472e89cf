//! A small deterministic network of engines: nodes with an uplink and a downlink, connections with a
//! delay, faults. Blocks move as wholes; an uplink serves its connections in turn.
//!
//! It plays the driver for every engine: it keeps the rules of the API (every received block gets
//! one verdict, every complete piece one) and checks what must hold of every action.
#![allow(
    clippy::single_range_in_vec_init,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    dead_code,
    unreachable_pub
)]

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, VecDeque};
use std::ops::Range;
use std::sync::Arc;

use tidecast_swarm::{
    Action, Block, Candidate, Engine, Event, Limits, PeerId, Policy, Protocol, Reason, Setup, Time,
};

pub const MS: u64 = 1_000_000;
pub const S: u64 = 1_000_000_000;
pub const TIDE: Protocol = Protocol::Tidecast { max_block: 1 << 20 };
pub const STOCK: Protocol = Protocol::Stock { fast: false };
pub const FAST: Protocol = Protocol::Stock { fast: true };

/// How a node misbehaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Misbehaviour {
    None,
    /// Every block it sends is wrong.
    Corrupt,
    /// It claims everything and sends nothing.
    Withhold,
    /// It rejects every request.
    Refuse,
}

/// The properties of a node.
#[derive(Clone, Debug)]
pub struct Spec {
    pub up: u64,
    pub down: u64,
    pub misbehaviour: Misbehaviour,
    pub have: Vec<Range<u32>>,
    pub want: Vec<Range<u32>>,
    pub policy: Policy,
    pub limits: Limits,
}

struct Conn {
    other: usize,
    theirs: PeerId,
    protocol: Protocol,
    /// Blocks handed to it, not yet on the wire.
    sending: VecDeque<Block>,
}

/// The driver's state of a piece that is not verified.
#[derive(Default)]
struct OnDisk {
    blocks: BTreeMap<u32, (u32, PeerId, bool)>,
}

pub struct Node {
    pub engine: Engine,
    pub spec: Spec,
    pub dead: bool,
    conns: BTreeMap<PeerId, Conn>,
    next_peer: u32,
    turn: VecDeque<PeerId>,
    up_busy: bool,
    down_free: u64,
    disk: BTreeMap<u32, OnDisk>,
    /// Wrong blocks of pieces that failed: named when the right data is known.
    wrong: BTreeMap<u32, Vec<(PeerId, Block)>>,
    pub finished: Option<u64>,
    pub banned: Vec<(usize, Reason)>,
    pub dropped: Vec<(usize, Reason)>,
    pub sent_to: BTreeMap<usize, u64>,
    pub received: u64,
    banned_nodes: BTreeSet<usize>,
    wake: Option<Time>,
    pub messages: u64,
}

enum Thing {
    Give(usize, Event),
    /// A message on a connection, named at the receiver.
    Deliver(usize, PeerId, Event),
    Uplink(usize),
    Sent(usize, PeerId, Block),
    Arrive(usize, PeerId, Block, bool),
    Landed(usize, PeerId, Block, bool),
    Verdict(usize, PeerId, Block, bool),
    Settle(usize, u32),
    Dialled(usize, Candidate),
    Wake(usize),
    Down(usize, PeerId),
    Kill(usize, bool),
}

pub struct World {
    pub now: u64,
    pub nodes: Vec<Node>,
    pub lengths: Arc<[u32]>,
    pub delay: u64,
    /// Leaf hashes are known: a wrong block is seen at once.
    pub leaves: bool,
    pub protocol: Protocol,
    /// Two of three nodes are stock clients of either kind.
    pub mixed: bool,
    queue: BinaryHeap<Reverse<(u64, u64)>>,
    things: BTreeMap<u64, Thing>,
    seq: u64,
    pub steps: u64,
    /// Pieces requested from node 0: no other node had or awaited it, one awaited it, one had it.
    pub asks: [u64; 3],
    asked: BTreeSet<(u32, usize)>,
    /// Every this many steps all invariants of the engine that was just used are checked.
    pub check_every: u64,
}

pub fn all(lengths: &[u32]) -> Vec<Range<u32>> {
    vec![0..lengths.len() as u32]
}

impl World {
    pub fn new(lengths: Vec<u32>, protocol: Protocol) -> Self {
        World {
            now: 0,
            nodes: Vec::new(),
            lengths: lengths.into(),
            delay: MS / 5,
            leaves: true,
            protocol,
            mixed: false,
            queue: BinaryHeap::new(),
            things: BTreeMap::new(),
            seq: 0,
            steps: 0,
            asks: [0; 3],
            asked: BTreeSet::new(),
            check_every: 997,
        }
    }

    pub fn seed_spec(&self, rate: u64) -> Spec {
        Spec { have: all(&self.lengths), want: vec![], ..self.spec(rate) }
    }

    pub fn spec(&self, rate: u64) -> Spec {
        Spec {
            up: rate,
            down: rate,
            misbehaviour: Misbehaviour::None,
            have: vec![],
            want: all(&self.lengths),
            policy: Policy::TIDECAST,
            limits: Limits::default(),
        }
    }

    pub fn add(&mut self, spec: Spec) -> usize {
        let id = self.nodes.len();
        let setup = Setup {
            lengths: self.lengths.clone(),
            have: spec.have.clone(),
            want: spec.want.clone(),
            policy: spec.policy,
            limits: spec.limits,
            seed: 1000 + id as u64,
        };
        self.nodes.push(Node {
            engine: Engine::new(setup, Time(self.now)).unwrap(),
            spec,
            dead: false,
            conns: BTreeMap::new(),
            next_peer: 0,
            turn: VecDeque::new(),
            up_busy: false,
            down_free: 0,
            disk: BTreeMap::new(),
            wrong: BTreeMap::new(),
            finished: None,
            banned: vec![],
            dropped: vec![],
            sent_to: BTreeMap::new(),
            received: 0,
            banned_nodes: BTreeSet::new(),
            wake: None,
            messages: 0,
        });
        id
    }

    /// Tells `node` of `other`.
    pub fn tell(&mut self, node: usize, other: usize, told: bool) {
        let candidate = Candidate(other as u32);
        self.give(node, Event::Candidate { candidate, told });
    }

    /// Every node is told of every one before it.
    pub fn full_mesh(&mut self) {
        for a in 0..self.nodes.len() {
            for b in 0..a {
                self.tell(a, b, true);
            }
        }
    }

    pub fn at(&mut self, at: u64, node: usize, event: Event) {
        self.schedule(at, Thing::Give(node, event));
    }

    /// The node dies; `silent`: without notice to its peers.
    pub fn kill(&mut self, at: u64, node: usize, silent: bool) {
        self.schedule(at, Thing::Kill(node, silent));
    }

    fn schedule(&mut self, at: u64, thing: Thing) {
        self.seq += 1;
        self.queue.push(Reverse((at.max(self.now), self.seq)));
        self.things.insert(self.seq, thing);
    }

    /// Runs until `done` or `until`; whether `done` came.
    pub fn run(&mut self, until: u64, done: impl Fn(&World) -> bool) -> bool {
        while !done(self) {
            let Some(Reverse((at, seq))) = self.queue.pop() else { return false };
            if at > until {
                self.queue.push(Reverse((at, seq)));
                self.now = until;
                return false;
            }
            self.now = at;
            self.steps += 1;
            assert!(self.steps < 20_000_000, "livelock");
            let thing = self.things.remove(&seq).unwrap();
            self.step(thing);
        }
        true
    }

    /// Runs until every live node that wants something has it.
    pub fn finish(&mut self, until: u64) {
        let done = |w: &World| w.nodes.iter().all(|n| n.dead || n.engine.is_complete());
        if !self.run(until, done) {
            for (i, n) in self.nodes.iter().enumerate() {
                eprintln!("{i}: {:?}\n  {:?}", n.engine.stats(), n.engine.peer_stats());
            }
            panic!("not finished at {} ms", self.now / MS);
        }
    }

    fn step(&mut self, thing: Thing) {
        match thing {
            Thing::Give(node, event) => self.give(node, event),
            Thing::Deliver(node, peer, event) => {
                if self.nodes[node].conns.contains_key(&peer) {
                    self.give(node, event);
                }
            }
            Thing::Uplink(node) => self.uplink(node),
            Thing::Sent(node, peer, block) => {
                self.nodes[node].up_busy = false;
                if self.nodes[node].conns.contains_key(&peer) {
                    self.give(node, Event::Sent { peer, block });
                }
                self.uplink(node);
            }
            Thing::Arrive(node, peer, block, good) => {
                let n = &mut self.nodes[node];
                let nanos = u64::from(block.len) * S / n.spec.down;
                n.down_free = n.down_free.max(self.now) + nanos;
                let at = n.down_free;
                self.schedule(at, Thing::Landed(node, peer, block, good));
            }
            Thing::Landed(node, peer, block, good) => self.landed(node, peer, block, good),
            Thing::Verdict(node, peer, block, good) => self.verdict(node, peer, block, good),
            Thing::Settle(node, piece) => self.settle(node, piece),
            Thing::Dialled(node, candidate) => self.dialled(node, candidate),
            // One that an earlier wake-up has overtaken is void.
            Thing::Wake(node) if self.nodes[node].wake == Some(Time(self.now)) => {
                self.nodes[node].wake = None;
                self.give(node, Event::Tick);
            }
            Thing::Wake(_) => {}
            Thing::Down(node, peer) => self.down(node, peer),
            Thing::Kill(node, silent) => {
                self.nodes[node].dead = true;
                let conns: Vec<_> = self.nodes[node].conns.values().map(|c| (c.other, c.theirs)).collect();
                for (other, peer) in conns {
                    if !silent {
                        self.schedule(self.now + self.delay, Thing::Down(other, peer));
                    }
                }
            }
        }
    }

    fn down(&mut self, node: usize, peer: PeerId) {
        if self.nodes[node].conns.remove(&peer).is_some() {
            self.give(node, Event::PeerDown { peer });
        }
    }

    fn landed(&mut self, node: usize, peer: PeerId, block: Block, good: bool) {
        let n = &mut self.nodes[node];
        if n.dead || !n.conns.contains_key(&peer) {
            return;
        }
        n.received += u64::from(block.len);
        self.give(node, Event::Received { peer, block });
        let nanos = MS + u64::from(block.len) / 2;
        self.schedule(self.now + nanos, Thing::Verdict(node, peer, block, good));
    }

    fn verdict(&mut self, node: usize, peer: PeerId, block: Block, good: bool) {
        if self.nodes[node].dead {
            return;
        }
        if !good && self.leaves {
            return self.give(node, Event::BlockBad { peer, block });
        }
        let n = &mut self.nodes[node];
        let disk = n.disk.entry(block.piece).or_default();
        let end = block.begin + block.len;
        let there = |at: u32| {
            let before = disk.blocks.range(..=at).next_back();
            before.is_some_and(|(&b, &(len, _, _))| at < b + len)
        };
        let have = n.engine.have(block.piece);
        if have || (block.begin..end).step_by(16384).all(there) {
            return self.give(node, Event::Duplicate { peer, block });
        }
        // Only new data is kept.
        let new: Vec<u32> = (block.begin..end).step_by(16384).filter(|&at| !there(at)).collect();
        for at in new {
            disk.blocks.insert(at, (16384.min(end - at), peer, good));
        }
        let bytes: u32 = disk.blocks.values().map(|b| b.0).sum();
        if bytes == self.lengths[block.piece as usize] {
            self.schedule(self.now + MS, Thing::Settle(node, block.piece));
        }
        self.give(node, Event::Stored { peer, block, proven: true });
    }

    fn settle(&mut self, node: usize, piece: u32) {
        let n = &mut self.nodes[node];
        let disk = n.disk.remove(&piece).unwrap();
        let bad: Vec<_> = disk.blocks.iter().filter(|(_, b)| !b.2).collect();
        let bad: Vec<_> =
            bad.into_iter().map(|(&begin, &(len, peer, _))| (peer, Block { piece, begin, len })).collect();
        if bad.is_empty() {
            let culprits = n.wrong.remove(&piece).unwrap_or_default();
            self.give(node, Event::PieceVerified { piece });
            for (peer, block) in culprits {
                self.give(node, Event::BlockBad { peer, block });
            }
        } else {
            n.wrong.entry(piece).or_default().extend(bad);
            self.give(node, Event::PieceFailed { piece });
        }
    }

    fn dialled(&mut self, node: usize, candidate: Candidate) {
        let other = candidate.0 as usize;
        let refused = |a: &Node, b: usize| a.dead || a.banned_nodes.contains(&b);
        let twice = self.nodes[node].conns.values().any(|c| c.other == other);
        if refused(&self.nodes[other], node) || refused(&self.nodes[node], other) || twice {
            return self.give(node, Event::DialFailed { candidate });
        }
        let a = PeerId(self.nodes[node].next_peer);
        let b = PeerId(self.nodes[other].next_peer);
        self.nodes[node].next_peer += 1;
        self.nodes[other].next_peer += 1;
        let protocol = match (node % 3, other % 3) {
            _ if !self.mixed => self.protocol,
            (2, 2) => TIDE,
            (1, _) | (_, 1) => STOCK,
            _ => FAST,
        };
        let conn = |other, theirs| Conn { other, theirs, protocol, sending: VecDeque::new() };
        self.nodes[node].conns.insert(a, conn(other, b));
        self.nodes[other].conns.insert(b, conn(node, a));
        self.give(node, Event::PeerUp { peer: a, protocol, candidate: Some(candidate) });
        if self.nodes[other].conns.contains_key(&b) {
            self.give(other, Event::PeerUp { peer: b, protocol, candidate: None });
        }
    }

    /// Starts sending the next block, if the uplink is free.
    fn uplink(&mut self, node: usize) {
        let n = &mut self.nodes[node];
        if n.up_busy || n.dead {
            return;
        }
        while let Some(peer) = n.turn.pop_front() {
            let Some(conn) = n.conns.get_mut(&peer) else { continue };
            let Some(block) = conn.sending.pop_front() else { continue };
            n.turn.push_back(peer);
            let (other, theirs) = (conn.other, conn.theirs);
            if n.spec.misbehaviour == Misbehaviour::Withhold {
                continue;
            }
            n.up_busy = true;
            *n.sent_to.entry(other).or_default() += u64::from(block.len);
            let good = n.spec.misbehaviour != Misbehaviour::Corrupt;
            let at = self.now + u64::from(block.len) * S / n.spec.up;
            self.schedule(at, Thing::Sent(node, peer, block));
            self.schedule(at + self.delay, Thing::Arrive(other, theirs, block, good));
            return;
        }
    }

    /// Gives an event to an engine and performs its actions.
    pub fn give(&mut self, node: usize, event: Event) {
        if self.nodes[node].dead {
            return;
        }
        self.nodes[node].engine.handle(Time(self.now), event);
        while let Some(action) = self.nodes[node].engine.poll() {
            self.act(node, action);
        }
        if self.steps.is_multiple_of(self.check_every) {
            self.nodes[node].engine.check().unwrap();
        }
        let n = &mut self.nodes[node];
        if let Some(at) = n.engine.wakeup()
            && n.wake.is_none_or(|old| at < old)
        {
            n.wake = Some(at);
            self.schedule(at.0, Thing::Wake(node));
        }
    }

    fn act(&mut self, node: usize, action: Action) {
        let n = &mut self.nodes[node];
        if n.dead {
            return;
        }
        n.messages += 1;
        self.note(node, &action);
        let n = &mut self.nodes[node];
        match action {
            Action::Dial { candidate } => {
                self.schedule(self.now + self.delay * 3, Thing::Dialled(node, candidate));
            }
            Action::Disconnect { peer, reason } => self.close(node, peer, reason, false),
            Action::Ban { peer, reason } => self.close(node, peer, reason, true),
            Action::Complete => {
                assert!(n.engine.is_complete());
                n.finished = n.finished.or(Some(self.now));
            }
            Action::Serve { peer, block } => {
                assert!(n.engine.have(block.piece), "served {block:?} that is not verified");
                let conn = n.conns.get_mut(&peer).expect("served a peer that is gone");
                conn.sending.push_back(block);
                if !n.turn.contains(&peer) {
                    n.turn.push_back(peer);
                }
                self.schedule(self.now, Thing::Uplink(node));
            }
            Action::Request { peer, block } if self.refuses(node, peer) => {
                self.give_later(node, peer, Event::Rejected { peer, block });
            }
            Action::RequestPieces { peer, pieces } if self.refuses(node, peer) => {
                for piece in pieces {
                    let block = Block { piece, begin: 0, len: self.lengths[piece as usize] };
                    self.give_later(node, peer, Event::Rejected { peer, block });
                }
            }
            other => self.message(node, other),
        }
    }

    fn note(&mut self, node: usize, action: &Action) {
        let (peer, pieces) = match action {
            Action::Request { peer, block } => (peer, block.piece..block.piece + 1),
            Action::RequestPieces { peer, pieces } => (peer, pieces.clone()),
            _ => return,
        };
        if self.nodes[node].conns.get(peer).is_none_or(|c| c.other != 0) {
            return;
        }
        for piece in pieces {
            if self.asked.insert((piece, node)) {
                let mut others = (1..self.nodes.len()).filter(|&o| o != node);
                let had = others.clone().any(|o| self.nodes[o].engine.have(piece));
                let asked = others.any(|o| self.asked.contains(&(piece, o)));
                self.asks[if had { 2 } else { usize::from(asked) }] += 1;
            }
        }
    }

    fn refuses(&self, node: usize, peer: PeerId) -> bool {
        let other = self.nodes[node].conns.get(&peer).map(|c| c.other);
        other.is_some_and(|o| self.nodes[o].spec.misbehaviour == Misbehaviour::Refuse)
    }

    fn give_later(&mut self, node: usize, peer: PeerId, event: Event) {
        self.schedule(self.now + 2 * self.delay, Thing::Deliver(node, peer, event));
    }

    fn close(&mut self, node: usize, peer: PeerId, reason: Reason, ban: bool) {
        let n = &mut self.nodes[node];
        let conn = n.conns.get(&peer).expect("closed a peer that is gone");
        let (other, theirs) = (conn.other, conn.theirs);
        if ban {
            n.banned.push((other, reason));
            n.banned_nodes.insert(other);
        } else {
            n.dropped.push((other, reason));
        }
        self.schedule(self.now, Thing::Down(node, peer));
        self.schedule(self.now + self.delay, Thing::Down(other, theirs));
    }

    /// Carries a message to the other end of its connection.
    fn message(&mut self, node: usize, action: Action) {
        let peer = action.peer().expect("a message has a peer");
        let n = &self.nodes[node];
        let conn = n.conns.get(&peer).expect("wrote to a peer that is gone");
        let (other, peer) = (conn.other, conn.theirs);
        let liar = n.spec.misbehaviour != Misbehaviour::None;
        let events: Vec<Event> = match action {
            Action::AnnounceAll { .. } if liar => vec![Event::HasAll { peer }],
            Action::AnnounceAll { have, .. } => {
                if have == all(&self.lengths) {
                    vec![Event::HasAll { peer }]
                } else {
                    vec![Event::HasExactly { peer, pieces: have }]
                }
            }
            Action::Announce { pieces, .. } => vec![Event::HasMore { peer, pieces }],
            Action::AnnounceLost { .. } if liar => vec![],
            Action::AnnounceLost { piece, .. } => vec![Event::HasNot { peer, piece }],
            Action::Interested { interested: true, .. } => vec![Event::Interested { peer }],
            Action::Interested { .. } => vec![Event::NotInterested { peer }],
            Action::Choke { choke: true, .. } => vec![Event::Choked { peer }],
            Action::Choke { .. } => vec![Event::Unchoked { peer }],
            Action::Request { block, .. } => vec![Event::Requested { peer, block }],
            Action::RequestPieces { pieces, .. } => vec![Event::RequestedPieces { peer, pieces }],
            Action::Cancel { block, .. } => vec![Event::Canceled { peer, block }],
            Action::Reject { block, .. } => vec![Event::Rejected { peer, block }],
            _ => vec![],
        };
        for event in events {
            self.schedule(self.now + self.delay, Thing::Deliver(other, peer, event));
        }
    }

    /// Bytes that `node` has sent to anyone.
    pub fn sent(&self, node: usize) -> u64 {
        self.nodes[node].sent_to.values().sum()
    }

    pub fn total(&self) -> u64 {
        self.lengths.iter().map(|&l| u64::from(l)).sum()
    }

    /// Duplicates of all nodes in parts per thousand of the received data.
    pub fn duplicates(&self) -> u64 {
        let dup: u64 = self.nodes.iter().map(|n| n.engine.stats().duplicate).sum();
        let all: u64 = self.nodes.iter().map(|n| n.received).sum();
        dup * 1000 / all.max(1)
    }

    /// When the last node finished, ns.
    pub fn last(&self) -> u64 {
        self.nodes.iter().filter_map(|n| n.finished).max().unwrap_or(0)
    }
}
