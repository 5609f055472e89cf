//! The coordinator of a planned broadcast: it runs at the origin, makes the plan, receives complaints and
//! makes the next epoch. Its messages take the time of any message.

use std::collections::BTreeSet;
use std::sync::Arc;

use tidecast_swarm::plan::{Part, PlanError, Planner, Role, Shape};
use tidecast_swarm::{Candidate, Complaint, Event, PeerId, Time};

use super::{World, WorldEvent};
use crate::fault::Fault;
use crate::job::Job;
use crate::planned;
use crate::topology::NodeId;

/// Members in addition to the parents that a node is told of.
const SPARE: usize = 64;

/// See the head of the file.
#[derive(Debug)]
pub(super) struct Planning {
    planner: Planner,
    /// When it looks again, if it does.
    wake: Option<Time>,
}

impl Planning {
    /// The plan of a job that has one.
    pub(super) fn new(job: &Job) -> Result<Option<Self>, PlanError> {
        let Some((knows, stripes)) = job.plan.filter(|_| !job.gathers) else { return Ok(None) };
        let mut epoch = planned::first_epoch(&job.topology, knows, stripes, job.seed);
        // The coordinator dials all nodes before it makes the plan.
        for timed in job.faults.iter().filter(|timed| timed.at == Time(0)) {
            if let Fault::Closed { node } = timed.fault
                && let Some(member) = epoch.members.get_mut(node.0 as usize)
            {
                member.part = Part::Caller;
            }
        }
        Ok(Some(Planning { planner: Planner::new(Time(0), epoch, Shape::Striped)?, wake: None }))
    }
}

impl World {
    /// A node is told its part in the present epoch.
    pub(super) fn hand_plan(&mut self, id: NodeId) {
        let Some(planning) = &self.planning else { return };
        let role = Arc::new(planning.planner.plan().role(id.0));
        let part = planning.planner.epoch().members.get(id.0 as usize).map(|m| m.part);
        for candidate in dialled(&role, part == Some(Part::Caller)) {
            self.give(id, Event::Candidate { candidate, told: true });
        }
        self.give(id, Event::Plan(role));
    }

    /// Members that a program is told of when it starts, in addition to its parents, in case the plan fails:
    /// as many as crate `net` names.
    pub(super) fn spares(&mut self, id: NodeId) -> BTreeSet<Candidate> {
        let count = self.nodes.len() as u64;
        let mut out = BTreeSet::new();
        if self.planning.is_some() {
            let most = SPARE.min(count as usize - 1);
            while out.len() < most {
                out.extend(Some(self.rng.below(count) as u32).filter(|n| *n != id.0).map(Candidate));
            }
        }
        out
    }

    /// The engine learns the member at the other end of a connection.
    pub(super) fn introduce(&mut self, id: NodeId, peer: PeerId) {
        let Some((conn, side)) = self.conn_of(id, peer) else { return };
        let other = self.conns[conn as usize].ends[1 - side].node;
        let Some(planning) = &self.planning else { return };
        let distance = planning.planner.plan().distance(id.0, other.0);
        self.give(id, Event::Member { peer, member: other.0, distance });
    }

    /// A node complains to the coordinator.
    pub(super) fn complain(&mut self, id: NodeId, about: u32, why: Complaint) {
        if self.joinable.is_some() {
            return self.complain_of(id, about, why);
        }
        if let Some(takes) = self.coordinator_delay(id) {
            self.queue.push(Time(self.now.0 + takes), WorldEvent::Complaint(id, about, why));
        }
    }

    /// The delay of a message between a node and the coordinator; None where nothing gets through.
    fn coordinator_delay(&mut self, id: NodeId) -> Option<u64> {
        let origin = NodeId(0);
        let there = |node: NodeId| {
            let node = &self.nodes[node.0 as usize];
            node.engine.is_some() && !node.silent && !node.frozen
        };
        let joined = self.wires.joins(id, origin) && there(id) && there(origin);
        joined.then(|| self.net.rtt(id, origin) / 2 + self.job.host.think)
    }

    /// The coordinator receives a complaint.
    pub(super) fn complained(&mut self, from: NodeId, about: u32, why: Complaint) {
        let now = self.now;
        if let Some(planning) = &mut self.planning {
            planning.planner.complain(now, from.0, about, why);
        }
        self.rewake_planner();
    }

    /// The coordinator's connection to a node is reset, or there again.
    pub(super) fn coordinated(&mut self, id: NodeId, there: bool) {
        let now = self.now;
        match &mut self.planning {
            Some(planning) if there => planning.planner.back(id.0),
            Some(planning) => planning.planner.disconnected(now, id.0),
            None => {}
        }
        self.rewake_planner();
    }

    fn rewake_planner(&mut self) {
        let now = self.now;
        let Some(planning) = &mut self.planning else { return };
        let Some(at) = planning.planner.wakeup().map(|at| at.max(now)) else { return };
        if planning.wake.is_none_or(|old| at < old) {
            planning.wake = Some(at);
            self.queue.push(at, WorldEvent::Replan);
        }
    }

    /// The coordinator makes the next epoch, where it is time, and tells all members.
    pub(super) fn replan(&mut self) {
        let now = self.now;
        let Some(planning) = self.planning.as_mut().filter(|p| p.wake.is_some_and(|at| at <= now)) else {
            return;
        };
        planning.wake = None;
        if planning.planner.poll(now).is_some() {
            for id in (0..self.nodes.len() as u32).map(NodeId) {
                if let Some(takes) = self.coordinator_delay(id) {
                    self.queue.push(Time(now.0 + takes), WorldEvent::Epoch(id));
                }
            }
        }
        self.rewake_planner();
    }
}

/// The nodes that a node dials for the plan: its parents, and its children if it `calls` them.
fn dialled(role: &Role, calls: bool) -> BTreeSet<Candidate> {
    let parents = role.stripes.iter().filter_map(|edges| edges.parent);
    let children = role.stripes.iter().flat_map(|edges| &edges.children).filter(|_| calls);
    parents.chain(children.copied()).map(Candidate).collect()
}
