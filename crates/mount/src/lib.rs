//! A published tree as a read-only FUSE file system, usable before its data has arrived (the BitLib of the
//! first paper).
//!
//! All names and attributes are in the manifest, so that each request of the kernel for them is answered at
//! once, and cached without an end. The content of files comes from peers when they are opened or read, or
//! before that, by a list.
//!
//! ```text
//!   kernel ──▶ session ──▶ fs ──▶ tree                  names, attributes
//!                           └───▶ files ──▶ store       what is here
//!                                   │
//!                                   ├─────▶ waits ──▶ net::Demand ... net ──▶ Arrivals
//!                                   └─────▶ ahead, prefetch (list, closure)
//! ```
//!
//! A process of its own reads a tree without a mount by `reader`.
//!
//! Three processes of the program `tidecast`. The one that the user starts mounts (`launch`), and ends. A
//! *server*, one for each tree on a host, is a member of the swarm, and answers for all mounts of it; a
//! *keeper* holds their devices, so that the mounts outlive a server that crashes or is replaced.
//!
//! ```text
//!   launch ──(device)──▶ server ──▶ service, node::Running
//!      │                 ▲    │
//!      └── starts ──▶ keeper ◀┘ (devices, to be handed to the next server)
//! ```
//!
//! Why `unsafe`: a mount outlives the process that serves it. The process that continues it replaces a
//! descriptor that `fuser` owns (`session.rs`), and uses numbers that the kernel gave to that process
//! (`passthrough.rs`); nothing else here is unsafe.

mod base;
pub mod closure;
mod counters;
mod created_dirs;
pub mod elf;
mod error;
mod fallback;
mod files;
mod fs;
mod home;
mod join;
pub mod keeper;
pub mod launch;
pub mod list;
mod list_file;
mod messages;
mod mountpoint;
pub mod namespace;
mod options;
mod packets;
mod passthrough;
mod place;
mod prefetch;
mod read_ahead;
pub mod reader;
pub mod record;
pub mod script;
pub mod search;
pub mod server;
mod service;
mod session;
mod tree;
mod waits;
pub mod walk;

pub use closure::Environment;
pub use created_dirs::{Held, Released};
pub use error::{Error, Exchangeable};
pub use fallback::Fallback;
pub use home::Home;
pub use list::{Entry, List, ListError, Name, Resolved};
pub use list_file::{ListFileError, list_beside};
pub use messages::{Answer, Ask, Keep, Role};
pub use mountpoint::{How, Mounted, clean, mount, mounted_at, mounts, table_path, unmount};
pub use options::{Mode, Prefetch, ServeOptions};
pub use packets::Packets;
pub use passthrough::{Before, OnBacking, opens};
pub use place::{Absent, Chosen, Guard, Place, Spot, Unfit, find};
pub use search::host_hwcaps;
pub use service::{Arrivals, OWN_LIST, Options, Service};
pub use tree::Tree;
