//! Which nodes the network joins now: ways, dead ports, partitions.

use std::cell::RefCell;
use std::collections::BTreeSet;

use crate::rng::Rng;
use crate::topology::{NodeId, Port, Routes, Topology};

/// See the head of the file.
#[derive(Debug)]
pub(super) struct Wires {
    routes: RefCell<Routes>,
    dead: BTreeSet<Port>,
    /// The partitions that hold, each with a number of its own.
    cuts: Vec<(Vec<NodeId>, u64)>,
    /// By node: the numbers of the partitions that it is in, combined.
    sides: Vec<u64>,
    numbers: Rng,
}

impl Wires {
    pub(super) fn new(topology: &Topology) -> Self {
        Wires {
            routes: RefCell::new(Routes::new(topology)),
            dead: BTreeSet::new(),
            cuts: Vec::new(),
            sides: vec![0; topology.nodes.len()],
            numbers: Rng::new(1),
        }
    }

    /// `from` could open a connection to `to`, were the network as it should be.
    pub(super) fn reaches(&self, from: NodeId, to: NodeId) -> bool {
        self.routes.borrow().reaches(from, to)
    }

    /// Packets travel both ways now.
    pub(super) fn joins(&self, a: NodeId, b: NodeId) -> bool {
        let alive =
            |from, to| self.routes.borrow_mut().path(from, to).ports.iter().all(|p| !self.dead.contains(p));
        !self.parts(a, b) && (self.dead.is_empty() || alive(a, b) && alive(b, a))
    }

    /// A partition is between the two.
    pub(super) fn parts(&self, a: NodeId, b: NodeId) -> bool {
        self.sides[a.0 as usize] != self.sides[b.0 as usize]
    }

    pub(super) fn set_alive(&mut self, port: Port, alive: bool) {
        if alive {
            self.dead.remove(&port)
        } else {
            self.dead.insert(port)
        };
    }

    /// These can reach only each other from now on.
    pub(super) fn partition(&mut self, nodes: &[NodeId]) {
        let number = self.numbers.next();
        self.cuts.push((nodes.to_vec(), number));
        self.cross(nodes, number);
    }

    /// Ends the last such partition; false if there is none.
    pub(super) fn heal(&mut self, nodes: &[NodeId]) -> bool {
        let Some(last) = self.cuts.iter().rposition(|(cut, _)| cut == nodes) else { return false };
        let (_, number) = self.cuts.remove(last);
        self.cross(nodes, number);
        true
    }

    fn cross(&mut self, nodes: &[NodeId], number: u64) {
        for node in nodes {
            self.sides[node.0 as usize] ^= number;
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn partitions_overlap_and_heal_each_by_itself() {
        let mut wires = Wires::new(&Topology::parse("single:4").unwrap());
        let [a, b, c, d] = [0, 1, 2, 3].map(NodeId);
        wires.partition(&[a, b]);
        wires.partition(&[b, c]);
        assert!(!wires.joins(a, b) && !wires.joins(b, c) && !wires.joins(a, d) && !wires.joins(b, d));
        assert!(wires.heal(&[a, b]) && !wires.heal(&[a, b]));
        assert!(wires.joins(b, c) && wires.joins(a, d) && !wires.joins(c, d));
        assert!(wires.heal(&[b, c]) && wires.joins(c, d));
    }

    #[test]
    fn a_dead_link_parts_those_whose_way_it_is() {
        let topology = Topology::parse("bordeaux:2,2").unwrap();
        let mut wires = Wires::new(&topology);
        let [there, back] = topology.link_ports(0);
        wires.set_alive(back, false);
        assert!(wires.joins(NodeId(0), NodeId(1)) && !wires.joins(NodeId(0), NodeId(2)));
        wires.set_alive(back, true);
        wires.set_alive(there, true);
        assert!(wires.joins(NodeId(0), NodeId(2)));
    }
}
