//! How a command fails: its exit code and its message.

use serde_json::{Map, Value};
use tidecast::event::Reached;
use tidecast::{Kind, PartialResult};

use crate::fields::fields_of;

/// A failed command.
#[derive(Debug)]
pub(crate) struct Failure {
    /// The kind of failure; as a number the exit code that `--help` and the manual page document. 0 is success.
    pub(crate) kind: Kind,
    /// What failed, on which object, why, and what to do.
    pub(crate) error: anyhow::Error,
    /// Fields for the JSON event: totals and the like.
    pub(crate) fields: Map<String, Value>,
}

/// The end of a command: fields for the JSON event `done`, or a failure.
pub(crate) type Outcome = Result<Map<String, Value>, Failure>;

impl Failure {
    pub(crate) fn usage(error: impl Into<anyhow::Error>) -> Self {
        Self::new(Kind::Usage, error)
    }

    pub(crate) fn interrupted(why: &'static str) -> Self {
        Self::new(Kind::Interrupted, anyhow::Error::msg(why))
    }

    pub(crate) fn new(kind: Kind, error: impl Into<anyhow::Error>) -> Self {
        Self { kind, error: error.into(), fields: Map::new() }
    }

    /// The results that an operation of the library had reached when it failed.
    pub(crate) fn partial_result(&self) -> Option<&PartialResult> {
        self.error.downcast_ref::<tidecast::Error>()?.partial_result()
    }

    /// Adds the totals that a failed run still reached.
    pub(crate) fn with(mut self, fields: Map<String, Value>) -> Self {
        self.fields = fields;
        self
    }
}

/// The result of an operation, also where it failed after it had reached one.
pub(crate) fn reached<D: Reached>(ended: &Result<D, Failure>) -> Option<&D> {
    match ended {
        Ok(done) => Some(done),
        Err(failure) => failure.partial_result().and_then(D::of),
    }
}

impl<E: Into<anyhow::Error>> From<E> for Failure {
    /// An error of the library has its kind and the results reached so far.
    fn from(error: E) -> Self {
        let error = match error.into().downcast::<tidecast::Error>() {
            Ok(own) => own,
            Err(other) => return Self::new(Kind::Fault, other),
        };
        let fields = error.partial_result().map(fields_of).unwrap_or_default();
        Self::new(error.kind(), error).with(fields)
    }
}
