//! The job of a simulation: origin, receivers, size, policy and faults.

use tidecast_swarm::{Limits, Policy, Time};

use crate::fault::Timed;
use crate::network::Model;
use crate::planned::Knowledge;
use crate::topology::{NodeId, Topology};

/// Which protocol the connections of a job speak.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocols {
    /// Tidecast on every connection.
    Tidecast,
    /// Stock BitTorrent with or without BEP 6.
    Stock {
        /// BEP 6.
        fast: bool,
    },
    /// A node in three speaks Tidecast, one stock, one stock with BEP 6.
    Mixed,
}

/// Nodes that begin by themselves do so within this time of each other, nanoseconds.
pub const SPREAD: u64 = 10_000_000;

/// The capacity of a host, bytes per second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Host {
    /// Verifying and writing received data.
    pub settle: u64,
    /// Nanoseconds to answer an event, added to each message it sends.
    pub think: u64,
}

/// Every node but the origin opens files, as the loader of a program does that starts everywhere at once: the
/// next one when it has all of the one before.
#[derive(Clone, Debug)]
pub struct Opens {
    /// The pieces of each, in order.
    pub files: Vec<std::ops::Range<u32>>,
    /// When the program starts; times of nodes are counted from here.
    pub start: Time,
    /// From the end of a file to the next, nanoseconds.
    pub think: u64,
}

/// A broadcast of `lengths` from node 0 to all others.
#[derive(Clone, Debug)]
pub struct Job {
    /// The cluster.
    pub topology: Topology,
    /// The network's behaviour.
    pub model: Model,
    /// Length of each piece, bytes.
    pub lengths: Vec<u32>,
    /// The engine's mechanisms.
    pub policy: Policy,
    /// Its bounds.
    pub limits: Limits,
    /// The protocol.
    pub protocols: Protocols,
    /// Leaf hashes travel ahead of data: a wrong block is seen at once.
    pub leaves: bool,
    /// The hosts.
    pub host: Host,
    /// Data follows a plan, made with this knowledge of the network; None is a swarm.
    pub plan: Option<(Knowledge, u16)>,
    /// Members join the plan as they start; the number of stripes in `plan` is the most that there may be.
    pub gathers: bool,
    /// Nodes that each node is told of when it joins; all where there are no more.
    pub acquaintances: u32,
    /// Nodes start within this time of each other, nanoseconds: [`SPREAD`], or none where a coordinator waits
    /// until all are there.
    pub spread: u64,
    /// Nodes that come later than the start, and when.
    pub joins: Vec<(Time, NodeId)>,
    /// The faults.
    pub faults: Vec<Timed>,
    /// Most that a message is delayed in addition to the network's delay, nanoseconds; drawn per connection
    /// and message, order within a connection is kept.
    pub jitter: u64,
    /// Pieces each node wants, where not all of them.
    pub wants: Vec<(NodeId, Vec<std::ops::Range<u32>>)>,
    /// Files that each node opens one after the other, and not all data at once.
    pub opens: Option<Opens>,
    /// The run ends here, finished or not.
    pub until: Time,
    /// Of every chance in it.
    pub seed: u64,
}

impl Job {
    /// A swarm of Tidecast's without faults, on hosts that keep up with 1 GiB/s; the caller may change it.
    #[must_use]
    pub fn plain(topology: Topology, lengths: Vec<u32>) -> Job {
        Job {
            topology,
            model: Model::default(),
            lengths,
            policy: Policy::TIDECAST,
            limits: Limits::default(),
            protocols: Protocols::Tidecast,
            leaves: true,
            host: Host { settle: 1 << 30, think: 1000 },
            plan: None,
            gathers: false,
            acquaintances: 16,
            spread: SPREAD,
            joins: vec![],
            faults: vec![],
            jitter: 0,
            wants: vec![],
            opens: None,
            until: Time(u64::MAX),
            seed: 1,
        }
    }
}
