//! The engine of a swarm: decides which pieces to request, serve and announce, and which peers to trust.
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
//! One mechanism a file, named as the protocol names it. Its state is in a file of `state`, private there;
//! its decisions are in a file here, as methods of `Engine`, which read everything and change a state by its
//! own methods only.
//! | subject | decided in | kept in `state` |
//! |---|---|---|
//! | events, actions, policy, limits | `api` | `env`, `outbox` |
//! | input and output; invariants of several states | `dispatch`, `engine` | |
//! | connections: peers to dial, to disconnect, to replace | `connections`, `peer_rotation` | `peers`, `peer`, `addresses` |
//! | wanted pieces, and present ones | `wants` | `pieces`, `partial` |
//! | the pieces of peers; their rarity; the next one | `holdings` | `selection`, `availability`, `picker` |
//! | the number of requests to each peer, and their time | `requests` | `request_checks`, `downloads`, `window`, `meter` |
//! | payload and its verdicts; the blame for bad data | `delivery`, `blame` | `downloads`, `counts`, `blame` |
//! | slow and silent peers, and their substitutes | `reassign`, `upkeep` | `silence`, `upkeep` |
//! | servers of HTTP that many nodes share | `web` | `web_seeds` |
//! | requests of peers; fair turns, few at a time | `serve` | `upload`, `upload_slots` |
//! | announcements of this node's pieces | `announce` | `announcer` |
//! | parents and children: the trees of a broadcast | `plan` | |
//! | the plan under way: feeding children, minding parents | `plan_sender`, `plan_receiver` | `membership`, `plan_state`, `child_queue` |
//! | a plan on demand; sparing the origin | `on_demand`, `budget` | `wishes`, `budget` |
//! | the textbook's mechanisms, for comparison | `choker`, `superseed`, `endgame` | `choker`, `superseed_pieces` |
//! | numbers, and whether the invariants hold | `stats`, `report` | |
//! | bugs to test the tester with | `planted` | |
//!
//! The file `layers` lists which module may use which, and `scripts/layers` checks it.
//!
//! Integers only, ordered maps only, one seeded generator: the same seed and events give the same
//! actions on every machine.

// Sets of pieces are lists of ranges here, and often one range.
#![allow(clippy::single_range_in_vec_init)]

mod announce;
mod api;
mod bitset;
mod blame;
mod budget;
mod choker;
mod connections;
mod delivery;
mod dispatch;
mod endgame;
mod engine;
mod holdings;
mod on_demand;
mod peer_rotation;
pub mod plan;
mod plan_receiver;
mod plan_sender;
mod planted;
mod ranges;
mod reassign;
mod report;
mod requests;
mod rng;
mod serve;
mod state;
mod stats;
mod superseed;
mod time;
mod upkeep;
mod wants;
mod web;

pub use api::*;
pub use engine::{Engine, SetupError};
#[cfg(debug_assertions)]
pub use planted::Bug;
pub use stats::{PeerStats, Stats};
