//! The host's store: named, immutable caches whose equal files are kept once.
//!
//! ```text
//! Depot::open(dir, config)
//! declare(name, owner, size)  -> record, UNCOMMITTED
//! admit(id, manifest, …)      -> Ok(Reservation) | Wait(reason) | Denied(reason)
//!   Reservation: reuse(&manifest)  files that need no transfer
//!                dir()             directory for the others
//!                grown(size)       while data arrives: more than declared ends it
//!                commit(manifest)  -> record, COMMITTED, with its version
//! view(id)  open_view(id)      to jobs;  begin_use / end_use while they run
//! extend  pin  unpin  remove  sweep(now)  fsck
//! ```
//!
//! Promises:
//! - **Committed caches survive**, complete and verified, a kill or a power cut at any instant; others leave no trace
//!   except the staged files of a reservation. Bytes and names are on disk before the one transaction that commits
//!   them, and are removed after the one that deletes them.
//! - **Equal files are one inode** where times, attributes and the right to execute are equal too, across caches,
//!   versions and owners. Only this program's user could write it: the whole store is that user's. Where no link can be made, blocks are shared, or copied.
//! - **Possession is not authority.** A reservation reuses a file only if its owner may read a cache with that
//!   content already; asking for content of other users takes as long as for content that no cache has.
//! - **Space is reserved before bytes move**, by bytes and inodes, within quotas; eviction frees it: first caches that are
//!   INVALID or interrupted, then expired ones, then the least recently used ones of the owner with the most space;
//!   never caches that are pinned or in use.
//! - **A version never changes.** The same name with other content is the next version.
//! - **Older and newer programs** may take turns on the same store (`db.rs` says how).
//!
//! The clock is the caller's: `now` is in seconds since 1970. There is no network here, and no other thread.

#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used))]

mod access;
mod admit;
mod capacity;
mod commit;
mod compare;
mod config;
mod db;
mod depot;
mod error;
mod evict;
mod fsck;
mod layout;
mod memory_state;
mod object;
mod open_dir;
mod os;
mod place;
mod process;
mod record;
mod recover;
mod report;
mod reserve;
mod root;
mod space;
mod uses;
mod view;

pub use access::Access;
pub use admit::{Admission, Reason};
pub use capacity::Excess;
pub use commit::Committed;
pub use config::Config;
pub use depot::Depot;
pub use error::Error;
pub use evict::Swept;
pub use process::{Stat, command_line};
pub use record::{CacheId, CacheRecord, Declare, Filter, Local, Past, Reader, Size, State};
pub use report::{Bad, Depth, Report, Unread};
pub use reserve::{Reservation, Reuse, Staged};
pub use root::root_of;
pub use space::Usage;
pub use uses::{Process, Use, UseId};
pub use view::{Busy, View};
