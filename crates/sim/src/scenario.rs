//! A random job from a seed: the same seed is the same job on any machine.
//!
//! The parameters are drawn independently unless noted ("log" is uniform over the octaves):
//!
//! | what | how |
//! |---|---|
//! | nodes | 11 in 12: log 2 to 24; else log 24 to 500 |
//! | topology | single 3/12, bordeaux 3/12, sites 2/12, and 1/12 each nat, leafspine, fattree, dragonfly |
//! | rate of a node | 10, 100 Mbit/s, 1, 10, 100 Gbit/s; so much that a tenth of it is done in 15 minutes |
//! | slowest link | 1, 1/2, 1/4 or 1/10 of a node's rate; delay 0, 250 us, 5 ms or 50 ms; loss 0.1% in 1/8 |
//! | piece length | 16, 64, 256 KiB, 1, 4 MiB, or any number up to 1 MiB; last piece 1/2 full, 1/4 odd, 1/4 tiny |
//! | odd lengths inside | 1/4: one piece in four ends early, as at the end of a file |
//! | pieces | log 1 to 5,000; fewer where nodes times blocks would exceed 1,200 (1/64 of the seeds: 30,000) |
//! | protocol | Tidecast 3/6, stock, stock with BEP 6, mixed |
//! | policy | Tidecast's 4/6, classic 1/6, each mechanism by itself on or off 1/6 |
//! | leaf hashes ahead | 2/3 |
//! | limits | the defaults 2/3; else each one small in 1/2 |
//! | hosts | settle 20, 200 MB/s or 2 GB/s; think 1, 20 or 500 us |
//! | acquaintances | 4, 16 or 50 |
//! | partial wants | 1/6: one receiver in two wants up to three random ranges, or nothing |
//! | faults | none 1/5, else log 1 to 8, each of a kind drawn from `KINDS` |
//! | target | one receiver 2/3, a share of 5 to 50% 1/4, else the origin where it survives that |
//! | when | vices and closed doors at the start 3/4; all others uniform over twice the ideal time |
//! | plan | 3/10 of those with Tidecast's protocol and policy in which all want everything; it knows the topology or not; stripes: what suits, or 1 to 16 |
//! | plan on demand | 1/4 of the plans: every node opens log 1 to 8 ranges of pieces in turn, from 0, 1 or 10 s on, 20 us or 1 s apart |
//! | how long | 7/8 of what can end does: 1/4, 1 or 4 ideal times, or 1, 30 or 200 s |
//!
//! The origin dies (crash, death, full disk, leave) permanently in one seed of 24, near the end.

mod duration;
mod planned;

use std::fmt;
use std::ops::Range;

use tidecast_swarm::{Limits, Policy, Time};

use self::duration::{ideal, until};
use crate::fault::{Item, NodeFault, Selector, Spec, What};
use crate::job::{Host, Job, Protocols};
use crate::rng::Rng;
use crate::topology::units::format_rate;
use crate::topology::{NodeId, Topology};

const SECOND: u64 = 1_000_000_000;
const KIB: u32 = 1 << 10;
/// A stock client's block.
const STOCK_BLOCK: u32 = 16 * KIB;
/// Largest block between Tidecast nodes.
const MAX_BLOCK: u32 = 1024 * KIB;

/// A job and how it is written on the command line.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// Which one.
    pub seed: u64,
    /// The cluster's short form.
    pub topology: String,
    /// Applied to `job` already.
    pub faults: Vec<Spec>,
    /// The job.
    pub job: Job,
}

/// The job of a seed.
#[must_use]
pub fn job(seed: u64) -> Job {
    Scenario::new(seed).job
}

impl Scenario {
    /// The scenario of a seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let mut scenario = Self::planned(seed);
        planned::open(&mut scenario.job);
        scenario
    }

    /// The same with all pieces wanted from the start: the meaning of a seed before there were plans on
    /// demand.
    #[must_use]
    pub fn planned(seed: u64) -> Self {
        let mut scenario = Self::swarm(seed);
        let job = &mut scenario.job;
        job.plan = planned::plan(job);
        if job.plan.is_some() {
            // Pushed data is bounded by the sockets, which a slow disk slows; not so in this model. So no
            // card may be faster than the disk.
            let fastest = job.topology.nodes.iter().map(|n| n.rate / 8).max().unwrap_or(0);
            job.host.settle = fastest.max(2_000_000_000);
            job.limits.unsettled = Limits::default().unsettled;
        }
        scenario
    }

    /// The same without a plan: the meaning of a seed before there were plans.
    #[must_use]
    pub fn swarm(seed: u64) -> Self {
        let mut draw = Draw(Rng::new(seed ^ 0x5CE7_A810_5EED_0001));
        let protocols = draw.protocols();
        let nodes = if draw.0.one_in(12) { draw.log(24, 500) } else { draw.log(2, 24) };
        let lengths = draw.lengths(nodes, protocols);
        let size: u64 = lengths.iter().map(|&len| u64::from(len)).sum();
        let shape = draw.shape(nodes as u32, size);
        let topology = Topology::parse(&shape.form);
        // The forms are our own; the tests read thousands of them.
        let topology = topology.unwrap_or_else(|error| unreachable!("{}: {error}", shape.form));
        let ideal = ideal(size, shape.slowest, shape.delay);
        let mut job = Job {
            policy: draw.policy(),
            limits: draw.limits(),
            protocols,
            leaves: !draw.0.one_in(3),
            host: draw.host(),
            acquaintances: draw.0.pick(&[4, 16, 50]),
            until: Time(0),
            seed,
            ..Job::plain(topology, lengths)
        };
        job.wants = draw.wants(&job);
        let faults = draw.faults(&job.topology, ideal);
        for spec in &faults {
            let applied = spec.apply(&mut job);
            debug_assert_eq!(applied, Ok(()), "{spec}");
        }
        job.until = until(&job, ideal);
        Scenario { seed, topology: shape.form, faults, job }
    }
}

/// A cluster's form and its bounds.
struct Shape {
    form: String,
    /// Bits per second.
    slowest: u64,
    /// One way over the slowest link, nanoseconds.
    delay: u64,
}

/// The chance of one scenario.
struct Draw(Rng);

impl Draw {
    /// From `least` to `most`, uniform over the octaves between them.
    fn log(&mut self, least: u64, most: u64) -> u64 {
        let octaves = (0..63).take_while(|k| least << k <= most).count() as u64;
        let low = least << self.0.below(octaves);
        low + self.0.below(low.min(most - low + 1))
    }

    /// True `n` times in `of`.
    fn chance(&mut self, n: u64, of: u64) -> bool {
        self.0.below(of) < n
    }

    fn protocols(&mut self) -> Protocols {
        match self.0.below(6) {
            0 => Protocols::Stock { fast: false },
            1 => Protocols::Stock { fast: true },
            2 => Protocols::Mixed,
            _ => Protocols::Tidecast,
        }
    }

    fn shape(&mut self, nodes: u32, size: u64) -> Shape {
        let rates = [10_000_000, 100_000_000, 1_000_000_000, 10_000_000_000, 100_000_000_000];
        let drawn = self.0.pick(&rates);
        let quick = |rate: u64| rate >= drawn && size * 8 / (rate / 10) <= 900;
        let rate = rates.into_iter().find(|&rate| quick(rate)).unwrap_or(drawn);
        let at = format_rate(rate);
        let slowest = rate / self.0.pick(&[1, 2, 4, 10]);
        let slow = format_rate(slowest);
        let delay = self.0.pick(&[0, 250, 5_000, 50_000]);
        let loss = if self.0.one_in(8) { ",loss=0.1%" } else { "" };
        let with = format!("delay={delay}us{loss}");
        let linked = |form: String| Shape { form, slowest, delay: delay * 1000 };
        let plain = |form: String| Shape { form, slowest: rate, delay: 0 };
        match self.0.below(12) {
            0..=2 => plain(format!("single:{nodes}@{at}")),
            3..=5 => linked(format!("bordeaux:{}@{at},bottleneck={slow},{with}", self.groups(nodes))),
            6..=7 => linked(format!("sites:{}@{at},wan={slow},{with}", self.groups(nodes))),
            8 => linked(format!("nat:{nodes}@{at},bottleneck={slow}")),
            9 => {
                let leaves = 2 + self.0.below(4) as u32;
                let spines = 1 + self.0.below(3);
                let (over, rate) = (self.0.pick(&[1, 4]), rate.min(1_000_000_000));
                let each = (nodes / leaves).max(1);
                let at = format_rate(rate);
                let form = format!("leafspine:{leaves},{spines},{each}@{at},oversubscribe={over}");
                Shape { form, slowest: rate / over, delay: 0 }
            }
            10 => {
                let pods = [12_u32, 10, 8, 6, 4].into_iter().find(|k| k * k * k / 4 <= nodes);
                plain(format!("fattree:{}@{at}", pods.unwrap_or(2)))
            }
            _ => {
                let forms = [(6, 3, 3), (4, 2, 4), (4, 2, 2), (4, 2, 1), (2, 1, 2)];
                let fits = |&(a, h, p): &(u32, u32, u32)| (a * h + 1) * a * p <= nodes;
                let (a, h, p) = forms.into_iter().find(fits).unwrap_or((2, 1, 1));
                let delay = self.0.pick(&[0, 2, 100]);
                plain(format!("dragonfly:{a},{h},{p}@{at},delay={delay}us"))
            }
        }
    }

    /// Nodes on two to five switches: `5,1,3`.
    fn groups(&mut self, nodes: u32) -> String {
        let groups = (2 + self.0.below(4) as u32).min(nodes);
        let mut counts = vec![1; groups as usize];
        let mut left = nodes - groups;
        for count in counts.iter_mut().skip(1) {
            let some = self.0.below(u64::from(left) + 1) as u32;
            *count += some;
            left -= some;
        }
        counts[0] += left;
        counts.iter().map(u32::to_string).collect::<Vec<_>>().join(",")
    }

    fn lengths(&mut self, nodes: u64, protocols: Protocols) -> Vec<u32> {
        let unit = match self.0.below(6) {
            5 => 1 + self.0.below(u64::from(1024 * KIB)) as u32,
            n => [16, 64, 256, 1024, 4096][n as usize] * KIB,
        };
        let block = if protocols == Protocols::Tidecast { MAX_BLOCK } else { STOCK_BLOCK };
        let work = if self.0.one_in(64) { 30_000 } else { 1_200 };
        let most = work / (nodes * u64::from(unit.div_ceil(block)));
        let count = self.log(1, 5_000).min(most.max(1));
        let mut lengths = vec![unit; count as usize];
        if self.0.one_in(4) {
            for len in &mut lengths {
                if self.0.one_in(4) {
                    *len = 1 + self.0.below(u64::from(unit)) as u32;
                }
            }
        }
        if let Some(last) = lengths.last_mut() {
            match self.0.below(4) {
                0 => *last = 1 + self.0.below(u64::from(unit)) as u32,
                1 => *last = 1 + self.0.below(u64::from(unit.min(100))) as u32,
                _ => {}
            }
        }
        lengths
    }

    fn policy(&mut self) -> Policy {
        match self.0.below(6) {
            0 => Policy::CLASSIC,
            1 => Policy {
                choking: self.0.one_in(2),
                distribution: self.0.one_in(2),
                endgame: self.0.one_in(2),
                sequential: self.0.one_in(2),
                ..Policy::TIDECAST
            },
            _ => Policy::TIDECAST,
        }
    }

    fn limits(&mut self) -> Limits {
        let mut limits = Limits::default();
        if !self.0.one_in(3) {
            return limits;
        }
        if self.0.one_in(2) {
            limits.peers = self.0.pick(&[32, 12, 24, 8]);
            limits.random_neighbours = self.0.pick(&[8, 6, 3]);
        }
        if self.0.one_in(2) {
            limits.window = self.0.pick(&[(16 << 10, 64 << 10), (64 << 10, 1 << 20), (1 << 20, 2 << 20)]);
        }
        if self.0.one_in(2) {
            limits.serving = self.0.pick(&[16 << 10, 256 << 10, 1 << 20]);
            limits.serving_total = self.0.pick(&[64 << 10, 1 << 20, 16 << 20]);
        }
        if self.0.one_in(2) {
            limits.queued_requests = self.0.pick(&[32, 250, 1000]);
        }
        if self.0.one_in(2) {
            limits.unsettled = self.0.pick(&[64 << 10, 1 << 20, 8 << 20]);
        }
        limits
    }

    fn host(&mut self) -> Host {
        let settle = self.0.pick(&[20_000_000, 200_000_000, 2_000_000_000]);
        Host { settle, think: self.0.pick(&[1_000, 20_000, 500_000]) }
    }

    fn wants(&mut self, job: &Job) -> Vec<(NodeId, Vec<Range<u32>>)> {
        let receivers = 1..job.topology.nodes.len() as u32;
        if !self.0.one_in(6) {
            return Vec::new();
        }
        let some: Vec<u32> = receivers.filter(|_| self.0.one_in(2)).collect();
        let pieces = job.lengths.len() as u32;
        some.into_iter().map(|node| (NodeId(node), self.ranges(pieces))).collect()
    }

    /// Up to three ranges of pieces, sorted and apart.
    fn ranges(&mut self, pieces: u32) -> Vec<Range<u32>> {
        let mut ranges: Vec<Range<u32>> = Vec::new();
        let mut from = 0;
        for _ in 0..self.0.below(4) {
            let start = from + self.0.below(u64::from(pieces)) as u32;
            let end = start + 1 + self.0.below(u64::from(pieces)) as u32;
            if start >= pieces {
                break;
            }
            ranges.push(start..end.min(pieces));
            // One piece between them, so that they do not touch.
            from = end + 1;
        }
        ranges
    }
}

/// The faults of a scenario; each as likely as it is frequent here.
const KINDS: [Kind; 26] = [
    Kind::Does(NodeFault::Crash),
    Kind::Does(NodeFault::Crash),
    Kind::Does(NodeFault::Die),
    Kind::Does(NodeFault::Die),
    Kind::Does(NodeFault::Freeze),
    Kind::Does(NodeFault::Freeze),
    Kind::Does(NodeFault::Leave),
    Kind::Does(NodeFault::Join),
    Kind::Does(NodeFault::Join),
    Kind::Does(NodeFault::DiskFull),
    Kind::Does(NodeFault::Corrupt),
    Kind::Does(NodeFault::Lie),
    Kind::Does(NodeFault::Withhold),
    Kind::Does(NodeFault::Refuse),
    Kind::Does(NodeFault::Closed),
    Kind::Does(NodeFault::Reset),
    Kind::Restart,
    Kind::Restart,
    Kind::Slow,
    Kind::Slow,
    Kind::Link,
    Kind::Link,
    Kind::Partition,
    Kind::Clock,
    Kind::Lost,
    Kind::Reorder,
];

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Does(NodeFault),
    Restart,
    Slow,
    Link,
    Partition,
    Clock,
    Lost,
    Reorder,
}

impl Kind {
    /// The origin continues after it, so that the others can still complete.
    fn spares_origin(self) -> bool {
        match self {
            Kind::Does(verb) => matches!(verb, NodeFault::Reset | NodeFault::Freeze),
            Kind::Slow | Kind::Clock => true,
            Kind::Restart | Kind::Link | Kind::Partition | Kind::Lost | Kind::Reorder => false,
        }
    }

    /// A way to be rather than something that happens.
    fn is_trait(self) -> bool {
        use NodeFault::{Closed, Corrupt, Lie, Refuse, Withhold};
        matches!(self, Kind::Does(Corrupt | Lie | Withhold | Refuse | Closed))
    }

    fn can_end(self) -> bool {
        matches!(
            self,
            Kind::Does(NodeFault::Freeze) | Kind::Restart | Kind::Slow | Kind::Link | Kind::Partition
        )
    }
}

impl Draw {
    fn faults(&mut self, topology: &Topology, ideal: u64) -> Vec<Spec> {
        let count = if self.0.one_in(5) { 0 } else { self.log(1, 8) };
        let mut faults: Vec<Spec> = (0..count).filter_map(|_| self.fault(topology, ideal)).collect();
        if self.0.one_in(24) {
            let verb =
                self.0.pick(&[NodeFault::Crash, NodeFault::Die, NodeFault::DiskFull, NodeFault::Leave]);
            let at = ideal / 2 + self.0.below(ideal);
            faults.push(Spec { what: What::Do(verb, one(0)), at, lasting: None });
        }
        faults
    }

    /// None where the cluster has nothing that it could strike.
    fn fault(&mut self, topology: &Topology, ideal: u64) -> Option<Spec> {
        let kind = self.0.pick(&KINDS);
        let early = kind.is_trait() && self.chance(3, 4);
        let at = if early || kind == Kind::Reorder { 0 } else { self.0.below(2 * ideal) };
        let ends = kind.can_end() && self.chance(7, 8);
        let mut lasting = ends.then(|| self.duration(ideal));
        let what = match kind {
            Kind::Does(NodeFault::Join) => What::Do(NodeFault::Join, self.receivers(topology)),
            Kind::Does(verb) => What::Do(verb, self.who(kind, topology)),
            Kind::Restart => What::Restart { who: self.who(kind, topology), disk: self.0.one_in(2) },
            Kind::Slow => {
                let own = topology.nodes.first().map_or(0, |n| n.rate);
                What::Slow { who: self.who(kind, topology), rate: own / self.0.pick(&[2, 10, 50]) }
            }
            Kind::Link => self.link(topology, ends)?,
            Kind::Partition => What::Partition(self.groups_apart(topology)),
            Kind::Clock => {
                // A clock that went back by an hour makes the engine wait for an hour, as it must.
                let back = self.0.one_in(2);
                let by = self.0.pick(&[1_000_000, SECOND, if back { 10 * SECOND } else { 3600 * SECOND }]);
                What::Clock { who: self.who(kind, topology), by, back }
            }
            Kind::Lost => What::Lost { who: self.who(kind, topology), piece: None },
            Kind::Reorder => What::Reorder(self.0.pick(&[50_000, 2_000_000, 20_000_000])),
        };
        if what == What::Do(NodeFault::Freeze, one(0)) {
            // The others may need it again.
            lasting = lasting.or(Some(ideal));
        }
        Some(Spec { what, at, lasting })
    }

    fn duration(&mut self, ideal: u64) -> u64 {
        match self.0.below(6) {
            0 => ideal / 4,
            1 => ideal,
            2 => 4 * ideal,
            n => [SECOND, 30 * SECOND, 200 * SECOND][n as usize - 3],
        }
    }

    fn who(&mut self, kind: Kind, topology: &Topology) -> Selector {
        if kind.spares_origin() && self.0.one_in(12) { one(0) } else { self.receivers(topology) }
    }

    fn receivers(&mut self, topology: &Topology) -> Selector {
        if self.0.one_in(4) {
            return Selector::Share(self.0.pick(&[50_000, 100_000, 200_000, 500_000]));
        }
        one(1 + self.0.below(topology.nodes.len() as u64 - 1) as u32)
    }

    /// A link and its new rate; where it stays so, a slow one rather than none, mostly.
    fn link(&mut self, topology: &Topology, ends: bool) -> Option<What> {
        if topology.links.is_empty() {
            return None;
        }
        let link = topology.links[self.0.below(topology.links.len() as u64) as usize];
        let dead = if ends { self.0.one_in(2) } else { self.0.one_in(4) };
        let rate = if dead { 0 } else { (link.rate / self.0.pick(&[2, 10, 50])).max(8_000) };
        let [a, b] = [link.a, link.b].map(|s| topology.switches[s as usize].clone());
        Some(What::Link { a, b, rate })
    }

    /// A group that is cut off, or two; a range of nodes, a share or a switch.
    fn groups_apart(&mut self, topology: &Topology) -> Vec<Selector> {
        let last = topology.nodes.len() as u64 - 1;
        let from = self.0.below(last + 1);
        let to = from + self.0.below(last + 1 - from);
        match self.0.below(4) {
            0 => vec![Selector::Share(self.0.pick(&[100_000, 300_000, 500_000]))],
            1 => {
                let switch = self.0.below(topology.switches.len() as u64) as usize;
                vec![Selector::Named(vec![Item::Switch(topology.switches[switch].clone())])]
            }
            2 if from > 0 => vec![
                Selector::Named(vec![Item::Nodes(0..=from as u32 - 1)]),
                Selector::Named(vec![Item::Nodes(from as u32..=to as u32)]),
            ],
            _ => vec![Selector::Named(vec![Item::Nodes(from as u32..=to as u32)])],
        }
    }
}

fn one(node: u32) -> Selector {
    Selector::Named(vec![Item::Nodes(node..=node)])
}

/// A short description, for readers of a failure.
impl fmt::Display for Scenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Job { lengths, protocols, policy, leaves, .. } = &self.job;
        let size: u64 = lengths.iter().map(|&len| u64::from(len)).sum();
        write!(f, "seed {}: {}, {} pieces of {} bytes", self.seed, self.topology, lengths.len(), size)?;
        write!(f, ", {protocols:?}, {policy:?}, leaves {leaves}")?;
        if let Some((knows, stripes)) = self.job.plan {
            write!(f, ", a plan of {stripes} stripes that knows {knows:?}")?;
        }
        if let Some(opens) = &self.job.opens {
            write!(f, ", {opens:?}")?;
        }
        if self.job.limits != Limits::default() {
            write!(f, ", {:?}", self.job.limits)?;
        }
        self.faults.iter().try_for_each(|fault| write!(f, " --fault {fault}"))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn a_seed_is_one_scenario_and_a_valid_one() {
        let mut kinds = BTreeSet::new();
        let (mut nodes, mut pieces, mut faults) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
        for seed in 0..3000 {
            let s = Scenario::new(seed);
            if seed % 100 == 0 {
                assert_eq!(format!("{s:?}"), format!("{:?}", Scenario::new(seed)));
            }
            let Job { topology, lengths, until, wants, .. } = &s.job;
            assert!((2..=500).contains(&topology.nodes.len()), "{s}");
            assert!((1..=5000).contains(&lengths.len()) && lengths.iter().all(|&len| len > 0), "{s}");
            assert!(s.job.faults.iter().all(|t| t.at < *until) && s.job.joins.iter().all(|j| j.0 < *until));
            assert!(until.0 < 1_000_000 * SECOND, "{s}: until {} s", until.0 / SECOND);
            let rates = topology.nodes.iter().map(|n| n.rate).chain(topology.links.iter().map(|l| l.rate));
            let longest = u128::from(*lengths.iter().max().unwrap()) * 8 * u128::from(SECOND);
            let all = longest * topology.nodes.len() as u128 / u128::from(rates.min().unwrap());
            assert!(u128::from(until.0) >= all, "{s}: no time for a longest piece from the origin to each");
            for range in wants.iter().flat_map(|(_, ranges)| ranges) {
                assert!(range.start < range.end && range.end <= lengths.len() as u32, "{s}");
            }
            for (_, ranges) in wants {
                assert!(ranges.windows(2).all(|w| w[0].end < w[1].start), "{s}");
            }
            // The command printed on a failure must be accepted by the parser.
            let read: Vec<Spec> = s.faults.iter().map(|f| f.to_string().parse().unwrap()).collect();
            assert_eq!(read, s.faults);
            kinds.extend(s.job.faults.iter().map(|t| t.fault.kind()));
            nodes.insert(topology.nodes.len());
            pieces.insert(lengths.len());
            faults.insert(s.faults.len());
        }
        assert_eq!(kinds.len(), 23, "{kinds:?}");
        assert!(nodes.contains(&2) && nodes.last() > Some(&400), "{nodes:?}");
        assert!(pieces.contains(&1) && pieces.last() > Some(&900), "{pieces:?}");
        assert!(faults.contains(&0) && faults.last() > Some(&7), "{faults:?}");
    }

    #[test]
    fn the_log_draw_is_within_its_bounds() {
        let mut draw = Draw(Rng::new(1));
        for (least, most) in [(1, 1), (1, 2), (2, 24), (24, 500), (1, 5000)] {
            let drawn: BTreeSet<u64> = (0..20_000).map(|_| draw.log(least, most)).collect();
            assert_eq!((drawn.first(), drawn.last()), (Some(&least), Some(&most)));
        }
    }
}
