//! Events of `verify`.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Serialize, Serializer};

use crate::Text;

/// An event of `verify`.
pub type Event = crate::Event<Started, Done>;

path_field!(manifest, manifest_base64, "The manifest's file.");
path_field!(path, path_base64, "The file or directory that is compared with it.");

/// Files are about to be read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Started {
    /// The command: `verify`.
    pub command: &'static str,
    /// The manifest's file.
    #[serde(flatten, serialize_with = "manifest::serialize")]
    #[schemars(with = "manifest::Schema")]
    pub manifest: PathBuf,
    /// The file or directory that is compared with it.
    #[serde(flatten, serialize_with = "path::serialize")]
    #[schemars(with = "path::Schema")]
    pub path: PathBuf,
}

/// Every byte was compared. With any problem the operation fails, and these fields are in its `error` event.
#[derive(Debug, Clone, Default, PartialEq, Serialize, JsonSchema)]
pub struct Done {
    /// Seconds since the start.
    pub seconds: f64,
    /// Bytes compared.
    pub bytes: u64,
    /// Files compared.
    pub file_count: u32,
    /// Files whose content differs.
    pub damaged: Vec<String>,
    /// Files that do not exist.
    pub missing: Vec<String>,
    /// Files that the manifest does not have.
    pub extra: Vec<String>,
    /// Files that cannot be read.
    pub unreadable: Vec<String>,
    /// Files that cannot be compared.
    pub unchecked: Vec<String>,
    /// Entries that were not compared, because `publish` skipped them.
    #[serde(flatten, serialize_with = "paths")]
    #[schemars(with = "LeftOut")]
    pub left_out: Vec<PathBuf>,
    /// All problems, each with its details.
    pub problems: Vec<String>,
}

#[allow(dead_code, reason = "only its schema is used")]
#[derive(JsonSchema)]
struct LeftOut {
    /// Entries that were not compared, because `publish` skipped them.
    left_out: Vec<String>,
    /// If any of these is not UTF-8: the bytes of each in Base64, null for those that are UTF-8.
    #[schemars(skip_serializing_if = "Option::is_none")]
    left_out_base64: Option<Vec<Option<String>>>,
}

fn paths<S: Serializer>(paths: &[PathBuf], to: S) -> Result<S::Ok, S::Error> {
    use serde::ser::SerializeMap as _;
    let (texts, bytes): (Vec<_>, Vec<_>) =
        paths.iter().map(|path| Text::of(path)).map(|text| (text.text, text.base64)).unzip();
    let mut map = to.serialize_map(None)?;
    map.serialize_entry("left_out", &texts)?;
    if bytes.iter().any(Option::is_some) {
        map.serialize_entry("left_out_base64", &bytes)?;
    }
    map.end()
}
