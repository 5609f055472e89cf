//! Caches from elsewhere: asked for, granted, admitted, moved, verified and committed; repaired; replicated.

pub(crate) mod admission;
pub(crate) mod delta;
pub(crate) mod fetch;
pub(crate) mod fetch_state;
pub(crate) mod grant;
pub(crate) mod handover;
pub(crate) mod mover;
pub(crate) mod offer;
pub(crate) mod pending;
pub(crate) mod permits;
pub(crate) mod received;
pub(crate) mod repair;
pub(crate) mod replicas;
pub(crate) mod requests;
pub(crate) mod same_host;
pub(crate) mod seeding;
pub(crate) mod swarm_mover;
pub(crate) mod swarms;
