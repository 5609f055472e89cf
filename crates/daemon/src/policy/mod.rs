//! Decisions: pure functions of what is given to them.

pub(crate) mod ads;
pub(crate) mod replicas;
pub(crate) mod requests;
pub(crate) mod sources;
