//! One event of an operation.

use schemars::JsonSchema;
use serde::Serialize;

use crate::{Error, Phase, Progress, Resumed, Warning, round};

/// An event of an operation that begins with `S` and results in `D`; `N` are the events that only this operation has.
///
/// Serialized, it is a JSON object whose field `event` is the name of the variant; of [`News`](Event::News), that of
/// the news.
#[derive(Debug, Clone, Serialize, JsonSchema)]
#[serde(tag = "event", rename_all = "lowercase")]
#[non_exhaustive]
pub enum Event<S, D, N = NoNews> {
    /// The work has begun. Only warnings about peers that do not answer come before it.
    Started(S),
    /// Progress of hashing existing data.
    Check(Progress),
    /// Progress of the work.
    Progress(Progress),
    /// A problem that does not end the work.
    Warning(Warning),
    /// Data moves again, after a warning that it did not.
    Resumed(Resumed),
    /// A phase of the work begins. Not in JSON lines.
    #[serde(skip)]
    #[schemars(skip)]
    Phase(Phase),
    /// The last event of an operation that succeeded.
    Done(D),
    /// The last event of an operation that failed.
    Error(Failed),
    /// An event that only this operation has.
    #[serde(untagged)]
    News(N),
}

/// The news of an operation without its own events.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
pub enum NoNews {}

/// An operation has failed.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Failed {
    /// The exit code: 1, 2 or 3.
    pub code: u8,
    /// Its name: `fault` (the data, the peer or the host), `usage` (the command line or the configuration) or `cut off`
    /// (timed out or stopped).
    pub kind: &'static str,
    /// What failed, on which object, and what to do.
    pub message: String,
    /// Seconds since the start.
    pub seconds: f64,
}

impl Failed {
    /// The event of an error, `seconds` after the start.
    #[must_use]
    pub fn of(error: &Error, seconds: f64) -> Self {
        let kind = error.kind();
        Self { code: kind as u8, kind: kind.name(), message: error.in_full(), seconds: round(seconds) }
    }
}
