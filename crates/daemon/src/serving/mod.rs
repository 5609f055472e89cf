//! What other daemons may ask of this one.

pub(crate) mod answers;
