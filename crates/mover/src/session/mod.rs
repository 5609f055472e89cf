//! A copy from end to end, as a caller sees it: sources, destination, how the ends are reached, progress, and
//! the outcome. It needs neither a terminal nor a runtime.
//!
//! ```
//! use tidecast_mover::session::Copy;
//!
//! let dir = tempfile::tempdir()?;
//! let (from, to) = (dir.path().join("a"), dir.path().join("b"));
//! std::fs::write(&from, "bytes")?;
//! let copying = Copy::new(&[from.into()], to.as_os_str())?.start()?;
//! let done = copying.wait()?;
//! done.outcome.verdict()?;
//! assert_eq!((done.outcome.written.files, std::fs::read(to)?), (1, b"bytes".to_vec()));
//! # Ok::<_, Box<dyn std::error::Error>>(())
//! ```
//!
//! Promises: each copy ends and reports why; a stopped copy resumes where it was when the same copy is
//! started again.

mod attempt;
mod connect_options;
mod ends;
mod event;
mod explain;
mod job;
mod location;
mod memory;
mod pairs;
mod paths;
mod program;
mod rules;
mod shm;
mod start;
mod stream;

pub use connect_options::{ConnectOptions, Launcher};
pub use event::{Event, Explanation, Step, Warning, moved};
pub use location::{Location, PORT, ServerAddress};
pub use memory::Consumer;
pub use pairs::PairDone;
pub use paths::KeepPaths;
pub use rules::{Given, Reading, malformed, read_rules};
pub use start::{Copy, Copying, Done, How, Memory};
