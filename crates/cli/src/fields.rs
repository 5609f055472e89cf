//! Fields of JSON objects.

use serde_json::{Map, Value};

/// Rounds to milliseconds, which keeps lines short.
pub(crate) fn round(seconds: f64) -> f64 {
    (seconds * 1000.0).round() / 1000.0
}

/// The fields of a type of the library.
pub(crate) fn fields_of(of: &impl serde::Serialize) -> Map<String, Value> {
    serde_json::to_value(of).map(object).unwrap_or_default()
}

/// The fields of a JSON object.
pub(crate) fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(map) => map,
        other => Map::from_iter([("value".to_owned(), other)]),
    }
}
