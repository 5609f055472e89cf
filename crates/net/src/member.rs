//! Groups whose members are connected by a plan.

use std::net::SocketAddr;

use tidecast_identity::NodeId;
use tidecast_swarm::Complaint;

/// A node's part in a plan for nodes that fetch on demand.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Group {
    /// Nothing.
    #[default]
    None,
    /// It has the data, and makes the plan for nodes that join.
    Make,
    /// It joins the plan of the node that the ticket or the user names.
    Join,
    /// All members fetch everything: a node with the data makes the plan, others join the plan of the node
    /// that they follow.
    Whole,
}

/// A member of the plan, as its maker knows it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Member {
    /// Its key: its identity in a private swarm.
    pub node: Option<NodeId>,
    /// The peer id of its run ([`crate::Swarm::peer_id`]): its identity without keys.
    pub peer_id: Option<[u8; 20]>,
    /// Its listening addresses, in the order to try; empty if it cannot be reached.
    pub addrs: Vec<SocketAddr>,
    /// 0 at our own place in the topology, more beyond each cut.
    pub distance: u8,
}

/// A member does not do its part in the plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Complained {
    /// Its number.
    pub member: u32,
    /// The stripe in which it is our parent.
    pub stripe: u16,
    /// The complaint.
    pub why: Complaint,
}
