//! Results of `show`.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::Serialize;

use crate::path::if_any;
use crate::publish::Summary;

path_field!(symlink, symlink_base64, "Its target, if it is a symbolic link.");

/// The contents of a manifest.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Shown {
    /// The manifest without its files.
    #[serde(flatten)]
    pub summary: Summary,
    /// Its files, including symbolic links.
    pub files: Vec<File>,
    /// Its directories.
    pub directories: Vec<String>,
    /// Unusual properties of the manifest.
    pub warnings: Vec<String>,
}

/// A file of a manifest.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct File {
    /// Its path.
    pub path: String,
    /// Its bytes.
    pub bytes: u64,
    /// It is executable; absent if not.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub executable: bool,
    /// It is marked as hidden; absent if not.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub hidden: bool,
    /// Its target, if it is a symbolic link.
    #[serde(flatten, serialize_with = "if_any::<symlink::Field, _>")]
    #[schemars(with = "Option<symlink::Schema>")]
    pub symlink: Option<PathBuf>,
    /// The root of its hash tree, hexadecimal; in version 2.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pieces_root: Option<String>,
    /// Its mode, octal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<String>,
    /// The number of its group of hard links; files with the same number are one file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hard_link: Option<u32>,
    /// The number by which a magnet link selects it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub index: Option<usize>,
}

/// The contents of a ticket, without its secret.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Ticket {
    /// The manifest that it grants access to.
    pub manifest: String,
    /// The name of the published data, if the ticket has it.
    pub name: Option<String>,
    /// Only nodes with a ticket may join.
    pub private: bool,
    /// The id of the node that issued it.
    pub owner: Option<String>,
    /// Its number.
    pub ticket: Option<String>,
    /// When it expires, seconds since 1970.
    pub expires: Option<u64>,
    /// The number of nodes that may use it.
    pub uses: Option<u32>,
    /// Nodes that have used it, if this host issued it and it is not revoked.
    pub used: Option<usize>,
    /// The addresses of nodes that have the data.
    pub addresses: Vec<String>,
}
