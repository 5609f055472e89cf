//! Discovery: how Tidecast nodes find each other.
//!
//! * [`tracker`]: announce to a tracker of others over HTTP, HTTPS or UDP (BEP 3, 7, 15, 23).
//! * [`announcer`]: one task a swarm that keeps all its trackers announced (BEP 12).
//! * [`server`]: the embedded tracker, HTTP and UDP on one port, all of its state bounded.
//! * [`lsd`]: local discovery by multicast (BEP 14).
//! * [`peers`]: addresses written by hand.
//! * [`web`]: ranges of files over HTTP and HTTPS, for web seeds (BEP 19).
//! * [`dht`]: the Mainline DHT (BEP 5), only when asked for; cargo feature `dht`.
//!
//! The announcer, local discovery and the DHT send their results, as [`DiscoveredPeers`], into one bounded channel of the
//! caller; when it is full they drop rather than wait, because every source repeats them. Nothing here connects to
//! a peer, and everything received is considered hostile: each answer, table, queue and wait has a limit.
//!
//! A private manifest (BEP 27) may use trackers and static peers only; the caller sees to that.

pub mod announcer;
pub mod compact;
mod content_encoding;
#[cfg(feature = "dht")]
pub mod dht;
mod discovered;
mod error;
mod http;
pub mod interfaces;
pub mod lsd;
pub mod peers;
pub mod server;
mod socket;
mod tiers;
pub mod tracker;
mod udp;
mod udp_packet;
mod url;
pub mod web;

pub use discovered::{DiscoveredPeers, Source, usable};
pub use error::Error;
pub use url::{Scheme, TrackerUrl};

/// The 20 bytes that name a swarm: a v1 info hash, or a v2 one cut to 20 bytes (BEP 52).
pub type InfoHash = [u8; 20];

/// The 20 bytes by which a client calls itself in announces and handshakes (BEP 20).
pub type PeerId = [u8; 20];
