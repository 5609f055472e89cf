//! Errors with their causes, on one line.

use std::error::Error;

/// An error and what caused it: `cannot read the key k: permission denied`. A cause that has been said is not said again.
#[must_use]
pub fn with_causes(error: &dyn Error) -> String {
    let (mut text, mut next) = (error.to_string(), error.source());
    while let Some(cause) = next {
        let said = cause.to_string();
        if !text.contains(&said) {
            text = format!("{text}: {said}");
        }
        next = cause.source();
    }
    text
}
