//! A node's state of its group, and the messages between its members.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use tidecast_identity::NodeId;
use tidecast_swarm::PeerId;
use tidecast_swarm::plan::{JoinablePlan, Plan};

use super::id::{Form, Id};
use crate::member::Group;

/// Messages between members and the maker, as JSON: their versions may differ.
#[derive(Serialize, Deserialize)]
pub(super) enum PlanMessage {
    /// A request to join.
    Join,
    /// Your part in a new epoch.
    Part(RoleMessage),
    /// This member does not do its part for me.
    Complaint { member: u32, stripe: u16, why: u8 },
    /// Every piece has been given to a stripe: fetch pieces from any peer that has them.
    Late,
}

#[derive(Serialize, Deserialize)]
pub(super) struct RoleMessage {
    pub(super) epoch: u32,
    pub(super) member: u32,
    pub(super) sources: Vec<u32>,
    /// For each stripe: the member that feeds this one, and the members that it feeds.
    pub(super) stripes: Vec<(Option<u32>, Vec<u32>)>,
    /// The members named above.
    pub(super) known: Vec<Known>,
}

#[derive(Serialize, Deserialize)]
pub(super) struct Known {
    pub(super) number: u32,
    pub(super) node: Option<Id<32>>,
    pub(super) peer_id: Id<20>,
    pub(super) addrs: Vec<SocketAddr>,
}

/// A node's state of its group.
#[derive(Default)]
pub(super) struct GroupState {
    pub(super) group: Group,
    /// On the maker: the plan, and the members by their numbers; the maker itself is number 0.
    pub(super) plan: Option<JoinablePlan>,
    pub(super) members: Vec<Joined>,
    pub(super) by_peer: BTreeMap<PeerId, u32>,
    /// On a member: the maker of its plan, if given by key.
    pub(super) leader: Option<NodeId>,
    /// It has no part for us.
    pub(super) late: bool,
    /// On a member: the peer that it has joined.
    pub(super) maker: Option<PeerId>,
}

#[derive(Clone)]
pub(super) struct Joined {
    pub(super) node: Option<NodeId>,
    pub(super) peer_id: [u8; 20],
    pub(super) listens: Option<SocketAddr>,
    pub(super) peer: Option<PeerId>,
}

impl GroupState {
    pub(super) fn new(group: Group) -> Self {
        GroupState { group, ..GroupState::default() }
    }

    /// When the maker has something to do.
    pub(super) fn wakeup(&self, start: Instant) -> Option<Instant> {
        self.plan.as_ref()?.wakeup().map(|at| start + Duration::from_nanos(at.0))
    }

    /// The plan of this node is to be joined.
    pub(super) fn follow(&mut self, node: NodeId) {
        self.leader = Some(node);
    }

    /// The message to a member, with ids in this form.
    pub(super) fn role_message(&self, plan: &Plan, number: u32, form: Form) -> RoleMessage {
        let role = plan.role(number);
        let mut known = BTreeMap::new();
        for edges in &role.stripes {
            for other in edges.parent.iter().chain(&edges.children).filter(|other| **other != 0) {
                if let Some(joined) = self.members.get(*other as usize) {
                    known.entry(*other).or_insert_with(|| Known {
                        number: *other,
                        node: joined.node.map(|node| Id::new(node.0, form)),
                        peer_id: Id::new(joined.peer_id, form),
                        addrs: joined.listens.into_iter().collect(),
                    });
                }
            }
        }
        RoleMessage {
            epoch: role.epoch,
            member: role.member,
            sources: role.sources,
            stripes: role.stripes.into_iter().map(|edges| (edges.parent, edges.children)).collect(),
            known: known.into_values().collect(),
        }
    }
}
