//! Which missing piece to ask for next: by deadline, then priority, then rarest first.
//!
//! Promise: holds exactly the pieces in state `Missing` (less those that blame keeps for one peer),
//! each in the tier of its priority and the level of its rarity; picking costs a walk over summaries,
//! never over all pieces.
//!
//! Ties are broken at random, so that peers of one origin take different pieces and can help one another;
//! once a peer has been asked for piece p, p + 1 is preferred among equals: runs make few messages and few
//! seeks, and two downloaders that walk from different places collide far less often than two that draw each
//! piece at random. A new walk begins far from the start of a gap, because another downloader is walking
//! there: its requests cannot be seen, its pieces can. (Of a few random places the one deepest in its gap is
//! taken.)

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use crate::api::Time;
use crate::bitset::BitSet;
use crate::planted::{Bug, any_below, planted};
use crate::rng::Rng;
use crate::state::availability::{Holding, LEVELS};

/// Deadlines looked at for one pick; the rest waits for the next one.
const DUE_SCAN: usize = 64;

/// Random places of which the best begins a new walk, and how deep in a gap is deep enough.
const DRAWS: usize = 8;
const DEEP: u32 = 32;

/// The pieces of one priority, by rarity.
#[derive(Debug)]
struct Tier {
    levels: Vec<BitSet>,
    count: u32,
}

/// See the head of the file.
#[derive(Debug)]
pub(crate) struct Picker {
    pieces: u32,
    sequential: bool,
    tiers: BTreeMap<Reverse<u8>, Tier>,
    /// Missing pieces with a deadline, soonest first.
    due: BTreeSet<(Time, u32)>,
    count: u32,
}

impl Picker {
    pub(crate) fn new(pieces: u32, sequential: bool) -> Self {
        Picker { pieces, sequential, tiers: BTreeMap::new(), due: BTreeSet::new(), count: 0 }
    }

    /// Pieces that can be picked.
    pub(crate) fn count(&self) -> u32 {
        self.count
    }

    fn level(&self, level: u8) -> usize {
        if self.sequential { 0 } else { usize::from(level).min(LEVELS - 1) }
    }

    /// Puts a piece in.
    pub(crate) fn insert(&mut self, piece: u32, priority: u8, level: u8, due: Option<Time>) {
        debug_assert!(priority > 0, "piece {piece} is unwanted");
        let (level, pieces) = (self.level(level), self.pieces);
        let empty = || Tier { levels: vec![BitSet::default(); LEVELS], count: 0 };
        let tier = self.tiers.entry(Reverse(priority)).or_insert_with(empty);
        let Some(set) = tier.levels.get_mut(level) else { return };
        if !set.has_room() {
            *set = BitSet::new(pieces);
        }
        if set.set(piece) {
            tier.count += 1;
            self.count += 1;
        }
        if let Some(at) = due {
            self.due.insert((at, piece));
        }
    }

    /// Takes a piece out of the place that `insert` put it in.
    pub(crate) fn remove(&mut self, piece: u32, priority: u8, level: u8, due: Option<Time>) {
        let level = self.level(level);
        let Some(tier) = self.tiers.get_mut(&Reverse(priority)) else { return };
        if tier.levels.get_mut(level).is_some_and(|set| set.clear(piece)) {
            tier.count -= 1;
            self.count -= 1;
        }
        if tier.count == 0 {
            self.tiers.remove(&Reverse(priority));
        }
        if let Some(at) = due {
            self.due.remove(&(at, piece));
        }
    }

    /// The piece has become rarer or more common.
    pub(crate) fn relevel(&mut self, piece: u32, priority: u8, from: u8, to: u8) {
        if self.level(from) == self.level(to) || !self.contains(piece, priority, from) {
            return;
        }
        self.remove(piece, priority, from, None);
        self.insert(piece, priority, to, None);
    }

    /// Whether the piece is in with this deadline.
    pub(crate) fn is_due(&self, piece: u32, at: Option<Time>) -> bool {
        at.is_some_and(|at| self.due.contains(&(at, piece)))
    }

    /// Pieces with a deadline.
    pub(crate) fn due(&self) -> usize {
        self.due.len()
    }

    pub(crate) fn contains(&self, piece: u32, priority: u8, level: u8) -> bool {
        let level = self.level(level);
        let tier = self.tiers.get(&Reverse(priority));
        tier.and_then(|t| t.levels.get(level)).is_some_and(|set| set.get(piece))
    }

    /// The best run of pieces that the peer has: its first piece best, the next ones as good and in
    /// order, at most `most` of them. `cursor`: where the last run of this peer ended.
    pub(crate) fn pick(
        &self,
        have: &Holding,
        cursor: Option<u32>,
        most: u32,
        rng: &mut Rng,
    ) -> Option<Range<u32>> {
        let urgent = self.due.iter().take(DUE_SCAN).find(|(_, p)| have.has(*p));
        if let Some(&(_, piece)) = urgent {
            return Some(piece..piece + 1);
        }
        for tier in self.tiers.values() {
            for set in tier.levels.iter().filter(|s| s.count() > 0) {
                if let Some(first) = self.pick_in(set, have, cursor, rng) {
                    let goes_on = |p: u32| set.get(p) && have.has(p);
                    let last = first.saturating_add(most.max(1));
                    let end = (first + 1..last).find(|&p| !goes_on(p)).unwrap_or(last);
                    return Some(first..end);
                }
            }
        }
        None
    }

    fn pick_in(&self, set: &BitSet, have: &Holding, cursor: Option<u32>, rng: &mut Rng) -> Option<u32> {
        if let Some(c) = cursor.filter(|&c| !self.sequential && set.get(c) && have.has(c)) {
            return Some(c);
        }
        let next = |from| match have.some() {
            None => set.next(from),
            Some(some) => set.next_common(some, from),
        };
        if self.sequential {
            return next(0);
        }
        let depth = |p: u32| (1..=DEEP.min(p)).find(|d| !set.get(p - d)).unwrap_or(DEEP);
        let mut draw = |_| {
            let hash = planted(Bug::HashOrder);
            let start = if hash { any_below(self.pieces) } else { rng.below(self.pieces) };
            next(start).or_else(|| next(0))
        };
        // All draws are the same when there is one piece; no draw is better when there is no piece.
        let first = draw(0)?;
        let mut best = (depth(first), first);
        for p in (1..DRAWS).filter_map(draw) {
            let deep = depth(p);
            if deep > best.0 {
                best = (deep, p);
            }
        }
        Some(best.1)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn everything() -> Holding {
        let mut h = Holding::default();
        h.become_all();
        h
    }

    #[test]
    fn deadline_then_priority_then_rarity() {
        let mut p = Picker::new(100, false);
        let mut rng = Rng::new(1);
        p.insert(10, 1, 5, None);
        p.insert(11, 1, 2, None);
        p.insert(12, 3, 9, None);
        p.insert(13, 1, 20, Some(Time(5)));
        p.insert(14, 1, 20, Some(Time(4)));
        let mut order = Vec::new();
        while let Some(run) = p.pick(&everything(), None, 1, &mut rng) {
            let i = run.start;
            order.push(i);
            let at = match i {
                10 => (1, 5, None),
                11 => (1, 2, None),
                12 => (3, 9, None),
                13 => (1, 20, Some(Time(5))),
                _ => (1, 20, Some(Time(4))),
            };
            p.remove(i, at.0, at.1, at.2);
        }
        assert_eq!(order, vec![14, 13, 12, 11, 10]);
        assert_eq!((p.count(), p.tiers.len()), (0, 0));
    }

    #[test]
    fn only_what_the_peer_has() {
        let mut p = Picker::new(1000, false);
        for i in 0..1000 {
            p.insert(i, 1, 0, None);
        }
        let mut h = Holding::default();
        assert_eq!(p.pick(&h, None, 8, &mut Rng::new(1)), None);
        for i in 500..503 {
            h.add(i, 1000);
        }
        for seed in 0..20 {
            let run = p.pick(&h, None, 8, &mut Rng::new(seed)).unwrap();
            assert!(run.start >= 500 && run.end == 503, "{run:?}");
        }
    }

    #[test]
    fn chance_spreads_and_the_cursor_stays() {
        let mut p = Picker::new(1000, false);
        for i in 0..1000 {
            p.insert(i, 1, 0, None);
        }
        let starts: BTreeSet<u32> =
            (0..50).map(|s| p.pick(&everything(), None, 4, &mut Rng::new(s)).unwrap().start).collect();
        assert!(starts.len() > 40, "{starts:?}");
        assert_eq!(p.pick(&everything(), Some(77), 4, &mut Rng::new(1)), Some(77..81));
        p.relevel(77, 1, 0, 3);
        assert_ne!(p.pick(&everything(), Some(77), 4, &mut Rng::new(1)).unwrap().start, 77);
        assert_eq!(p.count(), 1000);
    }

    #[test]
    fn sequential_goes_in_order() {
        let mut p = Picker::new(10, true);
        for i in 0..10 {
            p.insert(i, 1, (10 - i) as u8, None);
        }
        assert_eq!(p.pick(&everything(), None, 1, &mut Rng::new(9)), Some(0..1));
        p.remove(0, 1, 3, None);
        assert_eq!(p.pick(&everything(), None, 1, &mut Rng::new(9)), Some(1..2));
    }
}
