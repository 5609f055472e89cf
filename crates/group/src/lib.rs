//! Broadcasts: copies one file or tree from this node to a path on each of many hosts.
//!
//! [`run`] is the coordinator: it publishes the source, starts a worker on every host ([`launch`]), which connects to the
//! [`control`] channel, chooses a network that reaches all of them, sends them the manifest and the plan, seeds the data,
//! and reports the result of each host. [`work`] is a worker.
//!
//! ```text
//!   coordinator ── launcher (ssh, srun, ..) ──▶ worker    ticket on its standard input
//!        ▲  └──────────── control channel ◀──────┘
//!        └ origin ◀──▶ swarm of the workers ◀──▶
//! ```
//!
//! Invariants: every wait is bounded; a host that fails does not delay the others, and is reported with its reason; the
//! final name appears only with complete data; workers never outlive the broadcast by more than seconds. If the coordinator
//! is killed, they complete among themselves if they can.

pub mod agents;
mod broadcast;
pub mod channel;
pub mod choose;
mod control;
mod error;
pub mod hosts;
pub mod launch;
mod network;
mod node;
mod plan;
mod probe;
mod reach;
mod report;
mod resolve;
mod source;
mod source_identity;
mod summary;
mod temporary;
mod unreached;
mod worker;

pub use broadcast::{Event, MANIFEST_LIMIT, Options, State, run};
pub use control::ticket::{GroupTicket, NoTicket};
pub use error::Error;
pub use plan::Algorithm;
pub use report::{Action, ExistingFiles, HostReport, Outcome, Report};
pub use source::piece_length;
pub use summary::topology_rules;
pub use worker::{Placed, work};
