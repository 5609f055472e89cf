//! A plan for those who fetch the same tree on demand: whoever has the tree makes it, for those who join.
//!
//! Members find the maker by their ticket and say that they join; each hears its own part, with the addresses of its
//! neighbours, and again when the members have changed. A part is believed only when it comes from a peer that the
//! user or the ticket has named; a wrong one would cost speed and nothing else.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use tidecast_identity::NodeId;
use tidecast_swarm::plan::{Edges, Epoch, Member as Planned, Part, Plan, Planner, Role, Shape};
use tidecast_swarm::{Complaint, PeerId, Time};
use tidecast_wire::Message;
use tidecast_wire::ext::{self, MAX_GATHER, MAX_STRIPES};

use super::Driver;
use super::plan::{Complained, Member};

/// Trees of a plan: small files are one piece each, and go down one of them.
const STRIPES: u16 = 4;
/// Members of one plan.
const MAX_MEMBERS: usize = 65_536;
/// Who joins at the same time is in the same epoch.
const SETTLE: Duration = Duration::from_millis(50);

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
}

/// What members and the maker say to each other, in postcard's form.
#[derive(Serialize, Deserialize)]
enum Said {
    /// I take part.
    Join,
    /// Your part in a new epoch.
    Part(Handed),
    /// This member does not do its part for me.
    Complaint { member: u32, stripe: u16, why: u8 },
}

#[derive(Serialize, Deserialize)]
struct Handed {
    epoch: u32,
    member: u32,
    sources: Vec<u32>,
    /// Of each stripe: who feeds us, whom we feed.
    stripes: Vec<(Option<u32>, Vec<u32>)>,
    /// Whoever is named above.
    known: Vec<Known>,
}

#[derive(Serialize, Deserialize)]
struct Known {
    number: u32,
    node: Option<[u8; 32]>,
    peer_id: [u8; 20],
    addrs: Vec<SocketAddr>,
}

/// What this node knows of its group.
#[derive(Default)]
pub(crate) struct Gather {
    pub(crate) group: Group,
    /// The maker's: the plan, and who the members are by their numbers; the maker itself is number 0.
    planner: Option<Planner>,
    members: Vec<Joined>,
    by_peer: BTreeMap<PeerId, u32>,
    /// Somebody has joined since, and more may come at once.
    settles: Option<Instant>,
    /// A member's: whom it has joined.
    maker: Option<PeerId>,
}

#[derive(Clone)]
struct Joined {
    node: Option<NodeId>,
    peer_id: [u8; 20],
    listens: Option<SocketAddr>,
    peer: Option<PeerId>,
}

impl Gather {
    pub(crate) fn new(group: Group) -> Self {
        Gather { group, ..Gather::default() }
    }

    /// When the maker has something to do.
    pub(super) fn wakeup(&self, start: Instant) -> Option<Instant> {
        let plan = self.planner.as_ref()?.wakeup().map(|at| start + Duration::from_nanos(at.0))?;
        Some(self.settles.map_or(plan, |at| at.max(plan)))
    }
}

impl Driver {
    /// A connection is up: if it leads to who makes the plan, join.
    pub(super) fn greet_maker(&mut self, peer: PeerId) {
        let Some(conn) = self.conns.get(&peer) else { return };
        let named = conn.outgoing && self.told.contains(&conn.addr);
        if self.gather.group == Group::Join && conn.gathers && named && self.gather.maker.is_none() {
            self.gather.maker = Some(peer);
            self.say(peer, &Said::Join);
        }
    }

    /// A connection has ended.
    pub(super) fn ungather(&mut self, peer: PeerId) {
        if self.gather.maker == Some(peer) {
            self.gather.maker = None;
        }
        let now = self.now();
        let Some(number) = self.gather.by_peer.remove(&peer) else { return };
        if let Some(member) = self.gather.members.get_mut(number as usize) {
            member.peer = None;
        }
        if let Some(planner) = &mut self.gather.planner {
            planner.gone(now, number);
        }
    }

    /// A message about the plan.
    pub(super) fn gathered(&mut self, peer: PeerId, bytes: &[u8]) {
        let Ok(said) = postcard::from_bytes::<Said>(bytes) else {
            return tracing::debug!(?peer, "a message about the plan that cannot be read");
        };
        match (said, self.gather.group) {
            (Said::Join, Group::Make) => self.join(peer),
            (Said::Complaint { member, stripe, why }, Group::Make) => {
                let Some(&from) = self.gather.by_peer.get(&peer) else { return };
                if let Some(why) = complaint(why).filter(|_| stripe < MAX_STRIPES) {
                    self.heard(from, member, why);
                }
            }
            (Said::Part(handed), Group::Join) if self.gather.maker == Some(peer) => self.take_part(handed),
            _ => {}
        }
    }

    /// One more member, or one that is back.
    fn join(&mut self, peer: PeerId) {
        let Some(conn) = self.conns.get(&peer).filter(|c| c.takes_offers) else { return };
        let joined =
            Joined { node: conn.node, peer_id: conn.remote_id, listens: conn.listens, peer: Some(peer) };
        let same = |m: &Joined| match joined.node {
            Some(_) => m.node == joined.node,
            None => m.peer_id == joined.peer_id,
        };
        let now = self.now();
        let gather = &mut self.gather;
        if gather.planner.is_none() {
            gather.planner = Planner::new(now, Epoch::flat(1, STRIPES, rand::random()), Shape::Striped).ok();
            let own = Joined { node: None, peer_id: [0; 20], listens: None, peer: None };
            gather.members = vec![own];
        }
        let Some(planner) = &mut gather.planner else { return };
        let known = gather.members.iter().skip(1).position(same).map(|at| at + 1);
        let number = match known {
            Some(number) => {
                planner.back(number as u32);
                number as u32
            }
            None if gather.members.len() < MAX_MEMBERS => {
                let part = if joined.listens.is_some() { Part::Relay } else { Part::Caller };
                let Ok(number) = planner.joined(Planned { place: 0, part }) else { return };
                gather.members.push(joined.clone());
                number
            }
            None => return,
        };
        if let Some(member) = gather.members.get_mut(number as usize) {
            *member = joined;
        }
        gather.by_peer.insert(peer, number);
        gather.settles = Some(Instant::now() + SETTLE);
        // Who is back in the part that it had needs to hear it all the same.
        if known.is_some() {
            self.hand_out(number);
        }
    }

    /// Somebody complains about a member.
    fn heard(&mut self, from: u32, about: u32, why: Complaint) {
        let now = self.now();
        if let Some(planner) = &mut self.gather.planner
            && (about as usize) < planner.epoch().members.len()
        {
            planner.complain(now, from, about, why);
        }
    }

    /// Our own complaint goes to who makes the plan.
    pub(super) fn complain_of(&mut self, complained: Complained) {
        let Complained { member, stripe, why } = complained;
        match (self.gather.group, self.gather.maker) {
            (Group::Make, _) => self.heard(0, member, why),
            (Group::Join, Some(maker)) => {
                let why = match why {
                    Complaint::Gone => 0,
                    Complaint::Silent => 1,
                    Complaint::Slow => 2,
                };
                self.say(maker, &Said::Complaint { member, stripe, why });
            }
            _ => {}
        }
    }

    /// Hands out a new epoch, when there is one.
    pub(super) fn gather_more(&mut self) {
        if self.gather.settles.is_some_and(|at| Instant::now() < at) {
            return;
        }
        self.gather.settles = None;
        let now: Time = self.now();
        let Some(planner) = &mut self.gather.planner else { return };
        if planner.poll(now).is_none() {
            return;
        }
        let own = planner.plan().role(0);
        let members = self.gather.members.iter().map(|joined| Member {
            node: joined.node,
            peer_id: Some(joined.peer_id),
            addrs: joined.listens.into_iter().collect(),
            distance: 0,
        });
        let members = members.collect();
        self.plan(Arc::new(own), members);
        let numbers: Vec<u32> = self.gather.by_peer.values().copied().collect();
        numbers.into_iter().for_each(|number| self.hand_out(number));
    }

    /// Tells a member its part in the present epoch.
    fn hand_out(&mut self, number: u32) {
        let Some(planner) = &self.gather.planner else { return };
        let handed = self.gather.handed(planner.plan(), number);
        if let Some(peer) = self.gather.members.get(number as usize).and_then(|m| m.peer) {
            self.say(peer, &Said::Part(handed));
        }
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
            return tracing::debug!("a part in a plan that cannot be");
        }
        let mut members = vec![Member::default(); last as usize + 1];
        for known in handed.known {
            if let Some(member) = members.get_mut(known.number as usize) {
                *member = Member {
                    node: known.node.map(NodeId),
                    peer_id: Some(known.peer_id),
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
        let role = Role { epoch: handed.epoch, member: handed.member, sources: handed.sources, stripes };
        self.plan(Arc::new(role), members);
    }

    fn say(&mut self, peer: PeerId, said: &Said) {
        match postcard::to_stdvec(said) {
            Ok(bytes) if bytes.len() <= MAX_GATHER => {
                self.send(peer, Message::Tidecast(ext::Message::Gather { channel: 0, bytes: bytes.into() }));
            }
            _ => tracing::warn!("a part in the plan is too long to be told"),
        }
    }
}

impl Gather {
    /// What a member is told.
    fn handed(&self, plan: &Plan, number: u32) -> Handed {
        let role = plan.role(number);
        let mut known = BTreeMap::new();
        for edges in &role.stripes {
            for other in edges.parent.iter().chain(&edges.children).filter(|other| **other != 0) {
                if let Some(joined) = self.members.get(*other as usize) {
                    known.entry(*other).or_insert_with(|| Known {
                        number: *other,
                        node: joined.node.map(|node| node.0),
                        peer_id: joined.peer_id,
                        addrs: joined.listens.into_iter().collect(),
                    });
                }
            }
        }
        Handed {
            epoch: role.epoch,
            member: role.member,
            sources: role.sources,
            stripes: role.stripes.into_iter().map(|edges| (edges.parent, edges.children)).collect(),
            known: known.into_values().collect(),
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
