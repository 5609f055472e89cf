//! Swarms without faults and without a plan: all nodes share the work.

#![allow(clippy::unwrap_used)]

use tidecast_sim::bound::bound;
use tidecast_sim::job::Job;
use tidecast_sim::progress::Progress;
use tidecast_sim::topology::{NodeId, Topology};
use tidecast_sim::world::World;

const PIECE: u32 = 256 << 10;
const PIECES: u32 = 256;

/// Nodes that learned of all others in one order once dialled the same sixteen, which then relayed
/// everything: 2.7 times the bound.
#[test]
fn nodes_that_all_hear_of_the_same_others_share_the_work() {
    let topology = Topology::parse("single:51@1gbit").unwrap();
    let everyone: Vec<NodeId> = (1..topology.len()).map(NodeId).collect();
    let bound = bound(&topology, u64::from(PIECE) * u64::from(PIECES), &everyone, 1, 1).time;
    let job = Job { acquaintances: 50, ..Job::plain(topology, vec![PIECE; PIECES as usize]) };
    let outcome = World::new(&job).unwrap().run(&Progress::new()).unwrap();
    let last = outcome.finished.iter().map(|at| at.unwrap()).max().unwrap();
    assert!(last.0 < bound.0 * 9 / 5, "{last:?} of {bound:?}");
}
