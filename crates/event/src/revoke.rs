//! What `revoke` gives.

use schemars::JsonSchema;
use serde::Serialize;

/// The ticket is revoked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Done {
    /// Its number.
    pub ticket: String,
    /// Tickets that this node has revoked, in all.
    pub revoked: usize,
}
