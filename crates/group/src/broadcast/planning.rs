//! Planning: makes epochs from members and places, and new epochs after complaints and losses.

use std::net::IpAddr;

use tidecast_net::Complained;
use tidecast_swarm::plan::topology::Map;
use tidecast_swarm::plan::{Epoch, MAX_EDGES, MAX_STRIPES, Member, Part, Place, Planner, Shape, stripes_for};
use tidecast_swarm::{Complaint, Time};
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::Group;
use crate::error::Error;
use crate::node::Node;
use crate::plan::Issue;

/// The planner. Without a topology all members are at one place.
pub(super) struct Planning {
    planner: Planner,
    /// The rate of a host's link, bits per second; 0: unknown.
    link_rate: u64,
    began: Instant,
    /// The origin's own complaints.
    complaints: Option<mpsc::Receiver<Complained>>,
}

impl Planning {
    /// Makes the first epoch, with these members; the origin is number 0. `link_rate`: of a host, bits per second, or 0.
    pub(super) fn new(
        members: Vec<Member>,
        topology: Option<&Map>,
        size: (u64, u32),
        link_rate: u64,
        shape: Shape,
        complaints: Option<mpsc::Receiver<Complained>>,
    ) -> Result<Self, Error> {
        let stripes = stripes(&members, size, link_rate, shape);
        let places = topology.map_or_else(|| vec![Place::default()], |map| map.places().to_vec());
        let epoch = Epoch { number: 0, source: 0, members, places, stripes, seed: rand::random() };
        let planner = Planner::new(Time(0), epoch, shape);
        let planner = planner.map_err(|e| Error::Network(format!("cannot make a plan: {e}")))?;
        Ok(Self { planner, link_rate, began: Instant::now(), complaints })
    }

    fn now(&self) -> Time {
        Time(u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }

    /// The epoch in force.
    pub(super) fn issue(&self) -> Issue {
        Issue::new(self.planner.epoch(), self.planner.shape())
    }

    /// A first epoch of the same members for other data; `size`: bytes, and the length of a piece.
    pub(super) fn beside(&self, size: (u64, u32)) -> Result<Issue, Error> {
        let mut epoch = Epoch { number: 0, seed: rand::random(), ..self.planner.epoch().clone() };
        // The other sources do not have that data.
        let beside = epoch.members.iter_mut().filter(|m| m.part == Part::Source);
        beside.for_each(|m| m.part = Part::Out);
        let shape = self.planner.shape();
        epoch.stripes = stripes(&epoch.members, size, self.link_rate, shape);
        Ok(Issue::new(&epoch, shape))
    }

    /// Adds a late member; returns its number.
    pub(super) fn joined(&mut self, member: Member) -> Option<u32> {
        self.planner.joined(member).ok()
    }

    /// Member `from` complains about another.
    pub(super) fn complain(&mut self, from: u32, about: u32, why: Complaint) {
        let now = self.now();
        if (about as usize) < self.planner.epoch().members.len() {
            self.planner.complain(now, from, about, why);
        }
    }

    /// A member is lost.
    pub(super) fn gone(&mut self, member: u32) {
        let now = self.now();
        self.planner.disconnected(now, member);
    }

    /// A new epoch, if one is due.
    pub(super) fn poll(&mut self) -> Option<Issue> {
        while let Some(Ok(complained)) = self.complaints.as_mut().map(mpsc::Receiver::try_recv) {
            self.complain(0, complained.member, complained.why);
        }
        let (now, shape) = (self.now(), self.planner.shape());
        self.planner.poll(now).map(|epoch| Issue::new(epoch, shape))
    }
}

/// The number of trees for data of this size, with this length of a piece, to these members over links of this rate (bits
/// per second, or 0); the first member is the origin.
fn stripes(members: &[Member], (bytes, piece): (u64, u32), link_rate: u64, shape: Shape) -> u16 {
    let sources = 1 + members.iter().filter(|m| m.part == Part::Source).count();
    let receivers = members.len().saturating_sub(sources);
    match shape {
        Shape::Striped => {
            // With several sources each is the root of equally many stripes, at least of one.
            let sources = sources.min(receivers).clamp(1, usize::from(MAX_STRIPES)) as u16;
            let stripes = stripes_for(members, bytes, piece, link_rate / 8).max(sources);
            stripes - stripes % sources
        }
        Shape::Chain | Shape::Binomial => 1,
        Shape::Ring => {
            receivers.clamp(1, usize::from(MAX_STRIPES)).min(MAX_EDGES / members.len().max(1)) as u16
        }
    }
}

impl Group {
    /// The rate of a host's link, bits per second: from the user, the drivers, or the fastest trial of the first workers;
    /// 0: unknown.
    pub(super) fn link_rate(&self) -> u64 {
        let known = self.choice.as_ref().map(|choice| choice.speed).filter(|speed| *speed > 0);
        let tried = || self.nodes.iter().flat_map(|n| &n.reached).filter_map(|r| r.rate).max();
        self.options.link_rate.or(known).or_else(tried).unwrap_or(0)
    }

    /// A host's place and part: a host that is not reachable, or was measured as slow, does not relay.
    pub(super) fn planned(&self, node: &Node, addresses: &[IpAddr]) -> Member {
        let map = self.options.topology.as_ref();
        let address = addresses.first().copied().or_else(|| node.host.login().1.parse().ok());
        let place = map.map_or(0, |map| map.place(&node.host.name, address));
        let part = match (node.slow, addresses.is_empty()) {
            (true, _) => Part::Leaf,
            (_, true) => Part::Caller,
            _ => Part::Relay,
        };
        Member { place, part }
    }

    /// The origin's place and part.
    pub(super) fn planned_origin(&self, addresses: &[IpAddr]) -> Member {
        let map = self.options.topology.as_ref();
        let place = map.map_or(0, |map| map.place(&self.own_name(), addresses.first().copied()));
        Member { place, part: Part::Relay }
    }

    /// The name of this host in a topology.
    pub(super) fn own_name(&self) -> String {
        self.options.name.clone().unwrap_or_else(super::hostname)
    }
}
