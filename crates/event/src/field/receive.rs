//! Events of `field recv`. Rates are bits per second.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tidecast_text::{Rate, count};

use super::percent;
use crate::{round, rounded};

/// An event of `field recv`.
pub type Event = crate::Event<Started, Done, News>;

/// The ports are open.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Started {
    /// The command: `field recv`.
    pub command: &'static str,
    /// The address of the first stream.
    pub address: SocketAddr,
    /// The UDP port of each stream.
    pub ports: Vec<u16>,
    /// The maximum number of streams.
    pub streams: u32,
    /// Name of the shared memory.
    pub name: String,
    /// The command for the sending host; null if the sender is another program (`--packing`).
    pub send: Option<String>,
    /// The key file on the sending host, as `send` names it. Not in JSON lines.
    #[serde(skip)]
    pub key_file: Option<PathBuf>,
}

impl Started {
    /// Lines for people, printed before `send`.
    #[must_use]
    pub fn notes(&self) -> Vec<String> {
        let (ip, first) = (self.address.ip(), self.address.port());
        let mut notes = vec![match self.ports.as_slice() {
            [_, .., last] => format!("listening on UDP ports {first} to {last} of {ip}, one for each stream"),
            _ => format!("listening on UDP port {first} of {ip}"),
        }];
        if self.send.is_some() {
            let key = self.key_file.as_ref().map_or(String::new(), |file| {
                format!("; {}: a copy of this host's key there, with mode 0600 (scp -p)", file.display())
            });
            notes.push(format!("run this command on the sending host (SOURCE: a file of the field{key}):"));
        }
        notes
    }
}

/// Events that only `field recv` has.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "event", rename_all = "lowercase")]
#[non_exhaustive]
pub enum News {
    /// A new session replaces the former one.
    Session(Session),
    /// A step was closed.
    Step(Step),
    /// Progress of the newest step.
    Progress(Progress),
}

impl fmt::Display for News {
    /// Empty for a step, which the next progress covers.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Session(Session { title, shape, here, file, .. }) => {
                let title = if title.is_empty() { String::new() } else { format!("{title}, ") };
                let (streams, file) = (count((*here).into(), "stream"), file.display());
                write!(f, "receiving {title}{shape} values, {streams}, into {file}")
            }
            Self::Step(_) => Ok(()),
            Self::Progress(now) => {
                let filled = now.done as f64 * 100.0 / now.of.max(1) as f64;
                let (step, loss, rate) = (now.step, percent(now.loss), Rate(now.rate));
                write!(f, "step {step}: {filled:.1}%, loss of the last {loss}, {rate}")
            }
        }
    }
}

/// A new session replaces the former one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Session {
    /// The sender's title of the field.
    pub title: String,
    /// Values along x, y and z: `256,256,256`.
    pub shape: String,
    /// Streams of all receivers.
    pub streams: u32,
    /// The first stream of this receiver.
    pub first: u32,
    /// Number of streams of this receiver.
    pub here: u32,
    /// The rate that the sender announces, bits per second; 0: not announced.
    pub rate: u64,
    /// The shared memory.
    pub file: PathBuf,
}

/// A step was closed.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Step {
    /// The counts of the step.
    #[serde(flatten)]
    pub closed: Closed,
    /// Its rate, bits per second.
    pub rate: u64,
}

impl From<Closed> for Step {
    fn from(closed: Closed) -> Self {
        let rate = (closed.bytes as f64 * 8.0 / closed.seconds.max(1e-6)).round() as u64;
        Self { closed: Closed { seconds: round(closed.seconds), ..closed }, rate }
    }
}

/// The counts of a closed step.
#[derive(Debug, Clone, Default, PartialEq, Serialize, JsonSchema)]
pub struct Closed {
    /// The step's number in the source.
    pub step: u64,
    /// The step's number since the sender started.
    pub batch: u32,
    /// Packets of the step for this receiver.
    pub expected: u64,
    /// Packets received.
    pub received: u64,
    /// Packets recovered by parity.
    pub recovered: u64,
    /// Values missing.
    pub missing: u64,
    /// Values of the step for this receiver.
    pub values: u64,
    /// Bytes of its datagrams, without duplicates.
    pub bytes: u64,
    /// Seconds from its first packet to its end.
    pub seconds: f64,
    /// Whether it was shown to readers.
    pub shown: bool,
    /// Each stream with missing packets.
    pub losses: Vec<Loss>,
}

/// The loss of one stream in a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Loss {
    /// The stream's number.
    pub stream: u32,
    /// Packets of its slab.
    pub expected: u64,
    /// Packets received.
    pub received: u64,
    /// Packets recovered by parity.
    pub recovered: u64,
}

/// Progress of the newest step.
#[derive(Debug, Clone, Default, PartialEq, Serialize, JsonSchema)]
pub struct Progress {
    /// Seconds since the start.
    #[serde(serialize_with = "rounded")]
    pub seconds: f64,
    /// What is being done: `recv`.
    pub stage: &'static str,
    /// Parts of the step received.
    pub done: u64,
    /// Parts of the step.
    pub of: u64,
    /// Bytes received so far, of all steps.
    pub received: u64,
    /// The step's number. Not in JSON lines.
    #[serde(skip)]
    pub step: u64,
    /// The share of packets of the last step that were lost. Not in JSON lines.
    #[serde(skip)]
    pub loss: f64,
    /// The rate over the last second, bits per second. Not in JSON lines.
    #[serde(skip)]
    pub rate: u64,
}

/// It was stopped, or `--steps` steps have arrived. If not all of them could be recorded the operation fails, and these
/// fields are in its `error` event.
#[derive(Debug, Clone, Default, PartialEq, Serialize, JsonSchema)]
pub struct Done {
    /// Seconds since the start.
    pub seconds: f64,
    /// The totals of all streams.
    #[serde(flatten)]
    pub received: Received,
}

/// The totals of all streams.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Received {
    /// Steps closed.
    pub steps: u64,
    /// Packets received.
    pub packets: u64,
    /// Packets lost.
    pub lost: u64,
    /// Lost packets recovered by parity.
    pub recovered: u64,
    /// The totals of each stream.
    pub streams: Vec<Total>,
    /// Steps recorded, with `--record`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub recorded: Option<u64>,
    /// Steps that were not recorded, because later steps came before they were copied.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub skipped: Option<u64>,
    /// Settings of this host that cost more than 5% of its link, by the names of the checks of `tidecast doctor`; looked at
    /// only where more than 0.1% of the packets were lost.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub host_limits: Vec<String>,
    /// The directory of the recording. Not in JSON lines.
    #[serde(skip)]
    pub record: Option<PathBuf>,
}

impl Received {
    /// Lines for people.
    #[must_use]
    pub fn lines(&self) -> Vec<String> {
        let sum = |of: fn(&Total) -> u64| self.streams.iter().map(of).sum::<u64>();
        let mut lines = vec![format!(
            "{}, {}; {} lost, of which {} recovered; {} duplicate, {} of an old step, {} rejected, {} reordered",
            count(self.steps, "step"),
            count(self.packets, "packet"),
            self.lost,
            self.recovered,
            sum(|t| t.duplicate),
            sum(|t| t.stale),
            sum(|t| t.rejected),
            sum(|t| t.reordered)
        )];
        for (stream, total) in self.streams.iter().enumerate().filter(|(_, total)| total.lost > 0) {
            let (lost, recovered) = (total.lost, total.recovered);
            let share = percent(lost as f64 / (total.packets + lost) as f64);
            lines.push(format!("stream {stream}: {lost} lost ({share}), {recovered} recovered"));
        }
        if let (Some(recorded), Some(dir)) = (self.recorded, &self.record) {
            let slow = match self.skipped.unwrap_or_default() {
                0 => String::new(),
                skipped => format!("; {skipped} not recorded: later steps came before they were copied"),
            };
            lines.push(format!("{} recorded in {}{slow}", count(recorded, "step"), dir.display()));
        }
        lines.extend(crate::texts::host_limits(&self.host_limits, "field"));
        lines
    }
}

/// The totals of one stream. Unless stated otherwise, packets are authenticated packets of values.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Total {
    /// Packets of values and parity, including duplicates and packets of an old step.
    pub packets: u64,
    /// Bytes of these packets.
    pub bytes: u64,
    /// Packets of closed steps that did not arrive.
    pub lost: u64,
    /// Lost packets recovered by parity.
    pub recovered: u64,
    /// Packets received twice.
    pub duplicate: u64,
    /// Packets of a step that was already closed.
    pub stale: u64,
    /// Datagrams rejected: bad tag, malformed, truncated, or of another session.
    pub rejected: u64,
    /// Packets that arrived after a later one.
    pub reordered: u64,
    /// Steps of this slab that were complete when they closed.
    pub complete: u64,
    /// Steps of this slab that were incomplete when they closed.
    pub incomplete: u64,
}
