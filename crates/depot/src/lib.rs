//! The host's store: named, immutable caches whose equal files are kept once.
//!
//! ```text
//! Depot::open(dir, config)
//! declare(name, owner, size)  -> record, UNCOMMITTED
//! admit(id, manifest, …)      -> Ok(Reservation) | Wait(reason) | Denied(reason)
//!   Reservation: reuse(&manifest)  what need not be brought
//!                dir()             where the rest goes
//!                grown(size)       as it comes: more than was declared ends it
//!                commit(manifest)  -> record, COMMITTED, with its version
//! view(id)  open_view(id)      to jobs;  begin_use / end_use while they run
//! extend  pin  unpin  remove  sweep(now)  fsck
//! ```
//!
//! Promises:
//! - **What is committed is there**, whole and verified, after a kill or a power cut at any instant; what is not leaves
//!   no trace but what a reservation can go on from. Bytes and names are on disk before the one transaction that makes
//!   them true, and go after the one that makes them untrue.
//! - **Equal files are one inode** where times, attributes and the right to execute are equal too, across caches,
//!   versions and owners. Only this program's user could write it: the whole store is that user's. Where no link can be made, blocks are shared, or copied.
//! - **Possession is not authority.** A reservation is spared a file only if its owner may read a cache with that
//!   content already; what others have takes as long to ask for as what nobody has.
//! - **Room is given before bytes move**, by bytes and inodes, within quotas; eviction makes it: what is INVALID or broke off, then
//!   what expired, then what the owner who occupies most has used least recently; never what is pinned or in use.
//! - **A version never changes.** The same name with other content is the next version.
//! - **Older and newer programs** may take turns on the same store (`db.rs` says how).
//!
//! The clock is the caller's: `now` is in seconds since 1970. There is no network here, and no other thread.

#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used))]

mod access;
pub mod acl;
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
mod live;
mod near;
mod object;
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
