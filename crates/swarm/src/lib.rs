//! The engine of a swarm: decides what to request, what to serve, what to announce, whom to trust.
//!
//! Pure: it holds no socket, file, clock, thread or unseeded randomness, and no payload. Events and
//! the time go in, actions come out:
//!
//! ```text
//! engine.handle(now, event);
//! while let Some(action) = engine.poll() { /* do it */ }
//! sleep_until(engine.wakeup());
//! ```

// Sets of pieces are lists of ranges here, and often one range.
#![allow(clippy::single_range_in_vec_init)]

mod announce;
mod api;
mod availability;
mod bitset;
mod blame;
mod choker;
mod delivery;
mod endgame;
mod engine;
mod holdings;
mod neighbours;
mod partial;
mod peer;
mod picker;
mod pieces;
mod report;
mod requests;
mod rng;
mod serve;
mod slow;
mod stats;
mod superseed;
mod upload;
mod window;

pub use api::*;
pub use engine::{Engine, SetupError};
pub use stats::{PeerStats, Stats};
