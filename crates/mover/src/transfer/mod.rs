//! The streams between the fronts: connections, and the two ends of a session.

pub(crate) mod connection;
pub(crate) mod connections;
mod control;
pub(crate) mod frame;
mod in_flight;
mod limit;
mod meter;
pub(crate) mod pipe;
mod rate;
mod receive;
mod send;
mod session;
pub(crate) mod target;
mod tls;
mod wire;

pub use connection::{Guard, Purpose, congestion};
pub use connections::{Link, Listener, MAX_STREAMS};
pub use control::{Limit, Limits};
pub use meter::Tick;
pub use pipe::Pipes;
pub use receive::receive;
pub use send::send;
pub use session::{Monitor, Options, Outcome, Progress};
pub use target::{Early, EarlyStreams, NodeName, STREAMS, SessionId, Target};
pub use wire::Wire;

#[cfg(test)]
mod tests;
