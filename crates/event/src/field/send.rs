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
    /// What the source is called.
    pub name: String,
    /// Values along x, y and z.
    pub shape: [u32; 3],
    /// Steps of the source; null if they have no end.
    pub steps: Option<u64>,
    /// Streams in use: at most one for each plane.
    pub streams: u32,
    /// The receivers.
    pub to: Vec<SocketAddr>,
    /// The rate to keep to, bits per second; null: as much as arrives.
    pub rate: Option<u64>,
    /// Streams that were asked for. Not in JSON lines.
    #[serde(skip)]
    pub asked: u32,
}

impl Started {
    /// What people are told, a line each.
    #[must_use]
    pub fn notes(&self) -> Vec<String> {
        let [nx, ny, nz] = self.shape;
        let size = Size(self.shape.iter().map(|side| u64::from(*side)).product::<u64>() * 4);
        let many = self.steps.map_or("steps without end".into(), |steps| count(steps, "step"));
        let mut notes = vec![format!("{} of {nx} x {ny} x {nz}, {many} of {size}", self.name)];
        if self.streams < self.asked {
            let (planes, used) = (count(nz.into(), "plane"), count(self.streams.into(), "stream"));
            let asked = self.asked;
            notes.push(format!(
                "{planes} go by {used}: of --streams {asked} the others have nothing to carry"
            ));
        }
        notes
    }
}

/// What only `field send` tells.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "event", rename_all = "lowercase")]
#[non_exhaustive]
pub enum News {
    /// How far it is.
    Progress(Progress),
}

impl fmt::Display for News {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self::Progress(now) = self;
        if now.seconds == 0.0 {
            let (accepted, streams) = (now.accepted, now.streams);
            return write!(f, "waiting for receivers, {accepted} of {streams} streams are taken");
        }
        let loss = match now.accepted {
            0 => "no receiver".into(),
            _ => format!("{} lost", percent(now.loss)),
        };
        write!(f, "step {}, {} of {} asked, {loss}", now.step, Rate(now.rate as u64), Rate(now.asked))
    }
}

/// How far it is, four times a second.
#[derive(Debug, Clone, Default, PartialEq, Serialize, JsonSchema)]
pub struct Progress {
    /// The step under way.
    pub step: u64,
    /// Steps begun so far, those that came again included.
    pub batch: u32,
    /// Steps sent to their end.
    pub steps: u64,
    /// Bytes of datagrams sent.
    pub bytes: u64,
    /// Packets sent.
    pub packets: u64,
    /// The rate since the last event, bits per second.
    pub rate: f64,
    /// The rate that is kept to, bits per second.
    pub asked: u64,
    /// Streams that a receiver takes.
    pub accepted: usize,
    /// Streams in use.
    pub streams: usize,
    /// Packets that receivers have received.
    pub received: u64,
    /// Packets that they have not.
    pub lost: u64,
    /// Seconds since packets may go; 0 while receivers are waited for. Not in JSON lines.
    #[serde(skip)]
    pub seconds: f64,
    /// The share of packets that is lost. Not in JSON lines.
    #[serde(skip)]
    pub loss: f64,
}

/// All was sent. If receivers did not take it the operation fails, and these fields are in its `error` event.
#[derive(Debug, Clone, Default, PartialEq, Serialize, JsonSchema)]
pub struct Done {
    /// Seconds since the start.
    pub seconds: f64,
    /// What was sent.
    #[serde(flatten)]
    pub sent: Sent,
}

/// What was sent.
#[derive(Debug, Clone, Default, PartialEq, Serialize, JsonSchema)]
pub struct Sent {
    /// Steps sent to their end.
    pub steps: u64,
    /// Bytes of datagrams sent.
    pub bytes: u64,
    /// Packets sent.
    pub packets: u64,
    /// Seconds since packets could go.
    #[serde(serialize_with = "rounded")]
    pub sending_seconds: f64,
    /// The mean rate, bits per second.
    pub rate: f64,
    /// The rate that was asked for, bits per second; null: as much as arrives.
    pub asked: Option<u64>,
    /// Packets that receivers have received.
    pub received: u64,
    /// Packets that they have not.
    pub lost: u64,
    /// The share of packets that is lost, from 0 to 1.
    pub loss: f64,
    /// Bytes of a full datagram.
    pub datagram: usize,
    /// Streams that a receiver took.
    pub accepted: usize,
    /// Streams in use.
    pub streams: usize,
}

impl fmt::Display for Sent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let asked = self.asked.map_or("auto".into(), |rate| Rate(rate).to_string());
        let loss = match self.received + self.lost {
            0 => "no receiver has said what came".into(),
            _ => format!("{} lost", percent(self.loss)),
        };
        let (steps, seconds, size) = (count(self.steps, "step"), self.sending_seconds, Size(self.bytes));
        let rate = Rate(self.rate as u64);
        write!(f, "{steps} in {seconds:.2} s: {size} at {rate} (asked: {asked}), {loss}")
    }
}
