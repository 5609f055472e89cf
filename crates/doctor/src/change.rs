//! One change of a host's settings, as data; and how changes are shown, applied, recorded and taken back.
//!
//! - [`Plan`] reads the values that are there and says what would change, as shell commands and as a script.
//! - [`apply()`] records every value in the [`Record`], makes that durable, and only then changes anything.
//! - [`undo()`] restores what the record holds, after a crash at any point too, and leaves what somebody else has changed
//!   since.

mod apply;
mod comment;
mod error;
mod host;
mod persist;
mod plan;
mod record;
mod remedy;
mod script;
mod step;
mod target;
#[cfg(test)]
mod tests;
mod undo;

pub use apply::{Applied, apply};
pub use error::Error;
pub use host::{Live, Places};
pub use plan::Plan;
pub use record::{Entry, Progress, Record};
pub use remedy::Change;
pub use step::Step;
pub use target::{Host, Target, Value};
pub use undo::{Restored, Undone, undo};
