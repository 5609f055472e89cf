//! How a command ends when it does not succeed: the exit code and what to say.

use serde_json::{Map, Value};
use tidecast::{Kind, Reached};

use crate::fields::fields_of;

/// Exit codes, as promised in `--help` and the manual page. 0 is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Code {
    /// The data or the peer is at fault.
    Fault = 1,
    /// The command line or the configuration is.
    Usage = 2,
    /// Timed out or cut off.
    Cut = 3,
}

impl Code {
    /// What another process of this program has ended with, or said that it will; anything else is its fault.
    pub(crate) fn of_exit(code: u64) -> Self {
        match code {
            2 => Self::Usage,
            3 => Self::Cut,
            _ => Self::Fault,
        }
    }

    /// Its name in JSON.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Fault => "fault",
            Self::Usage => "usage",
            Self::Cut => "cut off",
        }
    }
}

/// A failed command.
#[derive(Debug)]
pub(crate) struct Failure {
    /// The exit code.
    pub(crate) code: Code,
    /// What happened, to what, and what to do.
    pub(crate) error: anyhow::Error,
    /// Fields for the JSON event: totals and the like.
    pub(crate) fields: Map<String, Value>,
}

/// The end of a command: fields for the JSON event `done`, or a failure.
pub(crate) type Outcome = Result<Map<String, Value>, Failure>;

impl Failure {
    pub(crate) fn usage(error: impl Into<anyhow::Error>) -> Self {
        Self::new(Code::Usage, error)
    }

    pub(crate) fn cut(why: &'static str) -> Self {
        Self::new(Code::Cut, anyhow::Error::msg(why))
    }

    pub(crate) fn new(code: Code, error: impl Into<anyhow::Error>) -> Self {
        Self { code, error: error.into(), fields: Map::new() }
    }

    /// How far an operation of the library came.
    pub(crate) fn reached(&self) -> Option<&Reached> {
        self.error.downcast_ref::<tidecast::Error>()?.reached()
    }

    /// Adds the totals that a failed run still reached.
    pub(crate) fn with(mut self, fields: Map<String, Value>) -> Self {
        self.fields = fields;
        self
    }
}

impl<E: Into<anyhow::Error>> From<E> for Failure {
    /// An error of the library brings its code and what was reached.
    fn from(error: E) -> Self {
        let error = match error.into().downcast::<tidecast::Error>() {
            Ok(own) => own,
            Err(other) => return Self::new(Code::Fault, other),
        };
        let code = match error.kind() {
            Kind::Fault => Code::Fault,
            Kind::Usage => Code::Usage,
            Kind::Cut => Code::Cut,
        };
        let fields = error.reached().map(fields_of).unwrap_or_default();
        Self::new(code, error).with(fields)
    }
}
