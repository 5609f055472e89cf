//! Events of `seed` and `share`.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::Serialize;

pub use crate::swarm::Started;
use crate::{CpuSeconds, Totals};

/// An event of `seed` of one manifest, and of `share`.
pub type Event = crate::Event<Started, Done>;

/// An event of `seed` of several manifests; each has its own `started`.
pub type ManyEvent = crate::Event<Started, ManyDone>;

path_field!(manifest, manifest_base64, "The manifest's file.");

/// It was stopped, which is the normal end.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Done {
    /// Seconds since the start.
    pub seconds: f64,
    /// The totals of this node in the swarm.
    #[serde(flatten)]
    pub totals: Totals,
    /// Pieces of the data that do not match the manifest.
    pub damaged_pieces: u64,
}

/// It was stopped, which is the normal end.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct ManyDone {
    /// Seconds since the start.
    pub seconds: f64,
    /// The totals of all swarms, and of each.
    #[serde(flatten)]
    pub all: Many,
}

/// The totals of one process for several manifests.
#[derive(Debug, Clone, Default, PartialEq, Serialize, JsonSchema)]
pub struct Many {
    /// Bytes verified.
    pub bytes: u64,
    /// Bytes to verify.
    pub total: u64,
    /// Pieces verified.
    pub pieces: u64,
    /// Pieces in total.
    pub pieces_total: u64,
    /// Payload received, bytes.
    pub received: u64,
    /// Payload sent, bytes.
    pub sent: u64,
    /// Payload received twice, bytes.
    pub duplicate: u64,
    /// Payload received that did not match its hash, bytes.
    pub corrupt: u64,
    /// CPU time of the process.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_seconds: Option<CpuSeconds>,
    /// Pieces of the data that do not match the manifests.
    pub damaged_pieces: u64,
    /// Each swarm.
    pub swarms: Vec<OneDone>,
    /// Each manifest that was not served, or not in full.
    pub failed: Vec<NotServed>,
}

/// The totals for one of several manifests.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct OneDone {
    /// The totals of this node in the swarm; absent if they are not known.
    #[serde(flatten)]
    pub totals: Option<Totals>,
    /// The manifest's file.
    #[serde(flatten, serialize_with = "manifest::serialize")]
    #[schemars(with = "manifest::Schema")]
    pub manifest: PathBuf,
    /// The name of the published data.
    pub name: String,
    /// Pieces of the data that do not match the manifest.
    pub damaged_pieces: u64,
}

/// A manifest that was not served, or not in full.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct NotServed {
    /// The manifest's file.
    #[serde(flatten, serialize_with = "manifest::serialize")]
    #[schemars(with = "manifest::Schema")]
    pub manifest: PathBuf,
    /// The reason.
    pub message: String,
}
