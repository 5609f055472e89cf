//! Results of `ca`.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::Serialize;

path_field!(certificate, certificate_base64, "The root certificate.");
path_field!(crl, crl_base64, "The list of revoked certificates.");
path_field!(file, file_base64, "The file that was written, unless standard output.");

/// An authority was created.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Made {
    /// Its name.
    pub name: String,
    /// The root certificate, which nodes need.
    #[serde(flatten, serialize_with = "certificate::serialize")]
    #[schemars(with = "certificate::Schema")]
    pub certificate: PathBuf,
    /// The list of revoked certificates, which nodes need too.
    #[serde(flatten, serialize_with = "crl::serialize")]
    #[schemars(with = "crl::Schema")]
    pub crl: PathBuf,
    /// When its certificate expires, seconds since 1970.
    pub not_after: u64,
}

/// A certificate was issued.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Issued {
    /// Its identity: `host:NAME` or `user:NAME`.
    pub identity: String,
    /// Its serial number.
    pub serial: String,
    /// When it expires, seconds since 1970.
    pub not_after: u64,
    /// The file also has a new key.
    pub key: bool,
    /// The file that was written, unless standard output.
    #[serde(flatten, serialize_with = "crate::path::if_any::<file::Field, _>")]
    #[schemars(with = "Option<file::Schema>")]
    pub file: Option<PathBuf>,
}

/// Certificates were revoked, and the date of the revocation list was renewed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Revoked {
    /// Their serial numbers.
    pub revoked: Vec<String>,
    /// The revocation list, which nodes need again.
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

/// An authority, and the certificates that it issued.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Shown {
    /// Its name.
    pub name: String,
    /// When its certificate expires, seconds since 1970.
    pub not_after: u64,
    /// The certificates that it issued.
    pub certificates: Vec<Certificate>,
}

/// A certificate that an authority has issued.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Certificate {
    /// Its serial number.
    pub serial: String,
    /// Its identity: `host:NAME` or `user:NAME`.
    pub identity: String,
    /// The node whose key it certifies, if that was given.
    pub node: Option<String>,
    /// When it expires, seconds since 1970.
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
