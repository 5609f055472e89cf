//! Events of `field sync`.

use std::fmt;
use std::net::SocketAddr;

use schemars::JsonSchema;
use serde::Serialize;
use tidecast_text::count;

/// An event of `field sync`.
pub type Event = crate::Event<Started, Done, News>;

/// Senders are about to be told.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Started {
    /// The command: `field sync`.
    pub command: &'static str,
    /// The senders.
    pub to: Vec<SocketAddr>,
    /// Seconds between two steps.
    pub every: f64,
}

/// What only `field sync` tells.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "event", rename_all = "lowercase")]
#[non_exhaustive]
pub enum News {
    /// Senders were told to go on.
    Go(Go),
}

impl fmt::Display for News {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self::Go(Go { batch }) = self;
        write!(f, "step {batch}")
    }
}

/// Senders were told to go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Go {
    /// To which step, as counted since they began.
    pub batch: u32,
}

/// All steps were told, or it was stopped.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Done {
    /// Seconds since the start.
    pub seconds: f64,
    /// How often senders were told.
    pub goes: u64,
    /// Senders. Not in JSON lines.
    #[serde(skip)]
    pub senders: usize,
}

impl fmt::Display for Done {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (senders, times) = (count(self.senders as u64, "sender"), count(self.goes, "time"));
        write!(f, "{senders} told to go on, {times}")
    }
}
