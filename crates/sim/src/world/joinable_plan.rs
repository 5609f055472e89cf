//! The plan of nodes that fetch the same tree and join while it is sent: the simulator's `driver/join_plan.rs` of crate `net`.
//!
//! Node 0 makes it. A node joins when it is connected to node 0, and gets its part over that connection; 4 s later it learns
//! the addresses of some other nodes.

use std::collections::BTreeSet;
use std::sync::Arc;

use tidecast_swarm::plan::{JoinablePlan, Part, Role};
use tidecast_swarm::{Candidate, Complaint, Event, PeerId, Time};

use super::message::Content;
use super::{NodeEvent, World, WorldEvent};
use crate::job::Job;
use crate::topology::NodeId;

/// How long a member waits for its part.
const EXPECT: u64 = 5_000_000_000;
/// When a member is told of others, and of how many: in case the plan fails.
const SPARE: u64 = 4_000_000_000;
const SPARES: u64 = 8;

/// A message about the plan.
#[derive(Clone, Debug)]
pub(super) enum PlanMessage {
    Join,
    Part(Arc<Role>),
    Complaint(u32, Complaint),
    Late,
}

/// See the head of the file.
#[derive(Debug)]
pub(super) struct JoinedMembers {
    /// None when every piece has been given.
    plan: Option<JoinablePlan>,
    /// The members, by number.
    members: Vec<NodeId>,
    wake: Option<Time>,
}

impl JoinedMembers {
    /// Of a job whose members join.
    pub(super) fn new(job: &Job) -> Option<JoinedMembers> {
        let plan = JoinablePlan::new(Time(0), true, job.seed);
        let members = vec![NodeId(0)];
        job.gathers.then_some(JoinedMembers { plan, members, wake: None })
    }

    fn number(&self, id: NodeId) -> Option<u32> {
        self.members.iter().position(|m| *m == id).map(|at| at as u32)
    }
}

impl World {
    /// A program starts: it knows node 0, and of others later.
    pub(super) fn begin_to_join(&mut self, id: NodeId) {
        if self.joinable.is_some() && id.0 != 0 {
            self.give(id, Event::Candidate { candidate: Candidate(0), told: true });
            self.later(Time(self.now.0 + SPARE), id, NodeEvent::Spares);
        }
    }

    /// A program is told of some other present nodes.
    pub(super) fn add_candidates(&mut self, id: NodeId) {
        let present: Vec<NodeId> = self.present.iter().copied().filter(|n| n.0 != 0 && *n != id).collect();
        let mut heard = BTreeSet::new();
        for _ in 0..SPARES.min(present.len() as u64) {
            heard.insert(present[self.rng.below(present.len() as u64) as usize].0);
        }
        for other in heard {
            self.give(id, Event::Candidate { candidate: Candidate(other), told: true });
        }
    }

    /// A connection is up: a member joins over that to node 0, and members with a part know the identity of
    /// the peer.
    pub(super) fn join_plan(&mut self, id: NodeId, peer: PeerId, other: NodeId) {
        if self.joinable.is_none() {
            return;
        }
        if other.0 == 0 {
            self.post(id, peer, Content::Plan(PlanMessage::Join));
            let until = self.nodes[id.0 as usize].local(Time(self.now.0 + EXPECT));
            self.give(id, Event::PlanExpected { until });
        }
        self.introduce_member(id, peer, other);
    }

    fn introduce_member(&mut self, id: NodeId, peer: PeerId, other: NodeId) {
        let member = self.joinable.as_ref().and_then(|g| g.number(other));
        if let Some(member) = member.filter(|_| self.nodes[id.0 as usize].parts) {
            self.give(id, Event::Member { peer, member, distance: 0 });
        }
    }

    /// A connection has ended; node 0 minds whose.
    pub(super) fn ungather(&mut self, id: NodeId, other: NodeId, finished: bool) {
        let now = self.now;
        let Some(joinable) = self.joinable.as_mut().filter(|_| id.0 == 0) else { return };
        if let (Some(number), Some(plan)) = (joinable.number(other), &mut joinable.plan) {
            plan.left(now, number, finished);
        }
        self.rewake_plan();
    }

    /// A node complains to node 0.
    pub(super) fn complain_of(&mut self, id: NodeId, about: u32, why: Complaint) {
        if id.0 == 0 {
            return self.on_plan_message(NodeId(0), PlanMessage::Complaint(about, why));
        }
        let conn = self.nodes[id.0 as usize].live.get(&NodeId(0)).copied();
        if let Some(conn) = conn {
            let peer = self.conns[conn as usize].ends[self.side(conn, id)].peer;
            self.post(id, peer, Content::Plan(PlanMessage::Complaint(about, why)));
        }
    }

    /// A message about the plan is sent.
    pub(super) fn send_plan_message(&mut self, id: NodeId, peer: PeerId, said: PlanMessage) {
        let Some((conn, side)) = self.conn_of(id, peer) else { return };
        let other = self.conns[conn as usize].ends[1 - side].node;
        match said {
            PlanMessage::Part(role) => self.take_part(id, role),
            PlanMessage::Late => self.give(id, Event::PlanExpected { until: Time(0) }),
            PlanMessage::Join if self.given_all() => self.post(id, peer, Content::Plan(PlanMessage::Late)),
            said => self.on_plan_message(other, said),
        }
    }

    fn on_plan_message(&mut self, from: NodeId, said: PlanMessage) {
        let now = self.now;
        let Some(joinable) = &mut self.joinable else { return };
        let known = joinable.number(from);
        let Some(plan) = &mut joinable.plan else { return };
        match (said, known) {
            (PlanMessage::Join, None) => {
                joinable.members.extend(plan.joined(now, Part::Relay).map(|_| from));
            }
            (PlanMessage::Join, Some(number)) => plan.back(now, number),
            (PlanMessage::Complaint(about, why), Some(number)) => {
                plan.complain(now, number, about, why);
            }
            _ => {}
        }
        if known.is_some() {
            self.hand_part(from);
        }
        self.rewake_plan();
    }

    fn given_all(&self) -> bool {
        self.nodes[0].engine.as_ref().is_some_and(|engine| engine.has_given_all())
    }

    fn take_part(&mut self, id: NodeId, role: Arc<Role>) {
        self.node(id).parts = true;
        let Some(joinable) = &self.joinable else { return };
        let node = |number: &u32| joinable.members.get(*number as usize).copied();
        let parents: BTreeSet<NodeId> =
            role.stripes.iter().filter_map(|e| node(e.parent.as_ref()?)).collect();
        self.give(id, Event::Plan(role));
        let live: Vec<(NodeId, u32)> = self.node(id).live.iter().map(|(&n, &c)| (n, c)).collect();
        for (other, conn) in live {
            let end = &self.conns[conn as usize].ends[self.side(conn, id)];
            if end.up {
                self.introduce_member(id, end.peer, other);
            }
        }
        for parent in parents {
            self.give(id, Event::Candidate { candidate: Candidate(parent.0), told: true });
        }
    }

    fn hand_part(&mut self, id: NodeId) {
        let Some((joinable, plan)) = self.joinable.as_ref().and_then(|g| Some((g, g.plan.as_ref()?))) else {
            return;
        };
        let Some(number) = joinable.number(id) else { return };
        let role = Arc::new(plan.plan().role(number));
        let Some(&conn) = self.nodes[0].live.get(&id) else { return };
        let peer = self.conns[conn as usize].ends[self.side(conn, NodeId(0))].peer;
        self.post(NodeId(0), peer, Content::Plan(PlanMessage::Part(role)));
    }

    fn rewake_plan(&mut self) {
        let now = self.now;
        let Some(joinable) = &mut self.joinable else { return };
        let Some(at) = joinable.plan.as_ref().and_then(JoinablePlan::wakeup).map(|at| at.max(now)) else {
            return;
        };
        if joinable.wake.is_none_or(|old| at < old) {
            joinable.wake = Some(at);
            self.queue.push(at, WorldEvent::Gather);
        }
    }

    /// Node 0 makes the next epoch, where it is time, and tells all members.
    pub(super) fn next_epoch(&mut self) {
        let (now, given) = (self.now, self.given_all());
        let Some(joinable) = self.joinable.as_mut().filter(|g| g.wake.is_some_and(|at| at <= now)) else {
            return;
        };
        joinable.wake = None;
        if given && joinable.plan.as_ref().is_some_and(|plan| !plan.is_waiting()) {
            joinable.plan = None;
        }
        let made = joinable.plan.as_mut().and_then(|plan| plan.poll(now).then_some(plan));
        if let Some(plan) = made {
            let role = Arc::new(plan.plan().role(0));
            let members = joinable.members.clone();
            self.take_part(NodeId(0), role);
            members.into_iter().skip(1).for_each(|id| self.hand_part(id));
        }
        self.rewake_plan();
    }
}
