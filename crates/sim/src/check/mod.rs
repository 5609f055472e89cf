//! Checkers that know the true state of the whole cluster: which bytes are intact on which disk, which nodes
//! are honest, which can reach each other. They see every event that goes into an engine and every action
//! that comes out.
//!
//! Promise: they change nothing, they cost O(1) an event (more expensive checks run rarely enough for that
//! average), and their result is a value: the first rule that was broken.
//!
//! | rule | where |
//! |---|---|
//! | what was broken, and how it is said | `violation` |
//! | no byte unverified, none lost; the peers that a node may ban, drop, dial | `truth` |
//! | queues, tables and bursts | `bounds` |
//! | every node that can finish does; no livelock | `progress` |
//! | the origin's copies, control messages, duplicates | `budget` |

mod bounds;
mod budget;
mod progress;
#[cfg(test)]
mod tests;
mod truth;
mod violation;

use tidecast_swarm::{Action, Block, Engine, Event, Limits, Time};

use self::budget::Budget;
use self::progress::ProgressCheck;
use self::truth::NodeTruth;
pub use self::violation::{Rule, Violation};
use crate::fault::Fault;
use crate::job::Job;
use crate::outcome::Outcome;
use crate::set::PieceSet;
use crate::topology::NodeId;
use crate::trace::Trace;

/// How much is checked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Watch {
    /// Everything.
    #[default]
    Full,
    /// Checks that cost next to nothing: possession, serving, bans, progress, and the end. For many nodes.
    Light,
}

/// The current world, for checks across engines.
pub trait Truth {
    /// Number of nodes.
    fn nodes(&self) -> u32;
    /// The node's engine; none while it does not run or stands still.
    fn engine(&self, node: NodeId) -> Option<&Engine>;
    /// The run waits for the node to be complete.
    fn awaited(&self, node: NodeId) -> bool;
    /// `from` could now connect to `to`, were it to dial: both run, `to` accepts connections, and the
    /// network carries both ways.
    fn can_connect(&self, from: NodeId, to: NodeId) -> bool;
}

/// See the head of the file.
#[derive(Debug, Default)]
pub struct Checks {
    watch: Watch,
    seed: u64,
    limits: Limits,
    trace: Trace,
    nodes: Vec<NodeTruth>,
    /// The network is disturbed: no node is blamed for being late.
    storm: bool,
    progress: ProgressCheck,
    budget: Budget,
    broken: Option<Violation>,
}

/// A rule and the observation; the caller that knows the place adds it.
type Finding = (Rule, String);

impl Checks {
    /// Checkers of one run of `job`.
    #[must_use]
    pub fn new(job: &Job, watch: Watch) -> Self {
        let pieces = job.lengths.len() as u32;
        let longest = u64::from(job.lengths.iter().copied().max().unwrap_or(0));
        let mut nodes: Vec<NodeTruth> = job
            .topology
            .nodes
            .iter()
            .map(|_| NodeTruth::new(pieces, (longest, pushed(job, longest))))
            .collect();
        for (node, wants) in &job.wants {
            if let Some(node_truth) = nodes.get_mut(node.0 as usize) {
                node_truth.begins(PieceSet::of(pieces, wants));
            }
        }
        if job.opens.is_some() {
            // Nothing, until it is opened.
            nodes.iter_mut().for_each(|node_truth| node_truth.begins(PieceSet::new(pieces)));
        }
        Checks {
            watch,
            seed: job.seed,
            limits: job.limits,
            trace: Trace::default(),
            nodes,
            storm: crowded(job),
            progress: ProgressCheck::new(job),
            budget: Budget::new(job),
            broken: None,
        }
    }

    /// An engine was made: the node starts, or restarts with the contents of its disk.
    ///
    /// # Errors
    /// It does not have exactly the pieces that are intact on its disk.
    pub fn begin(&mut self, at: Time, node: NodeId, engine: &Engine) -> Result<(), Violation> {
        let found = self.nodes[node.0 as usize].begin(engine);
        self.judge(at, node, found)
    }

    /// A fault is about to strike.
    pub fn fault(&mut self, at: Time, fault: &Fault) {
        use Fault as F;
        self.progress.disturbed(at);
        match fault {
            F::LinkRate { .. } | F::LinkHeal { .. } | F::Partition { .. } | F::Heal { .. } => {
                self.storm = true;
            }
            F::Die { node } | F::Freeze { node } => {
                // Blocks handed to its connections count against `Limits::serving_total` of the others until
                // they are closed: meanwhile they may have no capacity left for any peer.
                self.storm = true;
                self.nodes[node.0 as usize].struck(fault);
            }
            F::Corrupt { node } | F::Lie { node } | F::Withhold { node } | F::Refuse { node } => {
                self.nodes[node.0 as usize].guilty = true;
            }
            other => {
                if let Some(node) = other.node() {
                    self.nodes[node.0 as usize].struck(fault);
                }
            }
        }
    }

    /// All bytes of a piece are on a node's disk; `good`: each of them is right.
    pub fn settled(&mut self, node: NodeId, piece: u32, good: bool) {
        self.nodes[node.0 as usize].settled(piece, good);
    }

    /// A block on a node's disk is good, and each of its leaves was compared with its hash.
    pub fn proven(&mut self, node: NodeId, block: Block) {
        self.nodes[node.0 as usize].proven(block);
    }

    /// An engine is about to be told.
    pub fn event(&mut self, at: Time, node: NodeId, event: &Event) {
        self.trace.event(at, node, event);
        if matches!(event, Event::PieceVerified { .. }) {
            self.progress.verified(at);
        }
        if let Err((rule, message)) = self.nodes[node.0 as usize].event(at, event) {
            self.broken = Some(Violation { seed: self.seed, at, node: Some(node), rule, message });
        }
    }

    /// An engine wants something done; `other`: the node that it is about, if there is one.
    ///
    /// # Errors
    /// When it may not be done.
    pub fn action(
        &mut self,
        at: Time,
        node: NodeId,
        action: &Action,
        other: Option<NodeId>,
        engine: &Engine,
    ) -> Result<(), Violation> {
        self.trace.action(node, action);
        let node_truth = &mut self.nodes[node.0 as usize];
        let mut found = bounds::count_action(&mut node_truth.burst, engine);
        if found.is_ok() {
            found = node_truth.action(at, action, engine);
        }
        if found.is_ok() {
            found = self.conduct(node, action, other);
        }
        self.judge(at, node, found)
    }

    /// Whether `node` may let `other` go for this reason.
    fn conduct(&self, node: NodeId, action: &Action, other: Option<NodeId>) -> Result<(), Finding> {
        let Some(other) = other else { return Ok(()) };
        let (ours, theirs) = (&self.nodes[node.0 as usize], &self.nodes[other.0 as usize]);
        theirs.blame(action, self.storm || ours.hurt).map_err(|(rule, message)| {
            let name = format!("node {}, ", other.0);
            (rule, name + &message)
        })
    }

    /// An engine has finished the last event.
    ///
    /// # Errors
    /// It has pieces that it should not have, or lacks some, or exceeds a bound.
    pub fn after(&mut self, at: Time, node: NodeId, engine: &Engine) -> Result<(), Violation> {
        if let Some(broken) = self.broken.take() {
            return Err(broken);
        }
        let node_truth = &mut self.nodes[node.0 as usize];
        let mut found = node_truth.after(engine);
        if found.is_ok() && self.watch == Watch::Full {
            found = node_truth.sampled(engine, &self.limits);
        }
        self.judge(at, node, found)
    }

    /// Something has happened in the world; true when [`Checks::progress`] is to look at all of it.
    pub fn step(&mut self, at: Time) -> bool {
        self.progress.step(at)
    }

    /// Checks for progress.
    ///
    /// # Errors
    /// When things go on happening and nothing comes of it though it could.
    pub fn progress(&mut self, at: Time, truth: &dyn Truth) -> Result<(), Violation> {
        let found = self.progress.judge(truth, &self.nodes);
        self.judge_at(at, found)
    }

    /// The run is over.
    ///
    /// # Errors
    /// A node that could be complete is not, or the whole run has cost too much.
    pub fn end(&mut self, at: Time, truth: &dyn Truth, outcome: &Outcome) -> Result<(), Violation> {
        let found = self.progress.end(truth, &self.nodes);
        self.judge_at(at, found)?;
        for node in (0..truth.nodes()).map(NodeId) {
            let node_truth = &self.nodes[node.0 as usize];
            if let Some(engine) = truth.engine(node).filter(|_| self.watch == Watch::Full) {
                let found = node_truth.whole(engine).and_then(|()| bounds::invariants(engine));
                self.judge(at, node, found)?;
            }
        }
        let found = self.budget.end(outcome);
        self.judge_at(at, found.map_err(|finding| (None, finding)))
    }

    /// Fingerprint of all that has happened.
    #[must_use]
    pub fn trace(&self) -> u64 {
        self.trace.value()
    }

    fn judge(&self, at: Time, node: NodeId, found: Result<(), Finding>) -> Result<(), Violation> {
        self.judge_at(at, found.map_err(|finding| (Some(node), finding)))
    }

    fn judge_at(&self, at: Time, found: Result<(), (Option<NodeId>, Finding)>) -> Result<(), Violation> {
        found.map_err(|(node, (rule, message))| Violation { seed: self.seed, at, node, rule, message })
    }
}

/// Bytes that a parent in a plan sends before it learns that they are not wanted: its queue (a 32nd of a
/// second and a piece in each stripe, `swarm::plan_sender`), and the bytes in flight.
fn pushed(job: &Job, longest: u64) -> u64 {
    let rate = job.topology.nodes.iter().map(|n| n.rate / 8).max().unwrap_or(0);
    job.plan.map_or(0, |(_, stripes)| {
        (rate / 32 + u64::from(stripes) * longest).saturating_add(budget::on_the_way(job, 2 * rate))
    })
}

/// Whether one block for all receivers takes this long over the slowest link that it would be mistaken for
/// silence: the engine tolerates a minute of it. And textbook mechanisms make honest nodes silent for longer:
/// a distributing seeder holds pieces back that it gave to others, and in the endgame every peer asks every
/// other for everything.
fn crowded(job: &Job) -> bool {
    const BLOCK: u64 = 1 << 20;
    job.policy.distribution
        || job.policy.endgame
        || job.topology.nodes.len() as u64 * BLOCK > 60 * progress::slowest(job)
}
