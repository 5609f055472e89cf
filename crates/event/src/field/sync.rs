//! Events of `field sync`.

use std::fmt;
use std::net::SocketAddr;

use schemars::JsonSchema;
use serde::Serialize;
use tidecast_text::count;

/// An event of `field sync`.
pub type Event = crate::Event<Started, Done, News>;

/// The controller is about to command senders.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Started {
    /// The command: `field sync`.
    pub command: &'static str,
    /// The senders.
    pub to: Vec<SocketAddr>,
    /// Seconds between two steps.
    pub every: f64,
}

/// Events that only `field sync` has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "event", rename_all = "lowercase")]
#[non_exhaustive]
pub enum News {
    /// Senders were commanded to begin a step.
    Go(Go),
}

impl fmt::Display for News {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self::Go(Go { batch }) = self;
        write!(f, "step {batch}")
    }
}

/// Senders were commanded to begin a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Go {
    /// The step, counted since the senders started.
    pub batch: u32,
}

/// All steps were commanded, or the controller was stopped.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Done {
    /// Seconds since the start.
    pub seconds: f64,
    /// Number of commands.
    pub goes: u64,
    /// Number of senders. Not in JSON lines.
    #[serde(skip)]
    pub senders: usize,
}

impl fmt::Display for Done {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (senders, commands) = (count(self.senders as u64, "sender"), count(self.goes, "step command"));
        write!(f, "{commands} sent to {senders}, which do not acknowledge them")
    }
}
