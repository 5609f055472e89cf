//! Events of `tracker`.

use std::net::SocketAddr;

use schemars::JsonSchema;
use serde::Serialize;

/// An event of `tracker`.
pub type Event = crate::Event<Started, Done, News>;

/// The tracker answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Started {
    /// The command: `tracker`.
    pub command: &'static str,
    /// Where it listens.
    #[schemars(with = "String")]
    pub listen: SocketAddr,
    /// What manifests name it by: over HTTP, and over UDP. `HOST` stands for a name of this host where it listens at any address.
    pub urls: [String; 2],
}

/// What only a tracker tells. Not in JSON lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum News {
    /// It knows more or fewer than 10 s ago.
    #[serde(skip)]
    Known {
        /// Swarms.
        swarms: usize,
        /// Peers.
        peers: usize,
    },
}

/// The tracker was told to end.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, JsonSchema)]
pub struct Done {
    /// Seconds since the start.
    pub seconds: f64,
    /// What it did, and held at the end.
    #[serde(flatten)]
    pub stats: Stats,
}

/// What the tracker has done and holds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Stats {
    /// Swarms that it knows.
    pub swarms: usize,
    /// Peers that it knows, over all swarms and both address families.
    pub peers: usize,
    /// Announces answered over HTTP.
    pub http_announces: u64,
    /// Announces answered over UDP.
    pub udp_announces: u64,
    /// Scrapes answered.
    pub scrapes: u64,
    /// Requests that made no sense.
    pub malformed: u64,
    /// UDP packets without a valid connection id.
    pub forged: u64,
    /// Peers not remembered because a limit was reached.
    pub refused: u64,
}
