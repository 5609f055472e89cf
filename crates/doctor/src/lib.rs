//! Is this host fit for its network? Host tuning decided more than the application did at 100 Gbit/s ("Host tuning" of
//! the 100 Gbit/s paper).
//!
//! Facts are read once from /proc, /sys and netlink; checks are pure functions of the facts and of the [`Goal`]; each gives a
//! [`Finding`] that predicts what the setting costs. A [`Change`] is the remedy of a finding: it is shown before it is
//! applied, recorded before it takes effect, and can be undone exactly.
//!
//! ```
//! use tidecast_doctor::{Facts, Goal, System, check};
//!
//! let facts = Facts::read(&System::host()?, &[]);
//! let goal = Goal { purposes: Vec::new(), link: facts.fastest_link().unwrap_or(10_000_000_000), rtt: None };
//! for finding in check::all(&facts, &goal) {
//!     println!("{}: {} of the link's rate", finding.check, finding.cost.unwrap_or(0.0));
//! }
//! # Ok::<(), std::io::Error>(())
//! ```

#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod change;
pub mod check;
pub mod facts;
mod finding;
mod links;
pub mod measure;
pub mod model;
mod netlink;
pub mod peers;
mod system;

pub use change::Change;
pub use facts::Facts;
pub use finding::{Finding, Goal, Purpose, Verdict};
pub use system::System;
