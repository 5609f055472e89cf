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
//!
//! One mechanism a file, named as the protocol names it:
//!
//! | what | where |
//! |---|---|
//! | events, actions, policy, limits | `api` |
//! | the ways in and out, and the bookkeeping that keeps indexes true | `engine` |
//! | where a piece stands; its blocks on their way | `pieces`, `partial` |
//! | who has what; how rare it is; which to take next | `holdings`, `availability`, `picker` |
//! | how much to ask of whom, and when | `window`, `requests` |
//! | payload and its verdicts; who is to blame | `delivery`, `blame` |
//! | the slow, the silent, and who helps instead | `slow` |
//! | requests of peers; fair turns; telling what we have | `serve`, `upload`, `announce` |
//! | whom to dial | `neighbours` |
//! | the textbook's mechanisms, for comparison | `choker`, `superseed`, `endgame` |
//! | numbers, and whether the invariants hold | `stats`, `report` |
//!
//! Integers only, ordered maps only, one seeded generator: the same seed and events give the same
//! actions on every machine.

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
