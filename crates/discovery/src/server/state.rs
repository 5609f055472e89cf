//! The state of the tracker, as a value: announces and the time go in, samples of peers come out.
//!
//! Promises: never more than the limits allow in swarms, peers, or peers a host; a peer that does not announce
//! again within the expiry is removed; a swarm without peers takes no memory. A peer that exceeds a limit is still
//! answered, so that it can find others and be found by connecting to them.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use rand::Rng;
use rand::seq::SliceRandom;

use crate::tracker::{Announce, Event};
use crate::{InfoHash, PeerId, usable};

/// Bounds of the tracker's memory and answers.
#[derive(Debug, Clone)]
pub struct Limits {
    /// Most swarms.
    pub swarms: usize,
    /// Most peers of one address family in one swarm.
    pub peers_per_swarm: usize,
    /// Most peers in all swarms together; one takes about 150 bytes.
    pub peers: usize,
    /// Most entries (peers over all swarms) that one IP address may hold.
    pub peers_per_host: u32,
    /// Most peers of a family in one answer.
    pub numwant: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { swarms: 50_000, peers_per_swarm: 50_000, peers: 500_000, peers_per_host: 2_048, numwant: 200 }
    }
}

/// The number of peers in an answer when the client does not choose one.
const DEFAULT_NUMWANT: usize = 50;

/// The answer to an announce.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Sample {
    pub(crate) v4: Vec<SocketAddr>,
    pub(crate) v6: Vec<SocketAddr>,
    pub(crate) count: Count,
}

/// The answer to a scrape. A peer that announces over both families counts twice.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Count {
    pub(crate) seeders: u32,
    pub(crate) leechers: u32,
    /// How many `completed` events this swarm has seen.
    pub(crate) completed: u32,
}

pub(crate) struct State {
    limits: Limits,
    expiry: Duration,
    swarms: HashMap<InfoHash, Swarm>,
    hosts: HashMap<IpAddr, u32>,
    peers: usize,
    refused: u64,
}

#[derive(Default)]
struct Swarm {
    v4: Table,
    v6: Table,
    completed: u32,
}

/// Peers of one family: a dense list to draw from, and the position of each address in it.
#[derive(Default)]
struct Table {
    peers: Vec<Peer>,
    place: HashMap<SocketAddr, usize>,
    seeders: u32,
}

struct Peer {
    addr: SocketAddr,
    /// Keeps a peer of both families from receiving its own addresses.
    id: PeerId,
    expires: Instant,
    seeder: bool,
}

impl State {
    pub(crate) fn new(limits: Limits, expiry: Duration) -> Self {
        Self { limits, expiry, swarms: HashMap::new(), hosts: HashMap::new(), peers: 0, refused: 0 }
    }

    /// Records the announce of the peer that listens at `addr`; returns peers for it.
    pub(crate) fn announce(
        &mut self,
        addr: SocketAddr,
        ask: &Announce,
        now: Instant,
        rng: &mut impl Rng,
    ) -> Sample {
        if ask.event == Event::Stopped {
            self.remove(addr, ask.info_hash);
            let count = self.count(&ask.info_hash);
            return Sample { count, ..Sample::default() };
        }
        // A peer that cannot be connected to may ask, but is not passed on.
        if usable(&addr) {
            self.insert(addr, ask, now);
        }
        let Some(swarm) = self.swarms.get(&ask.info_hash) else {
            return Sample::default();
        };
        let want = ask.numwant.map_or(DEFAULT_NUMWANT, |n| usize::try_from(n).unwrap_or(usize::MAX));
        let want = want.min(self.limits.numwant);
        let draw = |table: &Table, rng: &mut _| {
            let fits = |peer: &Peer| {
                // Two seeders need no connection; a loopback address is another host elsewhere.
                peer.addr != addr
                    && peer.id != ask.peer_id
                    && peer.expires > now
                    && !(peer.seeder && ask.left == 0)
                    && (!peer.addr.ip().is_loopback() || addr.ip().is_loopback())
            };
            table.draw(want, fits, rng)
        };
        Sample { v4: draw(&swarm.v4, rng), v6: draw(&swarm.v6, rng), count: swarm.count() }
    }

    /// The counts of a swarm; zeroes if it is unknown.
    pub(crate) fn count(&self, hash: &InfoHash) -> Count {
        self.swarms.get(hash).map(Swarm::count).unwrap_or_default()
    }

    /// Removes peers that have not announced in time.
    pub(crate) fn expire(&mut self, now: Instant) {
        let (hosts, total) = (&mut self.hosts, &mut self.peers);
        self.swarms.retain(|_, swarm| {
            for table in [&mut swarm.v4, &mut swarm.v6] {
                let mut at = 0;
                while let Some(peer) = table.peers.get(at) {
                    if peer.expires > now {
                        at += 1;
                        continue;
                    }
                    let addr = peer.addr;
                    table.remove(addr);
                    release(hosts, addr.ip());
                    *total -= 1;
                }
            }
            !swarm.is_empty()
        });
    }

    pub(crate) fn swarms(&self) -> usize {
        self.swarms.len()
    }

    pub(crate) fn peers(&self) -> usize {
        self.peers
    }

    /// How many peers were not remembered because a limit was reached.
    pub(crate) fn refused(&self) -> u64 {
        self.refused
    }

    fn insert(&mut self, addr: SocketAddr, ask: &Announce, now: Instant) {
        let limits = &self.limits;
        let room_for_swarm = self.swarms.len() < limits.swarms;
        let (peers, hosts) = (&mut self.peers, &mut self.hosts);
        let swarm = match self.swarms.entry(ask.info_hash) {
            Entry::Occupied(swarm) => swarm.into_mut(),
            Entry::Vacant(place) => {
                let host_full = hosts.get(&addr.ip()).is_some_and(|&n| n >= limits.peers_per_host);
                if !room_for_swarm || *peers >= limits.peers || host_full {
                    self.refused += 1;
                    return;
                }
                place.insert(Swarm::default())
            }
        };
        let table = if addr.is_ipv4() { &mut swarm.v4 } else { &mut swarm.v6 };
        let known = table.place.contains_key(&addr);
        let held = hosts.entry(addr.ip()).or_insert(0);
        if !known {
            let full = table.peers.len() >= limits.peers_per_swarm || *peers >= limits.peers;
            if full || *held >= limits.peers_per_host {
                if *held == 0 {
                    hosts.remove(&addr.ip());
                }
                self.refused += 1;
                return;
            }
            *held += 1;
            *peers += 1;
        }
        table.put(Peer { addr, id: ask.peer_id, expires: now + self.expiry, seeder: ask.left == 0 });
        if ask.event == Event::Completed {
            swarm.completed = swarm.completed.saturating_add(1);
        }
    }

    fn remove(&mut self, addr: SocketAddr, hash: InfoHash) {
        let Entry::Occupied(mut place) = self.swarms.entry(hash) else { return };
        let swarm = place.get_mut();
        let table = if addr.is_ipv4() { &mut swarm.v4 } else { &mut swarm.v6 };
        if table.remove(addr) {
            release(&mut self.hosts, addr.ip());
            self.peers -= 1;
        }
        if place.get().is_empty() {
            place.remove();
        }
    }
}

/// One entry fewer for `host`.
fn release(hosts: &mut HashMap<IpAddr, u32>, host: IpAddr) {
    if let Entry::Occupied(mut held) = hosts.entry(host) {
        *held.get_mut() = held.get().saturating_sub(1);
        if *held.get() == 0 {
            held.remove();
        }
    }
}

impl Swarm {
    fn is_empty(&self) -> bool {
        self.v4.peers.is_empty() && self.v6.peers.is_empty()
    }

    fn count(&self) -> Count {
        let peers = u32::try_from(self.v4.peers.len() + self.v6.peers.len()).unwrap_or(u32::MAX);
        let seeders = self.v4.seeders.saturating_add(self.v6.seeders);
        Count { seeders, leechers: peers.saturating_sub(seeders), completed: self.completed }
    }
}

impl Table {
    /// Adds or replaces.
    fn put(&mut self, peer: Peer) {
        self.seeders += u32::from(peer.seeder);
        match self.place.entry(peer.addr) {
            Entry::Occupied(at) => {
                if let Some(old) = self.peers.get_mut(*at.get()) {
                    self.seeders -= u32::from(old.seeder);
                    *old = peer;
                }
            }
            Entry::Vacant(at) => {
                at.insert(self.peers.len());
                self.peers.push(peer);
            }
        }
        debug_assert_eq!(self.place.len(), self.peers.len());
    }

    fn remove(&mut self, addr: SocketAddr) -> bool {
        let Some(at) = self.place.remove(&addr) else { return false };
        let gone = self.peers.swap_remove(at);
        self.seeders -= u32::from(gone.seeder);
        if let Some(place) = self.peers.get(at).and_then(|moved| self.place.get_mut(&moved.addr)) {
            *place = at;
        }
        debug_assert_eq!(self.place.len(), self.peers.len());
        true
    }

    /// `want` random peers that satisfy `fits`, each set equally likely.
    fn draw(&self, want: usize, fits: impl Fn(&Peer) -> bool, rng: &mut impl Rng) -> Vec<SocketAddr> {
        let mut all: Vec<_> = self.peers.iter().filter(|peer| fits(peer)).map(|peer| peer.addr).collect();
        let (drawn, _rest) = all.partial_shuffle(rng, want);
        drawn.to_vec()
    }
}

#[cfg(test)]
#[path = "state_tests.rs"]
mod tests;
