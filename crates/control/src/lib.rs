//! Code that all control channels share: those of a broadcast's workers (`group`), of ranks (`memory`), between daemons.
//!
//! | file | contents |
//! |---|---|
//! | `frame.rs` | a message and a payload, each after its length; each channel has its own encoding of messages |
//! | `connect.rs` | connections to the addresses of one node, started shortly after one another (RFC 8305) |

mod connect;
mod frame;

pub use connect::{ATTEMPT_DELAY, ConnectAttempts};
pub use frame::{Bounds, FrameError, read, read_rest, write};
