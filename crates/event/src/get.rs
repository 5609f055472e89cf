//! Events of `get`.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::Serialize;

use crate::Totals;
pub use crate::swarm::Started;

/// An event of `get`.
pub type Event = crate::Event<Started, Done>;

path_field!(path, path_base64, "The path of the copy.");

/// The result for the copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Action {
    /// The destination did not exist before.
    Delivered,
    /// Some files of an older version were replaced, or removed.
    Replaced,
    /// The destination had the same data.
    Unchanged,
}

/// The origin of the rate of a node's link.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum LinkRateFrom {
    /// The caller.
    Told,
    /// The driver of the fastest interface.
    #[default]
    Driver,
    /// A short trial transfer to a host of a broadcast.
    Trial,
}

/// The transfer in comparison with the rate of the link.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, JsonSchema)]
pub struct Efficiency {
    /// The origin of the link's rate.
    pub link_rate_from: LinkRateFrom,
    /// Seconds that the link needs at least for the bytes received.
    pub bound_seconds: f64,
    /// The share of the link's rate that was used, from 0 to 1.
    pub efficiency: f64,
}

/// The copy is complete, verified, under its own name.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Done {
    /// Seconds since the start.
    pub seconds: f64,
    /// What this node did in the swarm.
    #[serde(flatten)]
    pub totals: Totals,
    /// The path of the copy.
    #[serde(flatten, serialize_with = "path::serialize")]
    #[schemars(with = "path::Schema")]
    pub path: PathBuf,
    /// Files requested.
    pub files: u64,
    /// The result for the copy.
    pub action: Action,
    /// Requested files that existed before with the same data.
    pub files_kept: u64,
    /// Files that were replaced.
    pub files_replaced: u64,
    /// Files that the manifest does not have and that were kept.
    pub files_stale: u64,
    /// Of `files_stale`: files that Tidecast did not deliver.
    pub files_foreign: u64,
    /// Files that were removed.
    pub files_deleted: u64,
    /// Seconds until the copy was complete; `seconds` includes the time of serving others.
    pub get_seconds: f64,
    /// The comparison with the rate of the link, if that is known.
    #[serde(flatten)]
    pub efficiency: Option<Efficiency>,
    /// Bytes of the files requested. Not in JSON lines.
    #[serde(skip)]
    pub file_bytes: u64,
}
