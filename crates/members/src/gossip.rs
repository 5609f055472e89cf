//! Membership: SWIM by foca, with the parts that foca leaves to its user.
//!
//! This file adds to foca:
//! - Descriptions are signed, and verified once ([`Codec`]). A member that was declared down signs a new incarnation.
//! - Lists are compared periodically, and fetched whole where they differ, as memberlist's push-pull does. So thousands of
//!   members soon have the same list, which rendezvous hashing needs, and learn of every death: when many members die at
//!   once, gossip does not reach every member with each death, and probing takes as many periods as there are members.
//! - A member that a hint concerns is asked at once ([`Liveness`]).
//! - Time during which this node did not run does not count against others ([`Clock`]).
//! - Seeds that are not members are called again, which reconnects members that gossip has forgotten.
//! - Memory is bounded.

mod lists;
mod runtime;

use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::num::{NonZeroU8, NonZeroUsize};
use std::sync::Arc;
use std::time::Duration;

use foca::{
    Codec as _, Config, Foca, Header, Member, Message, NoCustomBroadcast, PeriodicParams, State, Timer,
};
use tidecast_identity::NodeId;

use self::runtime::{Asked, Due};
use crate::clock::Clock;
use crate::codec::Codec;
use crate::frame::{Frame, put_member};
use crate::liveness::Liveness;
use crate::{Key, Keys, Limits, Peer, Rng};

/// Longest packet of foca, bytes. Channels are streams, so it need not fit into a datagram.
pub(crate) const MAX_PACKET: usize = 8 << 10;

/// The maximum number of members in a packet: each is longer than 64 bytes.
const MOST_IN_PACKET: usize = MAX_PACKET / 64;

/// Members that are asked at once after a failed probe whether they live, and that receive a goodbye directly.
const ASK_AT_ONCE: usize = 64;
/// Members that are asked to probe a member that does not answer.
const HELPERS: usize = 3;
/// With more silent members than this no helpers are asked.
const FEW_SILENT: usize = 8;
/// A question that every version answers; any frame from the member counts as the answer.
const PROBE: Frame = Frame::Ask(0, Key([0; 32]));

/// Changes of the members.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// A member is alive, or alive again.
    Up(Peer),
    /// A member has a new description.
    Renamed(Peer),
    /// A member is dead, or has left.
    Down(NodeId),
    /// Other members declared this node dead; it has rejoined with a new incarnation.
    Rejoined(Peer),
}

/// This node's part in the gossip.
pub(crate) struct Gossip<K: Keys> {
    foca: Foca<Peer, Codec<K>, Rng, NoCustomBroadcast>,
    /// The same as foca's codec, which foca does not expose.
    codec: Codec<K>,
    asked: Asked,
    timers: BinaryHeap<Due>,
    count: u64,
    clock: Clock,
    liveness: Liveness,
    /// The member that foca probes, and the start of the probe, until the answer is late.
    probed: Option<(NodeId, u64)>,
    /// Members that this node will declare dead if they do not refute it.
    suspected: BTreeSet<NodeId>,
    /// When members whose time to refute is over were asked a last time.
    last_call: BTreeMap<NodeId, u64>,
    /// The token that foca's current timers have.
    token: u8,
    /// When a dead member is forgotten: one entry for each member, however often it died.
    forget: BTreeMap<NodeId, (u64, Peer)>,
    seeds: BTreeSet<NodeId>,
    /// Live members, including this node, and a digest of them.
    alive: BTreeMap<NodeId, Peer>,
    digest: u64,
    /// The next time to compare lists and to call seeds.
    compare_at: u64,
    /// The member whose list was requested.
    asked_list: Option<NodeId>,
    /// The members that received our list, and when.
    gave_list: BTreeMap<NodeId, u64>,
    out: Vec<(NodeId, Frame)>,
    rng: Rng,
    limits: Limits,
    left: bool,
}

/// Output since the last call: messages to send, and changes.
pub(crate) type Done = (Vec<(NodeId, Frame)>, Vec<Change>);

impl<K: Keys> Gossip<K> {
    pub(crate) fn new(keys: &Arc<K>, me: Peer, limits: Limits, seed: u64, now: u64) -> Self {
        let codec = Codec::new(keys.clone());
        let mut rng = Rng(seed);
        let compare_at = now + rng.below(limits.compare_every.max(1));
        let mut gossip = Self {
            foca: Foca::new(me.clone(), config(&limits), Rng(rng.next()), codec.clone()),
            codec,
            asked: Asked::default(),
            timers: BinaryHeap::new(),
            count: 0,
            clock: Clock::new(now),
            liveness: Liveness::new(2 * limits.probe_every, now),
            probed: None,
            suspected: BTreeSet::new(),
            last_call: BTreeMap::new(),
            token: 0,
            forget: BTreeMap::new(),
            seeds: BTreeSet::new(),
            alive: BTreeMap::new(),
            digest: 0,
            compare_at,
            asked_list: None,
            gave_list: BTreeMap::new(),
            out: Vec::new(),
            rng,
            limits,
            left: false,
        };
        gossip.insert(me);
        gossip
    }

    pub(crate) fn me(&self) -> &Peer {
        self.foca.identity()
    }

    /// Live members, including this node.
    pub(crate) fn alive(&self) -> &BTreeMap<NodeId, Peer> {
        &self.alive
    }

    /// Whether it is a member, alive or recently dead.
    pub(crate) fn is_known(&self, node: NodeId) -> bool {
        self.alive.contains_key(&node) || self.forget.contains_key(&node)
    }

    /// The time by the clock that does not jump.
    fn time(&mut self, now: u64) -> u64 {
        let due = self.due();
        self.clock.read(now, due)
    }

    /// `node` has sent something.
    pub(crate) fn received(&mut self, node: NodeId, now: u64) {
        let now = self.time(now);
        self.note(node, now);
    }

    fn note(&mut self, node: NodeId, now: u64) {
        if self.alive.contains_key(&node) {
            self.liveness.received(node, now);
            if self.suspected.contains(&node) {
                self.warn(node);
            }
        }
    }

    /// Tells a suspect that it is suspected, so that it refutes that: while it was disconnected, no member could tell it.
    fn warn(&mut self, node: NodeId) {
        let known = self.known(node).filter(|known| known.state() == State::Suspect).cloned();
        if let Some(known) = known {
            let told = self.told(&known.id().clone(), Message::Gossip, Some(&known));
            self.out.extend(told);
        } else {
            self.suspected.remove(&node);
        }
    }

    /// The last channel to `node` has ended.
    pub(crate) fn lost(&mut self, node: NodeId, now: u64) {
        let now = self.time(now);
        if self.alive.contains_key(&node) && !self.left {
            self.ask(node, None, now);
        }
    }

    /// Asks a member whether it lives; see [`Liveness`].
    fn ask(&mut self, node: NodeId, said: Option<Member<Peer>>, now: u64) {
        if self.liveness.ask(node, said, now) {
            self.out.push((node, PROBE));
        }
    }

    /// Calls `seed`, now and whenever it is not a member.
    pub(crate) fn join(&mut self, seed: NodeId, now: u64) {
        let now = self.time(now);
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

    /// Leaves the group, and tells other members.
    pub(crate) fn leave(&mut self, now: u64) {
        let now = self.time(now);
        let _ = self.foca.leave_cluster(&mut self.asked);
        // A goodbye that comes from the member itself is not doubted; see `needs_confirmation`.
        let me = self.me().clone();
        let others = self.alive.values().filter(|peer| **peer != me).take(ASK_AT_ONCE).cloned();
        for peer in others.collect::<Vec<_>>() {
            let down = Member::down(me.clone());
            let told = self.told(&peer, Message::Gossip, Some(&down));
            self.out.extend(told);
        }
        self.left = true;
        self.settle(now);
    }

    /// Changes the description of this node.
    pub(crate) fn become_new(&mut self, me: Peer, now: u64) {
        let now = self.time(now);
        if self.foca.change_identity(me.clone(), &mut self.asked).is_ok() {
            self.insert(me);
            // The members that receive it answer with their lists.
            let mut some: Vec<_> = (0..3).filter_map(|_| self.anyone()).collect();
            some.extend(self.seeds.iter().take(2));
            some.into_iter().for_each(|node| self.announce(node));
        }
        self.settle(now);
    }

    /// An incarnation higher than all known ones of this node.
    pub(crate) fn next_incarnation(&self, now: u64) -> u64 {
        now.max(self.me().incarnation().saturating_add(1)).max(self.codec.own().saturating_add(1))
    }

    /// Whether other members declared this node dead, or know a later incarnation of it: then it needs a new description.
    pub(crate) fn must_renew(&self) -> bool {
        !self.left && (self.asked.defunct || self.codec.own() > self.me().incarnation())
    }

    /// A packet of `from`; false if it is malformed.
    pub(crate) fn packet(&mut self, from: NodeId, packet: &[u8], now: u64) -> bool {
        if self.left {
            return true;
        }
        let now = self.time(now);
        let Some(packet) = self.filter(from, packet, now) else { return false };
        let taken = self.foca.handle_data(&packet, &mut self.asked);
        self.settle(now);
        !matches!(taken, Err(foca::Error::MalformedPacket | foca::Error::Decode(_)))
    }

    /// The packet, if it is the sender's own, without members that exceed the limits or must be asked first.
    fn filter(&mut self, from: NodeId, packet: &[u8], now: u64) -> Option<Vec<u8>> {
        let mut rest = packet;
        let header = self.codec.decode_header(&mut rest).ok()?;
        let size = self.foca.iter_membership_state().len();
        // The sender has shown its card: such members may exceed the limit by as many again.
        if header.src.node() != from || !(self.is_known(from) || size < 2 * self.limits.members) {
            return None;
        }
        if let Message::ForwardedAck { origin, .. } = &header.message {
            self.note(origin.node(), now);
        }
        let Some((count, mut tail)) = rest.split_at_checked(2) else { return Some(packet.to_vec()) };
        let count = count.iter().fold(0, |all, b| all << 8 | usize::from(*b));
        let mut kept = Vec::new();
        for _ in 0..count {
            let member = self.codec.decode_member(&mut tail).ok()?;
            let (node, room) = (member.id().node(), size + MOST_IN_PACKET < self.limits.members);
            let room = room || size + kept.len() < self.limits.members;
            // Entries about this node are always admitted, as they may call it dead; see `own`.
            let admitted = room || self.is_known(node) || node == self.me().node();
            if admitted && !self.needs_confirmation(from, &member, now) {
                kept.push(member);
            }
        }
        if kept.len() == count {
            return Some(packet.to_vec());
        }
        let mut out = Vec::new();
        self.codec.encode_header(&header, &mut out).ok()?;
        out.extend(u16::try_from(kept.len()).ok()?.to_be_bytes());
        kept.iter().for_each(|member| put_member(&mut out, member));
        Some(out)
    }

    /// Whether `from` declares a member dead that was not suspected: then the member is asked first. Either it has
    /// left, and `from` passes that on; or `from` was disconnected, and its list has members as dead that are alive.
    fn needs_confirmation(&mut self, from: NodeId, said: &Member<Peer>, now: u64) -> bool {
        let node = said.id().node();
        let known = self.known(node).filter(|known| known.state() == State::Alive);
        let same_life = known.is_some_and(|known| known.id() == said.id());
        let doubtful = said.state() == State::Down && node != from && same_life;
        if doubtful {
            self.ask(node, Some(said.clone()), now);
        }
        doubtful
    }

    fn known(&self, node: NodeId) -> Option<&Member<Peer>> {
        self.foca.iter_membership_state().find(|member| member.id().node() == node)
    }

    /// Builds a message of foca that foca does not send by itself.
    fn told(
        &mut self,
        to: &Peer,
        message: Message<Peer>,
        about: Option<&Member<Peer>>,
    ) -> Option<(NodeId, Frame)> {
        let header = Header { src: self.me().clone(), src_incarnation: 0, dst: to.clone(), message };
        let mut out = Vec::new();
        self.codec.encode_header(&header, &mut out).ok()?;
        if let Some(member) = about {
            out.extend(1_u16.to_be_bytes());
            put_member(&mut out, member);
        }
        Some((to.node(), Frame::Gossip(out)))
    }

    /// The time of the next work that no input triggers.
    pub(crate) fn next(&self) -> u64 {
        self.clock.outer(self.due())
    }

    fn due(&self) -> u64 {
        let timer = self.timers.peek().map_or(u64::MAX, |due| due.0);
        self.compare_at.min(timer).min(self.liveness.next())
    }

    pub(crate) fn tick(&mut self, now: u64) {
        let now = self.time(now);
        while self.timers.peek().is_some_and(|due| due.0 <= now) {
            let Some(Due(_, _, timer)) = self.timers.pop() else { break };
            if let Some(at) = self.postpone(&timer, now) {
                self.schedule(at, timer);
                continue;
            }
            let _ = self.foca.handle_timer(timer, &mut self.asked);
            self.settle(now);
        }
        self.look_after_silent(now);
        if now >= self.compare_at && !self.left {
            self.compare_lists(now);
        }
    }

    /// The time to which a due timer is postponed, if there is reason to wait.
    fn postpone(&mut self, timer: &Timer<Peer>, now: u64) -> Option<u64> {
        match timer {
            // The end of a probe without an answer: it gets another period, as do all members without a
            // recent message.
            Timer::ProbeRandomMember(_) => {
                let (node, since) = self.probed.take()?;
                if self.left || !self.alive.contains_key(&node) || self.liveness.was_heard(node, since) {
                    return None;
                }
                self.ask_silent(now);
                Some(now + self.limits.probe_every)
            }
            Timer::ChangeSuspectToDown { member_id, .. } => self.extend_suspicion(member_id.node(), now),
            _ => None,
        }
    }

    /// The time to which the death of a suspect is postponed after its time to refute.
    fn extend_suspicion(&mut self, node: NodeId, now: u64) -> Option<u64> {
        let patience = 2 * self.limits.probe_every;
        self.known(node).filter(|known| known.state() == State::Suspect)?;
        // A node without any incoming message may be disconnected itself.
        let silence = self.liveness.silence(now);
        if silence > patience && silence < self.limits.alone_for {
            return Some(now + self.limits.probe_every);
        }
        // The member or this node was disconnected, and its messages arrive again: it will refute the
        // suspicion.
        let heard = self.liveness.was_heard(node, now.saturating_sub(patience));
        let called = self.last_call.get(&node).filter(|at| !heard && now <= **at + 2 * patience);
        match called {
            Some(at) => Some(at + patience).filter(|end| now < *end),
            None => {
                self.last_call.insert(node, now);
                self.ask(node, None, now);
                Some(now + patience)
            }
        }
    }

    /// If one member does not answer, others may have failed with it: asks silent members.
    fn ask_silent(&mut self, now: u64) {
        if !self.liveness.may_ask_silent(5 * self.limits.probe_every, now) {
            return;
        }
        let (me, since) = (self.me().node(), now.saturating_sub(2 * self.limits.probe_every));
        let silent = self.alive.keys().filter(|n| **n != me && !self.liveness.was_heard(**n, since));
        let mut silent: Vec<_> = silent.copied().collect();
        for at in 0..silent.len().min(ASK_AT_ONCE) {
            let other = at + self.rng.below((silent.len() - at) as u64) as usize;
            silent.swap(at, other);
        }
        silent.into_iter().take(ASK_AT_ONCE).for_each(|node| self.ask(node, None, now));
    }

    /// Handles members that were asked whether they live and do not answer.
    fn look_after_silent(&mut self, now: u64) {
        for node in self.liveness.without_helpers(FEW_SILENT, now) {
            let Some(target) = self.alive.get(&node).cloned() else { continue };
            for _ in 0..HELPERS {
                let helper = self.anyone().filter(|n| *n != node).and_then(|n| self.alive.get(&n).cloned());
                let Some(helper) = helper else { continue };
                let message = Message::PingReq { target: target.clone(), probe_number: 0 };
                let told = self.told(&helper, message, None);
                self.out.extend(told);
            }
        }
        for (node, said) in self.liveness.overdue(now) {
            let Some(known) = self.known(node).filter(|known| known.state() != State::Down) else { continue };
            let (member_id, incarnation) = (known.id().clone(), known.incarnation());
            let said = said.filter(|said| *said.id() == member_id);
            let suspect = Member::new(member_id.clone(), incarnation, State::Suspect);
            let end = Timer::ChangeSuspectToDown { member_id, incarnation, token: self.token };
            let new = known.state() == State::Alive || !self.suspected.contains(&node);
            if said.is_none() && new {
                self.suspected.insert(node);
                self.schedule(now + self.limits.suspect_for, end);
            }
            let _ = self.foca.apply_many([said.unwrap_or(suspect)].into_iter(), true, &mut self.asked);
            self.settle(now);
        }
    }

    fn schedule(&mut self, at: u64, timer: Timer<Peer>) {
        self.count += 1;
        self.timers.push(Due(at, self.count, timer));
    }

    /// Applies foca's requests.
    fn settle(&mut self, now: u64) {
        for (after, timer) in std::mem::take(&mut self.asked.timers) {
            let at = now.saturating_add(u64::try_from(after.as_millis()).unwrap_or(u64::MAX));
            match timer {
                Timer::RemoveDown(peer) => {
                    self.forget.insert(peer.node(), (at, peer));
                    continue;
                }
                Timer::SendIndirectProbe { ref probed_id, .. } => {
                    self.probed = Some((probed_id.node(), now));
                }
                Timer::ProbeRandomMember(token) => self.token = token,
                Timer::ChangeSuspectToDown { ref member_id, .. } => {
                    self.suspected.insert(member_id.node());
                }
                _ => {}
            }
            self.schedule(at, timer);
        }
        let packets = std::mem::take(&mut self.asked.send);
        self.out.extend(packets.into_iter().map(|(to, packet)| (to, Frame::Gossip(packet))));
        if std::mem::take(&mut self.asked.joined) {
            self.ask_list();
        }
        self.codec.prune(4 * self.limits.members + 64, |node| self.is_known(*node));
    }

    /// Messages to send and changes since the last call.
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
        self.liveness.forget(node);
        self.suspected.remove(&node);
        self.last_call.remove(&node);
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
        num_indirect_probes: some(HELPERS),
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
