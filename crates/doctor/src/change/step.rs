//! One change of one target.

use super::target::{Target, Value};

/// One change that would be made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// What is changed.
    pub target: Target,
    /// Its value before.
    pub before: Value,
    /// Its value after.
    pub after: Value,
}
