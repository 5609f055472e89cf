//! One node in a swarm, with everything around it: the common part of `seed`, `share`, `get` and `mount`.
//!
//! ```text
//!   Source (ticket, magnet link, manifest) ──▶ Origin: the manifest, and peers
//!                                                 │
//!   SwarmOptions ──▶ Choices ──▶ Running::start ◀─┴─ Security (right.rs)
//!                                  │  ▲
//!                        Notice ───┘  └─── Finders: trackers, local discovery, DHT
//!                          │
//!                          └──▶ Teller ──▶ warnings, each once
//! ```
//!
//! Promises: nothing is written to a terminal, and no signal is handled: the caller receives events through
//! [`MessageSink`] and ends the work through [`Stop`]. A private manifest (BEP 27) uses trackers and named peers only.

pub mod access;
mod finders;
mod manifest;
mod messages;
mod notice;
mod options;
mod rates;
mod running;
mod settings;
mod source;
mod stop;
mod totals;
mod unreachable;

pub use finders::{Finders, Wanted, named};
pub use manifest::{id_bytes, magnet, manifest_id, read_manifest, summary};
pub use messages::{Message, MessageSender, MessageSink};
pub use notice::about_peer;
pub use options::{Policy, SslFiles, SwarmOptions};
pub use rates::Rates;
pub use running::{Part, Running};
pub use settings::{SwarmSettings, check_trackers};
pub use source::{Origin, Source, read_ticket, unanswered};
pub use stop::{Stop, Stopper};
pub use tidecast_discovery::DiscoveredPeers;
pub use totals::{connected, efficiency, progress, totals};

use std::time::{SystemTime, UNIX_EPOCH};

/// Below the state directory: records of delivered files, by [`tidecast_store::Replace::records`].
pub const RECORDS: &str = "delivered";

/// Untrusted text without characters that could move the cursor or change colours.
#[must_use]
pub fn plain(text: &str) -> String {
    tidecast_text::escaped(text).to_string()
}

/// Seconds since 1970.
#[must_use]
pub fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs())
}
