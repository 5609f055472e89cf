//! A broadcast plan for nodes that fetch the same tree, on demand or whole: a node that has the tree makes it, for
//! the nodes that join.
//!
//! Members find the maker by their ticket, or are given its key, and send it a request to join; each receives its
//! own role, with keys and addresses of its peers, and again when the members have changed. A role counts only if
//! it comes from a peer that the user, the ticket or the daemon has named; a wrong one would cost speed and nothing
//! else. In swarms where nodes are admitted one by one, the nodes that the maker names are admitted: it could send
//! them the data itself.
//!
//! A plan for whole trees transfers each piece once. A node that joins after all pieces were given to a stripe is
//! told so, and fetches from all peers that have them; until it has its role or that answer, a member requests
//! nothing ([`EXPECT`]).

use std::sync::Arc;
use std::time::Duration;

use tidecast_identity::NodeId;
use tidecast_swarm::plan::{Edges, JoinablePlan, Part, Role};
use tidecast_swarm::{Complaint, Event, PeerId};
use tidecast_wire::Message;
use tidecast_wire::ext::{self, MAX_GATHER, MAX_STRIPES};

use super::Driver;
use super::group_state::{Joined, PlanMessage, RoleMessage};
use super::id::Form;
use crate::member::{Complained, Group, Member};
use crate::security::Security;

/// Members of one plan.
const MAX_MEMBERS: usize = 65_536;
/// How long a member that fetches everything waits for its part.
const EXPECT: Duration = Duration::from_secs(5);

impl Driver {
    /// A connection is up: if it leads to the maker of the plan, join.
    pub(super) fn join_maker(&mut self, peer: PeerId) {
        let Some(conn) = self.conns.get(&peer) else { return };
        let whole = self.group_state.group == Group::Whole;
        let named = match self.group_state.group {
            Group::Join => conn.outgoing && self.told.contains(&conn.addr),
            Group::Whole => conn.node.is_some() && conn.node == self.group_state.leader,
            Group::None | Group::Make => false,
        };
        self.group_state.late |= named && !conn.gathers;
        if !named || !conn.gathers || self.group_state.maker.is_some() {
            return;
        }
        self.group_state.maker = Some(peer);
        self.send_plan_message(peer, &PlanMessage::Join);
        if whole {
            let until = self.now().after(EXPECT);
            self.engine_event(Event::PlanExpected { until });
        }
    }

    /// A connection has ended.
    pub(super) fn peer_left(&mut self, peer: PeerId, finished: bool) {
        let now = self.now();
        if self.group_state.maker == Some(peer) {
            self.group_state.maker = None;
            self.engine_event(Event::PlanExpected { until: now });
        }
        let Some(number) = self.group_state.by_peer.remove(&peer) else { return };
        if let Some(member) = self.group_state.members.get_mut(number as usize) {
            member.peer = None;
        }
        if let Some(plan) = &mut self.group_state.plan {
            plan.left(now, number, finished);
        }
    }

    /// A message about the plan.
    pub(super) fn plan_message(&mut self, peer: PeerId, bytes: &[u8]) {
        let Ok(message) = serde_json::from_slice::<PlanMessage>(bytes) else {
            return tracing::debug!(?peer, "malformed message about the broadcast plan");
        };
        let (from_maker, makes) = (self.group_state.maker == Some(peer), self.makes_plan());
        match message {
            PlanMessage::Join if makes => self.join(peer),
            // It came here by another's plan.
            PlanMessage::Join if self.group_state.group == Group::Whole && self.engine.is_complete() => {
                self.send_plan_message(peer, &PlanMessage::Late);
            }
            PlanMessage::Complaint { member, stripe, why } if makes => {
                let Some(&from) = self.group_state.by_peer.get(&peer) else { return };
                if let Some(why) = complaint(why).filter(|_| stripe < MAX_STRIPES) {
                    self.complaint_received(from, member, why);
                }
            }
            PlanMessage::Part(role_message) if from_maker => self.apply_role(role_message),
            PlanMessage::Late if from_maker => {
                self.group_state.late = true;
                let until = self.now();
                self.engine_event(Event::PlanExpected { until });
            }
            _ => {}
        }
    }

    /// This node should join a plan, and has no answer yet.
    pub(super) fn awaits_role(&self) -> bool {
        self.group_state.leader.is_some() && self.role.is_none() && !self.group_state.late
    }

    /// Whether this node makes the plan.
    fn makes_plan(&self) -> bool {
        match self.group_state.group {
            Group::Make => true,
            Group::Whole => self.shared.seed_only,
            Group::None | Group::Join => false,
        }
    }

    /// One more member, or one that is back.
    fn join(&mut self, peer: PeerId) {
        if self.group_state.group == Group::Whole && self.engine.has_given_all() {
            return self.send_plan_message(peer, &PlanMessage::Late);
        }
        let Some(conn) = self.conns.get(&peer).filter(|c| c.takes_offers) else { return };
        let joined =
            Joined { node: conn.node, peer_id: conn.remote_id, listens: conn.listens, peer: Some(peer) };
        let same = |m: &Joined| match joined.node {
            Some(_) => m.node == joined.node,
            None => m.peer_id == joined.peer_id,
        };
        let (now, whole) = (self.now(), self.group_state.group == Group::Whole);
        let group_state = &mut self.group_state;
        if group_state.plan.is_none() {
            group_state.plan = JoinablePlan::new(now, whole, rand::random());
            let own = Joined { node: None, peer_id: [0; 20], listens: None, peer: None };
            group_state.members = vec![own];
        }
        let Some(plan) = &mut group_state.plan else { return };
        let known = group_state.members.iter().skip(1).position(same).map(|at| at + 1);
        let number = match known {
            Some(number) => {
                plan.back(now, number as u32);
                number as u32
            }
            None if group_state.members.len() < MAX_MEMBERS => {
                let part = if joined.listens.is_some() { Part::Relay } else { Part::Caller };
                let Some(number) = plan.joined(now, part) else { return };
                group_state.members.push(joined.clone());
                number
            }
            None => return,
        };
        if let Some(member) = group_state.members.get_mut(number as usize) {
            *member = joined;
        }
        group_state.by_peer.insert(peer, number);
        // A member that returns with the role it had needs the message all the same.
        if known.is_some() {
            self.send_role(number);
        }
    }

    /// A member complains about another.
    fn complaint_received(&mut self, from: u32, about: u32, why: Complaint) {
        let now = self.now();
        if let Some(plan) = &mut self.group_state.plan {
            plan.complain(now, from, about, why);
        }
    }

    /// Sends this node's complaint to the maker of the plan.
    pub(super) fn report_complaint(&mut self, complained: Complained) {
        let Complained { member, stripe, why } = complained;
        match self.group_state.maker {
            _ if self.makes_plan() => self.complaint_received(0, member, why),
            Some(maker) => {
                let why = match why {
                    Complaint::Gone => 0,
                    Complaint::Silent => 1,
                    Complaint::Slow => 2,
                };
                self.send_plan_message(maker, &PlanMessage::Complaint { member, stripe, why });
            }
            None => {}
        }
    }

    /// Hands out a new epoch, when there is one.
    pub(super) fn publish_epoch(&mut self) {
        let (now, whole) = (self.now(), self.group_state.group == Group::Whole);
        let Some(plan) = &mut self.group_state.plan else { return };
        if plan.wakeup().is_none_or(|at| now < at) {
            return;
        }
        if !plan.is_waiting() && whole && self.engine.has_given_all() {
            // New trees would be of no use: missing data is now fetched from any peer that has it.
            self.group_state.plan = None;
            return;
        }
        if !plan.poll(now) {
            return;
        }
        let own = plan.plan().role(0);
        let members = self.group_state.members.iter().map(|joined| Member {
            node: joined.node,
            peer_id: Some(joined.peer_id),
            addrs: joined.listens.into_iter().collect(),
            distance: 0,
        });
        let members = members.collect();
        tracing::debug!(
            epoch = own.epoch,
            members = self.group_state.members.len() - 1,
            "created a broadcast plan"
        );
        self.plan(Arc::new(own), members);
        let numbers: Vec<u32> = self.group_state.by_peer.values().copied().collect();
        numbers.into_iter().for_each(|number| self.send_role(number));
    }

    /// Tells a member its part in the present epoch.
    fn send_role(&mut self, number: u32) {
        let Some(plan) = &self.group_state.plan else { return };
        let Some(peer) = self.group_state.members.get(number as usize).and_then(|m| m.peer) else { return };
        let reads_hex = self.conns.get(&peer).is_some_and(|conn| conn.reads_hex);
        let form = if reads_hex { Form::Hex } else { Form::Numbers };
        let role_message = self.group_state.role_message(plan.plan(), number, form);
        self.send_plan_message(peer, &PlanMessage::Part(role_message));
    }

    /// We have a part in a plan.
    fn apply_role(&mut self, role_message: RoleMessage) {
        let named =
            |edges: &(Option<u32>, Vec<u32>)| edges.0.into_iter().chain(edges.1.iter().copied()).max();
        let last = role_message
            .stripes
            .iter()
            .filter_map(named)
            .chain(role_message.known.iter().map(|k| k.number))
            .max();
        let last = last
            .unwrap_or(0)
            .max(role_message.member)
            .max(role_message.sources.iter().copied().max().unwrap_or(0));
        if role_message.stripes.is_empty()
            || role_message.stripes.len() > usize::from(MAX_STRIPES)
            || last as usize >= MAX_MEMBERS
        {
            return tracing::debug!("invalid role in a broadcast plan");
        }
        let mut members = vec![Member::default(); last as usize + 1];
        for known in role_message.known {
            if let (Security::Known(security), Some(node)) = (&self.shared.security, known.node) {
                (security.named)(NodeId(node.bytes));
            }
            if let Some(member) = members.get_mut(known.number as usize) {
                *member = Member {
                    node: known.node.map(|node| NodeId(node.bytes)),
                    peer_id: Some(known.peer_id.bytes),
                    addrs: known.addrs,
                    distance: 0,
                };
            }
        }
        if let Some(maker) = self.group_state.maker.and_then(|peer| self.conns.get(&peer))
            && let Some(source) = members.first_mut()
        {
            *source = Member {
                node: maker.node,
                peer_id: Some(maker.remote_id),
                addrs: vec![maker.addr],
                distance: 0,
            };
        }
        let stripes =
            role_message.stripes.into_iter().map(|(parent, children)| Edges { parent, children }).collect();
        tracing::debug!(
            epoch = role_message.epoch,
            member = role_message.member,
            "received a role in the broadcast plan"
        );
        let role = Role {
            epoch: role_message.epoch,
            member: role_message.member,
            sources: role_message.sources,
            stripes,
        };
        self.plan(Arc::new(role), members);
    }

    fn send_plan_message(&mut self, peer: PeerId, message: &PlanMessage) {
        match serde_json::to_vec(message) {
            Ok(bytes) if bytes.len() <= MAX_GATHER => {
                self.send(peer, Message::Tidecast(ext::Message::Gather { channel: 0, bytes: bytes.into() }));
            }
            _ => tracing::warn!("a role in the broadcast plan is too long to be sent"),
        }
    }
}

fn complaint(why: u8) -> Option<Complaint> {
    match why {
        0 => Some(Complaint::Gone),
        1 => Some(Complaint::Silent),
        2 => Some(Complaint::Slow),
        _ => None,
    }
}
