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
//! | the ways in and out, and the bookkeeping that keeps indexes true; the peers | `engine`, `peer`, `peers` |
//! | where a piece stands; its blocks on their way | `pieces`, `partial` |
//! | who has what; how rare it is; which to take next | `holdings`, `availability`, `picker` |
//! | how much to ask of whom, and when | `window`, `requests` |
//! | payload and its verdicts; who is to blame | `delivery`, `blame` |
//! | the slow, the silent, and who helps instead | `slow` |
//! | servers of HTTP that many nodes share | `web` |
//! | requests of peers; fair turns, few at a time; telling what we have | `serve`, `upload`, `lanes`, `announce` |
//! | whom to dial; who makes room for another | `neighbours`, `rotate` |
//! | who feeds whom: the trees of a broadcast | `plan` |
//! | the plan under way: feeding children, minding parents, sparing the origin | `course`, `push`, `follow`, `budget` |
//! | the textbook's mechanisms, for comparison | `choker`, `superseed`, `endgame` |
//! | numbers, and whether the invariants hold | `stats`, `report` |
//! | bugs to test the tester with | `planted` |
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
mod budget;
mod choker;
mod course;
mod delivery;
mod endgame;
mod engine;
mod follow;
mod holdings;
mod lanes;
mod neighbours;
mod partial;
mod peer;
mod peers;
mod picker;
mod pieces;
pub mod plan;
mod planted;
mod push;
mod report;
mod requests;
mod rng;
mod rotate;
mod serve;
mod slow;
mod stats;
mod superseed;
mod touch;
mod upload;
mod web;
mod window;

pub use api::*;
pub use engine::{Engine, SetupError};
#[cfg(debug_assertions)]
pub use planted::Bug;
pub use stats::{PeerStats, Stats};
