//! Agents: processes on many hosts that the launchers of a broadcast start, each with a channel to one coordinator.
//!
//! [`Agents`] is the coordinator: it starts `tidecast worker` on every host with an [`AgentTicket`], and gives their
//! reports. [`attend`] is an agent. Orders and reports are types of the caller.
//!
//! Invariants: only processes that have the ticket are connected, to the coordinator whose key is in it; a host that cannot
//! be started or is lost fails with a reason, and the others continue; an agent whose coordinator is gone ends.

mod agent;
mod coordinator;
mod ticket;

use serde::{Deserialize, Serialize};
use tidecast_net::LocalAddress;

pub use self::agent::{Attendance, Reports, attend};
pub use self::coordinator::{AgentOptions, Agents, Heard};
pub use self::ticket::AgentTicket;
use crate::channel::Channel;
use crate::control::message::Address;
use crate::control::ticket::Token;

/// First bytes in both directions.
const MAGIC: [u8; 16] = *b"tidecast agent\r\n";

fn channel(token: &Token) -> Channel {
    Channel::new(MAGIC, token.bytes())
}

/// The first message of an agent.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Hello {
    /// The coordinator's name of this host, if the launcher gave it.
    host: Option<String>,
    /// The scheduler's name of the host.
    scheduled: Option<String>,
    /// The host's own name.
    hostname: String,
    /// An identifier of the running machine.
    machine: Option<String>,
    /// Its addresses.
    addresses: Vec<Address>,
}

/// A host whose agent is connected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Joined {
    /// The host's own name.
    pub hostname: String,
    /// An identifier of the machine and its network namespace: agents with the same one share all links.
    pub machine: Option<String>,
    /// Its addresses.
    pub addresses: Vec<LocalAddress>,
}

/// Agent to coordinator.
#[derive(Clone, Debug, Serialize, Deserialize)]
enum Up<R> {
    Hello(Hello),
    Alive,
    Report(R),
}

/// Coordinator to agent.
#[derive(Clone, Debug, Serialize, Deserialize)]
enum Down<O> {
    Alive,
    Order(O),
    /// The agent is not needed: the reason.
    Stop(String),
}
