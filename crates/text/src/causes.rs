//! Errors with their causes, on one line.

use std::error::Error;

/// An error and its causes: `cannot read the key k: permission denied`. A cause that the text already contains is left out.
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
