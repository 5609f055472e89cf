//! Prints the news that only operations on fields have.

use std::fmt::Display;

use crate::report::{Reporter, fields_of};

/// Prints news of an operation on fields: an event for programs, a note or a progress line for people.
pub(super) fn report_news(
    stage: &'static str,
    news: &(impl serde::Serialize + Display),
    reporter: &mut Reporter,
) {
    let (fields, text) = (fields_of(news), news.to_string());
    let name = fields.get("event").and_then(serde_json::Value::as_str).unwrap_or_default().to_owned();
    match name.as_str() {
        _ if reporter.is_json() => reporter.happened(&name, fields),
        "session" => reporter.note(&text),
        "step" => {}
        _ => reporter.advance_in_words(&format!("{stage}: {text}")),
    }
}
