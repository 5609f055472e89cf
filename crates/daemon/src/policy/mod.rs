//! Decisions: pure functions of their arguments.

pub(crate) mod ads;
pub(crate) mod replicas;
pub(crate) mod requests;
pub(crate) mod sources;
