//! Broadcasts from memory to memory: the root's buffer into the buffer of every process of a group.
//!
//! ```text
//!   rank 0 ── hub ◀── control: TLS, one connection a rank ──▶ every rank
//!   root ──▶ shared memory ──▶ the other ranks of its host
//!     └────▶ a broadcast of crate `group` ──▶ leader of each other host ──▶ shared memory ──▶ its ranks
//! ```
//!
//! Ranks share a host if they see each other's directories in `/dev/shm` (and run on one kernel, as one user); what
//! they are called does not matter. Data crosses the network once a host. Small buffers travel with the messages of
//! the hub. On one host a ring of 32 MiB is all that lies in shared memory; between hosts it holds one copy a host, in
//! memory and never on disk: one copy (memcpy) more than a network that wrote into the buffer would need.
//!
//! | module | what it is |
//! |---|---|
//! | [`Group`] | what a program calls |
//! | `council`, `call` | what the hub decides (pure) |
//! | `hub`, `session`, `link` | the connections |
//! | `part` | what one rank does in one call |
//! | `shared` | shared memory |
//!
//! Promises: nothing hangs: ranks wait for each other as long as the caller says, for data as long as anything moves;
//! a rank that is lost costs only itself, and if it was the leader of its host, the ranks there. No `unsafe`: shared
//! memory is read and written, not mapped.

mod call;
mod council;
mod error;
mod group;
mod hub;
mod message;
mod part;
mod session;
mod shared;

pub use error::Error;
pub use group::{Group, MAX_SIZE, Options, SHARED_VARIABLE, Watch};
pub use part::Buffer;
