//! The outcome of a simulated run.

pub use tidecast_event::sim::Port as PortUse;
use tidecast_swarm::Time;

/// One algorithm's run.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Its name, as on the command line.
    pub algorithm: String,
    /// When each receiver was complete; `None` where it never was. By `NodeId`, the origin excluded.
    pub finished: Vec<Option<Time>>,
    /// Receivers that faults removed permanently, so that the run does not wait for them.
    pub lost: u32,
    /// Payload of one copy, bytes.
    pub size: u64,
    /// Payload that the origin sent, bytes.
    pub origin_sent: u64,
    /// Messages other than payload, bytes, over all nodes.
    pub control: u64,
    /// Payload received twice, bytes, over all nodes.
    pub duplicate: u64,
    /// Every port that belongs to a link, then the origin's; every node's where there are few.
    pub ports: Vec<PortUse>,
    /// Events simulated.
    pub events: u64,
    /// Hash of everything that happened, in order.
    pub trace: u64,
    /// Simulated time at the end.
    pub ended: Time,
    /// Use of each link over time: at each sample, bytes so far per port of `ports`.
    pub samples: Vec<(Time, Vec<u64>)>,
}
