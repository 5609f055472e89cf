//! Where hosts are, found out by trying: pairs of hosts send to each other, all at once, in a few rounds.
//!
//! Links between switches show only when many flows cross them at once. A round that pairs hosts at random
//! sends as much over each cut as a plan without places would; so where all pairs of such rounds are fast,
//! one place is right. Otherwise, hosts that are slow together lie apart, and hosts that are fast together,
//! while others load the links between, are near. The measurements of two hosts add up to a score, for or
//! against one place; sets of hosts that agree best are joined first (correlation clustering), so that a few
//! odd figures decide nothing. Later rounds test the open questions: hosts whose place is not certain, and
//! sets that may be one. Meanwhile the other hosts load the links between them.
//!
//! Pure: measurements go in, pairs and places come out.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};

use crate::rng::Rng;

/// Most hosts that are tried.
pub const MOST_HOSTS: u32 = 4096;
/// Rounds at once: at first, and later.
const FIRST: u32 = 2;
const MORE: u32 = 2;
/// Rates, by the usual one of two hosts at one place, in thousandths, that speak fully against and for one place.
const FAR: u64 = 550;
const NEAR: u64 = 750;
/// Higher rates than any there are count as this.
const MOST_RATE: u64 = 1 << 48;
/// The maximal weight of one measurement, and the score that counts as certain.
const WEIGHT: i64 = 1000;
const SURE: i64 = 1500;

/// A round of pairs. Every host is in one pair at most.
pub type Round = Vec<(u32, u32)>;

/// The measurements so far, and the next trials.
#[derive(Clone, Debug)]
pub struct Discovery {
    hosts: u32,
    /// The rate of a pair while no other host sent; 0 if unknown.
    alone: u64,
    rounds: u32,
    /// By pair, lower number first: the rates seen.
    seen: BTreeMap<(u32, u32), Vec<u64>>,
    met: BTreeSet<(u32, u32)>,
    rng: Rng,
}

/// The result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// By host, the number of its place: 0 is where most are.
    pub places: Vec<u32>,
    /// By host, whether it is slow with all others.
    pub slow: Vec<bool>,
    /// The usual rate of two hosts at one place; 0 where nothing was seen.
    pub rate: u64,
}

impl Found {
    /// How many places there are.
    #[must_use]
    pub fn count(&self) -> u32 {
        self.places.iter().max().map_or(0, |last| last + 1)
    }
}

impl Discovery {
    /// No measurements yet of this many hosts, of which the first [`MOST_HOSTS`] are tried. `alone`: the rate
    /// of a pair while no other host sent, 0 if unknown; where places are many and small, no pair of the
    /// first rounds may be near.
    #[must_use]
    pub fn new(hosts: u32, alone: u64, seed: u64) -> Discovery {
        let (hosts, alone) = (hosts.min(MOST_HOSTS), alone.min(MOST_RATE));
        Discovery {
            hosts,
            alone,
            rounds: 0,
            seen: BTreeMap::new(),
            met: BTreeSet::new(),
            rng: Rng::new(seed),
        }
    }

    /// A measurement of two hosts: the lower rate of both directions, in any unit. Zero is a measurement too;
    /// a host that did not answer has no measurement.
    pub fn saw(&mut self, a: u32, b: u32, rate: u64) {
        if a != b && a.max(b) < self.hosts {
            self.seen.entry(pair(a, b)).or_default().push(rate.min(MOST_RATE));
        }
    }

    /// The usual rate of two hosts at one place, as far as is known.
    #[must_use]
    pub fn rate(&self) -> u64 {
        usual(self.seen.values().flatten().copied().collect()).max(self.alone / 4 * 3)
    }

    /// The rounds to try next, one after the other; none when enough is known or too much tried.
    pub fn next_rounds(&mut self) -> Vec<Round> {
        let rate = self.rate();
        let mut sorted = Sorted::new(self.hosts, self.weigh(|_| rate));
        let log = u32::BITS - self.hosts.leading_zeros();
        if self.hosts < 2
            || self.rounds >= 6 + 2 * log
            || self.rounds > 0 && (self.seen.is_empty() || sorted.over())
        {
            return Vec::new();
        }
        let count = if self.rounds == 0 { FIRST } else { MORE };
        self.rounds += count;
        (0..count).map(|_| self.round(&mut sorted)).collect()
    }

    /// The places of the hosts.
    #[must_use]
    pub fn found(&self) -> Found {
        let rate = self.rate();
        let first = Sorted::new(self.hosts, self.weigh(|_| rate));
        // A host that is alone and always equally slow has a slow link of its own: hosts are near to it if
        // the rate to them is as high as that.
        let own: Vec<u64> = (0..self.hosts).map(|h| self.own(h, &first, rate)).collect();
        let slow = own.iter().map(|own| own * 2 < rate).collect();
        let sorted = Sorted::new(self.hosts, self.weigh(|h| own[h as usize]));
        let met: BTreeSet<u32> = self.seen.keys().flat_map(|(a, b)| [*a, *b]).collect();
        let single = met.iter().filter(|h| sorted.sizes[sorted.set[**h as usize] as usize] == 1).count();
        // Where most hosts are near to no other there are no places, but a pattern that is not understood.
        if sorted.flat || single * 2 > met.len() {
            return Found { places: vec![0; self.hosts as usize], slow, rate };
        }
        let mut order: Vec<u32> = (0..self.hosts).collect();
        order.sort_by_key(|set| (Reverse(sorted.sizes[*set as usize]), *set));
        let mut number = vec![0; order.len()];
        (0..).zip(order).for_each(|(i, set)| number[set as usize] = i);
        // Hosts that were not measured are placed where most are.
        let place = |h: u32| if met.contains(&h) { number[sorted.set[h as usize] as usize] } else { 0 };
        Found { places: (0..self.hosts).map(place).collect(), slow, rate }
    }

    /// The best rate of a host: the usual rate, or, where it is alone and measured about the same each time,
    /// its own.
    fn own(&self, host: u32, sorted: &Sorted, rate: u64) -> u64 {
        let alone = sorted.sizes[sorted.set[host as usize] as usize] == 1;
        let mine = self.seen.iter().filter(|((a, b), _)| alone && (*a == host || *b == host));
        let mine: Vec<u64> = mine.flat_map(|(_, rates)| rates).copied().collect();
        let (most, least) =
            (mine.iter().max().copied().unwrap_or(0), mine.iter().min().copied().unwrap_or(0));
        if mine.len() >= 3 && least * 1000 >= most * FAR { usual(mine).min(rate) } else { rate }
    }

    /// The score for and against one place, by pair. `own`: the best rate of a host.
    fn weigh(&self, own: impl Fn(u32) -> u64) -> BTreeMap<(u32, u32), i64> {
        let weight = |&(a, b): &(u32, u32), rate: u64| {
            let part = (rate * 1000 / own(a).min(own(b)).max(1)).min(2 * NEAR);
            let middle = part as i64 - (FAR + NEAR) as i64 / 2;
            (middle * WEIGHT / ((NEAR - FAR) as i64 / 2)).clamp(-WEIGHT, WEIGHT)
        };
        self.seen.iter().map(|(pair, rates)| (*pair, rates.iter().map(|r| weight(pair, *r)).sum())).collect()
    }

    /// Pairs hosts for one round, those of which most is open first.
    fn round(&mut self, sorted: &mut Sorted) -> Round {
        let mut row: Vec<u32> = (0..self.hosts).collect();
        for i in (1..row.len()).rev() {
            row.swap(i, self.rng.below(i as u32 + 1) as usize);
        }
        let mut round = Round::new();
        let fresh = |met: &BTreeSet<_>, a, b| !met.contains(&pair(a, b));
        // Half of the hosts at most: the others load the links that may lie between.
        let half = row.len() / 4;
        self.match_up(&mut row, &mut round, half, |met, a, b| {
            !sorted.sure(a) && sorted.set[a as usize] == sorted.set[b as usize] && fresh(met, a, b)
        });
        self.match_up(&mut row, &mut round, usize::MAX, |_, a, b| sorted.ask(a, b));
        self.match_up(&mut row, &mut round, usize::MAX, |met, a, b| sorted.open(a, b) && fresh(met, a, b));
        self.match_up(&mut row, &mut round, usize::MAX, |_, a, b| {
            sorted.set[a as usize] != sorted.set[b as usize]
        });
        self.match_up(&mut row, &mut round, usize::MAX, |_, _, _| true);
        round
    }

    /// Takes pairs that fit out of the row, up to this many.
    fn match_up(
        &mut self,
        row: &mut Vec<u32>,
        round: &mut Round,
        most: usize,
        mut fits: impl FnMut(&BTreeSet<(u32, u32)>, u32, u32) -> bool,
    ) {
        let most = round.len().saturating_add(most);
        let mut rest = Vec::new();
        while let Some(host) = row.pop() {
            let full = round.len() >= most;
            match row.iter().rposition(|mate| !full && fits(&self.met, host, *mate)) {
                Some(at) => {
                    let mate = row.remove(at);
                    self.met.insert(pair(host, mate));
                    round.push((host, mate));
                }
                None => rest.push(host),
            }
        }
        rest.reverse();
        *row = rest;
    }
}

fn pair(a: u32, b: u32) -> (u32, u32) {
    (a.min(b), a.max(b))
}

/// The rate of near hosts, if any: the median of the rates that are not much below nearly the highest.
fn usual(mut rates: Vec<u64>) -> u64 {
    rates.sort_unstable();
    let top = rates.get((rates.len() * 95 / 100).min(rates.len().saturating_sub(2))).copied().unwrap_or(0);
    let near = &rates[rates.partition_point(|rate| *rate < top / 1000 * 600)..];
    near.get(near.len() / 2).copied().unwrap_or(0)
}

/// Hosts in sets, by their scores.
struct Sorted {
    /// By host, its set.
    set: Vec<u32>,
    /// By set, how many there are.
    sizes: Vec<u32>,
    /// By host, the score for its set.
    trust: Vec<i64>,
    /// By pair of sets, the score for joining them.
    between: BTreeMap<(u32, u32), i64>,
    /// Nothing speaks against one place for all.
    flat: bool,
}

impl Sorted {
    fn new(hosts: u32, scores: BTreeMap<(u32, u32), i64>) -> Sorted {
        let mut near = vec![BTreeMap::new(); hosts as usize];
        for (&(a, b), &score) in &scores {
            near[a as usize].insert(b, score);
            near[b as usize].insert(a, score);
        }
        let mut set = joined(near.clone());
        settle(&near, &mut set);
        let (mut sizes, mut trust) = (vec![0; hosts as usize], vec![0; hosts as usize]);
        let mut between = BTreeMap::new();
        set.iter().for_each(|s| sizes[*s as usize] += 1);
        for (&(a, b), score) in &scores {
            let (x, y) = (set[a as usize], set[b as usize]);
            if x == y {
                trust[a as usize] += score;
                trust[b as usize] += score;
            } else {
                *between.entry(pair(x, y)).or_insert(0) += score;
            }
        }
        let flat = scores.values().all(|score| *score > 0);
        Sorted { set, sizes, trust, between, flat }
    }

    /// Whether a host is where it belongs, or has no other host to compare with.
    fn sure(&self, host: u32) -> bool {
        self.trust[host as usize] >= SURE || self.sizes[self.set[host as usize] as usize] == 1
    }

    /// Whether two hosts are in different sets that have not met; now they have.
    fn ask(&mut self, a: u32, b: u32) -> bool {
        let sets = pair(self.set[a as usize], self.set[b as usize]);
        let fresh = sets.0 != sets.1 && !self.between.contains_key(&sets);
        if fresh {
            self.between.insert(sets, 0);
        }
        fresh
    }

    /// Whether two hosts are in different sets that may yet be one.
    fn open(&self, a: u32, b: u32) -> bool {
        let (x, y) = (self.set[a as usize], self.set[b as usize]);
        x != y && self.between.get(&pair(x, y)).is_none_or(|score| *score > -SURE)
    }

    /// Whether all is known that matters.
    fn over(&self) -> bool {
        let sets = self.sizes.iter().filter(|size| **size > 0).count();
        let apart = self.between.values().filter(|score| **score <= -SURE).count();
        let sure = (0..self.set.len() as u32).all(|host| self.sure(host));
        self.flat || sure && apart == sets * (sets - 1) / 2
    }
}

/// Joins hosts to sets, those with the highest score first. The set of each host: the number of one of it.
fn joined(mut near: Vec<BTreeMap<u32, i64>>) -> Vec<u32> {
    let mut set: Vec<u32> = (0..near.len() as u32).collect();
    let mut members: Vec<Vec<u32>> = set.iter().map(|host| vec![*host]).collect();
    let mut heap = BinaryHeap::new();
    for (a, scores) in (0..).zip(&near) {
        heap.extend(
            scores.iter().filter(|(b, score)| a < **b && **score > 0).map(|(b, score)| (*score, a, *b)),
        );
    }
    while let Some((score, a, b)) = heap.pop() {
        // Changed entries are in the heap again.
        if near[a as usize].get(&b) != Some(&score) {
            continue;
        }
        let (keep, gone) =
            if members[a as usize].len() >= members[b as usize].len() { (a, b) } else { (b, a) };
        let moved = std::mem::take(&mut members[gone as usize]);
        moved.iter().for_each(|host| set[*host as usize] = keep);
        members[keep as usize].extend(moved);
        near[keep as usize].remove(&gone);
        for (other, score) in std::mem::take(&mut near[gone as usize]) {
            near[other as usize].remove(&gone);
            if other != keep {
                let sum = near[keep as usize].get(&other).copied().unwrap_or(0) + score;
                near[keep as usize].insert(other, sum);
                near[other as usize].insert(keep, sum);
                if sum > 0 {
                    let (a, b) = pair(keep, other);
                    heap.push((sum, a, b));
                }
            }
        }
    }
    set
}

/// Moves hosts to sets with a higher score: hosts that were joined early were joined by few measurements.
fn settle(near: &[BTreeMap<u32, i64>], set: &mut [u32]) {
    for _ in 0..4 {
        let mut moved = false;
        for host in 0..set.len() {
            let mut sums: BTreeMap<u32, i64> = BTreeMap::new();
            near[host]
                .iter()
                .for_each(|(other, score)| *sums.entry(set[*other as usize]).or_insert(0) += score);
            let own = sums.get(&set[host]).copied().unwrap_or(0);
            let best = sums.into_iter().max_by_key(|(set, sum)| (*sum, Reverse(*set)));
            if let Some((better, _)) = best.filter(|(_, sum)| *sum > own.max(0)) {
                set[host] = better;
                moved = true;
            } else if own < 0
                && let Some(free) = (0..set.len() as u32).find(|s| !set.contains(s))
            {
                set[host] = free;
                moved = true;
            }
        }
        if !moved {
            return;
        }
    }
}
