//! What `classad` says.

use schemars::JsonSchema;
use serde::Serialize;

/// What expressions evaluate to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Evaluated {
    /// Each of them, in order.
    pub results: Vec<Evaluation>,
}

/// What one expression evaluates to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Evaluation {
    /// The expression.
    pub expr: String,
    /// Its value, as ClassAds write it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
    /// What kind of value that is: `undefined`, `error`, `boolean`, `integer`, `real`, `string`, `abstime`, `reltime`, `list` or
    /// `classad`.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    pub kind: Option<&'static str>,
    /// Why there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// Whether two ads suit each other. Where they do not the operation fails, and these fields are in its `error` event.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Matched {
    /// What the first one says of the second.
    pub a: Side,
    /// What the second one says of the first.
    pub b: Side,
    /// They suit each other.
    #[serde(rename = "match")]
    pub matched: bool,
}

/// What one ad says of the other.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Side {
    /// The value of its `Requirements`.
    pub requirements: String,
    /// The value of its `Rank`.
    pub rank: f64,
}
