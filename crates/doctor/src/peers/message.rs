//! Messages between the coordinator and the agents. Only types, because a fuzz target includes this file.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

/// Version of these messages and of the probes; agents of another version are not used.
pub(crate) const PROTOCOL: u16 = 1;

/// Another agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Member {
    /// Its number.
    pub(crate) number: u32,
    /// Its addresses with the port for TCP.
    pub(crate) addresses: Vec<SocketAddr>,
    /// Its port for UDP.
    pub(crate) udp: u16,
    /// It is on the machine of the agent that gets this message, and shares no link with it.
    pub(crate) here: bool,
}

/// Coordinator to agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Order {
    /// The agents, and the key of this run, which authenticates probes. Sent once.
    Begin {
        /// The number of this agent.
        me: u32,
        /// The key.
        key: [u8; 32],
        /// All agents.
        members: Vec<Member>,
    },
    /// Connect to a member: reachability, times, losses, MTU.
    Probe {
        /// The number of the task.
        task: u32,
        /// The member.
        to: u32,
        /// Measure only times.
        brief: bool,
    },
    /// Send to a member at full rate.
    Send {
        /// The number of the task.
        task: u32,
        /// The member.
        to: u32,
        /// TCP streams.
        streams: u32,
        /// Milliseconds at most.
        millis: u32,
        /// Bytes of all streams together at most.
        bytes: u64,
    },
    /// Send to a member and receive from it at the same time.
    Meet {
        /// The number of the task.
        task: u32,
        /// The member.
        to: u32,
        /// Milliseconds.
        millis: u32,
    },
    /// All is measured: leave.
    Finish,
}

/// What a probe has found.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Probed {
    /// The address that answered.
    pub(crate) address: Option<SocketAddr>,
    /// Round-trip times, nanoseconds.
    pub(crate) rtts: Vec<u64>,
    /// The other clock minus this one, nanoseconds, by the quickest exchange.
    pub(crate) clock: i64,
    /// Datagrams sent to find losses, those that arrived, and answers that came back.
    pub(crate) datagrams: u32,
    /// See `datagrams`.
    pub(crate) arrived: u32,
    /// See `datagrams`.
    pub(crate) answered: u32,
    /// MTU of this host's interface, bytes; 0: unknown.
    pub(crate) interface_mtu: u32,
    /// The largest packet that arrived, bytes; 0: none.
    pub(crate) mtu: u32,
    /// The kernel has learned from routers that the path's MTU is smaller than that of the interface.
    pub(crate) learned: bool,
}

/// The rate of a transfer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Sent {
    /// Bits per second, as received.
    pub(crate) rate: u64,
    /// Bytes received.
    pub(crate) bytes: u64,
    /// CPU time of the sender's and the receiver's threads, nanoseconds.
    pub(crate) send_cpu: u64,
    /// See `send_cpu`.
    pub(crate) receive_cpu: u64,
}

/// Agent to coordinator.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum Report {
    /// The first report: this agent's ports and program.
    Ready {
        /// [`PROTOCOL`]. An agent of another version encodes the rest in the same way.
        protocol: u16,
        /// Port for TCP.
        tcp: u16,
        /// Port for UDP.
        udp: u16,
        /// Version of the program.
        version: String,
        /// Release of the kernel.
        kernel: String,
    },
    /// The result of [`Order::Probe`].
    Probed {
        /// The number of the task.
        task: u32,
        /// The result, or why the member cannot be reached.
        result: Result<Probed, String>,
    },
    /// The result of [`Order::Send`].
    Sent {
        /// The number of the task.
        task: u32,
        /// The result.
        result: Result<Sent, String>,
    },
    /// The rate that one side of [`Order::Meet`] received, bits per second.
    Met {
        /// The number of the task.
        task: u32,
        /// The rate.
        rate: u64,
    },
}
