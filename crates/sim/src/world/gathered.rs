//! The plan of nodes that fetch the same tree and join while it is sent: the simulator's `driver/join_plan.rs` of crate `net`.
//!
//! Node 0 makes it. A node joins when it is connected to node 0, and gets its part over that connection; 4 s later it learns
//! the addresses of some other nodes.

use std::collections::BTreeSet;
use std::sync::Arc;

use tidecast_swarm::plan::{Gathering, Part, Role};
use tidecast_swarm::{Candidate, Complaint, Event, PeerId, Time};

use super::message::Content;
use super::{Own, Thing, World};
use crate::job::Job;
use crate::topology::NodeId;

/// How long a member waits for its part.
const EXPECT: u64 = 5_000_000_000;
/// When a member is told of others, and of how many: in case the plan fails.
const SPARE: u64 = 4_000_000_000;
const SPARES: u64 = 8;

/// A message about the plan.
#[derive(Clone, Debug)]
pub(super) enum Said {
    Join,
    Part(Arc<Role>),
    Complaint(u32, Complaint),
    Late,
}

/// See the head of the file.
#[derive(Debug)]
pub(super) struct Gathered {
    /// None when every piece has been given.
    gathering: Option<Gathering>,
    /// The members, by number.
    members: Vec<NodeId>,
    wake: Option<Time>,
}

impl Gathered {
    /// Of a job whose members join.
    pub(super) fn new(job: &Job) -> Option<Gathered> {
        let gathering = Gathering::new(Time(0), true, job.seed);
        let members = vec![NodeId(0)];
        job.gathers.then_some(Gathered { gathering, members, wake: None })
    }

    fn number(&self, id: NodeId) -> Option<u32> {
        self.members.iter().position(|m| *m == id).map(|at| at as u32)
    }
}

impl World {
    /// A program starts: it knows node 0, and of others later.
    pub(super) fn begin_to_gather(&mut self, id: NodeId) {
        if self.gathered.is_some() && id.0 != 0 {
            self.give(id, Event::Candidate { candidate: Candidate(0), told: true });
            self.later(Time(self.now.0 + SPARE), id, Own::Spares);
        }
    }

    /// A program is told of some other present nodes.
    pub(super) fn hear_of_spares(&mut self, id: NodeId) {
        let present: Vec<NodeId> = self.present.iter().copied().filter(|n| n.0 != 0 && *n != id).collect();
        let mut heard = BTreeSet::new();
        for _ in 0..SPARES.min(present.len() as u64) {
            heard.insert(present[self.dice.below(present.len() as u64) as usize].0);
        }
        for other in heard {
            self.give(id, Event::Candidate { candidate: Candidate(other), told: true });
        }
    }

    /// A connection is up: a member joins over that to node 0, and members with a part know the identity of
    /// the peer.
    pub(super) fn gather(&mut self, id: NodeId, peer: PeerId, other: NodeId) {
        if self.gathered.is_none() {
            return;
        }
        if other.0 == 0 {
            self.post(id, peer, Content::Plan(Said::Join));
            let until = self.nodes[id.0 as usize].local(Time(self.now.0 + EXPECT));
            self.give(id, Event::PlanExpected { until });
        }
        self.introduce_gathered(id, peer, other);
    }

    fn introduce_gathered(&mut self, id: NodeId, peer: PeerId, other: NodeId) {
        let member = self.gathered.as_ref().and_then(|g| g.number(other));
        if let Some(member) = member.filter(|_| self.nodes[id.0 as usize].parts) {
            self.give(id, Event::Member { peer, member, distance: 0 });
        }
    }

    /// A connection has ended; node 0 minds whose.
    pub(super) fn ungather(&mut self, id: NodeId, other: NodeId, finished: bool) {
        let now = self.now;
        let Some(gathered) = self.gathered.as_mut().filter(|_| id.0 == 0) else { return };
        if let (Some(number), Some(gathering)) = (gathered.number(other), &mut gathered.gathering) {
            gathering.left(now, number, finished);
        }
        self.rewake_gathering();
    }

    /// A node complains to node 0.
    pub(super) fn complain_of(&mut self, id: NodeId, about: u32, why: Complaint) {
        if id.0 == 0 {
            return self.hear_gathered(NodeId(0), Said::Complaint(about, why));
        }
        let conn = self.nodes[id.0 as usize].live.get(&NodeId(0)).copied();
        if let Some(conn) = conn {
            let peer = self.conns[conn as usize].ends[self.side(conn, id)].peer;
            self.post(id, peer, Content::Plan(Said::Complaint(about, why)));
        }
    }

    /// A message about the plan is sent.
    pub(super) fn said(&mut self, id: NodeId, peer: PeerId, said: Said) {
        let Some((conn, side)) = self.conn_of(id, peer) else { return };
        let other = self.conns[conn as usize].ends[1 - side].node;
        match said {
            Said::Part(role) => self.take_part(id, role),
            Said::Late => self.give(id, Event::PlanExpected { until: Time(0) }),
            Said::Join if self.given_all() => self.post(id, peer, Content::Plan(Said::Late)),
            said => self.hear_gathered(other, said),
        }
    }

    fn hear_gathered(&mut self, from: NodeId, said: Said) {
        let now = self.now;
        let Some(gathered) = &mut self.gathered else { return };
        let known = gathered.number(from);
        let Some(gathering) = &mut gathered.gathering else { return };
        match (said, known) {
            (Said::Join, None) => {
                gathered.members.extend(gathering.joined(now, Part::Relay).map(|_| from));
            }
            (Said::Join, Some(number)) => gathering.back(now, number),
            (Said::Complaint(about, why), Some(number)) => {
                gathering.complain(now, number, about, why);
            }
            _ => {}
        }
        if known.is_some() {
            self.hand_part(from);
        }
        self.rewake_gathering();
    }

    fn given_all(&self) -> bool {
        self.nodes[0].engine.as_ref().is_some_and(|engine| engine.has_given_all())
    }

    fn take_part(&mut self, id: NodeId, role: Arc<Role>) {
        self.node(id).parts = true;
        let Some(gathered) = &self.gathered else { return };
        let node = |number: &u32| gathered.members.get(*number as usize).copied();
        let parents: BTreeSet<NodeId> =
            role.stripes.iter().filter_map(|e| node(e.parent.as_ref()?)).collect();
        self.give(id, Event::Plan(role));
        let live: Vec<(NodeId, u32)> = self.node(id).live.iter().map(|(&n, &c)| (n, c)).collect();
        for (other, conn) in live {
            let end = &self.conns[conn as usize].ends[self.side(conn, id)];
            if end.up {
                self.introduce_gathered(id, end.peer, other);
            }
        }
        for parent in parents {
            self.give(id, Event::Candidate { candidate: Candidate(parent.0), told: true });
        }
    }

    fn hand_part(&mut self, id: NodeId) {
        let Some((gathered, gathering)) =
            self.gathered.as_ref().and_then(|g| Some((g, g.gathering.as_ref()?)))
        else {
            return;
        };
        let Some(number) = gathered.number(id) else { return };
        let role = Arc::new(gathering.plan().role(number));
        let Some(&conn) = self.nodes[0].live.get(&id) else { return };
        let peer = self.conns[conn as usize].ends[self.side(conn, NodeId(0))].peer;
        self.post(NodeId(0), peer, Content::Plan(Said::Part(role)));
    }

    fn rewake_gathering(&mut self) {
        let now = self.now;
        let Some(gathered) = &mut self.gathered else { return };
        let Some(at) = gathered.gathering.as_ref().and_then(Gathering::wakeup).map(|at| at.max(now)) else {
            return;
        };
        if gathered.wake.is_none_or(|old| at < old) {
            gathered.wake = Some(at);
            self.agenda.push(at, Thing::Gather);
        }
    }

    /// Node 0 makes the next epoch, where it is time, and tells all members.
    pub(super) fn gather_more(&mut self) {
        let (now, given) = (self.now, self.given_all());
        let Some(gathered) = self.gathered.as_mut().filter(|g| g.wake.is_some_and(|at| at <= now)) else {
            return;
        };
        gathered.wake = None;
        if given && gathered.gathering.as_ref().is_some_and(|gathering| !gathering.settles()) {
            gathered.gathering = None;
        }
        let made = gathered.gathering.as_mut().and_then(|gathering| gathering.poll(now).then_some(gathering));
        if let Some(gathering) = made {
            let role = Arc::new(gathering.plan().role(0));
            let members = gathered.members.clone();
            self.take_part(NodeId(0), role);
            members.into_iter().skip(1).for_each(|id| self.hand_part(id));
        }
        self.rewake_gathering();
    }
}
