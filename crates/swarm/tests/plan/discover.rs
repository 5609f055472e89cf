//! Places found out on networks that share links max-min fairly.

use proptest::prelude::*;
use tidecast_swarm::plan::topology::discover::{Discovery, Found};

/// A small generator of its own: the noise must not depend on the trials.
struct Chance(u64);

impl Chance {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

/// Switches in a row or around one in the middle; every link the same each way.
struct Network {
    /// By host, its switch.
    at: Vec<usize>,
    /// By host, the rate of its link.
    own: Vec<u64>,
    /// By switch, the rate of the link to the next one, or to the one in the middle.
    links: Vec<u64>,
    row: bool,
}

const RATE: u64 = 1_000_000;

impl Network {
    fn new(sizes: &[usize], links: &[u64], row: bool, chance: &mut Chance) -> Network {
        let mut at: Vec<usize> = sizes.iter().enumerate().flat_map(|(s, n)| vec![s; *n]).collect();
        for i in (1..at.len()).rev() {
            at.swap(i, chance.below(i as u64 + 1) as usize);
        }
        Network { own: vec![RATE; at.len()], at, links: links.to_vec(), row }
    }

    fn way(&self, a: usize, b: usize) -> Vec<usize> {
        let (x, y) = (self.at[a].min(self.at[b]), self.at[a].max(self.at[b]));
        match () {
            () if x == y => Vec::new(),
            () if self.row => (x..y).collect(),
            () => vec![x, y],
        }
    }

    /// The rates of pairs that send at once, by progressive filling; both ways alike.
    fn rates(&self, pairs: &[(u32, u32)]) -> Vec<u64> {
        let mut links: Vec<(u64, Vec<usize>)> = Vec::new();
        let mut of_link = std::collections::BTreeMap::new();
        for (f, &(a, b)) in pairs.iter().enumerate() {
            links.push((self.own[a as usize].min(self.own[b as usize]), vec![f]));
            for l in self.way(a as usize, b as usize) {
                of_link.entry(l).or_insert_with(Vec::new).push(f);
            }
        }
        links.extend(of_link.into_iter().map(|(l, flows)| (self.links[l], flows)));
        let mut rates = vec![None; pairs.len()];
        while rates.iter().any(Option::is_none) {
            let share = |(cap, flows): &(u64, Vec<usize>)| {
                let used: u64 = flows.iter().filter_map(|f| rates[*f]).sum();
                let open = flows.iter().filter(|f| rates[**f].is_none()).count() as u64;
                (open > 0).then(|| cap.saturating_sub(used) / open)
            };
            let (least, tight) =
                links.iter().filter_map(|l| Some((share(l)?, l))).min_by_key(|(s, _)| *s).unwrap();
            tight.1.iter().for_each(|f| {
                rates[*f].get_or_insert(least);
            });
        }
        rates.into_iter().flatten().collect()
    }

    /// Tries as long as is wanted. Of a hundred figures `noise` less or more, and `missing` are not there.
    fn explore(&self, noise: u64, missing: u64, chance: &mut Chance) -> (Found, usize) {
        let mut discovery = Discovery::new(self.at.len() as u32, RATE, chance.below(1 << 30));
        let mut count = 0;
        loop {
            let rounds = discovery.next_rounds();
            if rounds.is_empty() {
                return (discovery.found(), count);
            }
            for round in rounds {
                count += 1;
                let mut seen: Vec<u32> = round.iter().flat_map(|(a, b)| [*a, *b]).collect();
                seen.sort_unstable();
                seen.dedup();
                assert_eq!(seen.len(), round.len() * 2, "nobody is in two pairs");
                for (&(a, b), rate) in round.iter().zip(self.rates(&round)) {
                    let mut noisy = || rate * (100 - noise + chance.below(2 * noise + 1)) / 100;
                    let rate = noisy().min(noisy());
                    if chance.below(100) >= missing {
                        discovery.saw(a, b, rate);
                    }
                }
            }
        }
    }

    /// Hosts that are not where most of their switch are, or are with those of another. `same`: whether two
    /// hosts count as on one switch.
    fn misplaced(&self, found: &Found, same: impl Fn(usize) -> usize) -> usize {
        let mut table = std::collections::BTreeMap::new();
        for (at, place) in self.at.iter().zip(&found.places) {
            *table.entry((same(*at), *place)).or_insert(0) += 1;
        }
        let mut taken = Vec::new();
        let mut cells: Vec<_> = table.into_iter().collect();
        cells.sort_by_key(|(_, n)| std::cmp::Reverse(*n));
        let mut right = 0;
        for ((switch, place), n) in cells {
            if taken.iter().all(|(s, p)| *s != switch && *p != place) {
                taken.push((switch, place));
                right += n;
            }
        }
        self.at.len() - right
    }
}

/// Tries many networks of a kind; how many hosts are misplaced, in how many runs, of which each took this many rounds.
fn survey(
    runs: u64,
    (noise, missing): (u64, u64),
    make: impl Fn(&mut Chance) -> Network,
    same: impl Fn(usize) -> usize,
) -> (usize, usize, usize) {
    let (mut wrong, mut bad, mut most) = (0, 0, 0);
    for seed in 0..runs {
        let mut chance = Chance(seed * 77 + 5);
        let network = make(&mut chance);
        let (found, rounds) = network.explore(noise, missing, &mut chance);
        let misplaced = network.misplaced(&found, &same);
        (wrong, bad, most) = (wrong + misplaced, bad + usize::from(misplaced > 0), most.max(rounds));
    }
    (wrong, bad, most)
}

/// No noise; noise as in a lab; more than that, and some hosts that do not answer.
const NOISES: [(u64, u64); 3] = [(0, 0), (15, 1), (30, 5)];

#[test]
fn one_switch_is_one_place_after_two_rounds() {
    for noise in NOISES {
        for hosts in [4, 16, 64, 150] {
            let (wrong, _, rounds) = survey(20, noise, |c| Network::new(&[hosts], &[], true, c), |_| 0);
            assert_eq!((wrong, rounds), (0, 2), "{hosts} {noise:?}");
        }
    }
}

#[test]
fn sites_behind_one_link_are_found() {
    // The last switch has a link so fast that it is at the same place.
    let sites: [(&[usize], usize); 5] =
        [(&[8, 6, 2], 9), (&[32, 25, 7], 13), (&[55, 9], 13), (&[4, 4], 16), (&[120, 120], 16)];
    for noise in NOISES {
        for (sizes, most) in sites {
            let make = |c: &mut Chance| Network::new(sizes, &[RATE, 10 * RATE], true, c);
            let (wrong, _, rounds) = survey(30, noise, make, |s| s.min(1));
            assert!(wrong == 0 && rounds <= most, "{sizes:?} {noise:?}: {wrong} wrong, {rounds} rounds");
        }
    }
}

#[test]
fn racks_are_found_though_few_pairs_are_near() {
    for noise in NOISES {
        let racks = |n: usize, c: &mut Chance| {
            Network::new(&vec![n; 64 / n], &vec![n as u64 * RATE / 4; 64 / n], false, c)
        };
        for n in [16, 8] {
            let (wrong, bad, rounds) = survey(20, noise, |c| racks(n, c), |s| s);
            assert!(
                bad <= 5 && wrong <= 10 && rounds <= 22,
                "{n} a rack, {noise:?}: {wrong} in {bad} runs, {rounds} rounds"
            );
        }
    }
}

/// Few hosts behind a link of one host's rate are hard to tell: often only one pair crosses.
#[test]
fn few_hosts_apart_are_mostly_found() {
    for noise in NOISES {
        let (_, bad, _) = survey(40, noise, |c| Network::new(&[13, 3], &[RATE], true, c), |s| s);
        assert!(bad <= 8, "{noise:?}: {bad} of 40 runs");
    }
}

#[test]
fn a_slow_host_is_slow_and_at_no_place_of_its_own() {
    for noise in NOISES {
        for seed in 0..20 {
            let mut chance = Chance(seed);
            let mut network = Network::new(&[8, 8], &[RATE], true, &mut chance);
            network.own[5] = RATE / 4;
            let (found, rounds) = network.explore(noise.0, noise.1, &mut chance);
            assert!(found.count() <= 3 && rounds <= 16, "{found:?}");
            assert!(found.slow.iter().enumerate().all(|(host, slow)| !slow || host == 5), "{found:?}");
            network.at[5] =
                found.places.iter().position(|p| *p == found.places[5]).map_or(0, |h| network.at[h]);
        }
    }
    // Hosts with faster links than most are near to all others too.
    let mut chance = Chance(3);
    let mut network = Network::new(&[24], &[], true, &mut chance);
    network.own.iter_mut().take(20).for_each(|rate| *rate = RATE / 10);
    let (found, _) = network.explore(10, 0, &mut chance);
    assert_eq!(found.count(), 1, "{found:?}");
}

#[test]
fn who_is_not_heard_of_is_where_most_are() {
    let mut discovery = Discovery::new(4, 0, 1);
    assert_eq!(discovery.next_rounds().len(), 2);
    assert!(discovery.next_rounds().is_empty(), "nobody answers");
    assert_eq!(discovery.found().places, [0; 4]);
    assert!(Discovery::new(1, 0, 0).next_rounds().is_empty() && Discovery::new(0, 0, 0).found().count() == 0);
}

proptest! {
    /// Whatever is measured: bounded rounds, every host in one pair at most, places without gaps.
    #[test]
    fn any_figures(hosts in 0..40_u32, alone in any::<u64>(), seed in any::<u64>(), rates in prop::collection::vec(any::<u64>(), 1..50)) {
        let mut discovery = Discovery::new(hosts, alone, seed);
        let mut rates = rates.iter().cycle();
        let mut count = 0;
        loop {
            let rounds = discovery.next_rounds();
            if rounds.is_empty() {
                break;
            }
            count += rounds.len();
            prop_assert!(count <= 20);
            for (a, b) in rounds.into_iter().flatten() {
                prop_assert!(a != b && a < hosts && b < hosts);
                discovery.saw(a, b, *rates.next().unwrap_or(&0));
            }
        }
        let found = discovery.found();
        prop_assert_eq!((found.places.len(), found.slow.len()), (hosts as usize, hosts as usize));
        prop_assert!((0..found.count()).all(|place| found.places.contains(&place)));
    }
}
