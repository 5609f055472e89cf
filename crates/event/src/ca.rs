//! What `ca` says.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::Serialize;

path_field!(certificate, certificate_base64, "The root certificate.");
path_field!(crl, crl_base64, "The list of revoked certificates.");
path_field!(file, file_base64, "Where it was written, if not to standard output.");

/// An authority is made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Made {
    /// What it is called.
    pub name: String,
    /// The root certificate, which nodes need.
    #[serde(flatten, serialize_with = "certificate::serialize")]
    #[schemars(with = "certificate::Schema")]
    pub certificate: PathBuf,
    /// The list of revoked certificates, which nodes need too.
    #[serde(flatten, serialize_with = "crl::serialize")]
    #[schemars(with = "crl::Schema")]
    pub crl: PathBuf,
    /// When its certificate ends, seconds since 1970.
    pub not_after: u64,
}

/// A certificate is issued.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Issued {
    /// For whom: `host:NAME` or `user:NAME`.
    pub identity: String,
    /// Its number.
    pub serial: String,
    /// When it ends, seconds since 1970.
    pub not_after: u64,
    /// A new key is beside it.
    pub key: bool,
    /// Where it was written, if not to standard output.
    #[serde(flatten, serialize_with = "crate::path::if_any::<file::Field, _>")]
    #[schemars(with = "Option<file::Schema>")]
    pub file: Option<PathBuf>,
}

/// Certificates are revoked, and the list of these is dated anew.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Revoked {
    /// Their numbers.
    pub revoked: Vec<String>,
    /// The list, which nodes need again.
    #[serde(flatten, serialize_with = "crl::serialize")]
    #[schemars(with = "crl::Schema")]
    pub crl: PathBuf,
}

/// An invitation is made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Invited {
    /// The host or user that the joining node becomes: `host:NAME` or `user:NAME`.
    pub identity: String,
    /// The ticket, a secret: for `tidecast daemon init --join`.
    pub ticket: String,
    /// When it expires, seconds since 1970.
    pub expires: u64,
}

/// An authority, and what it has issued.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Shown {
    /// What it is called.
    pub name: String,
    /// When its certificate ends, seconds since 1970.
    pub not_after: u64,
    /// What it has issued.
    pub certificates: Vec<Certificate>,
}

/// A certificate that an authority has issued.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Certificate {
    /// Its number.
    pub serial: String,
    /// For whom: `host:NAME` or `user:NAME`.
    pub identity: String,
    /// The node whose key it is for, if that was named.
    pub node: Option<String>,
    /// When it ends, seconds since 1970.
    pub not_after: u64,
    /// When it was revoked, seconds since 1970, if it was.
    pub revoked: Option<u64>,
}

/// This node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Node {
    /// Its id.
    pub node: String,
}
