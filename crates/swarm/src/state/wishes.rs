//! Pieces that were requested in a plan on demand and have not arrived.
//!
//! Promise: a piece is open once, however many wish for it, and goes up again only when the wish was lost or
//! not answered.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use crate::api::Time;

/// A wish that was not answered for this long was perhaps lost.
const AGAIN: Duration = Duration::from_secs(2);
/// The member to which a wish has gone up when no parent is present.
const NOBODY: u32 = u32::MAX;
/// Pieces in a row that are wished for by the same tree: few messages.
const RUN: u32 = 64;

/// A piece that is to come.
#[derive(Clone, Copy, Debug)]
struct Wish {
    /// A reader waits for it.
    urgent: bool,
    /// The tree that it goes up, the time of the last attempt, and the member.
    stripe: u16,
    sent: Option<(Time, u32)>,
    /// How often it has come by another tree since.
    moves: u16,
}

/// See the head of the file.
#[derive(Debug, Default)]
pub(crate) struct Wishes {
    /// A source: pieces that are given to no stripe yet. Others: pieces that are not offered yet.
    open: BTreeMap<u32, Wish>,
    /// Of those, the ones to be passed up, and whether it may be possible now.
    unsent: BTreeSet<u32>,
    stirred: bool,
    /// When the last was passed up.
    last: Time,
    /// A source: `open` in the order of the wishes; urgent ones, and the others.
    due: [VecDeque<u32>; 2],
}

impl Wishes {
    /// There may be a way up for wishes that had none.
    pub(crate) fn stir(&mut self) {
        self.stirred = true;
    }

    /// Some may be passed up now that could not before; reported once.
    pub(crate) fn take_stirred(&mut self) -> bool {
        std::mem::take(&mut self.stirred) && !self.unsent.is_empty()
    }

    /// When the last was passed up.
    pub(crate) fn last(&self) -> Time {
        self.last
    }

    /// Entries.
    pub(crate) fn len(&self) -> usize {
        self.open.len() + self.unsent.len() + self.due.iter().map(VecDeque::len).sum::<usize>()
    }

    /// Pieces that are not offered yet, ascending.
    pub(crate) fn open(&self) -> impl Iterator<Item = u32> + '_ {
        self.open.keys().copied()
    }

    /// A piece is wished for, in a plan of this many stripes: by us, or below us in the tree of this stripe.
    /// True when it is to be passed up.
    pub(crate) fn add(
        &mut self,
        piece: u32,
        urgent: bool,
        stripe: Option<u16>,
        stripes: u32,
        source: bool,
    ) -> bool {
        let usual = (piece / RUN % stripes.max(1)) as u16;
        let old = self.open.get(&piece).copied();
        // Each tree once: where relays lack parents, the path up may lead back to us.
        let moved =
            |old: &Wish| !source && stripe.is_some_and(|s| s != old.stripe) && u32::from(old.moves) < stripes;
        if old.is_some_and(|old| !moved(&old) && (old.urgent || !urgent)) {
            return false;
        }
        let stripe = stripe.or(old.map(|old| old.stripe)).unwrap_or(usual);
        let urgent = urgent || old.is_some_and(|old| old.urgent);
        let moves = old.map_or(0, |old| old.moves.saturating_add(1));
        self.open.insert(piece, Wish { urgent, stripe, sent: None, moves });
        if source {
            self.due[usize::from(!urgent)].push_back(piece);
        } else {
            self.unsent.insert(piece);
            self.stirred = true;
        }
        !source
    }

    /// Passes up pending wishes, ascending, each to its `parent`: of the stripes whose parent is present, its
    /// own or the next. `tell` is called with each piece, its parent, stripe and urgency.
    pub(crate) fn send<P>(
        &mut self,
        now: Time,
        stripes: usize,
        parent: impl Fn(usize) -> Option<(u32, P)>,
        mut tell: impl FnMut(u32, P, u16, bool),
    ) {
        for piece in std::mem::take(&mut self.unsent) {
            let Some(wish) = self.open.get_mut(&piece) else { continue };
            let first = usize::from(wish.stripe);
            let there = |stripe: usize| parent(stripe).map(|(member, peer)| (stripe as u16, member, peer));
            let Some((stripe, member, peer)) = (first..stripes).chain(0..first).find_map(there) else {
                wish.sent.get_or_insert((now, NOBODY));
                self.unsent.insert(piece);
                continue;
            };
            (wish.stripe, wish.sent, self.last) = (stripe, Some((now, member)), now);
            tell(piece, peer, stripe, wish.urgent);
        }
    }

    /// The piece that a source gives next, urgent ones first; `may`: it can be given.
    pub(crate) fn next_due(&mut self, may: impl Fn(u32) -> bool) -> Option<u32> {
        for queue in 0..self.due.len() {
            while let Some(piece) = self.due.get(queue).and_then(|queue| queue.front()).copied() {
                if may(piece) {
                    return Some(piece);
                }
                self.due.get_mut(queue).map(VecDeque::pop_front);
                self.forget(piece);
            }
        }
        None
    }

    /// A piece is on its way, or here.
    pub(crate) fn forget(&mut self, piece: u32) {
        self.open.remove(&piece);
        self.unsent.remove(&piece);
    }

    /// Wishes passed up to this member are lost with it.
    pub(crate) fn lost(&mut self, member: u32) {
        let its = self.open.iter_mut().filter(|(_, w)| w.sent.is_some_and(|(_, to)| to == member));
        self.unsent.extend(its.map(|(&piece, _)| piece));
        self.stirred = true;
    }

    /// Keeps wishes of which `missing` is true. Wishes that were passed up long ago and not answered go up
    /// again by the next of this many trees, if there was no parent, or nothing else comes either (the last at
    /// `moved`); returns the pieces that are then to be fetched from any peer, ascending.
    pub(crate) fn check(
        &mut self,
        now: Time,
        moved: Time,
        stripes: u16,
        missing: impl Fn(u32) -> bool,
    ) -> Vec<u32> {
        let stuck = now.since(moved) >= AGAIN;
        let mut released = Vec::new();
        let (unsent, stirred) = (&mut self.unsent, &mut self.stirred);
        self.open.retain(|&piece, wish| {
            let missing = missing(piece);
            let sent = wish.sent.filter(|(at, _)| missing && now.since(*at) >= AGAIN);
            if let Some((_, to)) = sent {
                if stuck || to == NOBODY {
                    (wish.stripe, wish.sent, wish.moves) = ((wish.stripe + 1) % stripes.max(1), None, 0);
                    unsent.insert(piece);
                    *stirred = true;
                }
                released.extend((stuck || wish.urgent).then_some(piece));
            }
            missing
        });
        released
    }

    /// A new epoch: pieces that are still wanted are wished for again.
    pub(crate) fn clear(&mut self) {
        (self.open, self.unsent) = (BTreeMap::new(), BTreeSet::new());
    }
}
