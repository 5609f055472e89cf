//! Results of `classad`.

use schemars::JsonSchema;
use serde::Serialize;

/// The values of expressions.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Evaluated {
    /// The value of each expression, in order.
    pub results: Vec<Evaluation>,
}

/// The value of one expression.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Evaluation {
    /// The expression.
    pub expr: String,
    /// Its value, as ClassAds write it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
    /// The type of the value: `undefined`, `error`, `boolean`, `integer`, `real`, `string`, `abstime`, `reltime`, `list` or
    /// `classad`.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    pub kind: Option<&'static str>,
    /// Why there is no value.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// Whether two ads match. If they do not the operation fails, and these fields are in its `error` event.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Matched {
    /// The first ad, evaluated against the second.
    pub a: Side,
    /// The second ad, evaluated against the first.
    pub b: Side,
    /// The two ads match.
    #[serde(rename = "match")]
    pub matched: bool,
}

/// One ad, evaluated against the other.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Side {
    /// The value of its `Requirements`.
    pub requirements: String,
    /// The value of its `Rank`.
    pub rank: f64,
}
