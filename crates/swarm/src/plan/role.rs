//! One member's part in the plan.

/// The part of one member in one epoch of the plan.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Role {
    /// Number of the epoch; a higher one replaces a lower one.
    pub epoch: u32,
    /// The member that this is about.
    pub member: u32,
    /// The members that have the data, and give each piece to one of the stripes of which they are the root. One that was
    /// lost is replaced by the first.
    pub sources: Vec<u32>,
    /// One for each stripe; as many in every epoch of a broadcast.
    pub stripes: Vec<Edges>,
}

/// Pieces in a row that one source gives, where there are several: it reads them in one go.
const RUN: u32 = 8;

impl Role {
    /// The source that gives this piece to a stripe.
    pub(crate) fn giver(&self, piece: u32) -> Option<u32> {
        let turn = (piece / RUN) as usize;
        turn.checked_rem(self.sources.len()).and_then(|turn| self.sources.get(turn)).copied()
    }

    /// The pieces that a source reads, of this many.
    pub fn share(&self, pieces: u32) -> impl Iterator<Item = u32> {
        (0..pieces).filter(|&piece| self.giver(piece) == Some(self.member))
    }

    /// Whether a member is one of the sources.
    pub(crate) fn is_source(&self, member: u32) -> bool {
        self.sources.contains(&member)
    }
}

/// The members next to a member in one stripe.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Edges {
    /// Our parent; the source has no parent, nor has a member outside of the plan.
    pub parent: Option<u32>,
    /// Our children; the one with the deepest subtree first.
    pub children: Vec<u32>,
}
