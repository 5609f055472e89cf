//! Requests that other daemons may make of this one.

pub(crate) mod answers;
pub(crate) mod leaves;
pub(crate) mod seekers;
