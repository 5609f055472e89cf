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
    /// The cluster, as given.
    pub topology: String,
    /// Its nodes, including the origin.
    pub nodes: u32,
    /// Bytes that are broadcast.
    pub total: u64,
    /// Bytes of a piece.
    pub piece_size: u32,
    /// The algorithms that are simulated, in order.
    pub algorithms: Vec<String>,
    /// The faults.
    pub faults: Vec<String>,
    /// The seed.
    pub seed: u64,
    /// Notes on the simulation, for people. Not in JSON lines.
    #[serde(skip)]
    pub notes: Vec<String>,
}

/// The current run of a simulation.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Running {
    /// Its algorithm; of many runs, their number.
    pub run: String,
    /// Simulated time so far, seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub simulated_seconds: Option<f64>,
}

/// All algorithms were simulated.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Done {
    /// Seconds since the start, of real time.
    pub seconds: f64,
    /// The theoretical lower bound.
    pub bound: Bound,
    /// The run of each algorithm.
    pub runs: Vec<Run>,
    /// The results for people: a table with explanations. Not in JSON lines.
    #[serde(skip)]
    pub table: Vec<String>,
    /// The plot (SVG), if requested. Not in JSON lines.
    #[serde(skip)]
    pub plot: Option<String>,
}

/// The theoretical lower bound of the time of a broadcast.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Bound {
    /// Seconds.
    pub seconds: f64,
    /// The part of the network that determines it.
    pub limit: String,
    /// The simple bound: by the slowest link of a node alone, the origin's or a receiver's.
    pub simple_seconds: f64,
    /// ForestColl's bound: by the minimum cut of the network between the origin and any receiver. Null if the search for it
    /// took too long.
    pub cut_seconds: Option<f64>,
}

/// The run of one algorithm: its figures and details.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Run {
    /// The algorithm.
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
    /// Hash of all events, in order.
    pub trace: String,
    /// Every direction of a link, then of the origin's card; in small clusters of every node's card.
    pub ports: Vec<Port>,
    /// When each receiver was complete, seconds; null if it never was.
    pub finished: Vec<Option<f64>>,
}

/// The figures of one algorithm. Times are those of the receivers that count: all except those that faults removed before
/// they were complete. A time that was never reached is null.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Figures {
    /// Receivers that count.
    pub receivers: u32,
    /// Receivers that were complete at the end.
    pub complete: u32,
    /// Receivers that faults removed permanently.
    pub lost: u32,
    /// When half of the receivers were complete, seconds.
    pub median: Option<f64>,
    /// When 99% of the receivers were complete, seconds.
    pub p99: Option<f64>,
    /// When all receivers were complete, seconds.
    pub last: Option<f64>,
    /// The bound divided by `last`: 1 is the theoretical optimum.
    pub efficiency: Option<f64>,
    /// Payload that left the origin, in copies.
    pub origin_copies: f64,
    /// Traffic over the narrowest link in its busier direction; null without links.
    pub narrowest: Option<Crossing>,
    /// Payload received twice, as a share of the payload needed.
    pub duplicates: f64,
    /// Messages other than payload, as a share of the payload needed.
    pub control: f64,
}

/// Traffic over one direction of one link.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Crossing {
    /// Its name.
    pub link: String,
    /// Bytes on the wire.
    pub bytes: u64,
    /// The same in copies of the payload, without headers.
    pub copies: f64,
    /// Share of its capacity that was used, until the last receiver was complete.
    pub load: f64,
}

/// Bytes over one direction of one link.
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
    /// Its nodes, including the origin.
    pub nodes: u32,
    /// The text.
    pub topology: String,
}

/// Runs of random clusters begin.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct SoakStarted {
    /// The command: `sim`.
    pub command: &'static str,
    /// The seed of the first run.
    pub first_seed: u64,
    /// Runs in parallel.
    pub threads: usize,
}

/// Runs of random clusters. If a run breaks a rule the operation fails, and these fields are in its `error` event.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct Soaked {
    /// Seconds since the start, of real time.
    pub seconds: f64,
    /// Runs completed.
    pub runs: u64,
    /// Events that engines handled in these runs.
    pub events: u64,
    /// Payload delivered, bytes.
    pub delivered: u64,
    /// Number of runs with each kind of fault or cluster.
    pub met: BTreeMap<&'static str, u64>,
    /// Runs that broke a rule.
    pub failures: Vec<Broken>,
    /// The results for people. Not in JSON lines.
    #[serde(skip)]
    pub text: String,
}

/// A run that broke a rule.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Broken {
    /// Its seed.
    pub seed: u64,
    /// The rule, and how it was broken.
    pub what: String,
    /// The description of the cluster and its faults.
    pub scenario: String,
}
