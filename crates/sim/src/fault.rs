//! Faults. A [`Fault`] strikes one node or link of a running world; a [`Spec`] is the form that a person
//! writes (`die:5%@10s`), and becomes faults when it is applied to a job.

mod apply;
mod error;
mod spec;
mod text;
mod units;

use tidecast_swarm::Time;

use crate::topology::NodeId;

pub use error::FaultError;
pub use spec::{Item, NodeFault, Selector, Spec, What};
pub use text::help;

/// One thing that happens to the cluster. Rates are bytes per second.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the fields are their types; each variant is documented")]
pub enum Fault {
    /// The program dies: its kernel resets every connection, and refuses new ones.
    Crash { node: NodeId },
    /// The machine dies: without notice to its peers, nothing answers.
    Die { node: NodeId },
    /// The program is stopped (SIGSTOP): its kernel continues to receive until its buffers are full.
    Freeze { node: NodeId },
    /// ... and resumes.
    Resume { node: NodeId },
    /// The program restarts, with the contents of its disk or with nothing; a running one is ended first.
    Restart { node: NodeId, disk: bool },
    /// It leaves politely: closes its connections and is not awaited any more.
    Leave { node: NodeId },
    /// The disk is full: the program ends with an error, its disk is kept.
    DiskFull { node: NodeId },
    /// Its network card has this rate from now on, both ways.
    NodeRate { node: NodeId, rate: u64 },
    /// The link has this rate from now on, both ways; 0 is a dead link, without notice.
    LinkRate { link: u32, rate: u64 },
    /// The link has its own rate again.
    LinkHeal { link: u32 },
    /// These nodes can reach only each other from now on, without notice.
    Partition { nodes: Vec<NodeId> },
    /// The partition between these and the others ends.
    Heal { nodes: Vec<NodeId> },
    /// Every block that it sends is wrong from now on.
    Corrupt { node: NodeId },
    /// It claims pieces that it has not, and sends nothing for them.
    Lie { node: NodeId },
    /// It has pieces, takes requests, and sends nothing.
    Withhold { node: NodeId },
    /// It has pieces, and rejects every request.
    Refuse { node: NodeId },
    /// It accepts no connection from outside (from the start, where `at` is 0).
    Closed { node: NodeId },
    /// Its connections are reset, those of others with it included.
    Reset { node: NodeId },
    /// Its clock jumps forward by this many nanoseconds (the engine clamps backward jumps).
    ClockForward { node: NodeId, by: u64 },
    /// ... or backward.
    ClockBack { node: NodeId, by: u64 },
    /// A piece that it had verified is lost on its disk: this one, or the next that it has.
    PieceLost { node: NodeId, piece: u32 },
}

impl Fault {
    /// Its name in tallies: the word of [`Spec`] that makes it.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Fault::Crash { .. } => "crash",
            Fault::Die { .. } => "die",
            Fault::Freeze { .. } => "freeze",
            Fault::Resume { .. } => "resume",
            Fault::Restart { disk: true, .. } => "restart",
            Fault::Restart { disk: false, .. } => "restart,nodisk",
            Fault::Leave { .. } => "leave",
            Fault::DiskFull { .. } => "diskfull",
            Fault::NodeRate { .. } => "slow",
            Fault::LinkRate { rate: 0, .. } => "cut",
            Fault::LinkRate { .. } => "link",
            Fault::LinkHeal { .. } => "link heals",
            Fault::Partition { .. } => "partition",
            Fault::Heal { .. } => "partition heals",
            Fault::Corrupt { .. } => "corrupt",
            Fault::Lie { .. } => "lie",
            Fault::Withhold { .. } => "withhold",
            Fault::Refuse { .. } => "refuse",
            Fault::Closed { .. } => "closed",
            Fault::Reset { .. } => "reset",
            Fault::ClockForward { .. } => "clock forward",
            Fault::ClockBack { .. } => "clock back",
            Fault::PieceLost { .. } => "lost",
        }
    }

    /// The node that it strikes, if it is one.
    #[must_use]
    pub fn node(&self) -> Option<NodeId> {
        match *self {
            Fault::Crash { node }
            | Fault::Die { node }
            | Fault::Freeze { node }
            | Fault::Resume { node }
            | Fault::Restart { node, .. }
            | Fault::Leave { node }
            | Fault::DiskFull { node }
            | Fault::NodeRate { node, .. }
            | Fault::Corrupt { node }
            | Fault::Lie { node }
            | Fault::Withhold { node }
            | Fault::Refuse { node }
            | Fault::Closed { node }
            | Fault::Reset { node }
            | Fault::ClockForward { node, .. }
            | Fault::ClockBack { node, .. }
            | Fault::PieceLost { node, .. } => Some(node),
            Fault::LinkRate { .. }
            | Fault::LinkHeal { .. }
            | Fault::Partition { .. }
            | Fault::Heal { .. } => None,
        }
    }
}

/// A fault and when it happens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Timed {
    /// Since the start.
    pub at: Time,
    /// The kind of fault.
    pub fault: Fault,
}
