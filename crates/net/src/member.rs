//! Groups whose members a plan brings together.

use std::net::SocketAddr;

use tidecast_identity::NodeId;
use tidecast_swarm::Complaint;

/// What a node has to do with a plan of those who fetch on demand.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Group {
    /// Nothing.
    #[default]
    None,
    /// It has the data, and makes the plan for those who join.
    Make,
    /// It joins the plan of whoever the ticket or the user names.
    Join,
    /// Everybody fetches everything: with the data it makes the plan, without it joins that of the node that it follows.
    Whole,
}

/// A member of the plan, as who makes the plan knows it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Member {
    /// Its key: what counts in a private swarm.
    pub node: Option<NodeId>,
    /// The peer id of its run ([`crate::Swarm::peer_id`]): what counts where there are no keys.
    pub peer_id: Option<[u8; 20]>,
    /// Where it listens, in the order in which to try; empty if nobody can connect to it.
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
    /// What is wrong.
    pub why: Complaint,
}
