//! Broadcasts: one file or tree, from this node to a path on each of many hosts.
//!
//! [`run`] is the coordinator: it publishes the source, starts a worker on every host ([`launch`]), hears from them on
//! the [`control`] channel, finds out on which network they can meet, tells them what to get and from whom, seeds it,
//! and reports what came of it on each host. [`work`] is a worker.
//!
//! ```text
//!   coordinator ── launcher (ssh, srun, ..) ──▶ worker    ticket on its standard input
//!        ▲  └──────────── control channel ◀──────┘
//!        └ origin ◀──▶ swarm of the workers ◀──▶
//! ```
//!
//! Promises: nothing waits without bound; a host that fails costs the others nothing, and is named with its reason;
//! nothing half-written appears under the final name; workers never outlive the broadcast by more than seconds, also
//! when the coordinator is killed, in which case they complete among themselves if they can.

mod broadcast;
pub mod channel;
pub mod choose;
mod control;
mod error;
pub mod hosts;
pub mod launch;
mod lineage;
mod meet;
mod network;
mod node;
mod plan;
mod reach;
mod report;
mod resolve;
mod source;
mod summary;
mod unreached;
mod worker;

pub use broadcast::{Event, MANIFEST_LIMIT, Options, State, run};
pub use control::ticket::{GroupTicket, NoTicket};
pub use error::Error;
pub use plan::Algorithm;
pub use report::{Action, Found, HostReport, Outcome, Report};
pub use source::piece_length;
pub use summary::topology_rules;
pub use worker::{Placed, work};
