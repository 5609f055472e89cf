//! A published tree as a read-only FUSE file system: there before it has arrived (the BitLib of the first paper).
//!
//! All names and attributes are in the manifest, so that the kernel is answered at once, for good, and asks once. What
//! is in the files comes from peers when it is opened or read, or before that, by a list.
//!
//! ```text
//!   kernel ──▶ session ──▶ fs ──▶ tree                  names, attributes
//!                           └───▶ files ──▶ store       what is here
//!                                   │
//!                                   ├─────▶ waits ──▶ net::Demand ... net ──▶ Arrivals
//!                                   └─────▶ ahead, prefetch (list, closure)
//! ```
//!
//! Why `unsafe`: a mount outlives the process that serves it. Whoever goes on with it replaces a descriptor that
//! `fuser` owns (`session.rs`), and uses numbers that the kernel gave to that process (`passthrough.rs`); nothing else
//! here is unsafe.

mod ahead;
pub mod closure;
mod counters;
pub mod elf;
mod error;
mod fallback;
mod files;
mod fs;
pub mod list;
mod made;
mod mountpoint;
pub mod namespace;
mod packets;
mod passthrough;
mod place;
mod prefetch;
pub mod record;
pub mod script;
pub mod search;
mod service;
mod session;
mod status;
mod tree;
mod waits;
pub mod walk;

pub use closure::Environment;
pub use error::Error;
pub use fallback::Fallback;
pub use list::{Entry, List, ListError, Name, Resolved};
pub use made::{Held, Released};
pub use mountpoint::{How, Mounted, clean, mount, mounted_at, mounts, table_path, unmount};
pub use packets::Packets;
pub use passthrough::{Before, OnBacking, opens};
pub use place::{Absent, Chosen, Guard, Place, Spot, Unfit, find};
pub use search::host_hwcaps;
pub use service::{Arrivals, OWN_LIST, Options, Service};
pub use status::{Answer, Ask, Hold, Keep, Status, Wait};
pub use tree::Tree;
