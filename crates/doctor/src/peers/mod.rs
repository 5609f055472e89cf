//! Hosts and the paths between them: agents on every host, started by the launchers of a broadcast, probe each other.
//!
//! ```text
//!   coordinator ── launcher (ssh, srun, ..) ──▶ agent     ticket on its standard input
//!        ▲  └── orders ──▶ ◀── reports ── (TLS) ──┘
//!                agent ◀── probes: TCP, UDP ──▶ agent     authenticated by the key of the run
//! ```
//!
//! | file | what it is |
//! |---|---|
//! | `pairs.rs` | which pairs are measured, in which order (pure) |
//! | `groups.rs`, `clocks.rs`, `judge.rs`, `summary.rs` | what the measurements say (pure) |
//! | `message.rs`, `wire.rs` | orders and reports; what probes write (pure) |
//! | `agent.rs`, `probe.rs`, `send.rs`, `serve.rs` | an agent: as a caller, and as a callee |
//! | `coordinator.rs` | starts agents, and orders measurements |
//!
//! Invariants: an agent sends data only to callers that prove that they are of this run; an answer to a datagram is never
//! longer than it; no host takes part in two transfers at once; every wait, transfer and buffer is bounded; an agent ends with
//! its coordinator.

mod agent;
mod clocks;
mod coordinator;
mod groups;
mod judge;
mod message;
mod pairs;
mod probe;
mod send;
mod serve;
mod summary;
mod wire;

pub use agent::agent;
pub use coordinator::{Event, Options, Results, estimate, run};
pub use summary::topology;
pub use tidecast_group::Error;
