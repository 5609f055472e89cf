//! What a check says.

use std::time::Duration;

use crate::Change;

/// What the host is checked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Purpose {
    /// Two-ended copies over long distances.
    Copy,
    /// Broadcasts to many hosts.
    Bcast,
    /// Fields over UDP.
    Field,
    /// Mounts.
    Mount,
    /// The daemon of caches.
    Daemon,
}

/// The link and the purpose that settings are judged against.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Goal {
    /// The purposes to check for.
    pub purposes: Vec<Purpose>,
    /// Rate of the link, bits per second.
    pub link: u64,
    /// Round-trip time of the path.
    pub rtt: Duration,
}

/// The outcome of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// The setting does not limit the goal.
    Fit,
    /// The setting costs throughput, CPU or safety; [`Finding::cost`] says how much where a model exists.
    Costs,
    /// Worth knowing; sources disagree or nothing is lost now.
    Note,
    /// The value cannot be read on this host; [`Finding::why`] says why.
    Unknown,
}

/// The result of one check on one object.
#[derive(Debug, Clone, PartialEq)]
pub struct Finding {
    /// Stable name of the check, such as `tcp-receive-buffer`.
    pub check: &'static str,
    /// What was checked: an interface, a CPU, a directory; empty for the host.
    pub object: String,
    /// Its outcome.
    pub verdict: Verdict,
    /// The value read, for people.
    pub read: String,
    /// The value wanted for this goal, for people.
    pub wanted: String,
    /// Why it matters here: one sentence.
    pub why: String,
    /// Where the advice comes from: paper section, manual or page.
    pub source: &'static str,
    /// Share of the link's rate that is lost, 0 to 1, by the model named in [`Finding::model`].
    pub cost: Option<f64>,
    /// The model behind `cost`, with its numbers: "6 MB of buffer / 50 ms = 0.96 Gbit/s of 10 Gbit/s".
    pub model: String,
    /// The rate measured with only this setting changed, bits per second before and after; by `--measure`.
    pub measured: Option<(f64, f64)>,
    /// How to mend it, in order.
    pub changes: Vec<Change>,
}
