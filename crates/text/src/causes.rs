//! Errors with their causes, on one line.

use std::error::Error;

/// An error and what caused it: `cannot read the key k: permission denied`.
#[must_use]
pub fn with_causes(error: &dyn Error) -> String {
    error.source().map_or(error.to_string(), |why| format!("{error}: {}", with_causes(why)))
}
