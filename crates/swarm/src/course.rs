//! The plan under way, as one member sees it: which piece goes by which stripe, what our children are
//! still to get, how far each stripe has come, which pieces will come of their own accord.
//!
//! `push` feeds the children, `follow` minds the parents.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use crate::api::{PeerId, Time};
use crate::bitset::BitSet;
use crate::plan::Role;
use crate::touch::Wishes;

/// The stripe of a piece that is not known.
const UNKNOWN: u16 = u16::MAX;

/// A stripe is given up for a while when nothing has come by it for eight times its usual pause, between
/// these; and a parent, when nothing whatever has come from it: who waits itself still tells what it gets
/// by other stripes.
const STALL: (Duration, Duration) = (Duration::from_millis(1500), Duration::from_secs(5));
pub(crate) const SILENT: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(5));
/// A parent has this long to be connected at the start of an epoch.
const MEET: Duration = Duration::from_secs(1);
/// So many times as patient are members of a plan that whoever fetches joins: on busy hosts, by slow links.
const BUSY: u32 = 4;

/// What one child is to get in one stripe.
#[derive(Debug)]
pub(crate) struct Order {
    pub(crate) stripe: u16,
    /// Pieces of the stripe not yet offered, in order. The child may have some of them.
    pub(crate) pending: VecDeque<u32>,
    /// The piece that is being sent, and how many bytes of it are queued.
    pub(crate) open: Option<(u32, u32)>,
    /// Parts of that piece, bytes, that the child does not want: it has them.
    pub(crate) skip: Vec<Range<u32>>,
    /// The child is no longer ours: what is open is ended, no more.
    pub(crate) last: bool,
}

/// How one stripe comes to us.
#[derive(Clone, Debug, Default)]
pub(crate) struct Line {
    /// Its pieces, in the order in which we heard of them.
    pub(crate) log: Vec<u32>,
    /// One more than the highest piece offered to us.
    pub(crate) front: u32,
    /// Its last offer or block, and the usual pause between two.
    last: Time,
    gap: Duration,
    /// Bytes: of the source, given to it in all; of others, come from its parent in this epoch.
    pub(crate) bytes: u64,
    /// The parent has been connected in this epoch.
    pub(crate) met: bool,
}

impl Line {
    /// Something of it has come, in an epoch that came at `since`. What took long to come first may take as long
    /// again: a relay that passes on whole pieces waits for each.
    pub(crate) fn moved(&mut self, now: Time, since: Time) {
        let pause = now.since(self.last.max(since)).min(STALL.1);
        self.gap = if self.gap.is_zero() { pause } else { (self.gap * 7 + pause) / 8 };
        self.last = now;
    }
}

/// How a stripe comes to us.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flow {
    /// It comes, or may yet.
    Live,
    /// Nothing comes, but its parent lives: it waits itself.
    Dry,
    /// Nothing whatever comes from its parent.
    Silent,
    /// Its parent is not connected.
    Gone,
}

/// Eight times the usual pause, within bounds.
pub(crate) fn patience(pause: Duration, (least, most): (Duration, Duration)) -> Duration {
    (pause * 8).clamp(least, most)
}

/// See the head of the file.
#[derive(Debug)]
pub(crate) struct Course {
    pub(crate) role: Arc<Role>,
    /// By that role: asked for at every event.
    source: bool,
    /// When this epoch came.
    pub(crate) since: Time,
    /// One a stripe.
    pub(crate) lines: Vec<Line>,
    /// Of children that are connected.
    pub(crate) orders: BTreeMap<PeerId, Vec<Order>>,
    stripe_of: Vec<u16>,
    /// Pieces that will come of their own accord and are not to be asked for.
    awaited: BitSet,
    /// Pieces below it are no longer awaited.
    pub(crate) released: u32,
    /// A source: pieces below it are given to stripes, by us or others.
    pub(crate) given: u32,
    /// The plan has failed; until the next epoch this is a swarm like any other.
    pub(crate) adrift: bool,
    /// Members complained about in this epoch.
    pub(crate) blamed: Vec<u32>,
    /// What is touched, where the plan is on demand.
    pub(crate) wishes: Wishes,
    /// By how much the waits are longer.
    patience: u32,
}

impl Course {
    /// `busy`: its members have other things to do.
    pub(crate) fn new(role: Arc<Role>, pieces: u32, busy: bool, now: Time) -> Self {
        Course {
            source: role.is_source(role.member),
            since: now,
            lines: vec![Line::default(); role.stripes.len()],
            orders: BTreeMap::new(),
            stripe_of: vec![UNKNOWN; pieces as usize],
            awaited: BitSet::new(pieces),
            released: 0,
            given: 0,
            adrift: false,
            blamed: Vec::new(),
            wishes: Wishes::default(),
            patience: if busy { BUSY } else { 1 },
            role,
        }
    }

    /// The next epoch; what is known of the stripes stays.
    pub(crate) fn renew(&mut self, role: Arc<Role>, now: Time) {
        self.source = role.is_source(role.member);
        self.role = role;
        self.since = now;
        // Our share is larger when another source is lost.
        self.given = 0;
        self.blamed.clear();
        let source = self.is_source();
        for line in &mut self.lines {
            line.bytes = if source { line.bytes } else { 0 };
            line.met = false;
        }
    }

    /// There are other stripes now: what was being sent is sent to its end, as it was offered.
    pub(crate) fn take_open(&mut self, old: Option<Course>) {
        for (peer, mut orders) in old.into_iter().flat_map(|old| old.orders) {
            orders.retain(|order| order.open.is_some());
            for order in &mut orders {
                order.pending.clear();
                order.last = true;
            }
            if !orders.is_empty() {
                self.orders.insert(peer, orders);
            }
        }
    }

    /// We have the data and give each piece, or each of our share, to a stripe.
    pub(crate) fn is_source(&self) -> bool {
        self.source
    }

    pub(crate) fn stripe_of(&self, piece: u32) -> Option<u16> {
        self.stripe_of.get(piece as usize).copied().filter(|&s| s != UNKNOWN)
    }

    /// The piece goes by this stripe, if none was known: our children in it are to get it, those too who
    /// were fed by another when it came the first time.
    pub(crate) fn assign(&mut self, piece: u32, stripe: u16) {
        let Some(known) = self.stripe_of.get_mut(piece as usize) else { return };
        let Some(line) = self.lines.get_mut(usize::from(stripe)) else { return };
        if *known == UNKNOWN {
            *known = stripe;
            line.log.push(piece);
        }
        for order in self.orders.values_mut().flatten().filter(|o| o.stripe == stripe && !o.last) {
            let there = order.open.is_some_and(|(p, _)| p == piece) || order.pending.contains(&piece);
            if !there {
                order.pending.push_back(piece);
            }
        }
    }

    /// Sets what a member that is connected is to get, by our role. `old`: whether it is to get a piece of
    /// which we have heard before it was our child.
    pub(crate) fn open_orders(&mut self, peer: PeerId, member: u32, old: impl Fn(u32) -> bool) {
        let mut orders = self.orders.remove(&peer).unwrap_or_default();
        for order in &mut orders {
            let edges = self.role.stripes.get(usize::from(order.stripe));
            order.last = !edges.is_some_and(|e| e.children.contains(&member));
        }
        orders.retain(|o| !o.last || o.open.is_some());
        for (stripe, edges) in self.role.stripes.iter().enumerate() {
            let stripe = stripe as u16;
            let there = orders.iter().any(|o| o.stripe == stripe && !o.last);
            if edges.children.contains(&member) && !there {
                let log = self.lines.get(usize::from(stripe)).map(|l| l.log.iter().copied());
                let pending = log.into_iter().flatten().filter(|&p| old(p)).collect();
                orders.push(Order { stripe, pending, open: None, skip: Vec::new(), last: false });
            }
        }
        if !orders.is_empty() {
            self.orders.insert(peer, orders);
        }
    }

    /// Connected children in a stripe.
    pub(crate) fn children(&self, stripe: u16) -> Vec<PeerId> {
        let fed = |o: &&Vec<Order>| o.iter().any(|o| o.stripe == stripe);
        self.orders.iter().filter(|(_, o)| fed(o)).map(|(&peer, _)| peer).collect()
    }

    pub(crate) fn awaits(&self, piece: u32) -> bool {
        !self.adrift && self.awaited.get(piece)
    }

    /// Awaits the piece, or no longer.
    pub(crate) fn set_awaited(&mut self, piece: u32, awaited: bool) {
        if awaited {
            self.awaited.set(piece)
        } else {
            self.awaited.clear(piece)
        };
    }

    /// How a stripe does. `heard`: when its parent was last heard, and its usual pause; none where it is
    /// not connected.
    pub(crate) fn flow(&self, stripe: usize, heard: Option<(Time, Duration)>, now: Time) -> Flow {
        let Some(line) = self.lines.get(stripe) else { return Flow::Gone };
        let silent = |pause| patience(pause, (self.patient(SILENT.0), SILENT.1));
        match heard {
            None if !line.met && now.since(self.since) < self.patient(MEET) => Flow::Live,
            None => Flow::Gone,
            Some((last, pause)) if now >= last.max(self.since).after(silent(pause)) => Flow::Silent,
            Some(_) if now < line.last.max(self.since).after(patience(line.gap, STALL)) => Flow::Live,
            Some(_) => Flow::Dry,
        }
    }

    /// A wait, longer where members are busy.
    pub(crate) fn patient(&self, wait: Duration) -> Duration {
        wait * self.patience
    }

    /// When anything came last by any stripe from a parent.
    pub(crate) fn moved_by(&self, parent: u32) -> Time {
        let its = self.lines.iter().zip(&self.role.stripes).filter(|(_, e)| e.parent == Some(parent));
        its.map(|(line, _)| line.last).max().unwrap_or_default().max(self.since)
    }

    /// One more than the highest piece offered to us.
    pub(crate) fn front(&self) -> u32 {
        self.lines.iter().map(|l| l.front).max().unwrap_or(0)
    }

    /// One more than the highest piece that every stripe has passed.
    pub(crate) fn rear(&self) -> u32 {
        self.lines.iter().map(|l| l.front).min().unwrap_or(0)
    }

    /// The last time that anything came by the plan.
    pub(crate) fn last_moved(&self) -> Time {
        self.lines.iter().map(|l| l.last).max().unwrap_or_default().max(self.since)
    }

    /// Entries in tables and queues that grow and shrink.
    pub(crate) fn footprint(&self) -> usize {
        self.wishes.len() + self.orders.values().flatten().map(|o| 1 + o.pending.len()).sum::<usize>()
    }
}
