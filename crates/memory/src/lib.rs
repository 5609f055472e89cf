//! Broadcasts from memory to memory: copies the root's buffer to the buffers of all processes of a group.
//!
//! ```text
//!   rank 0 ── hub ◀── control: TLS, one connection a rank ──▶ every rank
//!   root ──▶ shared memory ──▶ the other ranks of its host
//!     └────▶ a broadcast of crate `group` ──▶ leader of each other host ──▶ shared memory ──▶ its ranks
//! ```
//!
//! Ranks share a host if they see each other's directories in `/dev/shm` (and run on the same kernel, as the same
//! user), whatever their host names are. Data crosses the network once per host. Small buffers are sent with the
//! messages of the hub. On a single host only a ring of 32 MiB is in shared memory. Between hosts shared memory holds
//! one copy per host, never on disk: this costs one memcpy more than receiving into the buffer directly.
//!
//! | module | contents |
//! |---|---|
//! | [`Group`] | the interface for programs |
//! | `hub_state`, `call` | decisions of the hub (pure) |
//! | `hub`, `session`, `link` | the connections |
//! | `part` | the work of one rank in one call |
//! | `shared` | shared memory |
//!
//! Invariants: no call hangs: ranks wait for each other up to the caller's timeout, and for data as long as data moves.
//! A lost rank affects only itself and, if it was the leader of its host, the ranks there. No `unsafe`: shared memory is
//! read and written, not mapped.

mod call;
mod error;
mod group;
mod hub;
mod hub_state;
mod message;
mod part;
mod session;
mod shared;

pub use error::Error;
pub use group::{Group, MAX_SIZE, Options, SHARED_VARIABLE, Watch};
pub use part::Buffer;
