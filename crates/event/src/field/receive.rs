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
    /// Where the first stream comes in.
    pub address: SocketAddr,
    /// The UDP port of each stream.
    pub ports: Vec<u16>,
    /// Streams at most.
    pub streams: u32,
    /// Name of the shared memory.
    pub name: String,
    /// What to run at the other side; null where no sender of Tidecast is expected.
    pub send: Option<String>,
    /// The file that has the key there, as `send` names it. Not in JSON lines.
    #[serde(skip)]
    pub key_file: Option<PathBuf>,
}

impl Started {
    /// What people are told, a line each, before `send`.
    #[must_use]
    pub fn notes(&self) -> Vec<String> {
        let (ip, first) = (self.address.ip(), self.address.port());
        let mut notes = vec![match self.ports.as_slice() {
            [_, .., last] => format!("listening at UDP ports {first} to {last} of {ip}, one for each stream"),
            _ => format!("listening at UDP port {first} of {ip}"),
        }];
        if self.send.is_some() {
            let key = self.key_file.as_ref().map_or(String::new(), |file| {
                format!("; {}: a file of mode 0600 there that has the key", file.display())
            });
            notes.push(format!("to send here, run at the other side (SOURCE: a file of the field{key}):"));
        }
        notes
    }
}

/// What only `field recv` tells.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "event", rename_all = "lowercase")]
#[non_exhaustive]
pub enum News {
    /// Another session counts from now on.
    Session(Session),
    /// A step is over.
    Step(Step),
    /// How far the newest step is.
    Progress(Progress),
}

impl fmt::Display for News {
    /// Of a step nothing: the next progress tells of it.
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

/// Another session counts from now on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Session {
    /// What the sender calls it.
    pub title: String,
    /// Values along x, y and z: `256,256,256`.
    pub shape: String,
    /// Streams in all.
    pub streams: u32,
    /// The first one that comes here.
    pub first: u32,
    /// How many come here.
    pub here: u32,
    /// The rate that the sender says, bits per second; 0: it says none.
    pub rate: u64,
    /// The shared memory.
    pub file: PathBuf,
}

/// A step is over.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Step {
    /// What came of it.
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

/// A step that is over.
#[derive(Debug, Clone, Default, PartialEq, Serialize, JsonSchema)]
pub struct Closed {
    /// The source's number of it.
    pub step: u64,
    /// Which sending.
    pub batch: u32,
    /// Packets that it has here.
    pub expected: u64,
    /// Packets that came.
    pub received: u64,
    /// Packets that parity has brought back.
    pub recovered: u64,
    /// Values that have not come.
    pub missing: u64,
    /// Values that it has here.
    pub values: u64,
    /// Bytes of its datagrams, without those that had come before.
    pub bytes: u64,
    /// Seconds from its first packet to its end.
    pub seconds: f64,
    /// Whether readers see it.
    pub shown: bool,
    /// Each stream of which something is missing.
    pub losses: Vec<Loss>,
}

/// What one stream lacks of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Loss {
    /// The stream's number.
    pub stream: u32,
    /// Packets that its slab has.
    pub expected: u64,
    /// Packets that came.
    pub received: u64,
    /// Packets that parity has brought back.
    pub recovered: u64,
}

/// How far the newest step is.
#[derive(Debug, Clone, Default, PartialEq, Serialize, JsonSchema)]
pub struct Progress {
    /// Seconds since the start.
    #[serde(serialize_with = "rounded")]
    pub seconds: f64,
    /// What is being done: `recv`.
    pub stage: &'static str,
    /// Parts of the step that have come.
    pub done: u64,
    /// Parts that it has.
    pub of: u64,
    /// Bytes received so far, of all steps.
    pub received: u64,
    /// The step's number. Not in JSON lines.
    #[serde(skip)]
    pub step: u64,
    /// The share of packets that was lost of the last step. Not in JSON lines.
    #[serde(skip)]
    pub loss: f64,
    /// The rate over the last second, bits per second. Not in JSON lines.
    #[serde(skip)]
    pub rate: u64,
}

/// It was stopped, or all steps that were asked for have come. If it could not record all of them the operation fails, and these
/// fields are in its `error` event.
#[derive(Debug, Clone, Default, PartialEq, Serialize, JsonSchema)]
pub struct Done {
    /// Seconds since the start.
    pub seconds: f64,
    /// What came.
    #[serde(flatten)]
    pub received: Received,
}

/// What came.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Received {
    /// Steps that are over.
    pub steps: u64,
    /// Packets that came.
    pub packets: u64,
    /// Packets that did not.
    pub lost: u64,
    /// How many of these parity has brought back.
    pub recovered: u64,
    /// What came by each stream.
    pub streams: Vec<Total>,
    /// Steps recorded, where steps are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub recorded: Option<u64>,
    /// Steps that were not recorded because the disk was too slow.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub skipped: Option<u64>,
    /// Where steps are recorded. Not in JSON lines.
    #[serde(skip)]
    pub record: Option<PathBuf>,
}

impl Received {
    /// What people are told, a line each.
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
                skipped => format!("; {skipped} were not, for want of time"),
            };
            lines.push(format!("{} recorded in {}{slow}", count(recorded, "step"), dir.display()));
        }
        lines
    }
}

/// What one stream has had in all. Packets are those of values that were believed, unless said otherwise.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Total {
    /// Packets of values and parity, and duplicates and those of an old step among them.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Packets of closed steps that have not come.
    pub lost: u64,
    /// How many of these parity has brought back.
    pub recovered: u64,
    /// Packets that had come before.
    pub duplicate: u64,
    /// Packets of a step that was closed already.
    pub stale: u64,
    /// Datagrams with a bad tag, garbage, cut short, of another session.
    pub rejected: u64,
    /// Packets that came behind a later one.
    pub reordered: u64,
    /// Steps of this slab that were complete when they closed.
    pub complete: u64,
    /// Steps of this slab that were not.
    pub incomplete: u64,
}
