//! The mover: any mix of files between two hosts at line rate (sections 5 and 6 of the 100 Gbps paper).
//!
//! ```text
//!  files ─▶ walker ─jobs─▶ readers ─blocks─▶ streams ═network═▶ streams ─blocks─▶ writers ─▶ files
//!             ▲                     (pool)                              (pool)       │
//!             └──────────────── wants, acknowledgements ◀── return connection ◀──────┘
//! ```
//!
//! Files are cut or gathered into blocks of at most 4 MiB ([`part`]); a block contains all that is needed to
//! write it, so blocks go on any stream, in any order, and once more after a stream broke. The two fronts
//! ([`job::Source`], [`job::Sink`]: directories, or their substitutes) and the streams between them are
//! separate; bounded pools of blocks connect them, so each side has as many threads as it needs.
//!
//! Promises: memory is bounded by the pool, whatever the number of files; each block is verified before it is
//! written, each file as a whole before it gets its name; an acknowledged block is never sent again, not even
//! by the next run.

#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod batches;
pub mod block;
mod chmod;
mod cpus;
pub mod digest;
pub mod end;
pub mod entry;
mod error;
pub mod filter;
pub mod flags;
pub mod job;
pub mod overlap;
pub mod part;
pub mod queue;
pub mod rsync;
pub mod server;
pub mod session;
pub mod sink;
pub mod source;
pub mod spec;
pub mod transfer;
mod xattr;

pub use chmod::Chmod;
pub use cpus::Cpus;
pub use error::Error;
