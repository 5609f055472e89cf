//! Complaints of members.

/// The fault of a member of the plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Complaint {
    /// No connection to it, or it has ended.
    Gone,
    /// A connection, and nothing comes.
    Silent,
    /// Much less comes than from others.
    Slow,
}
