//! The result of `revoke`.

use schemars::JsonSchema;
use serde::Serialize;

/// The ticket was revoked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Done {
    /// Its number.
    pub ticket: String,
    /// Number of tickets that this node has revoked so far.
    pub revoked: usize,
}
