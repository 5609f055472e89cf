//! One member: gossip, the records that it publishes and keeps, lookups; its input and output.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

use tidecast_identity::NodeId;

use crate::frame::Frame;
use crate::gossip::{Change, Gossip};
use crate::lookup::{Found, Lookup};
use crate::publish::{Published, frames};
use crate::record_store::{RecordStore, Verdict};
use crate::{Claim, Key, Keys, Limits, Peer, Record, Rng, Slot, rank};

/// Time between two rounds of announcing, milliseconds.
const ROUND: u64 = 1_000;

/// Events for the daemon.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A member has joined, changed or left.
    Member(Change),
    /// A lookup is over.
    Found(Found),
    /// This node has sent a malformed frame, or one with data that is not signed.
    Misbehaved(NodeId),
}

/// This node's description for other members.
#[derive(Clone, Debug)]
pub struct Describe {
    /// Higher than in any earlier run, e.g. milliseconds since 1970.
    pub incarnation: u64,
    /// Hash of its card.
    pub card: [u8; 32],
    /// Its addresses, best first.
    pub addresses: Vec<SocketAddr>,
}

/// One member. The time is an argument of everything, in milliseconds since 1970.
pub struct Members<K: Keys> {
    keys: Arc<K>,
    limits: Limits,
    describe: Describe,
    gossip: Gossip<K>,
    own: Published,
    kept: RecordStore,
    lookups: BTreeMap<u64, Lookup>,
    last_lookup: u64,
    /// Records that each peer may still send, and the time from which this grows.
    credit: BTreeMap<NodeId, (u64, u64)>,
    round_at: u64,
    rng: Rng,
    messages: Vec<(NodeId, Vec<u8>)>,
    events: Vec<Event>,
}

impl<K: Keys> Members<K> {
    /// A member that knows no others yet. `seed` determines its random choices.
    #[must_use]
    pub fn new(keys: K, describe: Describe, limits: Limits, seed: u64, now: u64) -> Self {
        let keys = Arc::new(keys);
        let mut rng = Rng(seed);
        let me = Peer::sign(&*keys, describe.incarnation, describe.card, &describe.addresses);
        let gossip = Gossip::new(&keys, me, limits.clone(), rng.next(), now);
        Self {
            keys,
            gossip,
            own: Published::default(),
            kept: RecordStore::default(),
            lookups: BTreeMap::new(),
            last_lookup: 0,
            credit: BTreeMap::new(),
            round_at: now + rng.below(ROUND),
            rng,
            limits,
            describe,
            messages: Vec::new(),
            events: Vec::new(),
        }
    }

    /// The description of this node.
    #[must_use]
    pub fn me(&self) -> &Peer {
        self.gossip.me()
    }

    /// The live members, including this node.
    pub fn alive(&self) -> impl Iterator<Item = &Peer> {
        self.gossip.alive().values()
    }

    /// A live member.
    #[must_use]
    pub fn member(&self, node: NodeId) -> Option<&Peer> {
        self.gossip.alive().get(&node)
    }

    /// The number of records that this node publishes, and of those that it keeps.
    #[must_use]
    pub fn record_counts(&self) -> (usize, usize) {
        (self.own.len(), self.kept.len())
    }

    /// Joins the members through `seed`, which the daemon can connect to; joins again by itself when `seed` is lost.
    pub fn join(&mut self, seed: NodeId, now: u64) {
        self.gossip.join(seed, now);
        self.settle(now);
    }

    /// Leaves: other members are told, instead of having to detect it. This member must not be used afterwards.
    pub fn leave(&mut self, now: u64) {
        self.gossip.leave(now);
        self.settle(now);
    }

    /// The daemon's last channel to `node` has ended. The member is asked, to find out whether it is dead.
    pub fn lost(&mut self, node: NodeId, now: u64) {
        self.gossip.lost(node, now);
        self.settle(now);
    }

    /// Changes the card and addresses of this node.
    pub fn describe(&mut self, card: [u8; 32], addresses: Vec<SocketAddr>, now: u64) {
        (self.describe.card, self.describe.addresses) = (card, addresses);
        self.renew(now);
        self.settle(now);
    }

    fn renew(&mut self, now: u64) {
        let incarnation = self.gossip.next_incarnation(now);
        let me = Peer::sign(&*self.keys, incarnation, self.describe.card, &self.describe.addresses);
        self.gossip.become_new(me, now);
    }

    /// Publishes `claim` until it is withdrawn; each signature is valid for `life` milliseconds, and is renewed after about
    /// half of it. `None` if the claim has a name or an ad that is too long or empty.
    pub fn announce(&mut self, claim: Claim, life: u64, now: u64) -> Option<Record> {
        let life = life.clamp(1_000, self.limits.longest_life);
        let record = self.own.sign(&*self.keys, claim, now + life, false, now)?;
        self.update(record.clone(), Some(life), now);
        Some(record)
    }

    /// Withdraws this node's record of `slot`: a tombstone replaces it until it would have expired.
    pub fn withdraw(&mut self, slot: &Slot, now: u64) {
        let Some(record) = self.own.get(slot).filter(|r| r.signer == self.keys.node()) else { return };
        let (claim, end) = (record.claim.clone(), record.expires);
        if let Some(record) = self.own.sign(&*self.keys, claim, end, true, now) {
            self.update(record, None, now);
        }
    }

    /// Publishes another node's record (a name whose origin may be dead); false if it is not signed, or expired.
    pub fn carry(&mut self, record: Record, now: u64) -> bool {
        let old = self.own.get(&record.slot());
        let good = record.expires > now && record.signer != self.keys.node() && record.is_signed(&*self.keys);
        if good && old.is_none_or(|old| record.supersedes(old)) {
            self.update(record, None, now);
        }
        good
    }

    /// Stops publishing another node's record.
    pub fn drop_record(&mut self, slot: &Slot) {
        self.own.forget(slot);
    }

    fn update(&mut self, record: Record, life: Option<u64>, now: u64) {
        let members: Vec<_> = self.gossip.alive().keys().copied().collect();
        self.own.update(record, life, members.into_iter(), (&self.limits, &mut self.rng, now));
    }

    /// Looks up `key`; an [`Event::Found`] with the returned number follows, at the latest after two timeouts.
    pub fn lookup(&mut self, key: Key, now: u64) -> u64 {
        self.last_lookup += 1;
        let id = self.last_lookup;
        let whom = self.ranked(&key, self.limits.copies);
        let full = self.lookups.len() >= self.limits.lookups;
        // With too many open lookups this one only searches the local records.
        let whom = if full { Vec::new() } else { whom };
        let mut lookup = Lookup::new(key, &whom, now + self.limits.lookup_timeout);
        self.ask(id, &mut lookup, &whom, now);
        if full {
            self.events.push(Event::Found(lookup.finish(id)));
        } else {
            self.lookups.insert(id, lookup);
        }
        self.settle(now);
        id
    }

    fn ranked(&self, key: &Key, most: usize) -> Vec<NodeId> {
        let best = rank::best(key, self.gossip.alive().keys().copied(), most);
        best.into_iter().map(|(_, node)| node).collect()
    }

    fn ask(&mut self, id: u64, lookup: &mut Lookup, whom: &[NodeId], now: u64) {
        let (me, key) = (self.keys.node(), lookup.key());
        for node in whom {
            if *node == me {
                let here = self.kept.find(&key, &self.limits, &mut self.rng, now);
                lookup.answer(me, here, &*self.keys, now);
            } else {
                self.send(*node, &Frame::Ask(id, key));
            }
        }
    }

    /// A frame of `from`, which TLS has authenticated and whose card is valid.
    pub fn receive(&mut self, from: NodeId, bytes: &[u8], now: u64) {
        self.gossip.received(from, now);
        let fine = match Frame::decode(bytes) {
            None => Frame::is_newer(bytes),
            Some(Frame::Gossip(packet)) => self.gossip.packet(from, &packet, now),
            Some(Frame::Compare(digest)) => {
                self.gossip.compare(from, digest, now);
                true
            }
            Some(Frame::Members(members)) => self.gossip.list(from, members, now),
            Some(Frame::Keep(records)) => self.keep(from, records, now),
            Some(Frame::Kept(tags, newer)) => {
                self.own.kept(from, &tags, now);
                newer.into_iter().for_each(|record| self.own.newer(record, &*self.keys, now));
                true
            }
            Some(Frame::Ask(id, key)) => {
                let records = self.kept.find(&key, &self.limits, &mut self.rng, now);
                let records = frames(records).next().unwrap_or_default();
                self.send(from, &Frame::Answer(id, records));
                true
            }
            Some(Frame::Answer(id, records)) => {
                let lookup = self.lookups.get_mut(&id);
                lookup.is_none_or(|lookup| lookup.answer(from, records, &*self.keys, now))
            }
        };
        if !fine {
            self.events.push(Event::Misbehaved(from));
        }
        self.settle(now);
    }

    /// Keeps the records of `from`, within its limits.
    fn keep(&mut self, from: NodeId, records: Vec<Record>, now: u64) -> bool {
        let allowed = self.allowed(from, records.len() as u64, now);
        let (mut tags, mut newer, mut room) = (Vec::new(), Vec::new(), crate::frame::FULL);
        for record in records.into_iter().take(allowed) {
            // Names may be brought by others, because their origin may be dead; holder records only by the holder itself.
            if record.signer != from && !matches!(record.claim, Claim::Name { .. }) {
                continue;
            }
            match self.kept.offer(from, &record, &*self.keys, &self.limits, now) {
                Verdict::Kept => tags.push(record.tag()),
                Verdict::Newer(record) => {
                    let len = record.encode().len() + 2;
                    if len <= room {
                        room -= len;
                        newer.push(*record);
                    }
                }
                Verdict::Refused => {}
            }
        }
        self.send(from, &Frame::Kept(tags, newer));
        true
    }

    /// How many of `wanted` records `from` may bring now.
    fn allowed(&mut self, from: NodeId, wanted: u64, now: u64) -> usize {
        let (most, rate) = (2 * self.limits.records_per_second, self.limits.records_per_second);
        if self.credit.len() > 2 * self.limits.members {
            self.credit.clear();
        }
        let (credit, since) = self.credit.entry(from).or_insert((most, now));
        let grown = now.saturating_sub(*since).saturating_mul(rate) / 1_000;
        if grown > 0 {
            (*credit, *since) = (credit.saturating_add(grown).min(most), now);
        }
        let allowed = wanted.min(*credit);
        *credit -= allowed;
        usize::try_from(allowed).unwrap_or(usize::MAX)
    }

    /// The time at which [`Members::tick`] must be called next.
    #[must_use]
    pub fn next_tick(&self) -> u64 {
        let lookups = self.lookups.values().map(|l| l.deadline).min().unwrap_or(u64::MAX);
        self.gossip.next().min(self.round_at).min(lookups)
    }

    /// Does the work that is due; a late call is allowed.
    pub fn tick(&mut self, now: u64) {
        self.gossip.tick(now);
        // The second condition covers a clock that was set back.
        if now >= self.round_at || self.round_at > now + ROUND {
            self.round_at = now + ROUND;
            self.kept.expire(now);
            let due = self.own.round(&*self.keys, &mut self.rng, now);
            for (node, records) in due {
                if node == self.keys.node() {
                    self.keep_here(&records, now);
                } else {
                    self.send(node, &Frame::Keep(records));
                }
            }
        }
        self.settle(now);
    }

    /// Keeps this node's own records, if it is one of their keepers.
    fn keep_here(&mut self, records: &[Record], now: u64) {
        for record in records {
            match self.kept.offer(self.keys.node(), record, &*self.keys, &self.limits, now) {
                Verdict::Kept => self.own.kept(self.keys.node(), &[record.tag()], now),
                Verdict::Newer(newer) => self.own.newer(*newer, &*self.keys, now),
                Verdict::Refused => {}
            }
        }
    }

    /// Handles the changes of the last input.
    fn settle(&mut self, now: u64) {
        if self.gossip.must_renew() {
            self.renew(now);
            self.events.push(Event::Member(Change::Rejoined(self.me().clone())));
        }
        let (frames, changes) = self.gossip.take();
        frames.iter().for_each(|(to, frame)| self.send(*to, frame));
        for change in changes {
            match &change {
                // A renamed member may have restarted, and lost the records that it kept.
                Change::Up(peer) | Change::Renamed(peer) if self.member(peer.node()).is_some() => {
                    self.own.up(peer.node(), &self.limits, now);
                }
                Change::Down(node) => {
                    let left: Vec<_> = self.gossip.alive().keys().copied().collect();
                    self.own.down(*node, &left, &self.limits, now);
                }
                _ => {}
            }
            self.events.push(Event::Member(change));
        }
        let over: Vec<_> = self.lookups.iter().filter(|(_, l)| l.is_over(now)).map(|(id, _)| *id).collect();
        for id in over {
            let Some(mut lookup) = self.lookups.remove(&id) else { continue };
            let ranked = self.ranked(&lookup.key(), 2 * self.limits.copies);
            let more = lookup.more(ranked.into_iter(), now + self.limits.lookup_timeout);
            self.ask(id, &mut lookup, &more, now);
            if more.is_empty() || lookup.is_over(now) {
                self.events.push(Event::Found(lookup.finish(id)));
            } else {
                self.lookups.insert(id, lookup);
            }
        }
    }

    fn send(&mut self, to: NodeId, frame: &Frame) {
        if to != self.keys.node() {
            self.messages.push((to, frame.encode()));
        }
    }

    /// Frames to send since the last call. A frame that cannot be sent may be dropped: the protocol tolerates loss.
    pub fn take_messages(&mut self) -> Vec<(NodeId, Vec<u8>)> {
        std::mem::take(&mut self.messages)
    }

    /// Events since the last call.
    pub fn take_events(&mut self) -> Vec<Event> {
        std::mem::take(&mut self.events)
    }
}
