//! The inputs of a plan.
//!
//! An epoch comes over the network, so everything in it is bounded and checked before it is used.

use thiserror::Error;

/// Most members of a broadcast.
pub const MAX_MEMBERS: usize = 200_000;
/// Most places of a topology.
pub const MAX_PLACES: usize = 1 << 16;
/// Most stripes of a plan.
pub const MAX_STRIPES: u16 = 64;
/// Most edges of a plan: members times stripes. 200,000 members have room for 20 stripes.
pub const MAX_EDGES: usize = 1 << 22;
/// Most places from one to the top of its tree.
pub const MAX_LEVELS: u8 = 64;

/// The seed with which members sit in the order of their numbers: when more join, the roots stay.
pub(super) const IN_ORDER: u64 = u64::MAX;

/// All that a plan depends on. Equal epochs give equal plans on every machine.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Epoch {
    /// A higher number replaces a lower one.
    pub number: u32,
    /// The member that has the data.
    pub source: u32,
    /// A member's number is its index here; it stays the same over all epochs of a broadcast.
    pub members: Vec<Member>,
    /// The topology; a flat one is a single place.
    pub places: Vec<Place>,
    /// How many trees: the same in every epoch of a broadcast.
    pub stripes: u16,
    /// Decides the order of members, so that not every broadcast loads the same ones alike; or [`IN_ORDER`].
    pub seed: u64,
}

impl Epoch {
    /// The first epoch of `members` relays at one place, number 0 being the source.
    #[must_use]
    pub fn flat(members: u32, stripes: u16, seed: u64) -> Epoch {
        let members = vec![Member { place: 0, part: Part::Relay }; members as usize];
        Epoch { number: 0, source: 0, members, places: vec![Place::default()], stripes, seed }
    }

    /// The sources, with their shares of the data and the stripes of which each is the root: the main source,
    /// and those beside it. There are as many in every epoch of a broadcast.
    pub(super) fn sources(&self) -> Vec<u32> {
        let beside =
            (0..).zip(&self.members).filter(|(number, m)| m.part.is_source() && *number != self.source);
        let there = |(number, m): (u32, &Member)| if m.part == Part::Source { number } else { self.source };
        std::iter::once(self.source).chain(beside.map(there)).take(usize::from(self.stripes)).collect()
    }
}

/// One member of a broadcast.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Member {
    /// Index of the place where it is.
    pub place: u32,
    /// Its use in the plan.
    pub part: Part,
}

/// The use of a member in the plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Part {
    /// It is fed, and feeds others.
    Relay,
    /// A relay that accepts no connections: it dials its children as well as its parents.
    Caller,
    /// It is fed and feeds none: too slow, or it accepts no connections and too few others do.
    Leaf,
    /// Nothing comes from it, and it may be gone: it is fed beside the trees, so that it gets everything if
    /// it lives and costs the others nothing if not.
    Silent,
    /// It has left and is not fed.
    Out,
    /// It has the data too, as the epoch's source has: it feeds, and is not fed.
    Source,
    /// It was a source and has left: the epoch's own source takes over its share.
    Lost,
}

impl Part {
    /// Others feed it.
    #[must_use]
    pub fn is_fed(self) -> bool {
        matches!(self, Part::Relay | Part::Caller | Part::Leaf | Part::Silent)
    }

    /// It is here, or was, to feed only.
    pub(super) fn is_source(self) -> bool {
        matches!(self, Part::Source | Part::Lost)
    }
}

/// A place in the topology: a site, a switch, a rack.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Place {
    /// The place that this one hangs on; none at the top.
    pub above: Option<u32>,
    /// Bytes per second each way between here and `above`; 0 where it is not known or ample.
    pub rate: u64,
}

/// The reason why there is no plan for an epoch.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum PlanError {
    /// More than [`MAX_MEMBERS`].
    #[error("{0} members, more than the limit of {MAX_MEMBERS}")]
    Members(usize),
    /// More than [`MAX_PLACES`].
    #[error("{0} places, more than the limit of {MAX_PLACES}")]
    Places(usize),
    /// None, or more than [`MAX_STRIPES`].
    #[error("invalid number of stripes {0}: must be 1 to {MAX_STRIPES}")]
    Stripes(u16),
    /// More than [`MAX_EDGES`].
    #[error("{members} members times {stripes} stripes exceed the limit of {MAX_EDGES}")]
    Edges {
        /// Members there are.
        members: usize,
        /// Stripes there are to be.
        stripes: u16,
    },
    /// The source is not a member, or is out.
    #[error("the source, member {0}, is not a present member")]
    Source(u32),
    /// A member is at a place that does not exist.
    #[error("member {member} is at place {place}, which does not exist")]
    Nowhere {
        /// The member.
        member: usize,
        /// Its place.
        place: u32,
    },
    /// A place hangs on one that does not exist.
    #[error("place {0} has a parent that does not exist")]
    Loose(u32),
    /// A place hangs on itself, perhaps by way of others, or is more than [`MAX_LEVELS`] deep.
    #[error("place {0} is its own ancestor, or is nested more than {MAX_LEVELS} levels deep")]
    Deep(u32),
}
