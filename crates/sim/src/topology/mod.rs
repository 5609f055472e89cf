//! The topology of a cluster: switches, the nodes on them, the links between them.
//!
//! The same short forms and the same file drive the emulated cluster (`lab/README.md`) and this
//! simulator. The simulator allows rings of switches (fat tree, dragonfly); the lab wants a tree.

mod fabrics;
mod map;
mod routes;
mod short;
mod text;
pub mod units;

use serde::Serialize;

pub use routes::{Route, Routes};

/// Most nodes of a topology.
pub const MAX_NODES: u64 = 200_000;
/// Most switches.
pub const MAX_SWITCHES: u64 = 20_000;
/// Most links between switches.
pub const MAX_LINKS: u64 = 500_000;

/// A node, numbered from 0 in the order of the topology. Node 0 is the origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct NodeId(pub u32);

impl NodeId {
    /// The port by which it sends.
    #[must_use]
    pub fn out(self) -> Port {
        Port(2 * self.0)
    }

    /// The port by which it receives.
    #[must_use]
    pub fn inward(self) -> Port {
        Port(2 * self.0 + 1)
    }
}

/// One direction of one wire, where bytes queue: `2n` leaves node n, `2n + 1` enters it; after the
/// nodes, `2l` is link l from a to b and `2l + 1` from b to a.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct Port(pub u32);

/// A node on its switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Node {
    /// Index of its switch.
    pub switch: u32,
    /// Bits per second, each way.
    pub rate: u64,
}

/// A link between switches `a` and `b`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Link {
    /// Index of one switch; with `nat`, the one inside.
    pub a: u32,
    /// Index of the other.
    pub b: u32,
    /// Bits per second, each way.
    pub rate: u64,
    /// One way, nanoseconds.
    pub delay: u64,
    /// Packets lost each way, in parts per million.
    pub loss: u32,
    /// Packets doubled, in parts per million (the lab's; the model ignores it).
    pub dup: u32,
    /// Packets reordered, in parts per million (the lab's; the model ignores it).
    pub reorder: u32,
    /// Bytes of the queue at each end; 0 is the default.
    pub queue: u64,
    /// Nodes of a's side reach b's, which cannot call them.
    pub nat: bool,
}

/// A cluster. Every topology that leaves this module is valid: counts are bounded and every switch
/// is reached.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Topology {
    /// Names of the switches.
    pub switches: Vec<String>,
    /// By `NodeId`.
    pub nodes: Vec<Node>,
    /// In the order they were named.
    pub links: Vec<Link>,
}

/// The text is not a topology; the message names the part and the expected form.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the messages describe the variants")]
pub enum TopologyError {
    #[error("the topology names no single hosts; patterns and subnets are not enough to simulate")]
    NoHosts,
    #[error("unknown short form {0:?}: wanted for example single:16@100mbit ({known})", known = short::KINDS)]
    Unknown(String),
    #[error("{form:?}: {wanted}")]
    Form { form: String, wanted: &'static str },
    #[error("{form:?}: unknown option {option:?}")]
    Option { form: String, option: String },
    #[error("bad rate {0:?}: wanted for example 40mbit (8kbit to 1000gbit)")]
    Rate(String),
    #[error("bad delay {0:?}: wanted for example 10ms (at most 10s)")]
    Delay(String),
    #[error("bad probability {0:?}: wanted for example 0.1% (below 100%)")]
    Chance(String),
    #[error("bad queue {0:?}: wanted bytes, for example 256k (3000 to 1024m)")]
    Queue(String),
    #[error("bad ratio {0:?}: wanted for example 2.5 (0.001 to 1000)")]
    Ratio(String),
    #[error("line {number}: {line:?}: {why}")]
    Line { number: usize, line: String, why: Box<TopologyError> },
    #[error(
        "wanted `switch NAME`, `nodes COUNT SWITCH RATE` or `link SWITCH SWITCH RATE [OPTION=VALUE].. [nat]` \
         with switches named before"
    )]
    Words,
    #[error("unknown option {0:?}")]
    LinkOption(String),
    #[error(
        "{nodes} nodes on {switches} switches with {links} links: wanted 1 to {MAX_NODES} on 1 to {MAX_SWITCHES} \
         with at most {MAX_LINKS}"
    )]
    Count { nodes: u64, switches: u64, links: u64 },
    #[error("the switches are not all connected")]
    Apart,
    #[error("link {0}: a NAT link has a rate and no delay or loss; put them on a link behind it")]
    NatDelay(String),
    #[error("link {0}: another path bypasses this NAT")]
    NatAround(String),
    #[error("a subnet may have only one NAT in front of it")]
    NatTwice,
}

impl Topology {
    /// A topology from its short form, as `lab/README.md` lists them.
    pub fn parse(form: &str) -> Result<Topology, TopologyError> {
        short::parse(form)?.checked()
    }

    /// A topology from one that names its hosts, which have cards of this many bits per second.
    pub fn of_map(map: &tidecast_swarm::plan::topology::Map, rate: u64) -> Result<Topology, TopologyError> {
        map::build(map, rate)?.checked()
    }

    /// A topology from the lines of a file; the format is that of `lab/README.md`.
    pub fn from_text(text: &str) -> Result<Topology, TopologyError> {
        text::read(text)?.checked()
    }

    /// The equivalent file.
    #[must_use]
    pub fn to_text(&self) -> String {
        text::write(self)
    }

    /// The same shape with `n` nodes: the origin stays, every switch keeps its share of the others.
    pub fn with_nodes(mut self, n: u32) -> Result<Topology, TopologyError> {
        room(u64::from(n), self.switches.len() as u64, self.links.len() as u64)?;
        let origin = *self.nodes.first().ok_or(TopologyError::Apart)?;
        let models = if self.nodes.len() > 1 { &self.nodes[1..] } else { &self.nodes[..] };
        let (old, new) = (models.len() as u64, u64::from(n) - 1);
        // The i-th of `old` becomes as many as lie between the i-th and next multiple of new / old: the order
        // is kept, shares are exact and the remainder is spread evenly.
        let share = |i: usize| i as u64 * new / old;
        let others = models.iter().enumerate().flat_map(|(i, node)| (share(i)..share(i + 1)).map(|_| *node));
        self.nodes = std::iter::once(origin).chain(others).collect();
        Ok(self)
    }

    /// The number of nodes.
    #[must_use]
    pub fn len(&self) -> u32 {
        self.nodes.len() as u32
    }

    /// Never: every topology has a node.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// The number of ports: they are `Port(0)` to this, exclusively.
    #[must_use]
    pub fn ports(&self) -> u32 {
        2 * (self.nodes.len() + self.links.len()) as u32
    }

    /// The ports of a link, from a to b and from b to a.
    #[must_use]
    pub fn link_ports(&self, link: u32) -> [Port; 2] {
        let first = 2 * (self.len() + link);
        [Port(first), Port(first + 1)]
    }

    /// Bits per second of a port; 0 where there is none.
    #[must_use]
    pub fn port_rate(&self, port: Port) -> u64 {
        let wire = (port.0 / 2) as usize;
        let link = || self.links.get(wire - self.nodes.len()).map_or(0, |link| link.rate);
        self.nodes.get(wire).map_or_else(link, |node| node.rate)
    }

    /// `n3 out`, `n3 in`, `s0-s1`: the name of a port.
    #[must_use]
    pub fn port_name(&self, port: Port) -> String {
        let wire = (port.0 / 2) as usize;
        if wire < self.nodes.len() {
            return format!("n{wire} {}", if port.0.is_multiple_of(2) { "out" } else { "in" });
        }
        let Some(link) = self.links.get(wire - self.nodes.len()) else { return String::new() };
        let (from, to) = if port.0.is_multiple_of(2) { (link.a, link.b) } else { (link.b, link.a) };
        format!("{}-{}", self.switches[from as usize], self.switches[to as usize])
    }

    /// `s0-s1`: the name of a link, the same whatever the direction.
    #[must_use]
    pub fn link_name(&self, link: &Link) -> String {
        format!("{}-{}", self.switches[link.a as usize], self.switches[link.b as usize])
    }

    /// For each switch the number of its subnet: switches joined without NAT share one.
    fn subnets(&self) -> Groups {
        let mut groups = Groups::new(self.switches.len());
        for link in self.links.iter().filter(|link| !link.nat) {
            groups.join(link.a, link.b);
        }
        groups
    }

    fn add_switch(&mut self, name: String) -> u32 {
        self.switches.push(name);
        self.switches.len() as u32 - 1
    }

    fn add_nodes(&mut self, count: u32, switch: u32, rate: u64) -> Result<(), TopologyError> {
        let nodes = self.nodes.len() as u64 + u64::from(count);
        room(nodes, self.switches.len() as u64, self.links.len() as u64)?;
        self.nodes.extend(std::iter::repeat_n(Node { switch, rate }, count as usize));
        Ok(())
    }

    /// This topology, or the reason why it is not valid.
    fn checked(self) -> Result<Topology, TopologyError> {
        room(self.nodes.len() as u64, self.switches.len() as u64, self.links.len() as u64)?;
        let mut subnets = self.subnets();
        let mut reached = subnets.clone();
        let mut inside = vec![false; self.switches.len()];
        for link in self.links.iter().filter(|link| link.nat) {
            if link.delay > 0 || link.loss > 0 || link.dup > 0 || link.reorder > 0 {
                return Err(TopologyError::NatDelay(self.link_name(link)));
            }
            if std::mem::replace(&mut inside[subnets.of(link.a) as usize], true) {
                return Err(TopologyError::NatTwice);
            }
            if !reached.join(link.a, link.b) {
                return Err(TopologyError::NatAround(self.link_name(link)));
            }
        }
        if (0..self.switches.len() as u32).any(|s| reached.of(s) != reached.of(0)) {
            return Err(TopologyError::Apart);
        }
        Ok(self)
    }
}

/// Whether there may be so many.
fn room(nodes: u64, switches: u64, links: u64) -> Result<(), TopologyError> {
    let fits =
        (1..=MAX_NODES).contains(&nodes) && (1..=MAX_SWITCHES).contains(&switches) && links <= MAX_LINKS;
    if fits { Ok(()) } else { Err(TopologyError::Count { nodes, switches, links }) }
}

/// Sets of switches that grow together (union-find with path halving).
#[derive(Clone, Debug)]
pub(crate) struct Groups(Vec<u32>);

impl Groups {
    pub(crate) fn new(n: usize) -> Self {
        Groups((0..n as u32).collect())
    }

    /// The smallest number in the set of `i`.
    pub(crate) fn of(&mut self, mut i: u32) -> u32 {
        while self.0[i as usize] != i {
            let above = self.0[self.0[i as usize] as usize];
            self.0[i as usize] = above;
            i = above;
        }
        i
    }

    /// Makes one set of two; false where it was one already.
    pub(crate) fn join(&mut self, i: u32, j: u32) -> bool {
        let (i, j) = (self.of(i), self.of(j));
        self.0[i.max(j) as usize] = i.min(j);
        i != j
    }
}
