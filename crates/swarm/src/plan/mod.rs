//! The plan of a broadcast: stripes, each with a shallow tree of its own over the members.
//!
//! The origin gives each piece to one stripe; every member gets every stripe, from one parent each, and
//! forwards the few in which it is a relay to its children. A member's part is a [`Role`]; an [`Epoch`] lists
//! the members, [`Plan::new`] computes every member's role from it, [`Planner`] makes the epochs.
//!
//! # Why this comes close to the bound
//!
//! *One switch.* With k stripes, stripe s carries one k-th of the data. N receivers need k(N - 1) edges
//! beside the k from the source, and a relay that has k children over all stripes sends one copy: so all
//! relays together just suffice, and each sends as much as it receives. Each is interior in one stripe
//! (SplitStream, Castro and others, SOSP 2003) and feeds k there: trees are about log k of N deep. With k = N
//! each piece goes to one receiver, which gives it to all others (Mutualcast, Li and others, 2005; BEP 16
//! comes near to it by chance). Where N is no multiple of k, relays with spare capacity help in another
//! stripe.
//!
//! *Cuts.* Places form a tree, rooted at the source's. A unit is the members at one place, or a place with
//! all places below it; each gets each stripe over one edge, so that each link is crossed once per piece
//! inwards. A unit of n relays needs n - 1 copies within and can send n: it has one copy for others. So units
//! feed one another like members of one: few in a chain, many in trees of small degree whose interior changes
//! from stripe to stripe; and none sends more than one copy back over its own link. Members at a place come
//! before those below it, and faster links before slower ones.
//!
//! *Several sources.* Where others can read the same data, each gives a share of the pieces, and is the root of every
//! k-th stripe; none is fed. The trees are the same, hung up at the first one's place.
//!
//! *Members that do not relay* are fed by others. The copies that they do not send are spread over all
//! relays, as evenly as whole children allow; a place without relays is fed by the one before it. Members
//! that accept no connections relay too: they connect to their children, which must be members that do
//! (`dial_only`).
//!
//! *Change.* Members sit at seats drawn by lot from the seed; a leaving member leaves a gap that the last one
//! fills, so that few edges change when one of many is lost.
//!
//! | what | where |
//! |---|---|
//! | the input of a plan; limits | `epoch` |
//! | the places as seen from the source; units | `places`, `units` |
//! | how many children each item of a unit has in each stripe | `share` |
//! | one stripe's tree in one unit; from units to members | `tree`, `layout` |
//! | all members' parents and children | `table`, `role` |
//! | how many stripes; other shapes to compare with | `count`, `shapes` |
//! | complaints, and their effects | `planner` |
//! | members that join while it runs: when there is a new epoch | `joinable` |
//! | places from Slurm's file, the lab's, or rules | `topology` |
//!
//! A wrong topology costs speed and nothing else.

mod complaint;
mod count;
mod dial_only;
mod epoch;
mod joinable;
mod layout;
mod places;
pub mod planner;
mod role;
mod shapes;
mod share;
mod table;
pub mod topology;
mod tree;
mod units;

pub use complaint::Complaint;
pub use count::stripes_for;
pub use epoch::{
    Epoch, MAX_EDGES, MAX_LEVELS, MAX_MEMBERS, MAX_PLACES, MAX_STRIPES, Member, Part, Place, PlanError,
};
pub use joinable::JoinablePlan;
pub use planner::Planner;
pub use role::{Edges, Role};
pub use shapes::Shape;
pub use table::Plan;
