//! Is this host fit for its network? Host tuning decided more than the application did at 100 Gbit/s ("Host tuning" of
//! the 100 Gbit/s paper).
//!
//! Facts are read once from /proc, /sys and netlink; checks are pure functions of the facts and of the [`Goal`]; each gives a
//! [`Finding`] that predicts what the setting costs. A [`Change`] is the remedy of a finding: it is shown before it is
//! applied, recorded before it takes effect, and can be undone exactly.

mod change;
mod finding;

pub use change::Change;
pub use finding::{Finding, Goal, Purpose, Verdict};
