//! Decisions: pure functions of what is given to them.

pub(crate) mod ads;
