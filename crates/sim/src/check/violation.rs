//! A broken rule, as a value: enough to describe the violation and to reproduce it.

use std::fmt;

use tidecast_swarm::Time;

use crate::topology::NodeId;

/// The invariants of every run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Rule {
    /// No byte counts as possessed, or is served, that the truth does not call good.
    Unverified,
    /// Verified pieces stay, over a restart too, unless the disk loses them.
    Lost,
    /// Only senders of wrong bytes are banned.
    HonestBanned,
    /// No honest and healthy node is dropped for misconduct.
    HonestDropped,
    /// A node that the holders of its wanted pieces can reach is complete in the end.
    Unfinished,
    /// Every queue, table and burst has a bound.
    Unbounded,
    /// A new piece is verified within a bound of time and events while any node can get one.
    Livelock,
    /// An address that failed is not dialled again at once.
    Redialled,
    /// The origin sends few copies.
    OriginBudget,
    /// Messages other than payload are few.
    Control,
    /// Little comes twice.
    Duplicates,
    /// The engine's own invariants hold.
    Invariant,
    /// The simulator keeps the rules of the engine's surface.
    Driver,
    /// Nothing panics.
    Panic,
    /// The same seed gives the same run.
    Replay,
}

/// A broken rule: where, when, and in which run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Of the run.
    pub seed: u64,
    /// When it was seen.
    pub at: Time,
    /// Whose engine broke it, where it is one's.
    pub node: Option<NodeId>,
    /// Which.
    pub rule: Rule,
    /// The observation, with the numbers.
    pub message: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, micros) = (self.at.0 / 1_000_000_000, self.at.0 / 1_000 % 1_000_000);
        write!(f, "seed {}: {:?} at {whole}.{micros:06} s", self.seed, self.rule)?;
        if let Some(node) = self.node {
            write!(f, ", node {}", node.0)?;
        }
        write!(f, ": {}", self.message)
    }
}

impl std::error::Error for Violation {}
