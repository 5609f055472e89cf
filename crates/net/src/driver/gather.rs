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
use tidecast_swarm::plan::{Edges, Gathering, Part, Role};
use tidecast_swarm::{Complaint, Event, PeerId};
use tidecast_wire::Message;
use tidecast_wire::ext::{self, MAX_GATHER, MAX_STRIPES};

use super::Driver;
use super::group::{Handed, Joined, Said};
use super::id::Form;
use crate::member::{Complained, Group, Member};
use crate::security::Security;

/// Members of one plan.
const MAX_MEMBERS: usize = 65_536;
/// How long a member that fetches everything waits for its part.
const EXPECT: Duration = Duration::from_secs(5);

impl Driver {
    /// A connection is up: if it leads to the maker of the plan, join.
    pub(super) fn greet_maker(&mut self, peer: PeerId) {
        let Some(conn) = self.conns.get(&peer) else { return };
        let whole = self.gather.group == Group::Whole;
        let named = match self.gather.group {
            Group::Join => conn.outgoing && self.told.contains(&conn.addr),
            Group::Whole => conn.node.is_some() && conn.node == self.gather.leader,
            Group::None | Group::Make => false,
        };
        self.gather.late |= named && !conn.gathers;
        if !named || !conn.gathers || self.gather.maker.is_some() {
            return;
        }
        self.gather.maker = Some(peer);
        self.say(peer, &Said::Join);
        if whole {
            let until = self.now().after(EXPECT);
            self.engine_event(Event::PlanExpected { until });
        }
    }

    /// A connection has ended.
    pub(super) fn ungather(&mut self, peer: PeerId, finished: bool) {
        let now = self.now();
        if self.gather.maker == Some(peer) {
            self.gather.maker = None;
            self.engine_event(Event::PlanExpected { until: now });
        }
        let Some(number) = self.gather.by_peer.remove(&peer) else { return };
        if let Some(member) = self.gather.members.get_mut(number as usize) {
            member.peer = None;
        }
        if let Some(plan) = &mut self.gather.plan {
            plan.left(now, number, finished);
        }
    }

    /// A message about the plan.
    pub(super) fn gathered(&mut self, peer: PeerId, bytes: &[u8]) {
        let Ok(said) = serde_json::from_slice::<Said>(bytes) else {
            return tracing::debug!(?peer, "malformed message about the broadcast plan");
        };
        let (from_maker, makes) = (self.gather.maker == Some(peer), self.makes_plan());
        match said {
            Said::Join if makes => self.join(peer),
            // It came here by another's plan.
            Said::Join if self.gather.group == Group::Whole && self.engine.is_complete() => {
                self.say(peer, &Said::Late);
            }
            Said::Complaint { member, stripe, why } if makes => {
                let Some(&from) = self.gather.by_peer.get(&peer) else { return };
                if let Some(why) = complaint(why).filter(|_| stripe < MAX_STRIPES) {
                    self.heard(from, member, why);
                }
            }
            Said::Part(handed) if from_maker => self.take_part(handed),
            Said::Late if from_maker => {
                self.gather.late = true;
                let until = self.now();
                self.engine_event(Event::PlanExpected { until });
            }
            _ => {}
        }
    }

    /// This node should join a plan, and has no answer yet.
    pub(super) fn is_gathering(&self) -> bool {
        self.gather.leader.is_some() && self.role.is_none() && !self.gather.late
    }

    /// Whether this node makes the plan.
    fn makes_plan(&self) -> bool {
        match self.gather.group {
            Group::Make => true,
            Group::Whole => self.shared.seed_only,
            Group::None | Group::Join => false,
        }
    }

    /// One more member, or one that is back.
    fn join(&mut self, peer: PeerId) {
        if self.gather.group == Group::Whole && self.engine.has_given_all() {
            return self.say(peer, &Said::Late);
        }
        let Some(conn) = self.conns.get(&peer).filter(|c| c.takes_offers) else { return };
        let joined =
            Joined { node: conn.node, peer_id: conn.remote_id, listens: conn.listens, peer: Some(peer) };
        let same = |m: &Joined| match joined.node {
            Some(_) => m.node == joined.node,
            None => m.peer_id == joined.peer_id,
        };
        let (now, whole) = (self.now(), self.gather.group == Group::Whole);
        let gather = &mut self.gather;
        if gather.plan.is_none() {
            gather.plan = Gathering::new(now, whole, rand::random());
            let own = Joined { node: None, peer_id: [0; 20], listens: None, peer: None };
            gather.members = vec![own];
        }
        let Some(plan) = &mut gather.plan else { return };
        let known = gather.members.iter().skip(1).position(same).map(|at| at + 1);
        let number = match known {
            Some(number) => {
                plan.back(now, number as u32);
                number as u32
            }
            None if gather.members.len() < MAX_MEMBERS => {
                let part = if joined.listens.is_some() { Part::Relay } else { Part::Caller };
                let Some(number) = plan.joined(now, part) else { return };
                gather.members.push(joined.clone());
                number
            }
            None => return,
        };
        if let Some(member) = gather.members.get_mut(number as usize) {
            *member = joined;
        }
        gather.by_peer.insert(peer, number);
        // A member that returns with the role it had needs the message all the same.
        if known.is_some() {
            self.hand_out(number);
        }
    }

    /// A member complains about another.
    fn heard(&mut self, from: u32, about: u32, why: Complaint) {
        let now = self.now();
        if let Some(plan) = &mut self.gather.plan {
            plan.complain(now, from, about, why);
        }
    }

    /// Sends this node's complaint to the maker of the plan.
    pub(super) fn complain_of(&mut self, complained: Complained) {
        let Complained { member, stripe, why } = complained;
        match self.gather.maker {
            _ if self.makes_plan() => self.heard(0, member, why),
            Some(maker) => {
                let why = match why {
                    Complaint::Gone => 0,
                    Complaint::Silent => 1,
                    Complaint::Slow => 2,
                };
                self.say(maker, &Said::Complaint { member, stripe, why });
            }
            None => {}
        }
    }

    /// Hands out a new epoch, when there is one.
    pub(super) fn gather_more(&mut self) {
        let (now, whole) = (self.now(), self.gather.group == Group::Whole);
        let Some(plan) = &mut self.gather.plan else { return };
        if plan.wakeup().is_none_or(|at| now < at) {
            return;
        }
        if !plan.settles() && whole && self.engine.has_given_all() {
            // New trees would be of no use: missing data is now fetched from any peer that has it.
            self.gather.plan = None;
            return;
        }
        if !plan.poll(now) {
            return;
        }
        let own = plan.plan().role(0);
        let members = self.gather.members.iter().map(|joined| Member {
            node: joined.node,
            peer_id: Some(joined.peer_id),
            addrs: joined.listens.into_iter().collect(),
            distance: 0,
        });
        let members = members.collect();
        tracing::debug!(
            epoch = own.epoch,
            members = self.gather.members.len() - 1,
            "created a broadcast plan"
        );
        self.plan(Arc::new(own), members);
        let numbers: Vec<u32> = self.gather.by_peer.values().copied().collect();
        numbers.into_iter().for_each(|number| self.hand_out(number));
    }

    /// Tells a member its part in the present epoch.
    fn hand_out(&mut self, number: u32) {
        let Some(plan) = &self.gather.plan else { return };
        let Some(peer) = self.gather.members.get(number as usize).and_then(|m| m.peer) else { return };
        let reads_hex = self.conns.get(&peer).is_some_and(|conn| conn.reads_hex);
        let form = if reads_hex { Form::Hex } else { Form::Numbers };
        let handed = self.gather.handed(plan.plan(), number, form);
        self.say(peer, &Said::Part(handed));
    }

    /// We have a part in a plan.
    fn take_part(&mut self, handed: Handed) {
        let named =
            |edges: &(Option<u32>, Vec<u32>)| edges.0.into_iter().chain(edges.1.iter().copied()).max();
        let last = handed.stripes.iter().filter_map(named).chain(handed.known.iter().map(|k| k.number)).max();
        let last =
            last.unwrap_or(0).max(handed.member).max(handed.sources.iter().copied().max().unwrap_or(0));
        if handed.stripes.is_empty()
            || handed.stripes.len() > usize::from(MAX_STRIPES)
            || last as usize >= MAX_MEMBERS
        {
            return tracing::debug!("invalid role in a broadcast plan");
        }
        let mut members = vec![Member::default(); last as usize + 1];
        for known in handed.known {
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
        if let Some(maker) = self.gather.maker.and_then(|peer| self.conns.get(&peer))
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
            handed.stripes.into_iter().map(|(parent, children)| Edges { parent, children }).collect();
        tracing::debug!(
            epoch = handed.epoch,
            member = handed.member,
            "received a role in the broadcast plan"
        );
        let role = Role { epoch: handed.epoch, member: handed.member, sources: handed.sources, stripes };
        self.plan(Arc::new(role), members);
    }

    fn say(&mut self, peer: PeerId, said: &Said) {
        match serde_json::to_vec(said) {
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
