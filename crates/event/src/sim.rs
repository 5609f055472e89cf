//! Events of `sim`.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;

/// An event of `sim`.
pub type Event = crate::Event<Started, Done>;

/// An event of `sim --seeds`.
pub type SoakEvent = crate::Event<SoakStarted, Soaked>;

/// The simulation begins.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Started {
    /// The command: `sim`.
    pub command: &'static str,
    /// The cluster, as it was asked for.
    pub topology: String,
    /// Its nodes, the origin among them.
    pub nodes: u32,
    /// Bytes that are broadcast.
    pub total: u64,
    /// Bytes of a piece.
    pub piece_size: u32,
    /// The ways that are simulated, in order.
    pub algorithms: Vec<String>,
    /// What goes wrong.
    pub faults: Vec<String>,
    /// The seed.
    pub seed: u64,
    /// What is good to know of it, for people. Not in JSON lines.
    #[serde(skip)]
    pub notes: Vec<String>,
}

/// What runs in a simulation.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Running {
    /// Its name; of many runs, how many they are.
    pub run: String,
    /// Seconds that it has simulated.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub simulated_seconds: Option<f64>,
}

/// Every way has run.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Done {
    /// Seconds since the start, of real time.
    pub seconds: f64,
    /// The time that no program beats.
    pub bound: Bound,
    /// Each way.
    pub runs: Vec<Run>,
    /// The same for people: a table, and what explains it. Not in JSON lines.
    #[serde(skip)]
    pub table: Vec<String>,
    /// The picture (SVG), if it was asked for. Not in JSON lines.
    #[serde(skip)]
    pub plot: Option<String>,
}

/// The time that no broadcast beats.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Bound {
    /// Seconds.
    pub seconds: f64,
    /// What sets it.
    pub limit: String,
    /// The simple bound: by the slowest link of a node alone, the origin's or a receiver's.
    pub simple_seconds: f64,
    /// ForestColl's bound: by the minimum cut of the network between the origin and any receiver. Null where the
    /// search for it took too long.
    pub cut_seconds: Option<f64>,
}

/// One way's run: its figures, and what they were made of.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Run {
    /// Its name.
    pub algorithm: String,
    /// Its figures.
    #[serde(flatten)]
    pub figures: Figures,
    /// Payload that the origin sent, bytes.
    pub origin_sent: u64,
    /// Messages other than payload, bytes, over all nodes.
    pub control_bytes: u64,
    /// Payload received twice, bytes, over all nodes.
    pub duplicate_bytes: u64,
    /// Simulated time at the end, seconds.
    pub ended: f64,
    /// Events simulated.
    pub events: u64,
    /// Hash of everything that happened, in order.
    pub trace: String,
    /// Every direction of a link, then the origin's wire; every node's where there are few.
    pub ports: Vec<Port>,
    /// When each receiver was complete, seconds; null where it never was.
    pub finished: Vec<Option<f64>>,
}

/// One way's figures. Times are those of receivers that are waited for: all but the ones that faults took away before they
/// were complete. One that was never reached is null.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Figures {
    /// Receivers that were waited for.
    pub receivers: u32,
    /// Of those, complete at the end.
    pub complete: u32,
    /// Receivers that faults took away for good.
    pub lost: u32,
    /// When half of the receivers were complete, seconds.
    pub median: Option<f64>,
    /// When 99 in 100 were.
    pub p99: Option<f64>,
    /// When all were.
    pub last: Option<f64>,
    /// The bound over `last`: 1 is as fast as physics allows.
    pub efficiency: Option<f64>,
    /// Payload that left the origin, in copies.
    pub origin_copies: f64,
    /// What crossed the narrowest link in its busier direction; none where there is no link.
    pub narrowest: Option<Crossing>,
    /// Payload received twice, as a share of what had to be received.
    pub duplicates: f64,
    /// Messages other than payload, likewise.
    pub control: f64,
}

/// Traffic over one direction of one wire.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Crossing {
    /// Its name.
    pub link: String,
    /// Bytes on the wire.
    pub bytes: u64,
    /// The same in copies of the payload, headers taken off.
    pub copies: f64,
    /// Share of its capacity that was used, until the last receiver was complete.
    pub load: f64,
}

/// Bytes over one direction of one wire.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Port {
    /// `n3 out`, `n3 in`, `s0-s1`.
    pub name: String,
    /// Bytes on the wire, headers included.
    pub bytes: u64,
    /// Bytes per second that it can carry.
    pub rate: u64,
}

/// A cluster as the text of a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Topology {
    /// Its nodes, the origin among them.
    pub nodes: u32,
    /// The text.
    pub topology: String,
}

/// Runs of random clusters begin.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct SoakStarted {
    /// The command: `sim`.
    pub command: &'static str,
    /// The seed of the first one.
    pub first_seed: u64,
    /// Runs at a time.
    pub threads: usize,
}

/// Runs of random clusters. Where one has broken a rule the operation fails, and these fields are in its `error` event.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct Soaked {
    /// Seconds since the start, of real time.
    pub seconds: f64,
    /// Runs that are over.
    pub runs: u64,
    /// Events that engines handled in them.
    pub events: u64,
    /// Payload that was delivered, bytes.
    pub delivered: u64,
    /// Runs that met each kind of fault, or were of each kind.
    pub met: BTreeMap<&'static str, u64>,
    /// Runs that broke a rule.
    pub failures: Vec<Broken>,
    /// The same for people. Not in JSON lines.
    #[serde(skip)]
    pub text: String,
}

/// A run that broke a rule.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Broken {
    /// Its seed.
    pub seed: u64,
    /// Which rule, and what was seen.
    pub what: String,
    /// The cluster and its faults in words.
    pub scenario: String,
}
