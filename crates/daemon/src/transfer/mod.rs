//! Caches from elsewhere: asked for, granted, admitted, moved, verified and committed; repaired; replicated.

pub(crate) mod delta;
pub(crate) mod fetch;
pub(crate) mod grant;
mod handover;
pub(crate) mod repair;
pub(crate) mod replicas;
pub(crate) mod requests;
mod same_host;
pub(crate) mod swarms;
