//! The plan of a simulated broadcast: the part of the coordinator of a real one.

use tidecast_swarm::plan::{Epoch, Member, Part, Place, stripes_for};

use crate::topology::Topology;

/// The planner's knowledge of the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Knowledge {
    /// Switches and the rates of their links.
    Topology,
    /// Nothing: all nodes are at one place.
    Nothing,
}

/// The first epoch of a broadcast from node 0 to all others, in `stripes` stripes.
#[must_use]
pub fn first_epoch(topology: &Topology, knows: Knowledge, stripes: u16, seed: u64) -> Epoch {
    let places = match knows {
        Knowledge::Topology => places(topology),
        Knowledge::Nothing => vec![Place { above: None, rate: 0 }],
    };
    Epoch { number: 1, source: 0, members: members(topology, knows), places, stripes, seed }
}

/// How many stripes such a broadcast has. The rate of the receivers' links was told, or tried.
#[must_use]
pub fn stripes(topology: &Topology, knows: Knowledge, size: u64, piece: u32) -> u16 {
    let rate = topology.nodes.iter().skip(1).map(|node| node.rate / 8).max().unwrap_or(0);
    stripes_for(&members(topology, knows), size, piece, rate)
}

fn members(topology: &Topology, knows: Knowledge) -> Vec<Member> {
    let place = |switch: u32| if knows == Knowledge::Topology { switch } else { 0 };
    topology.nodes.iter().map(|n| Member { place: place(n.switch), part: Part::Relay }).collect()
}

/// The switches as a tree: each below the one through which the origin reaches it first.
fn places(topology: &Topology) -> Vec<Place> {
    let count = topology.switches.len();
    let root = topology.nodes.first().map_or(0, |n| n.switch);
    let mut places = vec![Place { above: None, rate: 0 }; count];
    let mut near = vec![Vec::new(); count];
    for link in &topology.links {
        near[link.a as usize].push((link.b, link.rate));
        near[link.b as usize].push((link.a, link.rate));
    }
    let mut seen = vec![false; count];
    seen[root as usize] = true;
    let mut queue = std::collections::VecDeque::from([root]);
    while let Some(switch) = queue.pop_front() {
        for &(other, rate) in &near[switch as usize] {
            if !std::mem::replace(&mut seen[other as usize], true) {
                places[other as usize] = Place { above: Some(switch), rate: rate / 8 };
                queue.push_back(other);
            }
        }
    }
    places
}
