//! Members on a modelled network: loss, sudden death, partitions, frozen and stopped members, channels that end.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs, dead_code)]

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use tidecast_identity::NodeId;
use tidecast_members::{Change, Claim, Describe, Event, Found, Key, Keys, Limits, Members, Record};

pub(crate) const SECOND: u64 = 1_000;
const START: u64 = 1_800_000_000_000;

/// Signatures that cost one hash and are valid only in this simulation.
pub(crate) struct Cheap(NodeId);

fn cheap(node: NodeId, message: &[u8]) -> [u8; 64] {
    let half = tidecast_hash::sha256(&[&node.0, message].concat());
    [half, half].concat().try_into().unwrap()
}

impl Keys for Cheap {
    fn node(&self) -> NodeId {
        self.0
    }
    fn sign(&self, message: &[u8]) -> [u8; 64] {
        cheap(self.0, message)
    }
    fn verify(&self, node: NodeId, message: &[u8], signature: &[u8; 64]) -> bool {
        cheap(node, message) == *signature
    }
}

/// Prints the seed of a failed test.
#[derive(Debug)]
pub(crate) struct Seed(pub(crate) u64);

impl Seed {
    pub(crate) fn new() -> Self {
        let random =
            || std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_nanos() as u64;
        Self(std::env::var("MEMBERS_SEED").map_or_else(|_| random(), |seed| seed.parse().unwrap()))
    }
}

impl Drop for Seed {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("this was MEMBERS_SEED={}", self.0);
        }
    }
}

enum What {
    Deliver(usize, usize, Vec<u8>),
    Tick(usize),
    /// The channel of one to another has ended.
    Lost(usize, usize),
}

pub(crate) struct Node {
    pub(crate) member: Members<Cheap>,
    /// When its next tick lies in the queue.
    tick: u64,
    frozen: bool,
    pub(crate) side: u8,
    /// Messages received while it is stopped, to be read when it continues.
    unread: Option<Vec<(usize, Vec<u8>)>>,
}

pub(crate) struct World {
    pub(crate) now: u64,
    state: u64,
    pub(crate) nodes: Vec<Option<Node>>,
    names: BTreeMap<NodeId, usize>,
    queue: BTreeMap<(u64, u64), What>,
    count: u64,
    /// Messages lost of a thousand.
    pub(crate) loss: u64,
    /// Longest that the sending of a message takes, milliseconds.
    pub(crate) latency: u64,
    /// Bytes that were sent.
    pub(crate) sent: u64,
    /// Pairs that have spoken with each other: each has a channel.
    channels: BTreeSet<(usize, usize)>,
    /// Members that were declared dead, and by which member.
    pub(crate) declared: Vec<(usize, usize)>,
    limits: Limits,
    found: BTreeMap<(usize, u64), Found>,
    /// A member that joins at this place again has a later incarnation.
    lives: u64,
}

pub(crate) fn id(i: usize) -> NodeId {
    NodeId(tidecast_hash::sha256(&(i as u64).to_be_bytes()))
}

pub(crate) fn cache(i: usize) -> [u8; 32] {
    tidecast_hash::sha256(format!("cache {i}").as_bytes())
}

impl World {
    pub(crate) fn new(size: usize, loss: u64, seed: &Seed) -> Self {
        let limits = Limits { suspect_for: 5 * SECOND, compare_every: 10 * SECOND, ..Limits::default() };
        Self::with(limits, size, loss, seed)
    }

    pub(crate) fn with(limits: Limits, size: usize, loss: u64, seed: &Seed) -> Self {
        let names = (0..size).map(|i| (id(i), i)).collect();
        let mut world = Self {
            now: START,
            state: seed.0,
            nodes: Vec::new(),
            names,
            queue: BTreeMap::new(),
            count: 0,
            loss,
            latency: 20,
            sent: 0,
            channels: BTreeSet::new(),
            declared: Vec::new(),
            limits,
            found: BTreeMap::new(),
            lives: 0,
        };
        world.nodes.resize_with(size, || None);
        for i in 0..size {
            world.start(i);
        }
        world
    }

    pub(crate) fn random(&mut self, below: usize) -> usize {
        self.state =
            self.state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((u128::from(self.state >> 16 & 0xffff_ffff) * below as u128) >> 32) as usize
    }

    /// A member starts and calls one of three seeds, or two others if it is one.
    pub(crate) fn start(&mut self, i: usize) {
        self.lives += 1;
        let addresses = vec![SocketAddr::from(([10, 0, (i / 256) as u8, (i % 256) as u8], 7000))];
        let describe = Describe { incarnation: self.now, card: [7; 32], addresses };
        let seed = self.state ^ self.lives;
        let member = Members::new(Cheap(id(i)), describe, self.limits.clone(), seed, self.now);
        self.nodes[i] = Some(Node { member, tick: u64::MAX, frozen: false, side: 0, unread: None });
        let (now, other) = (self.now, self.random(3));
        self.act(i, |m| (0..3).filter(|s| i < 3 || *s == other).for_each(|s| m.join(id(s), now)));
    }

    /// It ends without a goodbye, and so do its channels when its host notices (see [`Self::end_channels`]).
    pub(crate) fn kill(&mut self, i: usize) {
        self.nodes[i] = None;
    }

    /// The kernel of a member that was killed ends its channels.
    pub(crate) fn end_channels(&mut self, i: usize) {
        let ends: Vec<_> = self.channels.iter().filter(|(a, b)| *a == i || *b == i).copied().collect();
        for (a, b) in ends {
            self.channels.remove(&(a, b));
            let at = self.now + 1 + self.random(self.latency as usize) as u64;
            self.push(at, What::Lost(if a == i { b } else { a }, i));
        }
    }

    /// It is stopped (SIGSTOP) until it continues; its host still receives data.
    pub(crate) fn stop(&mut self, i: usize) {
        self.nodes[i].as_mut().unwrap().unread = Some(Vec::new());
    }

    pub(crate) fn go_on(&mut self, i: usize) {
        let node = self.nodes[i].as_mut().unwrap();
        let unread = node.unread.take().unwrap();
        node.tick = u64::MAX;
        let now = self.now;
        self.act(i, |m| m.tick(now));
        for (from, bytes) in unread {
            self.act(i, |m| m.receive(id(from), &bytes, now));
        }
    }

    fn push(&mut self, at: u64, what: What) {
        self.count += 1;
        self.queue.insert((at, self.count), what);
    }

    /// Calls `f` with a member, and delivers its messages.
    pub(crate) fn act<T>(&mut self, i: usize, f: impl FnOnce(&mut Members<Cheap>) -> T) -> T {
        let node = self.nodes[i].as_mut().unwrap();
        let answer = f(&mut node.member);
        let (messages, events, next) =
            (node.member.take_messages(), node.member.take_events(), node.member.next_tick());
        if next < node.tick {
            node.tick = next;
            self.push(next.max(self.now), What::Tick(i));
        }
        for (to, bytes) in messages {
            let Some(to) = self.names.get(&to).copied() else { continue };
            let lost = (self.random(1_000) as u64) < self.loss;
            self.sent += bytes.len() as u64;
            if self.nodes[to].is_some() {
                self.channels.insert((i.min(to), i.max(to)));
            }
            if !lost {
                let at = self.now + 1 + self.random(self.latency as usize) as u64;
                self.push(at, What::Deliver(i, to, bytes));
            }
        }
        for event in events {
            match event {
                Event::Found(found) => drop(self.found.insert((i, found.id), found)),
                Event::Misbehaved(node) => panic!("{i} blames {}", self.names[&node]),
                Event::Member(Change::Down(node)) => self.declared.push((i, self.names[&node])),
                Event::Member(_) => {}
            }
        }
        answer
    }

    pub(crate) fn run(&mut self, span: u64) {
        let end = self.now + span;
        while let Some(first) = self.queue.first_entry().filter(|e| e.key().0 <= end) {
            let ((at, _), what) = first.remove_entry();
            self.now = self.now.max(at);
            let now = self.now;
            match what {
                What::Tick(i) => {
                    let Some(node) = self.nodes[i].as_mut() else { continue };
                    if node.tick > now || node.frozen || node.unread.is_some() {
                        continue;
                    }
                    node.tick = u64::MAX;
                    self.act(i, |m| m.tick(now));
                }
                What::Deliver(from, to, bytes) => {
                    let side = self.nodes[from].as_ref().map(|n| n.side);
                    let Some(node) = self.nodes[to].as_mut() else { continue };
                    if side.is_some_and(|s| s == node.side) && !node.frozen {
                        match &mut node.unread {
                            Some(unread) => unread.push((from, bytes)),
                            None => self.act(to, |m| m.receive(id(from), &bytes, now)),
                        }
                    }
                }
                What::Lost(i, other) => {
                    if self.nodes[i].is_some() {
                        self.act(i, |m| m.lost(id(other), now));
                    }
                }
            }
        }
        self.now = end;
    }

    pub(crate) fn freeze(&mut self, i: usize, frozen: bool) {
        let now = self.now;
        self.nodes[i].as_mut().unwrap().frozen = frozen;
        if !frozen {
            self.nodes[i].as_mut().unwrap().tick = u64::MAX;
            self.act(i, |m| m.tick(now));
        }
    }

    pub(crate) fn living(&self) -> Vec<usize> {
        (0..self.nodes.len()).filter(|i| self.nodes[*i].is_some()).collect()
    }

    pub(crate) fn sees(&self, i: usize) -> BTreeSet<usize> {
        self.nodes[i].as_ref().unwrap().member.alive().map(|p| self.names[&p.node()]).collect()
    }

    /// How long it takes until all living members know exactly each other; at most `most`.
    pub(crate) fn until_known(&mut self, most: u64) -> u64 {
        let (all, began): (BTreeSet<_>, _) = (self.living().into_iter().collect(), self.now);
        while self.now < began + most && !all.iter().all(|i| self.sees(*i) == all) {
            self.run(100);
        }
        self.now - began
    }

    /// Runs until all living members of `side` know exactly each other.
    pub(crate) fn converge(&mut self, most: u64, side: Option<u8>) {
        let here = |w: &Self, i: usize| side.is_none_or(|s| w.nodes[i].as_ref().unwrap().side == s);
        let all: BTreeSet<_> = self.living().into_iter().filter(|i| here(self, *i)).collect();
        let began = self.now;
        while self.now < began + most {
            self.run(SECOND);
            if all.iter().all(|i| self.sees(*i) == all) {
                return;
            }
        }
        let wrong: Vec<_> = all.iter().filter(|i| self.sees(**i) != all).collect();
        let i = *wrong[0];
        let (sees, want) = (self.sees(i), all.len());
        let (more, less) = (sees.difference(&all).count(), all.difference(&sees).count());
        panic!(
            "{} of {want} do not know who is there; {i} sees {more} too many, {less} too few",
            wrong.len()
        );
    }

    pub(crate) fn hold(&mut self, i: usize, what: usize) -> Record {
        let now = self.now;
        let claim = Claim::Holder { cache: cache(what), complete: true };
        self.act(i, |m| m.announce(claim, 150 * SECOND, now)).unwrap()
    }

    pub(crate) fn name(&mut self, i: usize, version: u32, manifest: u8) -> Record {
        let claim = Claim::Name {
            origin: format!("host{i}"),
            name: "db".into(),
            version,
            manifest: [manifest; 32],
            ad: b"[ Size = 1 ]".to_vec(),
        };
        let now = self.now;
        self.act(i, |m| m.announce(claim, 3_600 * SECOND, now)).unwrap()
    }

    /// Looks `key` up at each of `from`, all at once.
    pub(crate) fn lookup(&mut self, from: &[(usize, Key)]) -> Vec<Found> {
        let now = self.now;
        let ids: Vec<_> = from.iter().map(|(i, key)| (*i, self.act(*i, |m| m.lookup(*key, now)))).collect();
        self.run(5 * SECOND);
        ids.iter().map(|key| self.found.remove(key).expect("every lookup ends")).collect()
    }

    /// How many of the caches of `holders` are found, each asked for by some living member.
    pub(crate) fn findable(&mut self, holders: &[usize]) -> usize {
        let living = self.living();
        let from: Vec<_> =
            holders.iter().map(|i| (living[self.random(living.len())], Key::holders(&cache(*i)))).collect();
        let found = self.lookup(&from);
        let has = |(found, i): &(Found, &usize)| found.records.iter().any(|r| r.signer == id(**i));
        found.into_iter().zip(holders).filter(has).count()
    }
}
