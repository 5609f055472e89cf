//! What `show` says.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::Serialize;

use crate::path::if_any;
use crate::publish::Summary;

path_field!(symlink, symlink_base64, "Where it leads, if it is a symbolic link.");

/// What a manifest describes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Shown {
    /// What it says as a whole.
    #[serde(flatten)]
    pub summary: Summary,
    /// Its files, symbolic links among them.
    pub files: Vec<File>,
    /// Its directories.
    pub directories: Vec<String>,
    /// What is odd about it.
    pub warnings: Vec<String>,
}

/// A file of a manifest.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct File {
    /// Its path.
    pub path: String,
    /// Its bytes.
    pub bytes: u64,
    /// It is a program; left out of others.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub executable: bool,
    /// It is marked as hidden; left out of others.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub hidden: bool,
    /// Where it leads, if it is a symbolic link.
    #[serde(flatten, serialize_with = "if_any::<symlink::Field, _>")]
    #[schemars(with = "Option<symlink::Schema>")]
    pub symlink: Option<PathBuf>,
    /// The root of its hash tree, hexadecimal; of version 2.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pieces_root: Option<String>,
    /// Its mode, octal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<String>,
    /// Files of one number are hard links to one file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hard_link: Option<u32>,
    /// Its number by which a magnet link selects it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub index: Option<usize>,
}

/// What a ticket is good for.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Ticket {
    /// What it leads to.
    pub manifest: String,
    /// The name of what was published, if it says so.
    pub name: Option<String>,
    /// Only who has a ticket may join.
    pub private: bool,
    /// The key of who issued it.
    pub owner: Option<String>,
    /// Its number.
    pub ticket: Option<String>,
    /// When it expires, seconds since 1970.
    pub expires: Option<u64>,
    /// For how many nodes it is good.
    pub uses: Option<u32>,
    /// Nodes that have used it, where that is limited and this host has issued it.
    pub used: Option<usize>,
    /// Where first holders listen.
    pub addresses: Vec<String>,
}
