//! Hundreds of members on a modelled network: loss, sudden death, partitions, frozen members, churn.
//!
//! Seeds are random and printed when a test fails; `MEMBERS_SEED=N` repeats one. `MEMBERS_SIZE=1000` (80 s, 1 GB)
//! tries how many there may be.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use tidecast_identity::NodeId;
use tidecast_members::{Claim, Describe, Event, Found, Key, Keys, Limits, Members, Record};

const SECOND: u64 = 1_000;
const START: u64 = 1_800_000_000_000;
/// Longest that the sending of a message takes, milliseconds.
const LATENCY: u64 = 20;

/// Signatures that cost a hash and that only this simulation would believe.
struct Cheap(NodeId);

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
struct Seed(u64);

impl Seed {
    fn new() -> Self {
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
}

struct Node {
    member: Members<Cheap>,
    /// When its next tick lies in the queue.
    tick: u64,
    frozen: bool,
    side: u8,
}

struct World {
    now: u64,
    state: u64,
    nodes: Vec<Option<Node>>,
    names: BTreeMap<NodeId, usize>,
    queue: BTreeMap<(u64, u64), What>,
    count: u64,
    /// Messages lost of a thousand.
    loss: u64,
    limits: Limits,
    found: BTreeMap<(usize, u64), Found>,
    /// Whoever ever joined at this place has another life behind it.
    lives: u64,
}

fn id(i: usize) -> NodeId {
    NodeId(tidecast_hash::sha256(&(i as u64).to_be_bytes()))
}

fn cache(i: usize) -> [u8; 32] {
    tidecast_hash::sha256(format!("cache {i}").as_bytes())
}

impl World {
    fn new(size: usize, loss: u64, seed: &Seed) -> Self {
        let limits = Limits { suspect_for: 5 * SECOND, compare_every: 10 * SECOND, ..Limits::default() };
        let names = (0..size).map(|i| (id(i), i)).collect();
        let mut world = Self {
            now: START,
            state: seed.0,
            nodes: Vec::new(),
            names,
            queue: BTreeMap::new(),
            count: 0,
            loss,
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

    fn random(&mut self, below: usize) -> usize {
        self.state =
            self.state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((u128::from(self.state >> 16 & 0xffff_ffff) * below as u128) >> 32) as usize
    }

    /// A member starts and calls one of three seeds, or two others if it is one.
    fn start(&mut self, i: usize) {
        self.lives += 1;
        let addresses = vec![SocketAddr::from(([10, 0, (i / 256) as u8, (i % 256) as u8], 7000))];
        let describe = Describe { incarnation: self.now, card: [7; 32], addresses };
        let seed = self.state ^ self.lives;
        let member = Members::new(Cheap(id(i)), describe, self.limits.clone(), seed, self.now);
        self.nodes[i] = Some(Node { member, tick: u64::MAX, frozen: false, side: 0 });
        let (now, other) = (self.now, self.random(3));
        self.act(i, |m| (0..3).filter(|s| i < 3 || *s == other).for_each(|s| m.join(id(s), now)));
    }

    fn kill(&mut self, i: usize) {
        self.nodes[i] = None;
    }

    fn push(&mut self, at: u64, what: What) {
        self.count += 1;
        self.queue.insert((at, self.count), what);
    }

    /// Does something with a member, and delivers what it says.
    fn act<T>(&mut self, i: usize, f: impl FnOnce(&mut Members<Cheap>) -> T) -> T {
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
            if !lost {
                let at = self.now + 1 + self.random(LATENCY as usize) as u64;
                self.push(at, What::Deliver(i, to, bytes));
            }
        }
        for event in events {
            match event {
                Event::Found(found) => drop(self.found.insert((i, found.id), found)),
                Event::Misbehaved(node) => panic!("{i} blames {}", self.names[&node]),
                Event::Member(_) => {}
            }
        }
        answer
    }

    fn run(&mut self, span: u64) {
        let end = self.now + span;
        while let Some(first) = self.queue.first_entry().filter(|e| e.key().0 <= end) {
            let ((at, _), what) = first.remove_entry();
            self.now = self.now.max(at);
            let now = self.now;
            match what {
                What::Tick(i) => {
                    let Some(node) = self.nodes[i].as_mut() else { continue };
                    if node.tick > now || node.frozen {
                        continue;
                    }
                    node.tick = u64::MAX;
                    self.act(i, |m| m.tick(now));
                }
                What::Deliver(from, to, bytes) => {
                    let side = self.nodes[from].as_ref().map(|n| n.side);
                    let Some(node) = self.nodes[to].as_ref() else { continue };
                    if side.is_some_and(|s| s == node.side) && !node.frozen {
                        self.act(to, |m| m.receive(id(from), &bytes, now));
                    }
                }
            }
        }
        self.now = end;
    }

    fn freeze(&mut self, i: usize, frozen: bool) {
        let now = self.now;
        self.nodes[i].as_mut().unwrap().frozen = frozen;
        if !frozen {
            self.nodes[i].as_mut().unwrap().tick = u64::MAX;
            self.act(i, |m| m.tick(now));
        }
    }

    fn living(&self) -> Vec<usize> {
        (0..self.nodes.len()).filter(|i| self.nodes[*i].is_some()).collect()
    }

    fn sees(&self, i: usize) -> BTreeSet<usize> {
        self.nodes[i].as_ref().unwrap().member.alive().map(|p| self.names[&p.node()]).collect()
    }

    /// Runs until all living members of `side` know exactly each other.
    fn converge(&mut self, most: u64, side: Option<u8>) {
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

    fn hold(&mut self, i: usize, what: usize) -> Record {
        let now = self.now;
        let claim = Claim::Holder { cache: cache(what), complete: true };
        self.act(i, |m| m.say(claim, 150 * SECOND, now)).unwrap()
    }

    fn name(&mut self, i: usize, version: u32, manifest: u8) -> Record {
        let claim = Claim::Name {
            origin: format!("host{i}"),
            name: "db".into(),
            version,
            manifest: [manifest; 32],
            ad: b"[ Size = 1 ]".to_vec(),
        };
        let now = self.now;
        self.act(i, |m| m.say(claim, 3_600 * SECOND, now)).unwrap()
    }

    /// Looks `key` up at each of `from`, all at once.
    fn lookup(&mut self, from: &[(usize, Key)]) -> Vec<Found> {
        let now = self.now;
        let ids: Vec<_> = from.iter().map(|(i, key)| (*i, self.act(*i, |m| m.lookup(*key, now)))).collect();
        self.run(5 * SECOND);
        ids.iter().map(|key| self.found.remove(key).expect("every lookup ends")).collect()
    }

    /// How many of the caches of `holders` are found, each asked for by some living member.
    fn findable(&mut self, holders: &[usize]) -> usize {
        let living = self.living();
        let from: Vec<_> =
            holders.iter().map(|i| (living[self.random(living.len())], Key::holders(&cache(*i)))).collect();
        let found = self.lookup(&from);
        let has = |(found, i): &(Found, &usize)| found.records.iter().any(|r| r.signer == id(**i));
        found.into_iter().zip(holders).filter(has).count()
    }
}

#[test]
fn hundreds_find_each_other_in_a_minute() {
    let seed = Seed::new();
    let size = std::env::var("MEMBERS_SIZE").map_or(400, |size| size.parse().unwrap());
    let mut world = World::new(size, 10, &seed);
    world.converge(60 * SECOND, None);
}

#[test]
fn half_die_at_once() {
    let seed = Seed::new();
    let mut world = World::new(200, 20, &seed);
    world.converge(60 * SECOND, None);
    for i in 0..200 {
        world.hold(i, i);
    }
    world.run(20 * SECOND);
    let all = world.living();
    assert_eq!(world.findable(&all), 200);
    let mut dead = BTreeSet::new();
    while dead.len() < 100 {
        dead.insert(world.random(200));
    }
    dead.iter().for_each(|i| world.kill(*i));
    let left = world.living();
    // Nobody has noticed: of five copies at least one lies on a survivor, but for one key in 32.
    let found = world.findable(&left);
    assert!(found >= 88, "{found} of 100 found through the survivors");
    world.converge(120 * SECOND, None);
    world.run(30 * SECOND);
    assert_eq!(world.findable(&left), 100, "named anew, all are found");
    // The dead are still found for as long as their records last, and no longer.
    world.run(200 * SECOND);
    let dead: Vec<_> = dead.into_iter().collect();
    assert_eq!(world.findable(&dead), 0);
    assert_eq!(world.findable(&left), 100, "renewed");
}

#[test]
fn a_partition_heals_and_the_newest_holds() {
    let seed = Seed::new();
    let mut world = World::new(100, 10, &seed);
    world.converge(60 * SECOND, None);
    let old = world.name(10, 1, 1);
    let taken_back = world.name(12, 1, 1);
    let held = world.hold(14, 14);
    world.run(10 * SECOND);
    // Members of both halves carry the names.
    let now = world.now;
    for i in [11, 13] {
        assert!(world.act(i, |m| m.carry(old.clone(), now)));
        assert!(world.act(i, |m| m.carry(taken_back.clone(), now)));
    }
    for i in 0..100 {
        world.nodes[i].as_mut().unwrap().side = (i % 2) as u8;
    }
    world.converge(120 * SECOND, Some(0));
    world.converge(120 * SECOND, Some(1));
    world.run(20 * SECOND);
    // On one side the names change; on the other they are carried on as they were.
    let newer = world.name(10, 1, 2);
    let now = world.now;
    world.act(12, |m| m.withdraw(&taken_back.slot(), now));
    world.act(14, |m| m.withdraw(&held.slot(), now));
    world.hold(51, 51);
    world.run(20 * SECOND);
    let (key, gone) = (old.slot().key, taken_back.slot().key);
    let found = world.lookup(&[(0, key), (1, key), (0, gone), (1, gone)]);
    assert_eq!(found[0].records, std::slice::from_ref(&newer));
    assert_eq!(found[1].records, [old], "cut off, the others know what was said before");
    assert_eq!((found[2].records.len(), found[3].records.len()), (0, 1));
    world.nodes.iter_mut().flatten().for_each(|n| n.side = 0);
    world.converge(180 * SECOND, None);
    world.run(60 * SECOND);
    let asked: Vec<_> = (0..100).flat_map(|i| [(i, key), (i, gone), (i, held.slot().key)]).collect();
    for (found, (i, key)) in world.lookup(&asked).into_iter().zip(&asked) {
        if *key == newer.slot().key {
            assert_eq!(found.records, std::slice::from_ref(&newer), "{i}");
        } else {
            assert!(found.records.is_empty(), "{i} sees what was taken back: {:?}", found.records);
        }
    }
    assert_eq!(world.findable(&[51]), 1);
}

#[test]
fn frozen_members_come_back() {
    let seed = Seed::new();
    let mut world = World::new(120, 10, &seed);
    world.converge(60 * SECOND, None);
    for i in 0..120 {
        world.hold(i, i);
    }
    world.run(10 * SECOND);
    (0..120).step_by(5).for_each(|i| world.freeze(i, true));
    world.run(60 * SECOND);
    assert!(world.sees(1).len() < 120, "they were given up");
    (0..120).step_by(5).for_each(|i| world.freeze(i, false));
    world.converge(180 * SECOND, None);
    world.run(40 * SECOND);
    let all = world.living();
    assert_eq!(world.findable(&all), 120);
}

#[test]
fn members_come_and_go() {
    let seed = Seed::new();
    let mut world = World::new(100, 30, &seed);
    world.converge(60 * SECOND, None);
    // Three seeds stay; of the others one dies or comes again every two seconds.
    for _ in 0..80 {
        let i = 3 + world.random(97);
        if world.nodes[i].is_some() {
            let (now, polite) = (world.now, world.random(2) == 0);
            if polite {
                world.act(i, |m| m.leave(now));
            }
            world.kill(i);
        } else {
            world.start(i);
            world.hold(i, i);
        }
        world.run(2 * SECOND);
    }
    world.converge(180 * SECOND, None);
    world.run(40 * SECOND);
    let living = world.living();
    living.iter().for_each(|i| drop(world.hold(*i, *i)));
    world.run(20 * SECOND);
    assert_eq!(world.findable(&living), living.len());
}
