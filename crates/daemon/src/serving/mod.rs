//! Requests that other daemons may make of this one.

pub(crate) mod answers;
pub(crate) mod fetching_peers;
pub(crate) mod fingerprints;
