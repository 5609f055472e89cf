//! The tokio driver: runs the engine of one swarm over real sockets and files.
//!
//! Payload goes from socket to hash to disk on the settling threads ([`settle`]), and from the page
//! cache to the socket inside the kernel ([`conn`]'s writer); the engine ([`driver`]) sees blocks as
//! numbers only, on a thread of its own. Every queue between them is bounded; a slow disk slows the
//! sockets, and a peer that cannot keep up is let go.
//!
//! ```text
//!            ┌─ reader ──▶ settle (hash, disk) ──┐
//!   socket ──┤                                   ├──▶ driver (engine)
//!            └─ writer ◀── outbox ◀──────────────┘
//! ```

mod accept;
mod conn;
mod cpu;
mod demand;
mod dial;
mod dial_addresses;
mod driver;
mod error;
mod fetch;
mod fingerprints;
mod framed;
mod handshake;
mod handshake_kinds;
mod handshake_turn;
mod hashes;
mod iface;
mod input;
mod intake;
mod last_payload;
mod link;
mod member;
mod pool;
mod report;
mod roots;
mod runtime;
mod security;
mod session;
mod settle;
mod shared;
mod shared_port;
mod throttle;
mod transport;
mod tune;
mod web;
mod web_seed;

pub use accept::{Port, listen};
pub use cpu::{Cpu, Stage};
pub use demand::Demand;
pub use error::Error;
pub use fetch::compare::{Compare, Compared, compare};
pub use fetch::{FailedTry, Fetch, fetch_manifest};
pub use iface::{LocalAddress, Network, local_addresses, order_for_dialling, own_addresses};
pub use input::{OnVerified, Urgency};
pub use member::{Complained, Group, Member};
pub use report::{Connected, Notice, PeerReport, Progress, Summary, WebReport};
pub use roots::RootsKey;
pub use runtime::{block_on, runtime};
pub use security::{Known, Membership, Security};
pub use session::{Finder, Swarm, SwarmOptions};
pub use shared_port::{SharedPort, Stream, Visitor};
pub use throttle::{Caps, Throttle};
pub use tidecast_swarm::Complaint;
pub use tidecast_swarm::plan::{Edges, Role};
pub use tune::end_when_gone;
