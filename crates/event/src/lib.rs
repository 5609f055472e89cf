//! Events of operations: their progress, results and errors.
//!
//! Each operation has one [`Event`] type: its first event, its result, and the events that all operations share.
//! Serialized, an event is the line that the program prints with `--json`; `docs/events.md` is generated from these
//! types. An operation that fails ends with an [`Error`], whose [`Kind`] is the exit code of the program.
//!
//! Pure: types, and their texts for people (`lines`, `line`). Rust fields that JSON lines do not have are marked as such.

#[macro_use]
mod path;

pub mod bcast;
pub mod ca;
pub mod cache;
pub mod classad;
pub mod copy;
pub mod daemon;
pub mod doctor;
mod error;
mod event;
pub mod field;
pub mod get;
pub mod mount;
pub mod peers;
mod progress;
pub mod publish;
pub mod revoke;
pub mod seed;
pub mod show;
pub mod sim;
pub mod status;
mod swarm;
mod texts;
pub mod tracker;
pub mod verify;
mod warning;

pub use error::{Context, Error, Fault, Kind, PartialResult, Reached};
pub use event::{Event, Failed, NoNews};
pub use path::Text;
pub use progress::{Connected, OneSwarm, Phase, Progress, Stage, Traffic};
pub use swarm::{CpuSeconds, Peer, Started, Totals, WebSeed};
pub use warning::{Resumed, Warning};

/// Rounds seconds to milliseconds, as in events.
#[must_use]
pub fn round(seconds: f64) -> f64 {
    (seconds * 1000.0).round() / 1000.0
}

/// Serializes an exact number rounded by [`round`].
fn rounded<S: serde::Serializer>(number: &f64, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_f64(round(*number))
}
