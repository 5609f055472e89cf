//! Web seeds that this node fetches from, and the nodes with which it shares them.

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Duration;

use crate::api::{PeerId, Time};
use crate::bitset::to_ranges;

/// How long a node waits for the fetches of others before it takes over some of them.
const IDLE: Duration = Duration::from_secs(2);

/// One web seed.
#[derive(Debug)]
struct WebSeed {
    /// The pieces of the server.
    has: Vec<Range<u32>>,
    /// It is asked in order, and not divided.
    whole: bool,
    /// Chunks of which we are the owner of this rank, or a better one, are ours to fetch.
    rank: usize,
    /// Since when we have nothing of our share to ask it for, and our received bytes at that time.
    idle: Option<(Time, u64)>,
}

/// How a web seed does, as its connection shows it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Activity {
    /// Nothing is asked of it, and nothing that is ours to fetch is left.
    pub(crate) idle: bool,
    /// Bytes per second that it gives.
    pub(crate) rate: u64,
    /// Bytes received from all.
    pub(crate) received: u64,
}

/// See the head of the file.
#[derive(Debug, Default)]
pub(crate) struct WebSeeds {
    all: BTreeMap<PeerId, WebSeed>,
    /// This node's key, and those of its peers.
    own: u64,
    keys: BTreeMap<PeerId, u64>,
    /// The nodes in the division now, ascending, without us.
    sharers: Vec<u64>,
}

impl WebSeeds {
    /// A web seed; `key`: this node's. `whole`: it is asked in order, and not divided.
    pub(crate) fn up(&mut self, id: PeerId, key: u64, whole: bool) {
        self.own = key;
        self.all.insert(id, WebSeed { has: Vec::new(), whole, rank: 1, idle: None });
    }

    /// A connection has ended.
    pub(crate) fn down(&mut self, id: PeerId) {
        self.keys.remove(&id);
        self.all.remove(&id);
    }

    /// Both ends of this connection know its peer by this number.
    pub(crate) fn set_key(&mut self, id: PeerId, key: u64) {
        self.keys.insert(id, key);
    }

    /// There are no web seeds.
    pub(crate) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    pub(crate) fn contains(&self, id: PeerId) -> bool {
        self.all.contains_key(&id)
    }

    pub(crate) fn ids(&self) -> Vec<PeerId> {
        self.all.keys().copied().collect()
    }

    /// The pieces of the server.
    pub(crate) fn set_has(&mut self, id: PeerId, pieces: &[Range<u32>]) {
        if let Some(web) = self.all.get_mut(&id) {
            web.has = pieces.to_vec();
        }
    }

    /// The server has not this piece.
    pub(crate) fn has_not(&mut self, id: PeerId, piece: u32) {
        let Some(web) = self.all.get_mut(&id) else { return };
        let Some(at) = web.has.iter().position(|r| r.contains(&piece)) else { return };
        let range = web.has.remove(at);
        for part in [piece + 1..range.end, range.start..piece].into_iter().filter(|r| !r.is_empty()) {
            web.has.insert(at, part);
        }
    }

    /// The nodes with `fetches`, among the peers in the division, divide from now on; whether these are
    /// others than before.
    pub(crate) fn divide_with(&mut self, fetches: impl Fn(PeerId) -> bool) -> bool {
        let keys = self.keys.iter().filter(|(id, _)| fetches(**id));
        let mut keys: Vec<u64> = keys.map(|(_, key)| *key).filter(|key| *key != self.own).collect();
        keys.sort_unstable();
        keys.dedup();
        let changed = keys != self.sharers;
        self.sharers = keys;
        changed
    }

    /// Our share of the server's pieces, in chunks of this many pieces.
    pub(crate) fn ours(&self, id: PeerId, chunk: u32) -> Option<Vec<Range<u32>>> {
        let web = self.all.get(&id)?;
        let chunk = if web.whole { u32::MAX } else { chunk };
        let (own, sharers) = (self.own, &self.sharers);
        if own == 0 || web.rank > sharers.len() {
            return Some(web.has.clone());
        }
        let mut last = (u32::MAX, false);
        let mut is_ours = |piece: &u32| {
            let number = piece / chunk;
            if last.0 != number {
                last = (number, rank(own, sharers, number) < web.rank);
            }
            last.1
        };
        Some(to_ranges(web.has.iter().cloned().flatten().filter(|p| is_ours(p))))
    }

    /// Updates a web seed; `changed`: the nodes in the division have changed. Whether our share has changed.
    pub(crate) fn update(&mut self, id: PeerId, doing: Activity, changed: bool, now: Time) -> bool {
        let Activity { idle, rate, received } = doing;
        let ranks = self.sharers.len();
        let Some(web) = self.all.get_mut(&id) else { return false };
        if changed {
            (web.rank, web.idle) = (1, None);
        }
        let (since, had) = *web.idle.filter(|_| idle).get_or_insert((now, received));
        let waited = now.since(since);
        // Nodes with half the rate of the web seed are not helped.
        let gained = u128::from(received - had) * 1000;
        let fed = gained > 0 && gained >= u128::from(rate / 2) * waited.as_millis();
        let over = idle && waited >= IDLE && !fed && web.rank <= ranks;
        web.idle = (idle && !over).then_some(if waited >= IDLE { (now, received) } else { (since, had) });
        if over {
            web.rank = web.rank.saturating_mul(2);
        }
        over || changed
    }
}

/// How many of the others come before `own` as owners of a chunk.
fn rank(own: u64, others: &[u64], chunk: u32) -> usize {
    let mine = (mix(own, chunk), own);
    others.iter().filter(|key| (mix(**key, chunk), **key) > mine).count()
}

/// A hash of both (the finalizer of splitmix64).
fn mix(key: u64, chunk: u32) -> u64 {
    let mut z = key ^ u64::from(chunk).wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
