//! One member's part in the plan.

/// What one member does in one epoch of the plan.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Role {
    /// Number of the epoch; a higher one replaces a lower one.
    pub epoch: u32,
    /// The member that this is about.
    pub member: u32,
    /// The member that has the data and gives each piece to one of the stripes.
    pub source: u32,
    /// One for each stripe; as many in every epoch of a broadcast.
    pub stripes: Vec<Edges>,
}

/// A member's neighbours in one stripe.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Edges {
    /// Who feeds us; nobody feeds the source, nor who is not in the plan.
    pub parent: Option<u32>,
    /// Whom we feed; the one first whose subtree is deepest.
    pub children: Vec<u32>,
}
