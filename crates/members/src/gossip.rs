//! Who is there: SWIM by foca, with what foca leaves to its user.
//!
//! Beside foca: descriptions are signed and verified once ([`Codec`]); a member that hears it was declared down signs
//! a new incarnation; lists are compared now and then and fetched whole where they differ, as memberlist's push-pull
//! does, so that thousands of members know the same ones soon (rendezvous hashing needs that) and learn of every death:
//! when many die at once, gossip does not tell everybody of each, and probing takes as many periods as there are
//! members; seeds that are not members are called again, which heals what gossip has forgotten; and memory is bounded.

use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::num::{NonZeroU8, NonZeroUsize};
use std::sync::Arc;
use std::time::Duration;

use foca::{
    Codec as _, Config, Foca, Member, NoCustomBroadcast, Notification, PeriodicParams, Runtime, State, Timer,
};
use tidecast_identity::NodeId;

use crate::codec::Codec;
use crate::frame::{FULL, Frame, put_member};
use crate::{Dice, Keys, Limits, Peer};

/// Longest packet of foca, bytes. Channels are streams: it needs to fit no datagram.
pub(crate) const MAX_PACKET: usize = 8 << 10;

/// No packet has more members in it: each is longer than 64 bytes.
const MOST_IN_PACKET: usize = MAX_PACKET / 64;

/// What happened to the members.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// A member is there, or is there again.
    Up(Peer),
    /// A member describes itself anew.
    Renamed(Peer),
    /// A member is dead, or has left.
    Down(NodeId),
    /// The others held this node for dead; it is there again, in a new incarnation.
    Rejoined(Peer),
}

/// This node's part in the gossip.
pub(crate) struct Gossip<K: Keys> {
    foca: Foca<Peer, Codec<K>, Dice, NoCustomBroadcast>,
    /// The same as foca's, which it does not lend out.
    codec: Codec<K>,
    asked: Asked,
    timers: BinaryHeap<Due>,
    count: u64,
    /// When a dead one is forgotten: one entry each, however often it died.
    forget: BTreeMap<NodeId, (u64, Peer)>,
    seeds: BTreeSet<NodeId>,
    /// Members that are alive, this node among them, and a digest of them all.
    alive: BTreeMap<NodeId, Peer>,
    digest: u64,
    /// When to compare lists and to call seeds next.
    compare_at: u64,
    /// Whose list we have asked for.
    asked_list: Option<NodeId>,
    /// Whom we gave our list, and when.
    gave_list: BTreeMap<NodeId, u64>,
    out: Vec<(NodeId, Frame)>,
    dice: Dice,
    limits: Limits,
    left: bool,
}

/// A timer of foca, in a heap whose top is due first.
struct Due(u64, u64, Timer<Peer>);

impl PartialEq for Due {
    fn eq(&self, other: &Self) -> bool {
        (self.0, self.1) == (other.0, other.1)
    }
}
impl Eq for Due {}
impl PartialOrd for Due {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Due {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (other.0, other.1).cmp(&(self.0, self.1))
    }
}

/// Collects what foca wants done.
#[derive(Default)]
struct Asked {
    send: Vec<(NodeId, Vec<u8>)>,
    timers: Vec<(Duration, Timer<Peer>)>,
    changes: Vec<Change>,
    joined: bool,
    defunct: bool,
}

impl Runtime<Peer> for &mut Asked {
    fn notify(&mut self, notification: Notification<'_, Peer>) {
        match notification {
            Notification::MemberUp(peer) => self.changes.push(Change::Up(peer.clone())),
            Notification::MemberDown(peer) => self.changes.push(Change::Down(peer.node())),
            Notification::Rename(_, peer) => self.changes.push(Change::Renamed(peer.clone())),
            Notification::Active => self.joined = true,
            Notification::Defunct => self.defunct = true,
            _ => {}
        }
    }

    fn send_to(&mut self, to: Peer, data: &[u8]) {
        self.send.push((to.node(), data.to_vec()));
    }

    fn submit_after(&mut self, event: Timer<Peer>, after: Duration) {
        self.timers.push((after, event));
    }
}

/// What was done since the last look: messages to send, and what happened.
pub(crate) type Done = (Vec<(NodeId, Frame)>, Vec<Change>);

impl<K: Keys> Gossip<K> {
    pub(crate) fn new(keys: &Arc<K>, me: Peer, limits: Limits, seed: u64, now: u64) -> Self {
        let codec = Codec::new(keys.clone());
        let mut dice = Dice(seed);
        let compare_at = now + dice.below(limits.compare_every.max(1));
        let mut gossip = Self {
            foca: Foca::new(me.clone(), config(&limits), Dice(dice.next()), codec.clone()),
            codec,
            asked: Asked::default(),
            timers: BinaryHeap::new(),
            count: 0,
            forget: BTreeMap::new(),
            seeds: BTreeSet::new(),
            alive: BTreeMap::new(),
            digest: 0,
            compare_at,
            asked_list: None,
            gave_list: BTreeMap::new(),
            out: Vec::new(),
            dice,
            limits,
            left: false,
        };
        gossip.insert(me);
        gossip
    }

    pub(crate) fn me(&self) -> &Peer {
        self.foca.identity()
    }

    /// Members that are alive, this node among them.
    pub(crate) fn alive(&self) -> &BTreeMap<NodeId, Peer> {
        &self.alive
    }

    /// True of a member, alive or dead not long ago.
    pub(crate) fn is_known(&self, node: NodeId) -> bool {
        self.alive.contains_key(&node) || self.forget.contains_key(&node)
    }

    /// Calls `seed`, now and whenever it is no member.
    pub(crate) fn join(&mut self, seed: NodeId, now: u64) {
        if seed == self.me().node() || self.left {
            return;
        }
        if self.seeds.len() < self.limits.seeds {
            self.seeds.insert(seed);
        }
        self.announce(seed);
        self.settle(now);
    }

    fn announce(&mut self, to: NodeId) {
        let _ = self.foca.announce(Peer::unknown(to), &mut self.asked);
    }

    /// Says goodbye.
    pub(crate) fn leave(&mut self, now: u64) {
        let _ = self.foca.leave_cluster(&mut self.asked);
        self.left = true;
        self.settle(now);
    }

    /// Describes this node anew.
    pub(crate) fn become_new(&mut self, me: Peer, now: u64) {
        if self.foca.change_identity(me.clone(), &mut self.asked).is_ok() {
            self.insert(me);
            // Whom we tell it, tells us who is there.
            let mut some: Vec<_> = (0..3).filter_map(|_| self.anyone()).collect();
            some.extend(self.seeds.iter().take(2));
            some.into_iter().for_each(|node| self.announce(node));
        }
        self.settle(now);
    }

    /// The incarnation that outbids all that were ever heard of.
    pub(crate) fn next_incarnation(&self, now: u64) -> u64 {
        now.max(self.me().incarnation().saturating_add(1)).max(self.heard().saturating_add(1))
    }

    fn heard(&self) -> u64 {
        self.codec.own()
    }

    /// True when the others hold this node for dead, or know a later life of it: it must describe itself anew.
    pub(crate) fn must_renew(&self) -> bool {
        !self.left && (self.asked.defunct || self.heard() > self.me().incarnation())
    }

    /// A packet of `from`; false if it is none.
    pub(crate) fn packet(&mut self, from: NodeId, packet: &[u8], now: u64) -> bool {
        if self.left {
            return true;
        }
        let Some(packet) = self.filter(from, packet) else { return false };
        let taken = self.foca.handle_data(&packet, &mut self.asked);
        self.settle(now);
        !matches!(taken, Err(foca::Error::MalformedPacket | foca::Error::Decode(_)))
    }

    /// The packet, if it is the sender's own, without members for which there is no room.
    fn filter(&mut self, from: NodeId, packet: &[u8]) -> Option<Vec<u8>> {
        let mut rest = packet;
        let header = self.codec.decode_header(&mut rest).ok()?;
        if header.src.node() != from {
            return None;
        }
        let size = self.foca.iter_membership_state().len();
        let mut out = Vec::new();
        if rest.len() < 2 || size + MOST_IN_PACKET < self.limits.members {
            out = packet.to_vec();
        } else {
            let (count, mut tail) = rest.split_at(2);
            let count = count.iter().fold(0, |all, b| all << 8 | usize::from(*b));
            let mut kept = Vec::new();
            for _ in 0..count {
                let member = self.codec.decode_member(&mut tail).ok()?;
                let (node, room) = (member.id().node(), size + kept.len() < self.limits.members);
                // Only of itself does a node say that it lives where it was never heard of; see `own`.
                if room || self.is_known(node) || node == self.me().node() {
                    kept.push(member);
                }
            }
            self.codec.encode_header(&header, &mut out).ok()?;
            out.extend(u16::try_from(kept.len()).ok()?.to_be_bytes());
            kept.iter().for_each(|member| put_member(&mut out, member));
        }
        // Who speaks has shown its card: there is as much room again for those.
        let known = self.is_known(from) || size < 2 * self.limits.members;
        known.then_some(out)
    }

    /// "Is your list the same?"
    pub(crate) fn compare(&mut self, from: NodeId, digest: u64, now: u64) {
        let recent = self.gave_list.get(&from).is_some_and(|at| now < at + self.limits.compare_every / 4);
        if self.left || digest == self.digest || recent || !self.alive.contains_key(&from) {
            return;
        }
        if self.gave_list.len() > self.limits.members {
            self.gave_list.clear();
        }
        self.gave_list.insert(from, now);
        let me = Member::alive(self.me().clone());
        let (mut part, mut len) = (Vec::new(), 0);
        for member in self.foca.iter_membership_state().chain([&me]) {
            len += member.id().bytes().len() + 3;
            part.push(member.clone());
            if len >= FULL {
                self.out.push((from, Frame::Members(std::mem::take(&mut part))));
                len = 0;
            }
        }
        self.out.push((from, Frame::Members(part)));
    }

    /// The list that we asked `from` for, or a part of it; false if somebody in it is made up.
    pub(crate) fn list(&mut self, from: NodeId, members: Vec<Member<Peer>>, now: u64) -> bool {
        if self.asked_list != Some(from) || self.left {
            return true;
        }
        let mut room = self.limits.members.saturating_sub(self.foca.iter_membership_state().len());
        let mut taken = Vec::new();
        for member in members {
            let Some(member) = self.codec.admit_member(member) else { return false };
            let (node, known) = (member.id().node(), self.is_known(member.id().node()));
            // A death that was missed counts; of the others' dead nobody needs to hear.
            let dead = member.state() == State::Down && !self.alive.contains_key(&node);
            if node == self.me().node() || dead || (!known && room == 0) {
                continue;
            }
            room -= usize::from(!known);
            taken.push(member);
        }
        let _ = self.foca.apply_many(taken.into_iter(), false, &mut self.asked);
        self.settle(now);
        true
    }

    /// When there is something to do by itself.
    pub(crate) fn next(&self) -> u64 {
        let timer = self.timers.peek().map_or(u64::MAX, |due| due.0);
        self.compare_at.min(timer)
    }

    pub(crate) fn tick(&mut self, now: u64) {
        while self.timers.peek().is_some_and(|due| due.0 <= now) {
            let Some(Due(_, _, timer)) = self.timers.pop() else { break };
            let _ = self.foca.handle_timer(timer, &mut self.asked);
            self.settle(now);
        }
        if now >= self.compare_at && !self.left {
            self.compare_at =
                now + self.limits.compare_every / 2 + self.dice.below(self.limits.compare_every.max(1));
            let dead: Vec<_> =
                self.forget.iter().filter(|(_, (at, _))| *at <= now).map(|(n, _)| *n).collect();
            for node in dead {
                if let Some((_, peer)) = self.forget.remove(&node) {
                    let _ = self.foca.handle_timer(Timer::RemoveDown(peer), &mut self.asked);
                }
            }
            self.ask_list();
            let lost: Vec<_> = self.seeds.iter().filter(|s| !self.alive.contains_key(s)).copied().collect();
            let lost = lost.get(self.dice.below(lost.len().max(1) as u64) as usize).copied();
            lost.into_iter().for_each(|seed| self.announce(seed));
            self.settle(now);
        }
    }

    fn ask_list(&mut self) {
        self.asked_list = self.anyone();
        self.out.extend(self.asked_list.map(|node| (node, Frame::Compare(self.digest))));
    }

    /// Any member that is alive but this node.
    fn anyone(&mut self) -> Option<NodeId> {
        let me = self.me().node();
        let at = self.dice.below(self.alive.len().saturating_sub(1).max(1) as u64) as usize;
        self.alive.keys().filter(|n| **n != me).nth(at).copied()
    }

    /// Takes over what foca asked for.
    fn settle(&mut self, now: u64) {
        for (after, timer) in std::mem::take(&mut self.asked.timers) {
            let at = now.saturating_add(u64::try_from(after.as_millis()).unwrap_or(u64::MAX));
            if let Timer::RemoveDown(peer) = timer {
                self.forget.insert(peer.node(), (at, peer));
                continue;
            }
            self.count += 1;
            self.timers.push(Due(at, self.count, timer));
        }
        let packets = std::mem::take(&mut self.asked.send);
        self.out.extend(packets.into_iter().map(|(to, packet)| (to, Frame::Gossip(packet))));
        if std::mem::take(&mut self.asked.joined) {
            self.ask_list();
        }
        self.codec.prune(4 * self.limits.members + 64, |node| self.is_known(*node));
    }

    /// What is to be sent and what happened since the last time.
    pub(crate) fn take(&mut self) -> Done {
        self.asked.defunct = false;
        let changes = std::mem::take(&mut self.asked.changes);
        for change in &changes {
            match change {
                Change::Up(peer) => {
                    self.forget.remove(&peer.node());
                    self.insert(peer.clone());
                }
                Change::Renamed(peer) if self.alive.contains_key(&peer.node()) => self.insert(peer.clone()),
                Change::Down(node) if *node != self.me().node() => self.remove(*node),
                _ => {}
            }
        }
        (std::mem::take(&mut self.out), changes)
    }

    fn insert(&mut self, peer: Peer) {
        self.remove(peer.node());
        self.digest ^= digest(&peer);
        self.alive.insert(peer.node(), peer);
    }

    fn remove(&mut self, node: NodeId) {
        if let Some(old) = self.alive.remove(&node) {
            self.digest ^= digest(&old);
        }
    }
}

fn digest(peer: &Peer) -> u64 {
    tidecast_hash::sha256(peer.bytes()).iter().take(8).fold(0, |all, b| all << 8 | u64::from(*b))
}

fn config(limits: &Limits) -> Config {
    let some = |n: usize| NonZeroUsize::new(n).unwrap_or(NonZeroUsize::MIN);
    let every = |ms, n| Some(PeriodicParams { frequency: Duration::from_millis(ms), num_members: some(n) });
    Config {
        probe_period: Duration::from_millis(limits.probe_every),
        probe_rtt: Duration::from_millis(limits.probe_every / 2),
        num_indirect_probes: some(3),
        max_transmissions: NonZeroU8::new(12).unwrap_or(NonZeroU8::MIN),
        suspect_to_down_after: Duration::from_millis(limits.suspect_for),
        remove_down_after: Some(Duration::from_millis(limits.forget_after)),
        max_packet_size: some(MAX_PACKET),
        notify_down_members: true,
        // Lists are compared instead.
        periodic_announce: None,
        periodic_announce_to_down_members: every(limits.compare_every, 2),
        periodic_gossip: every(limits.gossip_every, 3),
    }
}
