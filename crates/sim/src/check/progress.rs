//! Progress: every node that can complete does so in the end, and until then some node verifies a new piece
//! within a bound of time and of events.
//!
//! A node can make progress if the run waits for it, it runs, and it lacks a piece that an honest running
//! node has with which it could be connected now, because one of the two knows the other's address and may
//! connect to it. (Relays need no search: the first node on any path that lacks the piece is such a node
//! itself.)

use tidecast_swarm::Time;

use super::truth::NodeTruth;
use super::{Finding, Rule, Truth};
use crate::fault::Fault;
use crate::job::Job;
use crate::topology::NodeId;

const SECOND: u64 = 1_000_000_000;
/// Without anything verified. The engine's longest pauses are a minute, for an address that keeps
/// failing and for a peer that keeps silent; several can follow one another.
const PATIENCE: u64 = 400 * SECOND;
/// ... where textbook choking and distribution let all peers wait for turns of 30 s.
const PATIENCE_CLASSIC: u64 = 2_000 * SECOND;
/// Steps of the world at one instant: a base, and for each node.
const AT_ONCE: (u64, u64) = (20_000, 5_000);
/// Steps without anything verified: a base, for each possible connection (handshakes), for each leaf that may
/// come before the first piece is whole, and for each node and second.
const IDLE: (u64, u64, u64, u64) = (100_000, 64, 8, 400);
/// Bytes that a relay forwards at once.
const LEAF: u64 = 16 << 10;

/// See the head of the file.
#[derive(Debug, Default)]
pub(super) struct ProgressCheck {
    nodes: u64,
    /// Steps that may have no effect within one instant.
    least: u64,
    steps_most: u64,
    until: Time,
    now: Time,
    /// Steps at this instant.
    at_once: u64,
    /// Since when nothing was verified and nothing happened to the cluster, and the steps since.
    quiet: Time,
    idle: u64,
    /// The last fault.
    disturbed: Time,
}

impl ProgressCheck {
    pub(super) fn new(job: &Job) -> Self {
        let nodes = job.topology.nodes.len() as u64;
        let peers = nodes.min(job.limits.peers as u64);
        let classic = job.policy.choking || job.policy.distribution;
        let base = if classic { PATIENCE_CLASSIC } else { PATIENCE };
        // The largest piece may have to be fetched by all nodes at once over one slow link; in the textbook's
        // endgame from all peers, because all outstanding requests may be served before the first cancel is.
        let longest = u64::from(job.lengths.iter().copied().max().unwrap_or(0));
        let times = if job.policy.endgame { nodes * peers } else { nodes };
        let piece = u128::from(4 * longest * times) * u128::from(SECOND) / u128::from(slowest(job).max(1));
        // Every stripe of a plan may bring its first piece at the same time, leaf by leaf.
        let stripes = job.plan.map_or(0, |(_, stripes)| u64::from(stripes));
        let leaves = nodes * stripes * longest.div_ceil(LEAF);
        ProgressCheck {
            nodes,
            least: IDLE.0 + nodes * peers * IDLE.1 + leaves * IDLE.2,
            steps_most: base.saturating_add(u64::try_from(piece).unwrap_or(u64::MAX)),
            until: job.until,
            ..ProgressCheck::default()
        }
    }

    /// A fault strikes: all nodes get time to recover.
    pub(super) fn disturbed(&mut self, at: Time) {
        (self.quiet, self.idle, self.disturbed) = (at, 0, at);
    }

    /// A node has one piece more.
    pub(super) fn verified(&mut self, at: Time) {
        (self.quiet, self.idle) = (at, 0);
    }

    /// Something has happened in the world; whether it is to be judged.
    pub(super) fn step(&mut self, at: Time) -> bool {
        self.at_once = if at > self.now { 0 } else { self.at_once + 1 };
        self.now = at;
        self.idle += 1;
        self.waited() > self.steps_most || self.at_once > self.at_once_most() || self.idle > self.idle_most()
    }

    fn waited(&self) -> u64 {
        self.now.0.saturating_sub(self.quiet.0)
    }

    fn at_once_most(&self) -> u64 {
        AT_ONCE.0 + self.nodes * AT_ONCE.1
    }

    fn idle_most(&self) -> u64 {
        // Without the division, which is seldom worth it.
        if self.idle <= self.least {
            return self.least;
        }
        self.least + self.nodes * IDLE.3 * (self.waited() / SECOND)
    }

    /// Whether things go on happening, or nothing does, and nothing comes of it though it could.
    pub(super) fn judge(
        &mut self,
        truth: &dyn Truth,
        node_truths: &[NodeTruth],
    ) -> Result<(), (Option<NodeId>, Finding)> {
        if self.at_once > self.at_once_most() {
            return Err((None, (Rule::Livelock, format!("{} steps at one instant", self.at_once))));
        }
        let waited = self.waited();
        if self.idle > self.idle_most() {
            let message = format!("{} steps in {} s, and nothing is verified", self.idle, waited / SECOND);
            return Err((None, (Rule::Livelock, message)));
        }
        if waited > self.steps_most {
            if let Some((node, message)) = stuck(truth, node_truths) {
                let message = format!("{} s without anything verified: {message}", waited / SECOND);
                return Err((Some(node), (Rule::Livelock, message)));
            }
            (self.quiet, self.idle) = (self.now, 0);
        }
        Ok(())
    }

    /// The run is over: because no node is awaited, or because its time is up.
    pub(super) fn end(
        &self,
        truth: &dyn Truth,
        node_truths: &[NodeTruth],
    ) -> Result<(), (Option<NodeId>, Finding)> {
        let time = self.until.0.saturating_sub(self.disturbed.0) > self.steps_most;
        match stuck(truth, node_truths).filter(|_| time) {
            Some((node, message)) => Err((Some(node), (Rule::Unfinished, message))),
            None => Ok(()),
        }
    }
}

/// Bytes per second of the slowest wire that there is, or ever will be.
pub(super) fn slowest(job: &Job) -> u64 {
    let nodes = job.topology.nodes.iter().map(|n| n.rate / 8);
    let links = job.topology.links.iter().map(|l| l.rate / 8);
    let faults = job.faults.iter().filter_map(|t| match t.fault {
        Fault::NodeRate { rate, .. } | Fault::LinkRate { rate, .. } if rate > 0 => Some(rate),
        _ => None,
    });
    nodes.chain(links).chain(faults).min().unwrap_or(1)
}

/// A node that could get a piece that it wants, and the node that has it. O(nodes^2 x pieces / 64).
fn stuck(truth: &dyn Truth, node_truths: &[NodeTruth]) -> Option<(NodeId, String)> {
    let ids = || (0..truth.nodes()).map(NodeId);
    let runs = |id: NodeId| truth.engine(id).is_some();
    for id in ids().filter(|&id| truth.awaited(id) && runs(id)) {
        let Some(own) = node_truths.get(id.0 as usize) else { continue };
        for (other, its) in ids().zip(node_truths).filter(|(other, _)| *other != id) {
            let helps = !its.guilty && runs(other);
            let meet = || {
                own.knows(other) && truth.can_connect(id, other)
                    || its.knows(id) && truth.can_connect(other, id)
            };
            if helps
                && let Some(piece) = own.could_get(its)
                && meet()
            {
                let message = format!("lacks piece {piece}, which node {} has and could give", other.0);
                return Some((id, message));
            }
        }
    }
    None
}
