//! The lower bound on the time of a broadcast, and the part of the network that sets it.
//!
//! A receiver takes S bytes through its own link, the origin sends each byte at least once, and every cut
//! between a receiver and the origin is crossed at least once. Nodes have one rate for both directions, so
//! the fluid bound N S / (u_o + sum of u_i) is never above S / min d_i and needs no line of its own. Delays,
//! ramps and the time to pass on the last piece are left out: this is a bound, not a forecast.
//!
//! The minimum cut is ForestColl's bound (Zhao and others, arXiv 2402.06787) for one root: trees that together carry as much
//! as the narrowest cut between the root and any receiver exist in every such graph (Edmonds 1973), also through switches
//! that copy nothing: each link carries as much one way as the other, so that switches can be split off without narrowing a cut.

use std::collections::{BTreeMap, BTreeSet};

use tidecast_swarm::Time;

use crate::fault::{Fault, Timed};
use crate::topology::{Groups, Link, NodeId, Topology};

/// Steps of the search for a narrow cut before it ends with the best found, about a second's.
const MAX_WORK: u64 = 200_000_000;

/// The lower bound and its reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bound {
    /// From the first byte sent to the last received.
    pub time: Time,
    /// The narrowest place, in words: `link s0-s1 at 20 Mbit/s`.
    pub limit: String,
    /// By the slowest link of a node alone, the origin's or a receiver's.
    pub simple: Time,
    /// By the minimum cut between the origin and any receiver; none where the search for it took too long.
    pub cut: Option<Time>,
}

/// The bound of a broadcast of `size` bytes from node 0 to `receivers`, where `frame` bytes on the wire carry
/// `payload` bytes. In a network so meshed that the search would take long, a cut that is a little narrower
/// may be missed; the time is then still a valid bound.
#[must_use]
pub fn bound(topology: &Topology, size: u64, receivers: &[NodeId], payload: u32, frame: u32) -> Bound {
    let rate = |node: NodeId| topology.nodes[node.0 as usize].rate;
    let receivers = || receivers.iter().copied().filter(|node| node.0 != 0);
    let Some(slowest) = receivers().min_by_key(|node| rate(*node)) else {
        let limit = "no receivers".to_owned();
        return Bound { time: Time(0), limit, simple: Time(0), cut: Some(Time(0)) };
    };
    let (least, origin) = (rate(slowest), rate(NodeId(0)));
    let simple = least.min(origin);
    let mut narrowest = simple;
    let mut limit = if origin < least {
        format!("the origin's link at {}", in_words(origin))
    } else if receivers().all(|node| rate(node) == least) {
        format!("node links at {}", in_words(least))
    } else {
        format!("the link of n{} at {}", slowest.0, in_words(least))
    };
    let switches: BTreeSet<u32> = receivers().map(|node| topology.nodes[node.0 as usize].switch).collect();
    let (found, whole) = Search::new(topology, narrowest).narrowest(&switches, narrowest);
    if let Some((rate, beyond)) = found {
        narrowest = rate;
        limit = cut_in_words(topology, &beyond, rate);
    }
    let bits = u128::from(size) * 8 * u128::from(frame);
    let takes = |rate: u64| {
        let time = bits * 1_000_000_000 / (u128::from(payload.max(1)) * u128::from(rate.max(1)));
        Time(u64::try_from(time).unwrap_or(u64::MAX))
    };
    let time = takes(narrowest);
    Bound { time, limit, simple: takes(simple), cut: Some(time).filter(|_| whole) }
}

/// The bound where faults change rates, too: a node takes no more than its card carries over time. A node
/// that dies or leaves need not receive; cut links and partitions are ignored here.
#[must_use]
pub fn bound_with(
    topology: &Topology,
    faults: &[Timed],
    size: u64,
    receivers: &[NodeId],
    payload: u32,
    frame: u32,
) -> Bound {
    let gone: BTreeSet<NodeId> = faults.iter().filter_map(|timed| lost(&timed.fault)).collect();
    let stay: Vec<NodeId> = receivers.iter().copied().filter(|node| !gone.contains(node)).collect();
    let receivers = if stay.is_empty() { receivers } else { &stay };
    let rates = Rates::new(faults);
    let mut widest = topology.clone();
    for (node, changes) in &rates.nodes {
        if let Some(own) = widest.nodes.get_mut(node.0 as usize) {
            own.rate = highest(own.rate, changes);
        }
    }
    for (link, changes) in &rates.links {
        if let Some(own) = widest.links.get_mut(*link as usize) {
            own.rate = highest(own.rate, changes);
        }
    }
    let mut least = bound(&widest, size, receivers, payload, frame);
    let bits = (u128::from(size) * 8 * u128::from(frame)).div_ceil(u128::from(payload.max(1)));
    for (node, changes) in &rates.nodes {
        let Some(own) = topology.nodes.get(node.0 as usize) else { continue };
        if node.0 != 0 && !receivers.contains(node) {
            continue;
        }
        let (time, rate) = passed(bits, own.rate, changes);
        if time > least.time {
            let whose =
                if node.0 == 0 { "the origin's link".into() } else { format!("the link of n{}", node.0) };
            least =
                Bound { time, limit: format!("{whose} at {}, because of a fault", in_words(rate)), ..least };
        }
    }
    least
}

/// The node that receives no more after a fault.
fn lost(fault: &Fault) -> Option<NodeId> {
    match fault {
        Fault::Crash { node }
        | Fault::Die { node }
        | Fault::Freeze { node }
        | Fault::Leave { node }
        | Fault::DiskFull { node } => Some(*node),
        _ => None,
    }
}

/// Changes of rates, in the order of time: since when, and bits per second.
type Changes = Vec<(Time, u64)>;

#[derive(Default)]
struct Rates {
    nodes: BTreeMap<NodeId, Changes>,
    /// Links that change and never heal have another rate; of others the own counts, too.
    links: BTreeMap<u32, Changes>,
}

impl Rates {
    fn new(faults: &[Timed]) -> Self {
        let mut rates = Self::default();
        for Timed { at, fault } in faults {
            match fault {
                Fault::NodeRate { node, rate } => {
                    rates.nodes.entry(*node).or_default().push((*at, rate.saturating_mul(8)));
                }
                Fault::LinkRate { link, rate } if *rate > 0 => {
                    rates.links.entry(*link).or_default().push((*at, rate.saturating_mul(8)));
                }
                _ => {}
            }
        }
        for timed in faults {
            match &timed.fault {
                Fault::LinkRate { link, rate: 0 } | Fault::LinkHeal { link } => _ = rates.links.remove(link),
                _ => {}
            }
        }
        rates
            .nodes
            .values_mut()
            .chain(rates.links.values_mut())
            .for_each(|all| all.sort_by_key(|(at, _)| *at));
        rates
    }
}

/// The highest rate that there ever is.
fn highest(own: u64, changes: &[(Time, u64)]) -> u64 {
    let first = changes.iter().take_while(|(at, _)| at.0 == 0).last();
    let later = changes.iter().filter(|(at, _)| at.0 > 0).map(|(_, rate)| *rate).max().unwrap_or(0);
    first.map_or(own, |(_, rate)| *rate).max(later)
}

/// When this many bits have passed a card, and its rate then.
fn passed(bits: u128, own: u64, changes: &[(Time, u64)]) -> (Time, u64) {
    const SECOND: u128 = 1_000_000_000;
    let (mut left, mut rate, mut now) = (bits.saturating_mul(SECOND), own, 0_u64);
    for (at, next) in changes {
        let passes = u128::from(at.0.saturating_sub(now)) * u128::from(rate);
        if passes >= left && rate > 0 {
            break;
        }
        (left, rate, now) = (left.saturating_sub(passes), *next, at.0);
    }
    let more = u64::try_from(left / u128::from(rate.max(1))).unwrap_or(u64::MAX);
    (Time(now.saturating_add(more)), rate)
}

/// `100 Mbit/s`, `2.5 Gbit/s`.
fn in_words(bits: u64) -> String {
    let units = [("Gbit/s", 1_000_000_000), ("Mbit/s", 1_000_000), ("kbit/s", 1_000)];
    let (unit, scale) = units.into_iter().find(|(_, scale)| bits >= *scale).unwrap_or(("bit/s", 1));
    let number = format!("{}.{:03}", bits / scale, bits % scale * 1_000 / scale);
    format!("{} {unit}", number.trim_end_matches('0').trim_end_matches('.'))
}

/// Names the links that separate the switches `beyond` from the others.
fn cut_in_words(topology: &Topology, beyond: &[bool], rate: u64) -> String {
    let crosses = |l: &&Link| beyond[l.a as usize] != beyond[l.b as usize];
    let links: Vec<_> = topology.links.iter().filter(crosses).collect();
    if let [link] = links[..] {
        return format!("link {} at {}", topology.link_name(link), in_words(rate));
    }
    let side = |far: bool| beyond.iter().enumerate().filter(move |(_, b)| **b == far).map(|(i, _)| i);
    let smaller = side(true).count() <= side(false).count();
    let switches = side(smaller).count();
    let first = side(smaller).next().map_or("", |i| &topology.switches[i]);
    let whose = if switches == 1 {
        format!("of switch {first}")
    } else {
        format!("of {first} and {} other switches", switches - 1)
    };
    format!("the {} links {whose} at {} together", links.len(), in_words(rate))
}

/// Looks for the narrowest cut between the origin and any receiver by maximal flows.
///
/// Parts that cannot matter are merged first: the two ends of a link as wide as the limit known already, and,
/// as the search continues, every receiver that the limit can reach with the origin. So a flow is mostly
/// found one or two links away from its receiver.
struct Search {
    /// By switch: its vertex.
    vertex: Vec<u32>,
    /// Both directions of an edge are adjacent: arc `i` and arc `i ^ 1`.
    arcs: Vec<Arc>,
    /// By vertex: the arcs that leave it.
    leaving: Vec<Vec<u32>>,
    /// By vertex: the rate of its links to the merged origin.
    home: Vec<u64>,
    merged: Vec<bool>,
    /// By vertex: the search that came here last, and by which arc.
    seen: Vec<u64>,
    by: Vec<u32>,
    searches: u64,
    work: u64,
}

struct Arc {
    to: u32,
    room: u64,
}

const START: u32 = u32::MAX;

impl Search {
    fn new(topology: &Topology, limit: u64) -> Self {
        let n = topology.switches.len();
        let mut groups = Groups::new(n);
        topology
            .links
            .iter()
            .filter(|link| link.rate >= limit)
            .for_each(|link| _ = groups.join(link.a, link.b));
        let vertex: Vec<u32> = (0..n as u32).map(|s| groups.of(s)).collect();
        let origin = vertex[topology.nodes[0].switch as usize];
        let mut search = Search {
            arcs: Vec::new(),
            leaving: vec![Vec::new(); n],
            home: vec![0; n],
            merged: vec![false; n],
            seen: vec![0; n],
            by: vec![START; n],
            searches: 0,
            work: 0,
            vertex,
        };
        let ends = |l: &Link| (search.vertex[l.a as usize], search.vertex[l.b as usize], l.rate);
        let mut edges: Vec<_> =
            topology.links.iter().map(ends).map(|(a, b, r)| (a.min(b), a.max(b), r)).collect();
        edges.sort_unstable();
        for parallel in edges.chunk_by(|x, y| (x.0, x.1) == (y.0, y.1)) {
            let (a, b, _) = parallel[0];
            if a != b {
                search.connect(a, b, parallel.iter().map(|edge| edge.2).sum());
            }
        }
        search.merge(origin);
        search
    }

    fn connect(&mut self, a: u32, b: u32, room: u64) {
        for (from, to) in [(a, b), (b, a)] {
            self.leaving[from as usize].push(self.arcs.len() as u32);
            self.arcs.push(Arc { to, room });
        }
    }

    /// Makes a vertex one with the origin.
    fn merge(&mut self, vertex: u32) {
        self.merged[vertex as usize] = true;
        for &arc in &self.leaving[vertex as usize] {
            let Arc { to, room } = self.arcs[arc as usize];
            self.home[to as usize] += room;
        }
    }

    /// The narrowest cut below `limit` bits per second and, by switch, whether it lies beyond; and whether all were searched.
    fn narrowest(mut self, receivers: &BTreeSet<u32>, mut limit: u64) -> (Option<(u64, Vec<bool>)>, bool) {
        let mut found = None;
        for switch in receivers {
            let vertex = self.vertex[*switch as usize];
            if self.merged[vertex as usize] {
                continue;
            }
            let Some(flow) = self.flow(vertex, limit) else { return (found, false) };
            if flow < limit {
                limit = flow;
                let beyond = self.vertex.iter().map(|v| self.seen[*v as usize] == self.searches).collect();
                found = Some((flow, beyond));
            }
            self.merge(vertex);
        }
        (found, true)
    }

    /// How much can flow between a vertex and the origin, counted until it is `enough`; `None` when that
    /// is too much work. Where it is less than enough, `seen` tells which vertices lie beyond the cut.
    fn flow(&mut self, from: u32, enough: u64) -> Option<u64> {
        let mut pushed = Vec::new();
        let mut flow = 0;
        while flow < enough && self.work <= MAX_WORK {
            let Some(last) = self.way(from) else { break };
            let amount = self
                .along(last)
                .map(|arc| self.arcs[arc as usize].room)
                .fold(self.home[last as usize], u64::min);
            self.home[last as usize] -= amount;
            pushed.push((last, self.along(last).collect::<Vec<u32>>(), amount));
            for &arc in pushed.last().into_iter().flat_map(|(_, arcs, _)| arcs) {
                self.arcs[arc as usize].room -= amount;
                self.arcs[arc as usize ^ 1].room += amount;
            }
            flow += amount;
        }
        // The last first: a later way may go back through what an earlier one has opened.
        for (last, arcs, amount) in pushed.into_iter().rev() {
            self.home[last as usize] += amount;
            for arc in arcs {
                self.arcs[arc as usize].room += amount;
                self.arcs[arc as usize ^ 1].room -= amount;
            }
        }
        (self.work <= MAX_WORK).then_some(flow)
    }

    /// The arcs by which the last search came to a vertex, backwards.
    fn along(&self, last: u32) -> impl Iterator<Item = u32> {
        let arc_to = |vertex: u32| Some(self.by[vertex as usize]).filter(|arc| *arc != START);
        std::iter::successors(arc_to(last), move |arc| arc_to(self.arcs[*arc as usize ^ 1].to))
    }

    /// Searches breadth first for a vertex that still has room to the origin.
    fn way(&mut self, from: u32) -> Option<u32> {
        self.searches += 1;
        self.seen[from as usize] = self.searches;
        self.by[from as usize] = START;
        let mut queue = vec![from];
        let mut next = 0;
        while let Some(&vertex) = queue.get(next) {
            if self.home[vertex as usize] > 0 {
                return Some(vertex);
            }
            next += 1;
            self.work += 1 + self.leaving[vertex as usize].len() as u64;
            for &arc in &self.leaving[vertex as usize] {
                let Arc { to, room } = self.arcs[arc as usize];
                if room > 0 && !self.merged[to as usize] && self.seen[to as usize] != self.searches {
                    self.seen[to as usize] = self.searches;
                    self.by[to as usize] = arc;
                    queue.push(to);
                }
            }
        }
        None
    }
}
