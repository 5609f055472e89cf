//! The current plan, as one member sees it: the stripe of each piece, the pieces that our children are still
//! to get, the progress of each stripe, and the pieces that will be pushed to us.
//!
//! `plan_sender` feeds the children, `plan_receiver` watches the parents.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use crate::api::{Block, PeerId, Time};
use crate::bitset::BitSet;
use crate::plan::{Edges, Role};
use crate::state::balance::Balance;
use crate::state::child_queue::ChildQueue;
use crate::state::wishes::Wishes;

/// The stripe of a piece that is not known.
const UNKNOWN: u16 = u16::MAX;

/// A stripe is given up for a while when nothing has come by it for eight times its usual pause, between
/// these; and a parent, when nothing at all has come from it: a parent that waits itself still announces the
/// pieces that it gets by other stripes.
const STALL: (Duration, Duration) = (Duration::from_millis(1500), Duration::from_secs(5));
pub(crate) const SILENT: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(5));
/// A parent has this long to be connected at the start of an epoch.
const CONNECT: Duration = Duration::from_secs(1);
/// Pieces of a stripe that may be in transit to us before they are offered.
const IN_TRANSIT: usize = 2;
/// Members of a plan that can be joined at any time wait this many times as long: hosts may be busy, links
/// slow.
const BUSY: u32 = 4;

/// The state of one stripe at this member.
#[derive(Clone, Debug, Default)]
struct Stripe {
    /// Its pieces, in the order in which they were announced to us.
    log: Vec<u32>,
    /// One more than the highest piece offered to us.
    front: u32,
    /// Its last offer or block, and the usual pause between two.
    last: Time,
    gap: Duration,
    /// Bytes: of the source, given to it in all; of others, come from its parent in this epoch.
    bytes: u64,
    /// The parent has been connected in this epoch.
    met: bool,
}

impl Stripe {
    /// The first part of it has come, in an epoch that came at `since`. If it took long to come first it may
    /// take as long again: a relay that forwards whole pieces waits for each.
    fn moved(&mut self, now: Time, since: Time) {
        let pause = now.since(self.last.max(since)).min(STALL.1);
        self.gap = if self.gap.is_zero() { pause } else { (self.gap * 7 + pause) / 8 };
        self.last = now;
    }
}

/// The state of a stripe at this member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flow {
    /// It comes, or may yet.
    Live,
    /// Nothing comes, but its parent lives: it waits itself.
    Dry,
    /// Nothing at all comes from its parent.
    Silent,
    /// Its parent is not connected.
    Gone,
}

/// Eight times the usual pause, within bounds.
pub(crate) fn silence_limit(pause: Duration, (least, most): (Duration, Duration)) -> Duration {
    (pause * 8).clamp(least, most)
}

/// See the head of the file.
#[derive(Debug)]
pub(crate) struct PlanState {
    role: Arc<Role>,
    /// By that role: asked for at every event.
    source: bool,
    /// When this epoch came.
    since: Time,
    /// One for each stripe of the role.
    stripes: Vec<Stripe>,
    /// Of children that are connected.
    queues: BTreeMap<PeerId, Vec<ChildQueue>>,
    /// Stripe and child of each queue, ascending, each once: asked for at every block.
    fed: Vec<(u16, PeerId)>,
    stripe_of: Vec<u16>,
    /// Pieces that will be pushed to us and are not to be requested.
    awaited: BitSet,
    /// Pieces below it are no longer awaited.
    released: u32,
    /// A source: pieces below it are given to stripes, by us or others.
    given: u32,
    /// Likewise: how evenly the stripes get them.
    balance: Balance,
    /// Since when the broadcast is known to be over for a receiver at our place.
    ended: Option<Time>,
    /// Pieces of late stripes that are fetched from members that have everything.
    late: Vec<u32>,
    /// The plan has failed; until the next epoch this is a swarm like any other.
    failed: bool,
    /// Members complained about in this epoch.
    blamed: Vec<u32>,
    /// The wished pieces, where the plan is on demand.
    wishes: Wishes,
    /// By how much the waits are longer.
    wait_factor: u32,
}

impl PlanState {
    /// `busy`: its members have other things to do.
    pub(crate) fn new(role: Arc<Role>, pieces: u32, busy: bool, now: Time) -> Self {
        PlanState {
            source: role.is_source(role.member),
            since: now,
            stripes: vec![Stripe::default(); role.stripes.len()],
            queues: BTreeMap::new(),
            fed: Vec::new(),
            stripe_of: vec![UNKNOWN; pieces as usize],
            awaited: BitSet::new(pieces),
            released: 0,
            given: 0,
            balance: Balance::default(),
            ended: None,
            late: Vec::new(),
            failed: false,
            blamed: Vec::new(),
            wishes: Wishes::default(),
            wait_factor: if busy { BUSY } else { 1 },
            role,
        }
    }

    /// The next epoch; the state of the stripes stays.
    pub(crate) fn renew(&mut self, role: Arc<Role>, now: Time) {
        self.source = role.is_source(role.member);
        self.role = role;
        self.since = now;
        // Our share is larger when another source is lost.
        self.given = 0;
        self.blamed.clear();
        let source = self.is_source();
        for state in &mut self.stripes {
            state.bytes = if source { state.bytes } else { 0 };
            state.met = false;
        }
    }

    /// The stripes have changed: pieces in transit are sent to their end, as they were offered.
    pub(crate) fn take_open(&mut self, old: Option<PlanState>) {
        for (peer, mut queues) in old.into_iter().flat_map(|old| old.queues) {
            queues.retain_mut(ChildQueue::end);
            if !queues.is_empty() {
                self.queues.insert(peer, queues);
            }
        }
        self.index();
    }

    /// The queues of some child have changed.
    fn index(&mut self) {
        self.fed.clear();
        let of = |(&peer, queues): (&PeerId, &Vec<ChildQueue>)| {
            queues.iter().map(|queue| (queue.stripe(), peer)).collect::<Vec<_>>()
        };
        self.fed.extend(self.queues.iter().flat_map(of));
        self.fed.sort_unstable();
        self.fed.dedup();
    }

    /// The edges of this epoch, and our member number.
    pub(crate) fn role(&self) -> &Arc<Role> {
        &self.role
    }

    /// When this epoch came.
    pub(crate) fn since(&self) -> Time {
        self.since
    }

    /// The plan has failed; until the next epoch this is a swarm like any other.
    pub(crate) fn has_failed(&self) -> bool {
        self.failed
    }

    /// A receiver at our place has everything. How long that has been known while some stripe was at the end of this many
    /// pieces; none where no stripe is: of one that had them before the broadcast began nothing follows.
    pub(crate) fn ended(&mut self, now: Time, pieces: u32) -> Option<Duration> {
        // In a busy plan a relay that is silent for seconds is not lost: otherwise finished members would be
        // asked for all that it still sends.
        if self.wait_factor > 1 || !self.is_at_end(self.front(), pieces) {
            return None;
        }
        Some(now.since(*self.ended.get_or_insert(now)))
    }

    /// Whether a stripe with this front is at the end of this many pieces: few follow.
    fn is_at_end(&self, front: u32, pieces: u32) -> bool {
        pieces.saturating_sub(front) <= 2 * self.stripes.len() as u32
    }

    /// The pieces that late stripes still have to bring when others are at the end of this many, less those that may be in
    /// transit. Below the fronts of the others, pieces that were not offered belong to late stripes, each of which sends
    /// its pieces in order: the next few of each may be in transit. `long`: the others have been at the end for long.
    pub(crate) fn far_behind(&self, pieces: u32, long: bool) -> Vec<u32> {
        let at_end = |state: &&Stripe| self.is_at_end(state.front, pieces);
        let Some(low) = self.stripes.iter().filter(at_end).map(|state| state.front).min() else {
            return Vec::new();
        };
        let end = if long { pieces } else { low };
        let late = self.stripes.iter().filter(|state| !at_end(state)).count();
        let behind = (self.released..end).filter(|&p| self.awaits(p) && self.stripe_of(p).is_none());
        behind.skip(IN_TRANSIT * late).collect()
    }

    /// These pieces of late stripes are fetched.
    pub(crate) fn fetch_late(&mut self, pieces: &[u32]) {
        self.late.extend_from_slice(pieces);
    }

    /// Whether some of those are missing still.
    pub(crate) fn fetches_late(&self) -> bool {
        !self.late.is_empty()
    }

    /// A piece has come; true where it was the last of those.
    pub(crate) fn note_fetched(&mut self, piece: u32) -> bool {
        let Some(at) = self.late.iter().position(|&p| p == piece) else { return false };
        self.late.swap_remove(at);
        self.late.is_empty()
    }

    /// It has failed.
    pub(crate) fn fail(&mut self) {
        self.failed = true;
    }

    /// The stripes, each with its parent and children.
    pub(crate) fn stripes(&self) -> impl Iterator<Item = (usize, &Edges)> {
        self.role.stripes.iter().enumerate()
    }

    /// Our parent in this stripe.
    fn parent(&self, stripe: usize) -> Option<u32> {
        self.role.stripes.get(stripe)?.parent
    }

    /// The member feeds us some stripe.
    pub(crate) fn is_parent(&self, member: u32) -> bool {
        self.role.stripes.iter().any(|edges| edges.parent == Some(member))
    }

    /// Bytes of a stripe: of the source, given to it in all; of others, come from its parent in this epoch.
    pub(crate) fn bytes(&self, stripe: usize) -> u64 {
        self.stripes.get(stripe).map_or(0, |l| l.bytes)
    }

    /// We have the data and give each piece, or each of our share, to a stripe.
    pub(crate) fn is_source(&self) -> bool {
        self.source
    }

    pub(crate) fn stripe_of(&self, piece: u32) -> Option<u16> {
        self.stripe_of.get(piece as usize).copied().filter(|&s| s != UNKNOWN)
    }

    /// The piece goes by this stripe, if none was known: our children in it are to get it, including those
    /// fed by another parent when it came the first time.
    pub(crate) fn assign(&mut self, piece: u32, stripe: u16) {
        let Some(known) = self.stripe_of.get_mut(piece as usize) else { return };
        let Some(state) = self.stripes.get_mut(usize::from(stripe)) else { return };
        if *known == UNKNOWN {
            *known = stripe;
            state.log.push(piece);
        }
        for queue in self.queues.values_mut().flatten().filter(|o| o.stripe() == stripe) {
            queue.add(piece);
        }
    }

    /// The queues of connected children.
    pub(crate) fn queues(&self) -> impl Iterator<Item = (PeerId, &[ChildQueue])> {
        self.queues.iter().map(|(&peer, queues)| (peer, queues.as_slice()))
    }

    /// The peer is our child.
    pub(crate) fn feeds(&self, peer: PeerId) -> bool {
        self.queues.contains_key(&peer)
    }

    /// Takes out the queues of a child, to work on them; `put_back` ends that.
    pub(crate) fn take_queues(&mut self, peer: PeerId) -> Option<Vec<ChildQueue>> {
        self.queues.get_mut(&peer).map(std::mem::take)
    }

    /// Puts back the rest of the queues of a child.
    pub(crate) fn put_back(&mut self, peer: PeerId, mut queues: Vec<ChildQueue>) {
        let before = queues.len();
        queues.retain(|queue| !queue.is_over());
        let less = queues.len() < before;
        match self.queues.get_mut(&peer) {
            Some(kept) if !queues.is_empty() => *kept = queues,
            _ => drop(self.queues.remove(&peer)),
        }
        if less {
            self.index();
        }
    }

    /// A child begins to fetch a piece itself: it is not sent it a second time.
    pub(crate) fn child_fetches(&mut self, peer: PeerId, piece: u32) {
        self.queues.get_mut(&peer).into_iter().flatten().for_each(|queue| queue.remove(piece));
    }

    /// A child declines this part of a piece, or the rest of the `whole`; false where the peer is not a
    /// child.
    pub(crate) fn decline(&mut self, peer: PeerId, block: Block, whole: bool) -> bool {
        let Some(queues) = self.queues.get_mut(&peer) else { return false };
        queues.iter_mut().for_each(|queue| queue.decline(block, whole));
        true
    }

    /// A child, in this stripe or any, gets these pieces once more; false if it is not a child, or has asked
    /// for `most` already.
    pub(crate) fn give_again(
        &mut self,
        peer: PeerId,
        stripe: Option<u16>,
        urgent: bool,
        pieces: &[u32],
        most: usize,
    ) -> bool {
        let mut queues = self.queues.get_mut(&peer).into_iter().flatten().filter(|queue| !queue.is_last());
        let queue = queues.find(|queue| stripe.is_none_or(|s| s == queue.stripe()));
        let Some(queue) = queue.filter(|queue| queue.pending() <= most) else { return false };
        queue.add_again(pieces, urgent);
        true
    }

    /// The connection has ended, with the pieces that were to go over it.
    pub(crate) fn forget(&mut self, peer: PeerId) {
        if self.queues.remove(&peer).is_some() {
            self.index();
        }
    }

    /// A member is there: its stripes have met their parent in this epoch.
    pub(crate) fn note_connected(&mut self, member: u32) {
        for (state, edges) in self.stripes.iter_mut().zip(&self.role.stripes) {
            state.met |= edges.parent == Some(member);
        }
    }

    /// How evenly a source gives pieces to its stripes.
    pub(crate) fn balance(&self) -> &Balance {
        &self.balance
    }

    pub(crate) fn balance_mut(&mut self) -> &mut Balance {
        &mut self.balance
    }

    /// A source gives a piece of `len` bytes to a stripe.
    pub(crate) fn give(&mut self, piece: u32, stripe: u16, len: u32, now: Time) {
        self.assign(piece, stripe);
        self.balance.give(now, len);
        if let Some(state) = self.stripes.get_mut(usize::from(stripe)) {
            state.bytes += u64::from(len);
        }
    }

    /// The first piece of a source, among the next few that it is to give, that is `here` and that no stripe has.
    pub(crate) fn next_to_give(
        &mut self,
        pieces: u32,
        few: usize,
        here: impl Fn(u32) -> bool,
    ) -> Option<u32> {
        let me = Some(self.role.member);
        while self.given < pieces
            && (self.stripe_of(self.given).is_some() || self.role.giver(self.given) != me)
        {
            self.given += 1;
        }
        let mut ours = (self.given..pieces).filter(|&p| self.role.giver(p) == me).take(few);
        ours.find(|&p| here(p) && self.stripe_of(p).is_none())
    }

    /// Every piece is given to a stripe.
    pub(crate) fn has_given_all(&self, pieces: u32) -> bool {
        (self.given..pieces).all(|p| self.stripe_of(p).is_some())
    }

    /// The piece that a source of a plan on demand gives next; `here`: it can be given.
    pub(crate) fn next_wished(&mut self, here: impl Fn(u32) -> bool) -> Option<u32> {
        let PlanState { wishes, stripe_of, .. } = self;
        let unknown = |piece: u32| stripe_of.get(piece as usize).is_none_or(|&s| s == UNKNOWN);
        wishes.next_due(|piece| here(piece) && unknown(piece))
    }

    /// Wished pieces that have not come.
    pub(crate) fn wishes(&self) -> &Wishes {
        &self.wishes
    }

    pub(crate) fn wishes_mut(&mut self) -> &mut Wishes {
        &mut self.wishes
    }

    /// Unanswered wishes go up again; returns the pieces that are now to be fetched from any peer.
    pub(crate) fn check_wishes(&mut self, now: Time, missing: impl Fn(u32) -> bool) -> Vec<u32> {
        let (last, stripes) = (self.last_moved(), self.role.stripes.len() as u16);
        self.wishes.check(now, last, stripes, missing)
    }

    /// A member has offered a piece of a stripe; true where it is the stripe's parent.
    pub(crate) fn offered(&mut self, piece: u32, stripe: u16, from: Option<u32>, now: Time) -> bool {
        let (stripe, since) = (usize::from(stripe), self.since);
        let parent = self.parent(stripe);
        let Some(state) = self.stripes.get_mut(stripe).filter(|_| parent == from) else { return false };
        state.moved(now, since);
        state.front = state.front.max(piece + 1);
        true
    }

    /// This many bytes of a piece have come from a member.
    pub(crate) fn came(&mut self, piece: u32, bytes: u32, from: Option<u32>, now: Time) {
        let Some(stripe) = self.stripe_of(piece).map(usize::from) else { return };
        let (parent, since) = (self.parent(stripe), self.since);
        if let Some(state) = self.stripes.get_mut(stripe).filter(|_| parent == from) {
            state.moved(now, since);
            state.bytes += u64::from(bytes);
        }
    }

    /// Pieces below it are no longer awaited.
    pub(crate) fn released(&self) -> u32 {
        self.released
    }

    /// The pieces below `to` are not either; including those that are released with it.
    pub(crate) fn release(&mut self, to: u32) -> Range<u32> {
        let from = self.released;
        self.released = from.max(to);
        from..self.released
    }

    /// The plan works, or may, over this many pieces: from where pieces may be awaited again, and from where they are.
    pub(crate) fn resume(&mut self, pieces: u32) -> (u32, u32) {
        self.failed = false;
        self.late.clear();
        let whole = if self.source { pieces } else { self.rear() };
        let from = self.released.min(whole);
        self.released = whole;
        (from, whole)
    }

    /// Bytes that the middle one of the stripes has brought.
    pub(crate) fn middle_bytes(&self) -> u64 {
        let mut bytes: Vec<u64> = self.stripes.iter().map(|l| l.bytes).collect();
        bytes.sort_unstable();
        bytes.get(bytes.len() / 2).copied().unwrap_or(0)
    }

    /// A complaint about this member was sent in this epoch.
    pub(crate) fn is_blamed(&self, member: u32) -> bool {
        self.blamed.contains(&member)
    }

    /// One is sent now; false where one was already.
    pub(crate) fn blame(&mut self, member: u32) -> bool {
        let new = !self.is_blamed(member);
        if new {
            self.blamed.push(member);
        }
        new
    }

    /// One more than the highest piece that a stripe has offered to us.
    pub(crate) fn front_of(&self, stripe: usize) -> Option<u32> {
        self.stripes.get(stripe).map(|l| l.front)
    }

    /// Sets the pieces that a connected member is to get, by our role. `old`: whether it is to get a piece
    /// that was announced to us before it was our child.
    pub(crate) fn open_queues(&mut self, peer: PeerId, member: u32, old: impl Fn(u32) -> bool) {
        let mut queues = self.queues.remove(&peer).unwrap_or_default();
        for queue in &mut queues {
            let edges = self.role.stripes.get(usize::from(queue.stripe()));
            queue.set_last(!edges.is_some_and(|e| e.children.contains(&member)));
        }
        queues.retain(|o| !o.is_over());
        for (stripe, edges) in self.role.stripes.iter().enumerate() {
            let stripe = stripe as u16;
            let there = queues.iter().any(|o| o.stripe() == stripe && !o.is_last());
            if edges.children.contains(&member) && !there {
                let log = self.stripes.get(usize::from(stripe)).map(|l| l.log.iter().copied());
                let pending = log.into_iter().flatten().filter(|&p| old(p)).collect();
                queues.push(ChildQueue::new(stripe, pending));
            }
        }
        if !queues.is_empty() {
            self.queues.insert(peer, queues);
        }
        self.index();
    }

    /// Connected children in a stripe, ascending.
    pub(crate) fn children(&self, stripe: u16) -> Vec<PeerId> {
        let first = self.fed.partition_point(|&(s, _)| s < stripe);
        let fed = self.fed.iter().skip(first).take_while(|&&(s, _)| s == stripe);
        fed.map(|&(_, peer)| peer).collect()
    }

    pub(crate) fn awaits(&self, piece: u32) -> bool {
        !self.failed && self.awaited.get(piece)
    }

    /// Awaits the piece, or no longer.
    pub(crate) fn set_awaited(&mut self, piece: u32, awaited: bool) {
        if awaited {
            self.awaited.set(piece)
        } else {
            self.awaited.clear(piece)
        };
    }

    /// The state of a stripe. `heard`: the time of the last message of its parent, and its usual pause; none
    /// where it is not connected.
    pub(crate) fn flow(&self, stripe: usize, heard: Option<(Time, Duration)>, now: Time) -> Flow {
        let Some(state) = self.stripes.get(stripe) else { return Flow::Gone };
        let silent = |pause| silence_limit(pause, (self.scaled(SILENT.0), SILENT.1));
        let stall = |gap| silence_limit(gap, (self.scaled(STALL.0).min(STALL.1), STALL.1));
        match heard {
            None if !state.met && now.since(self.since) < self.scaled(CONNECT) => Flow::Live,
            None => Flow::Gone,
            Some((last, pause)) if now >= last.max(self.since).after(silent(pause)) => Flow::Silent,
            Some(_) if now < state.last.max(self.since).after(stall(state.gap)) => Flow::Live,
            Some(_) => Flow::Dry,
        }
    }

    /// A wait, longer where members are busy.
    pub(crate) fn scaled(&self, wait: Duration) -> Duration {
        wait * self.wait_factor
    }

    /// When anything came last by any stripe from a parent.
    pub(crate) fn moved_by(&self, parent: u32) -> Time {
        let its = self.stripes.iter().zip(&self.role.stripes).filter(|(_, e)| e.parent == Some(parent));
        its.map(|(state, _)| state.last).max().unwrap_or_default().max(self.since)
    }

    /// One more than the highest piece offered to us.
    pub(crate) fn front(&self) -> u32 {
        self.stripes.iter().map(|l| l.front).max().unwrap_or(0)
    }

    /// One more than the highest piece that every stripe has passed.
    pub(crate) fn rear(&self) -> u32 {
        self.stripes.iter().map(|l| l.front).min().unwrap_or(0)
    }

    /// The last time that anything came by the plan.
    pub(crate) fn last_moved(&self) -> Time {
        self.stripes.iter().map(|l| l.last).max().unwrap_or_default().max(self.since)
    }

    /// Entries in tables and queues that grow and shrink.
    pub(crate) fn footprint(&self) -> usize {
        self.wishes.len() + self.queues.values().flatten().map(|o| 1 + o.pending()).sum::<usize>()
    }
}
