//! Events of `publish`.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::Serialize;

/// An event of `publish`.
pub type Event = crate::Event<Started, Done>;

path_field!(path, path_base64, "The file or directory that is published.");
path_field!(
    manifest,
    manifest_base64,
    "The file of the manifest; absent if it was written to standard output."
);

/// The tree is about to be walked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Started {
    /// The command: `publish`.
    pub command: &'static str,
    /// The file or directory that is published.
    #[serde(flatten, serialize_with = "path::serialize")]
    #[schemars(with = "path::Schema")]
    pub path: PathBuf,
}

/// The contents of a manifest, without its files.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Summary {
    /// The name of the published data.
    pub name: String,
    /// Version of the format: `v1`, `v2` or `hybrid`.
    pub version: String,
    /// The hash of version 1, hexadecimal.
    pub hash_v1: Option<String>,
    /// The hash of version 2, hexadecimal.
    pub hash_v2: Option<String>,
    /// The magnet link.
    pub magnet: String,
    /// Peers may come from its trackers and from tickets only.
    pub private: bool,
    /// Peers need a certificate signed by its root.
    pub ssl: bool,
    /// The trackers, tier by tier.
    pub trackers: Vec<Vec<String>>,
    /// The web seeds.
    pub web_seeds: Vec<String>,
    /// Bytes of all files.
    pub bytes: u64,
    /// Bytes of all files, equal files counted once.
    pub unique_bytes: u64,
    /// Files.
    pub file_count: u32,
    /// Bytes of a piece.
    pub piece_length: u32,
    /// Pieces.
    pub pieces: u32,
    /// Bytes of the manifest's info dictionary, which is hashed.
    pub info_bytes: usize,
    /// The program that created it.
    pub created_by: Option<String>,
    /// When it was created, seconds since 1970.
    pub creation_date: Option<i64>,
    /// The publisher's comment.
    pub comment: Option<String>,
}

/// The manifest was written.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Done {
    /// Seconds since the start.
    pub seconds: f64,
    /// Its contents.
    #[serde(flatten)]
    pub summary: Summary,
    /// The file of the manifest.
    #[serde(flatten, serialize_with = "crate::path::if_any::<manifest::Field, _>")]
    #[schemars(with = "Option<manifest::Schema>")]
    pub manifest: Option<PathBuf>,
    /// Why it has this version.
    pub why: String,
    /// Bytes hashed per second.
    pub rate: u64,
    /// The manifest: the content of a .torrent file. Not in JSON lines.
    #[serde(skip)]
    pub torrent: Vec<u8>,
}
