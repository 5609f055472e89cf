//! Daemons of a site in one process: all their parts but sockets, on tokio's clock, which the tests pause.
//! The wire between them delays, and can be cut; data that the engine would move is copied. Depots are real.
#![allow(clippy::unwrap_used)]

mod admin;
mod caches;
mod grants;
mod handover;
mod healing;
mod members;
mod names;
mod offers;
mod repair;
mod replicas;
mod room;
mod site;
mod sources;
mod wire;
