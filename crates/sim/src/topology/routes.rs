//! Ways through a topology: the fewest switches, and among equals a choice that depends on nothing but
//! the pair of nodes, as switches hash a flow.
//!
//! Only the distances to requested switches are kept, so memory grows with pairs of switches, never with
//! pairs of nodes, and is bounded.

use std::ops::Range;

use smallvec::SmallVec;

use super::{NodeId, Port, Topology};

/// Most distances kept, two bytes each; when they are more, all are dropped and computed again.
const MAX_KEPT: usize = 128 << 20;

/// The path of one direction.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Route {
    /// Its ports: first the sender's `2n`, last the receiver's `2n + 1`.
    pub ports: SmallVec<[Port; 6]>,
    /// Of all links together, nanoseconds; the delay of switches and cables is in the model.
    pub delay: u64,
    /// Packets lost on the way, in parts per million.
    pub loss: u32,
}

/// The ways of a topology. Node numbers must be those of the topology.
#[derive(Clone, Debug)]
pub struct Routes {
    node_switch: Vec<u32>,
    hops: Hops,
    /// By link: its delay and loss.
    links: Vec<(u64, u32)>,
    /// By destination switch: the distance of every switch, in links; empty if not requested.
    distances: Vec<Vec<u16>>,
    kept: usize,
    subnet: Vec<u32>,
    /// By subnet: the one in front of its NAT.
    outside: Vec<Option<u32>>,
}

/// The links of each switch, in their order, in arrays for all: searches read nothing but `to`.
#[derive(Clone, Debug)]
struct Hops {
    /// By switch: where its links begin, and after the last one their end.
    first: Vec<u32>,
    /// Where each leads.
    to: Vec<u32>,
    /// By which port.
    port: Vec<Port>,
}

impl Hops {
    fn new(topology: &Topology) -> Self {
        let mut by_switch: Vec<Vec<(u32, Port)>> = vec![Vec::new(); topology.switches.len()];
        for (i, link) in topology.links.iter().enumerate() {
            let [there, back] = topology.link_ports(i as u32);
            by_switch[link.a as usize].push((link.b, there));
            by_switch[link.b as usize].push((link.a, back));
        }
        let ends = by_switch.iter().scan(0, |sum, hops| {
            *sum += hops.len() as u32;
            Some(*sum)
        });
        let first = std::iter::once(0).chain(ends).collect();
        let (to, port) = by_switch.into_iter().flatten().unzip();
        Hops { first, to, port }
    }

    /// Indices of the links of a switch.
    fn of(&self, switch: u32) -> Range<usize> {
        self.first[switch as usize] as usize..self.first[switch as usize + 1] as usize
    }
}

impl Routes {
    /// Prepares to find ways; nothing is computed before it is asked.
    #[must_use]
    pub fn new(topology: &Topology) -> Self {
        let switches = topology.switches.len();
        let mut groups = topology.subnets();
        let subnet: Vec<u32> = (0..switches as u32).map(|s| groups.of(s)).collect();
        let mut outside = vec![None; switches];
        for link in topology.links.iter().filter(|link| link.nat) {
            outside[subnet[link.a as usize] as usize] = Some(subnet[link.b as usize]);
        }
        Routes {
            node_switch: topology.nodes.iter().map(|node| node.switch).collect(),
            hops: Hops::new(topology),
            links: topology.links.iter().map(|link| (link.delay, link.loss)).collect(),
            distances: vec![Vec::new(); switches],
            kept: 0,
            subnet,
            outside,
        }
    }

    /// Whether `from` can open a connection to `to`: no connection into a NAT from outside is possible.
    #[must_use]
    pub fn reaches(&self, from: NodeId, to: NodeId) -> bool {
        let [mut here, there] = [from, to].map(|n| self.subnet[self.node_switch[n.0 as usize] as usize]);
        while here != there {
            let Some(outside) = self.outside[here as usize] else { return false };
            here = outside;
        }
        true
    }

    /// The path of bytes from `from` to `to`.
    pub fn path(&mut self, from: NodeId, to: NodeId) -> Route {
        let [mut here, there] = [from, to].map(|n| self.node_switch[n.0 as usize]);
        let mut route = Route::default();
        let mut arriving: u64 = 1_000_000;
        route.ports.push(from.out());
        if here != there {
            self.measure(there);
        }
        let distances = &self.distances[there as usize];
        let flow = mix(u64::from(from.0) << 32 | u64::from(to.0));
        while here != there {
            let nearer = distances[here as usize] - 1;
            let range = self.hops.of(here);
            let ways = || range.clone().filter(|i| distances[self.hops.to[*i] as usize] == nearer);
            let pick = mix(flow ^ u64::from(here)) % ways().count() as u64;
            let Some(way) = ways().nth(pick as usize) else { break };
            let port = self.hops.port[way];
            let (delay, loss) = self.links[port.0 as usize / 2 - self.node_switch.len()];
            route.ports.push(port);
            route.delay += delay;
            arriving = arriving * u64::from(1_000_000 - loss) / 1_000_000;
            here = self.hops.to[way];
        }
        route.ports.push(to.inward());
        route.loss = 1_000_000 - arriving as u32;
        route
    }

    /// The distance of every switch to `there`, by breadth first.
    fn measure(&mut self, there: u32) {
        if !self.distances[there as usize].is_empty() {
            return;
        }
        let switches = self.distances.len();
        if self.kept + switches > MAX_KEPT {
            self.distances.iter_mut().for_each(|d| *d = Vec::new());
            self.kept = 0;
        }
        self.kept += switches;
        let mut distance = vec![u16::MAX; switches];
        distance[there as usize] = 0;
        let mut queue = Vec::with_capacity(switches);
        queue.push(there);
        let mut next = 0;
        while let Some(&switch) = queue.get(next) {
            next += 1;
            let further = distance[switch as usize] + 1;
            for &to in &self.hops.to[self.hops.of(switch)] {
                if distance[to as usize] == u16::MAX {
                    distance[to as usize] = further;
                    queue.push(to);
                }
            }
        }
        self.distances[there as usize] = distance;
    }
}

/// Spreads a number over all 64 bits (the finish of SplitMix64).
fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}
