//! The state of the engine's mechanisms: each private to its file, changed by methods that keep its
//! invariants.
//!
//! Nothing here decides for the engine: the mechanisms (`crate::announce` and the modules beside it) do, and call these.
//!
//! | what | where |
//! |---|---|
//! | the time, the policy, the limits; the driver's actions | `env`, `outbox` |
//! | where a piece stands; its blocks on their way | `pieces`, `partial` |
//! | how rare it is, when it is due; which is next | `selection`, `availability`, `picker` |
//! | the connections; what each has, how it does, how long it may be silent | `peers`, `peer`, `peer_pieces`, `window`, `meter`, `silence` |
//! | wanted pieces by peer; the target of the next request | `interest`; `next_request` |
//! | peers to be asked; data in flight | `request_checks`, `downloads` |
//! | when to look again | `upkeep` |
//! | requests of peers, and their turns | `upload`, `requesters`, `upload_slots` |
//! | pieces to announce | `announcer` |
//! | addresses | `addresses` |
//! | suspicions; web seeds; the textbook's mechanisms | `blame`; `web_seeds`; `choker`, `superseed_pieces` |
//! | the current plan: members, children, parents, wishes | `membership`, `plan_state`, `child_queue`, `wishes` |
//! | the budget of a plan's source; bytes moved | `budget`; `counts` |

pub(crate) mod addresses;
pub(crate) mod announcer;
pub(crate) mod availability;
pub(crate) mod balance;
pub(crate) mod blame;
pub(crate) mod budget;
pub(crate) mod child_queue;
pub(crate) mod choker;
pub(crate) mod counts;
pub(crate) mod downloads;
pub(crate) mod env;
pub(crate) mod interest;
pub(crate) mod membership;
pub(crate) mod meter;
pub(crate) mod next_request;
pub(crate) mod outbox;
pub(crate) mod partial;
pub(crate) mod peer;
pub(crate) mod peer_pieces;
pub(crate) mod peers;
pub(crate) mod picker;
pub(crate) mod pieces;
pub(crate) mod plan_state;
pub(crate) mod request_checks;
pub(crate) mod requesters;
pub(crate) mod selection;
pub(crate) mod silence;
pub(crate) mod superseed_pieces;
pub(crate) mod upkeep;
pub(crate) mod upload;
pub(crate) mod upload_slots;
pub(crate) mod web_seeds;
pub(crate) mod window;
pub(crate) mod wishes;
