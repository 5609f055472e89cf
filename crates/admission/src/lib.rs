//! Limits the cost of a connection for a listener before its peer has authenticated.
//!
//! Every listener keeps its unauthenticated connections in a [`Gate`]: at most [`PER_SOURCE`] for each source, the
//! oldest is closed first, and each is closed when [`DEADLINE`] has passed, whatever it sends. An authenticated
//! connection leaves the gate and is never closed in favour of others. So a peer that opens connections without end
//! displaces its own connections only, and the accept loop never waits for a peer.
//!
//! | file | what it is |
//! |---|---|
//! | `half_open.rs` | the bookkeeping: pure, the time is passed in |
//! | `gate.rs` | the same for threads: a [`Pass`] for each connection, closed by a callback |
//! | `accept.rs` | for tokio: the accept loop's step, a handshake that ends in time ([`Admitted`]) |
//! | `limited.rs` | for tokio: a stream of which only this many bytes are read ([`Limited`]) |
//! | `unauthenticated.rs` | for tokio: a stream that ends in time by itself ([`UntilAuthenticated`]), for servers that own theirs |

use std::time::Duration;

#[cfg(feature = "tokio")]
mod accept;
mod gate;
mod half_open;
#[cfg(feature = "tokio")]
mod limited;
mod source;
#[cfg(feature = "tokio")]
mod unauthenticated;

#[cfg(feature = "tokio")]
pub use accept::{Admitted, HandshakeAborted, accept, accept_local};
pub use gate::{Gate, Pass, Progress};
pub use half_open::{HalfOpen, Id, Limits};
#[cfg(feature = "tokio")]
pub use limited::{Allowance, Limited};
pub use source::Source;
#[cfg(feature = "tokio")]
pub use unauthenticated::{Unauthenticated, UntilAuthenticated};

/// All phases of a handshake together end within this time.
pub const DEADLINE: Duration = Duration::from_secs(10);
/// Most bytes that are read of an unauthenticated peer.
pub const MAX_READ: usize = 16 << 10;
/// Most bytes of memory that buffers of one unauthenticated connection hold.
pub const MAX_HELD: usize = 64 << 10;
/// Most unauthenticated connections of one source.
pub const PER_SOURCE: usize = 64;
/// Most unauthenticated connections of a listener, where the limit of file descriptors allows it.
pub const TOTAL: usize = 4096;
/// Connections that may wait in the kernel to be accepted.
pub const BACKLOG: i32 = 4096;
