//! Events of `field send`. Rates are bits per second of UDP payload.

use std::fmt;
use std::net::SocketAddr;

use schemars::JsonSchema;
use serde::Serialize;
use tidecast_text::{Rate, Size, count};

use super::percent;
use crate::rounded;

/// An event of `field send`.
pub type Event = crate::Event<Started, Done, News>;

/// Steps are about to be sent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Started {
    /// The command: `field send`.
    pub command: &'static str,
    /// The name of the source.
    pub name: String,
    /// Values along x, y and z.
    pub shape: [u32; 3],
    /// Steps of the source; null if unlimited.
    pub steps: Option<u64>,
    /// Streams in use: at most one for each plane.
    pub streams: u32,
    /// The receivers.
    pub to: Vec<SocketAddr>,
    /// The rate limit, bits per second; null: as much as arrives.
    pub rate: Option<u64>,
    /// Streams requested by `--streams`. Not in JSON lines.
    #[serde(skip)]
    pub asked: u32,
}

impl Started {
    /// Lines for people.
    #[must_use]
    pub fn notes(&self) -> Vec<String> {
        let [nx, ny, nz] = self.shape;
        let size = Size(self.shape.iter().map(|side| u64::from(*side)).product::<u64>() * 4);
        let many = self.steps.map_or("unlimited steps".into(), |steps| count(steps, "step"));
        let mut notes = vec![format!("{} of {nx} x {ny} x {nz}, {many} of {size}", self.name)];
        if self.streams < self.asked {
            let (planes, used, asked) = (count(nz.into(), "plane"), self.streams, self.asked);
            notes.push(format!("only {used} of --streams {asked} are used: the array has {planes}"));
        }
        notes
    }
}

/// Events that only `field send` has.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "event", rename_all = "lowercase")]
#[non_exhaustive]
pub enum News {
    /// Progress of the sender.
    Progress(Progress),
}

impl fmt::Display for News {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self::Progress(now) = self;
        if now.seconds == 0.0 {
            let (accepted, streams) = (now.accepted, now.streams);
            return write!(f, "waiting for receivers, {accepted} of {streams} streams accepted");
        }
        let loss = match now.accepted {
            0 => "no receiver".into(),
            _ => format!("{} lost", percent(now.loss)),
        };
        write!(f, "step {}, {} of {} asked, {loss}", now.step, Rate(now.rate as u64), Rate(now.asked))
    }
}

/// Progress of the sender, four times per second.
#[derive(Debug, Clone, Default, PartialEq, Serialize, JsonSchema)]
pub struct Progress {
    /// The current step.
    pub step: u64,
    /// Steps begun so far, including repetitions by `--loop`.
    pub batch: u32,
    /// Steps completed.
    pub steps: u64,
    /// Bytes of datagrams sent.
    pub bytes: u64,
    /// Packets sent.
    pub packets: u64,
    /// The rate since the last event, bits per second.
    pub rate: f64,
    /// The rate limit, bits per second.
    pub asked: u64,
    /// Streams accepted by a receiver.
    pub accepted: usize,
    /// Streams in use.
    pub streams: usize,
    /// Packets received by receivers.
    pub received: u64,
    /// Packets lost.
    pub lost: u64,
    /// Seconds since the first packet could be sent; 0 while waiting for receivers. Not in JSON lines.
    #[serde(skip)]
    pub seconds: f64,
    /// The share of packets lost. Not in JSON lines.
    #[serde(skip)]
    pub loss: f64,
}

/// All steps were sent. If no receiver accepted them the operation fails, and these fields are in its `error` event.
#[derive(Debug, Clone, Default, PartialEq, Serialize, JsonSchema)]
pub struct Done {
    /// Seconds since the start.
    pub seconds: f64,
    /// The totals of all streams.
    #[serde(flatten)]
    pub sent: Sent,
}

/// The totals of all streams.
#[derive(Debug, Clone, Default, PartialEq, Serialize, JsonSchema)]
pub struct Sent {
    /// Steps completed.
    pub steps: u64,
    /// Bytes of datagrams sent.
    pub bytes: u64,
    /// Packets sent.
    pub packets: u64,
    /// Seconds since the first packet could be sent.
    #[serde(serialize_with = "rounded")]
    pub sending_seconds: f64,
    /// The mean rate, bits per second.
    pub rate: f64,
    /// The rate limit, bits per second; null: as much as arrives.
    pub asked: Option<u64>,
    /// Packets received by receivers.
    pub received: u64,
    /// Packets lost.
    pub lost: u64,
    /// The share of packets lost, from 0 to 1.
    pub loss: f64,
    /// Bytes of a full datagram.
    pub datagram: usize,
    /// Streams accepted by a receiver.
    pub accepted: usize,
    /// Streams in use.
    pub streams: usize,
}

impl fmt::Display for Sent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let asked = self.asked.map_or("auto".into(), |rate| Rate(rate).to_string());
        let loss = match self.received + self.lost {
            0 => "no report from a receiver".into(),
            _ => format!("{} lost", percent(self.loss)),
        };
        let (steps, seconds, size) = (count(self.steps, "step"), self.sending_seconds, Size(self.bytes));
        let rate = Rate(self.rate as u64);
        write!(f, "{steps} in {seconds:.2} s: {size} at {rate} (asked: {asked}), {loss}")
    }
}
