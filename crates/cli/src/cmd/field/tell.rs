//! What only operations on fields tell.

use std::fmt::Display;

use crate::report::{Reporter, fields_of};

/// Says what only operations on fields tell: an event for programs, a note or a state of the work for people.
pub(super) fn tell(stage: &'static str, news: &(impl serde::Serialize + Display), reporter: &mut Reporter) {
    let (fields, text) = (fields_of(news), news.to_string());
    let name = fields.get("event").and_then(serde_json::Value::as_str).unwrap_or_default().to_owned();
    match name.as_str() {
        _ if reporter.is_json() => reporter.happened(&name, fields),
        "session" => reporter.note(&text),
        "step" => {}
        _ => reporter.advance_in_words(&format!("{stage}: {text}")),
    }
}
