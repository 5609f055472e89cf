//! Events of `tracker`.

use std::net::SocketAddr;

use schemars::JsonSchema;
use serde::Serialize;

/// An event of `tracker`.
pub type Event = crate::Event<Started, Done, News>;

/// The tracker is ready.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Started {
    /// The command: `tracker`.
    pub command: &'static str,
    /// Its address.
    #[schemars(with = "String")]
    pub listen: SocketAddr,
    /// Its URLs for manifests: over HTTP, and over UDP. `HOST` stands for a name of this host if it listens on any address.
    pub urls: [String; 2],
}

/// Events that only a tracker has. Not in JSON lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum News {
    /// The numbers have changed during the last 10 s.
    #[serde(skip)]
    Known {
        /// Swarms.
        swarms: usize,
        /// Peers.
        peers: usize,
    },
}

/// The tracker was stopped.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, JsonSchema)]
pub struct Done {
    /// Seconds since the start.
    pub seconds: f64,
    /// Its totals, and its state at the end.
    #[serde(flatten)]
    pub stats: Stats,
}

/// The totals and the state of the tracker.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Stats {
    /// Swarms known.
    pub swarms: usize,
    /// Peers known, over all swarms and both address families.
    pub peers: usize,
    /// Announces answered over HTTP.
    pub http_announces: u64,
    /// Announces answered over UDP.
    pub udp_announces: u64,
    /// Scrapes answered.
    pub scrapes: u64,
    /// Malformed requests.
    pub malformed: u64,
    /// UDP packets without a valid connection id.
    pub forged: u64,
    /// Peers not remembered because a limit was reached.
    pub refused: u64,
}
