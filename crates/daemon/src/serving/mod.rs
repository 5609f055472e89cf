//! What other daemons may ask of this one.

pub(crate) mod answers;
pub(crate) mod leaves;
pub(crate) mod seekers;
