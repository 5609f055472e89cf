//! Code that all control channels share: those of a broadcast's workers (`group`), of ranks (`memory`), between daemons.
//!
//! | file | contents |
//! |---|---|
//! | `frame.rs` | a message and a payload, each after its length; each channel has its own encoding of messages |
//! | `dial.rs` | connections to the addresses of one node, started shortly after one another (RFC 8305) |

mod dial;
mod frame;

pub use dial::{Dialling, STAGGER};
pub use frame::{Bounds, FrameError, read, read_rest, write};
