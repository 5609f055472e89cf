//! The plan as it is sent to members, and each member's part in it.

use std::collections::BTreeMap;

use tidecast_identity::NodeId;
use tidecast_swarm::Policy;
use tidecast_swarm::plan::{self, Epoch, Part, Place, Plan, PlanError, Role, Shape};

pub(crate) use crate::control::message::Issue;
use crate::control::message::Member;

/// The algorithm that distributes the data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Algorithm {
    /// The best algorithm: currently by plan.
    #[default]
    Auto,
    /// Stripes, each along its own tree.
    Plan,
    /// A swarm without a plan.
    Swarm,
    /// BitTorrent's mechanisms: choking, super-seeding, endgame.
    Classic,
    /// A chain of hosts.
    Chain,
    /// A binomial tree.
    Binomial,
    /// A part to each host, then all parts around a ring.
    ScatterAllgather,
}

/// Names, as a user writes them.
const NAMES: &[(&str, Algorithm)] = &[
    ("auto", Algorithm::Auto),
    ("plan", Algorithm::Plan),
    ("swarm", Algorithm::Swarm),
    ("classic", Algorithm::Classic),
    ("chain", Algorithm::Chain),
    ("binomial", Algorithm::Binomial),
    ("scatter-allgather", Algorithm::ScatterAllgather),
];

impl std::str::FromStr for Algorithm {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = NAMES.iter().find(|(name, _)| *name == text).map(|(_, a)| *a);
        let names = || NAMES.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ");
        found.ok_or_else(|| format!("unknown algorithm {text:?}: use one of {}", names()))
    }
}

impl Algorithm {
    /// The name of the algorithm that is used.
    pub(crate) fn name(self) -> &'static str {
        let same = |(_, a): &&(&str, Self)| *a == if self == Self::Auto { Self::Plan } else { self };
        NAMES.iter().find(same).map_or("plan", |(name, _)| name)
    }

    /// The shape of its trees; `None` if it has no trees.
    pub(crate) fn shape(self) -> Option<Shape> {
        match self {
            Self::Auto | Self::Plan => Some(Shape::Striped),
            Self::Chain => Some(Shape::Chain),
            Self::Binomial => Some(Shape::Binomial),
            Self::ScatterAllgather => Some(Shape::Ring),
            Self::Swarm | Self::Classic => None,
        }
    }

    pub(crate) fn policy(self) -> Policy {
        if self == Self::Classic { Policy::CLASSIC } else { Policy::TIDECAST }
    }
}

const PARTS: [Part; 7] =
    [Part::Relay, Part::Leaf, Part::Out, Part::Source, Part::Lost, Part::Silent, Part::Caller];
const SHAPES: [Shape; 4] = [Shape::Striped, Shape::Chain, Shape::Binomial, Shape::Ring];

/// The index of a value in a table; past its end if it is missing.
fn code<T: PartialEq>(table: &[T], value: &T) -> u8 {
    table.iter().position(|v| v == value).unwrap_or(table.len()) as u8
}

impl Issue {
    pub(crate) fn new(epoch: &Epoch, shape: Shape) -> Self {
        Self {
            number: epoch.number,
            source: epoch.source,
            members: epoch.members.iter().map(|m| (m.place, code(&PARTS, &m.part))).collect(),
            places: epoch.places.iter().map(|p| (p.above, p.rate)).collect(),
            stripes: epoch.stripes,
            seed: epoch.seed,
            shape: code(&SHAPES, &shape),
        }
    }

    /// The part of member `me`, and all members in the swarm's form. A member that is not in `known` is not reachable.
    pub(crate) fn part(
        &self,
        me: u32,
        known: &BTreeMap<u32, Member>,
    ) -> Result<(Role, Vec<tidecast_net::Member>), PlanError> {
        // A part that this version does not know means not taking part.
        let part = |code: u8| PARTS.get(usize::from(code)).copied().unwrap_or(Part::Out);
        let epoch = Epoch {
            number: self.number,
            source: self.source,
            members: self.members.iter().map(|&(place, p)| plan::Member { place, part: part(p) }).collect(),
            places: self.places.iter().map(|&(above, rate)| Place { above, rate }).collect(),
            stripes: self.stripes,
            seed: self.seed,
        };
        let shape = SHAPES.get(usize::from(self.shape)).copied().unwrap_or_default();
        let plan = Plan::shaped(&epoch, shape)?;
        let member = |number: u32| match known.get(&number) {
            Some(member) => tidecast_net::Member {
                node: Some(NodeId(member.node)),
                peer_id: None,
                addrs: member.addresses.clone(),
                distance: plan.distance(me, number),
            },
            None => tidecast_net::Member::default(),
        };
        let members = (0..self.members.len() as u32).map(member).collect();
        Ok((plan.role(me), members))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn everyone_reckons_the_same_plan_from_what_is_handed_out() {
        let mut epoch = Epoch::flat(9, 4, 7);
        epoch.members[3].part = Part::Leaf;
        epoch.members[5].part = Part::Out;
        epoch.members[6].part = Part::Source;
        epoch.members[7].part = Part::Lost;
        epoch.members[8].part = Part::Caller;
        for shape in SHAPES {
            let issue = Issue::new(&epoch, shape);
            let bytes = postcard::to_stdvec(&issue).unwrap();
            let issue: Issue = postcard::from_bytes(&bytes).unwrap();
            let plan = Plan::shaped(&epoch, shape).unwrap();
            for me in 0..9 {
                let (role, members) = issue.part(me, &BTreeMap::new()).unwrap();
                assert_eq!(role, plan.role(me));
                assert_eq!(members.len(), 9);
            }
        }
    }

    #[test]
    fn names_are_read_and_told() {
        for (name, algorithm) in NAMES {
            assert_eq!(name.parse(), Ok(*algorithm));
        }
        assert_eq!(Algorithm::Auto.name(), "plan");
        assert_eq!(Algorithm::Chain.name(), "chain");
        assert!("best".parse::<Algorithm>().unwrap_err().contains("binomial"));
    }
}
