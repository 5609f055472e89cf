//! Events of `get`.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::Serialize;

use crate::Totals;
pub use crate::swarm::Started;

/// An event of `get`.
pub type Event = crate::Event<Started, Done>;

path_field!(path, path_base64, "Where it is.");

/// What became of the copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Action {
    /// Nothing was there.
    Delivered,
    /// Some files of a former version were replaced, or removed.
    Replaced,
    /// The same was there.
    Unchanged,
}

/// Who knows the rate of a node's link.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum LinkRateFrom {
    /// The caller.
    Told,
    /// The driver of the fastest interface.
    #[default]
    Driver,
    /// A short trial of the way to a host of a broadcast.
    Trial,
}

/// What the link could have done.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, JsonSchema)]
pub struct Efficiency {
    /// Who knows the link's rate.
    pub link_rate_from: LinkRateFrom,
    /// Seconds that the link takes for the bytes received.
    pub bound_seconds: f64,
    /// The part of the link's rate that was used: 1 is all.
    pub efficiency: f64,
}

/// All is there, verified, under its own name.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Done {
    /// Seconds since the start.
    pub seconds: f64,
    /// What this node did in the swarm.
    #[serde(flatten)]
    pub totals: Totals,
    /// Where it is.
    #[serde(flatten, serialize_with = "path::serialize")]
    #[schemars(with = "path::Schema")]
    pub path: PathBuf,
    /// Files that were asked for.
    pub files: u64,
    /// What became of the copy.
    pub action: Action,
    /// Files of them that were there already.
    pub files_kept: u64,
    /// Files that were replaced.
    pub files_replaced: u64,
    /// Files that stay though the manifest does not have them.
    pub files_stale: u64,
    /// Files of those that Tidecast did not deliver.
    pub files_foreign: u64,
    /// Files that were removed.
    pub files_deleted: u64,
    /// Seconds until all was in place; `seconds` has the time of serving others too.
    pub get_seconds: f64,
    /// What the link could have done, where its rate is known.
    #[serde(flatten)]
    pub efficiency: Option<Efficiency>,
    /// Bytes of the files that were asked for. Not in JSON lines.
    #[serde(skip)]
    pub file_bytes: u64,
}
