//! From a file or directory to a manifest, and back.
//!
//! [`scan`] walks a tree and records all but its bytes; [`hash`] reads each byte once and makes the manifest,
//! v2 with v1 beside it where that is cheap; [`draft`] reads no data, for senders that hash while they send;
//! [`verify`] compares a tree with a manifest. All cores work, progress can be read at any time, and an
//! interrupted run resumes where it was.

mod base;
mod engine;
mod error;
mod exclude;
mod job;
mod prefix_scan;
mod progress;
mod publish;
mod report;
mod scan;
mod state;
mod tree;
mod verify;
mod worker;

pub use base::Base;
pub use error::Error;
pub use exclude::Exclude;
pub use progress::Progress;
pub use publish::{Format, HashOptions, Published, draft, hash};
pub use report::{Kind, Problem, ProblemKind, Report};
pub use scan::{ScanOptions, leads_out, own_name, scan};
pub use tree::{Content, Identity, Node, Time, Tree, Warning};
pub use verify::verify;
