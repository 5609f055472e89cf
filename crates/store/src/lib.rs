//! The bytes of one swarm's manifest on disk: staging, batched durability, resume, final names.
//!
//! A [`Store`] is opened for a download ([`Store::download`]) or over existing data
//! ([`Store::seed`]), shared between threads, and driven like this:
//!
//! ```text
//! download(manifest, dir) -> Opened { store, have, to_check, hashed, wanted }
//! check(piece)            for each of to_check, from as many threads as there are cores
//! write(piece, …)*  set_leaves(piece)  piece_done(piece)     as pieces arrive and verify
//! sync()                  once a second, or when dirty_bytes() passes 256 MiB
//! finish()                when missing() is 0: metadata, final names
//! read / send_spans / leaves                                 at any time, for verified pieces
//! ```
//!
//! Promises: a name appears in the target only when all of it is verified; journalled pieces
//! are on disk and right after any crash, everything else is hashed again before it counts; no
//! verified byte is fetched twice after a kill; nothing planted in the target (symbolic links,
//! other users' staging areas) can lead a write elsewhere; existing files at the destination are replaced
//! only after the new data is complete, and only if this program put them there (`record.rs`) or the user
//! forces it ([`Replace`]).
//!
//! ```text
//! DIR/.tidecast-NAME-id/  tree      becomes DIR/NAME in one rename
//!                         journal   pieces that are verified and durable
//!                         leaves    their leaf digests
//!                         spill     v1: edge bytes of files that are not selected
//!                         aside     exchange place for a file of another kind
//!                         lock      one download at a time
//! ```

mod base;
mod bits;
pub mod disk;
mod error;
mod existing;
mod fds;
mod finish;
mod flush;
mod journal;
mod leaves;
mod map;
mod open;
mod opened;
mod os;
mod owner;
mod patch;
mod place;
mod record;
mod seed;
mod stage;
mod stale;
mod store;

pub use base::{Base, open_bases};
pub use error::Error;
pub use finish::Summary;
pub use open::{DownloadOptions, Durability, Replace, Select};
pub use opened::Opened;
pub use os::OsDisk;
pub use patch::Patch;
pub use seed::SeedOptions;
pub use stale::unrecorded;
pub use store::{SendSpan, Store};
