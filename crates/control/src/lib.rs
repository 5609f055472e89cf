//! What control channels have in common: those of a broadcast's workers (`group`), of ranks (`memory`), between daemons.
//!
//! | file | what it is |
//! |---|---|
//! | `frame.rs` | a message and a payload, each after its length; how a message is encoded is the channel's own affair |
//! | `dial.rs` | the addresses of one node, dialled a little after one another (RFC 8305) |

mod dial;
mod frame;

pub use dial::{Dialling, STAGGER};
pub use frame::{Bounds, FrameError, read, read_rest, write};
