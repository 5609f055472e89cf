//! Progress of operations.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Peer, bcast, copy, sim};

path_field!(manifest, manifest_base64, "The manifest's file.");

/// The stage of the work.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Stage {
    /// The tree is walked.
    Scan,
    /// Files are hashed.
    Hash,
    /// Existing data is hashed.
    #[default]
    Check,
    /// Data is fetched.
    Get,
    /// Data is served.
    Seed,
    /// Files are compared with the manifest.
    Verify,
    /// Files are fetched as they are opened.
    Mount,
    /// Workers of a broadcast are started.
    Launch,
    /// Hosts of a broadcast receive the data.
    Bcast,
    /// Files are copied.
    Copy,
    /// A broadcast is simulated; `bytes` counts the data of all receivers.
    Sim,
    /// Random clusters are simulated; `bytes` counts runs.
    Soak,
}

impl Stage {
    /// Its name in JSON.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Scan => "scan",
            Self::Hash => "hash",
            Self::Check => "check",
            Self::Get => "get",
            Self::Seed => "seed",
            Self::Verify => "verify",
            Self::Mount => "mount",
            Self::Launch => "launch",
            Self::Bcast => "bcast",
            Self::Copy => "copy",
            Self::Sim => "sim",
            Self::Soak => "soak",
        }
    }
}

/// Progress of the work.
#[derive(Debug, Clone, Default, PartialEq, Serialize, JsonSchema)]
pub struct Progress {
    /// Seconds since the start.
    pub seconds: f64,
    /// The stage of the work.
    pub stage: Stage,
    /// Bytes done.
    pub bytes: u64,
    /// Bytes to do; 0 if there is no end.
    pub total: u64,
    /// Pieces done (verified).
    pub pieces: u64,
    /// Pieces to do.
    pub pieces_total: u64,
    /// Bytes done per second, over the last seconds.
    pub rate: u64,
    /// The traffic with peers, in a swarm.
    #[serde(flatten)]
    pub traffic: Option<Traffic>,
    /// The numbers of hosts, in a broadcast.
    #[serde(flatten)]
    pub hosts: Option<bcast::Hosts>,
    /// The resources that a copy uses, as soon as they are known.
    #[serde(flatten)]
    pub copy: Option<copy::Working>,
    /// The current run, in a simulation.
    #[serde(flatten)]
    pub run: Option<sim::Running>,
    /// Each of several manifests that one process serves. Not in JSON lines.
    #[serde(skip)]
    pub swarms: Vec<OneSwarm>,
}

/// The traffic between this node and its peers.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Traffic {
    /// Connected peers.
    pub peers: usize,
    /// Payload received, bytes.
    pub received: u64,
    /// Payload sent, bytes.
    pub sent: u64,
    /// Payload received per second, bytes.
    pub rate_in: u64,
    /// Payload sent per second, bytes.
    pub rate_out: u64,
    /// Some of the connected peers. Not in JSON lines.
    #[serde(skip)]
    pub connected: Vec<Connected>,
}

/// A connected peer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Connected {
    /// The peer, and the traffic on this connection.
    #[serde(flatten)]
    pub peer: Peer,
    /// Seconds since payload was last sent or received; null if it never was.
    pub quiet_seconds: Option<f64>,
}

/// One of several manifests that one process serves.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct OneSwarm {
    /// The manifest's file.
    #[serde(flatten, serialize_with = "manifest::serialize")]
    pub manifest: PathBuf,
    /// The name of the published data.
    pub name: String,
    /// The stage of the work.
    pub stage: Stage,
    /// Bytes verified.
    pub bytes: u64,
    /// Bytes to verify.
    pub total: u64,
    /// Connected peers.
    pub peers: usize,
    /// Payload received, bytes.
    pub received: u64,
    /// Payload sent, bytes.
    pub sent: u64,
}

/// A phase of the work that no other event announces. Not in JSON lines.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Phase {
    /// The manifest is requested from peers.
    AskingForManifest,
    /// Local older versions are compared with the manifest.
    Comparing,
    /// The download is complete; it is served for this time.
    ServingFor(Duration),
    /// Published data is served at these addresses, until stopped.
    Serving {
        /// Its name; of several manifests, their number.
        name: String,
        /// The addresses of this node.
        listen: Vec<SocketAddr>,
    },
}
