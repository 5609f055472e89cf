//! Events that all commands of a swarm share.

use std::net::SocketAddr;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

path_field!(manifest, manifest_base64, "The manifest's file, if one process serves several.");

/// This node has joined a swarm.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Started {
    /// The command: `get`, `seed` or `share`.
    pub command: &'static str,
    /// The name of the published data.
    pub name: String,
    /// The addresses of this node.
    pub listen: Vec<SocketAddr>,
    /// Bytes of all files.
    pub total: u64,
    /// The magnet link of the manifest.
    pub magnet: String,
    /// A new ticket with which other nodes may get the data (`seed` of a private manifest, `share`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ticket: Option<String>,
    /// The manifest's file, if one process serves several.
    #[serde(flatten, serialize_with = "crate::path::if_any::<manifest::Field, _>")]
    #[schemars(with = "Option<manifest::Schema>")]
    pub manifest: Option<PathBuf>,
    /// Any peer with the manifest may join, nothing is encrypted, and the user has not allowed that by `--plain`. Not
    /// in JSON lines.
    #[serde(skip)]
    pub open: bool,
}

/// The traffic with one peer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Peer {
    /// Its address.
    #[schemars(with = "String")]
    pub addr: SocketAddr,
    /// Its node id, if it proved one.
    pub node: Option<String>,
    /// Its client program, as it reports it.
    pub client: String,
    /// Payload from it, bytes.
    pub received: u64,
    /// Payload to it, bytes.
    pub sent: u64,
}

/// The traffic with one web seed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct WebSeed {
    /// Its URL in the manifest.
    pub url: String,
    /// Payload from it, bytes.
    pub received: u64,
    /// Why it is no longer used, if it is not.
    pub error: Option<String>,
}

/// CPU time by purpose, in seconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, JsonSchema)]
pub struct CpuSeconds {
    /// Sockets.
    pub socket: f64,
    /// TLS.
    pub tls: f64,
    /// Hashing.
    pub hash: f64,
    /// Files.
    pub disk: f64,
    /// The engine's decisions.
    pub engine: f64,
    /// The whole process since it began, all threads.
    pub process: f64,
}

/// The totals of one node in one swarm.
#[derive(Debug, Clone, Default, PartialEq, Serialize, JsonSchema)]
pub struct Totals {
    /// Bytes verified.
    pub bytes: u64,
    /// Bytes wanted.
    pub total: u64,
    /// Pieces verified.
    pub pieces: u32,
    /// Pieces in total.
    pub pieces_total: u32,
    /// Payload received, bytes.
    pub received: u64,
    /// Payload sent, bytes.
    pub sent: u64,
    /// Payload received twice, bytes.
    pub duplicate: u64,
    /// Payload received that did not match its hash, bytes.
    pub corrupt: u64,
    /// Seconds in the swarm.
    pub swarm_seconds: f64,
    /// The peers with which payload was exchanged, and those connected at the end.
    pub peers: Vec<Peer>,
    /// The web seeds.
    pub web_seeds: Vec<WebSeed>,
    /// CPU time; if one process serves several manifests, it is reported for all of them together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_seconds: Option<CpuSeconds>,
}
