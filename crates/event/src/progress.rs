//! How far the work is.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Peer, bcast, copy, sim};

path_field!(manifest, manifest_base64, "The manifest's file.");

/// What is being done.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Stage {
    /// The tree is walked.
    Scan,
    /// Files are hashed.
    Hash,
    /// Data that is there already is hashed.
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
    /// Hosts of a broadcast get the data.
    Bcast,
    /// Files are copied.
    Copy,
    /// A broadcast is simulated; bytes are those that receivers have to get in all.
    Sim,
    /// Random clusters are simulated; runs are counted as bytes.
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

/// A state of the work.
#[derive(Debug, Clone, Default, PartialEq, Serialize, JsonSchema)]
pub struct Progress {
    /// Seconds since the start.
    pub seconds: f64,
    /// What is being done.
    pub stage: Stage,
    /// Bytes done.
    pub bytes: u64,
    /// Bytes to do; 0 where there is no end.
    pub total: u64,
    /// Pieces done (verified).
    pub pieces: u64,
    /// Pieces to do.
    pub pieces_total: u64,
    /// Bytes done per second, over the last seconds.
    pub rate: u64,
    /// What moves between peers, where that is the work.
    #[serde(flatten)]
    pub traffic: Option<Traffic>,
    /// How the hosts of a broadcast fare.
    #[serde(flatten)]
    pub hosts: Option<bcast::Hosts>,
    /// What a copy works with, as soon as that is found out.
    #[serde(flatten)]
    pub copy: Option<copy::Working>,
    /// What runs, in a simulation.
    #[serde(flatten)]
    pub run: Option<sim::Running>,
    /// Each of several manifests that one process serves. Not in JSON lines.
    #[serde(skip)]
    pub swarms: Vec<OneSwarm>,
}

/// What moves between this node and its peers.
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
    /// Who it is, and what was exchanged on this connection.
    #[serde(flatten)]
    pub peer: Peer,
    /// Seconds since a byte of payload moved, if one ever did.
    pub quiet_seconds: Option<f64>,
}

/// One of several manifests that one process serves.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct OneSwarm {
    /// The manifest's file.
    #[serde(flatten, serialize_with = "manifest::serialize")]
    pub manifest: PathBuf,
    /// What it describes.
    pub name: String,
    /// What is being done.
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

/// What begins, where no other event says so. Not in JSON lines.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Phase {
    /// Peers are asked for the manifest.
    AskingForManifest,
    /// Older versions that are here are compared with the manifest.
    Comparing,
    /// All is there; it is served for so long.
    ServingFor(Duration),
    /// What was published is served at these addresses, until stopped.
    Serving {
        /// Its name; of several manifests, how many they are.
        name: String,
        /// Where this node listens.
        listen: Vec<SocketAddr>,
    },
}
