//! Events of a running copy.

use crate::error::Error;
use crate::part::BLOCK;
use crate::transfer::{Progress, Wire};

/// Something about a copy that runs.
#[derive(Debug)]
#[non_exhaustive]
pub enum Event {
    /// The copy continues in another way than requested.
    Warning(Warning),
    /// The progress; of several pairs, the sum of their results.
    Progress(Box<Progress>),
    /// Of a copy that is explained: a step has been measured.
    Step(Step),
}

/// Reasons to continue in another way.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Warning {
    /// The other end cannot be reached but by ssh.
    #[error("{0}; all data goes through ssh instead")]
    ThroughSsh(Error),
    /// One of several pairs of hosts has failed.
    #[error("{pair} failed, the other pairs continue: {why}")]
    PairBroke {
        /// Which.
        pair: String,
        /// Why.
        why: String,
    },
    /// This host does not have the congestion control that the other end is to use.
    #[error("--congestion: {0}; the other end uses it if it is available there")]
    Congestion(String),
}

/// A step from the simplest transfer to the whole one.
#[derive(Clone, Copy, Debug, Default)]
pub struct Step {
    /// The transferred data.
    pub what: &'static str,
    /// The part to examine if the rate falls at this step.
    pub(super) limit: &'static str,
    /// How much, in bytes.
    pub bytes: u64,
    /// In how many seconds.
    pub seconds: f64,
}

impl Step {
    /// Bytes a second.
    #[must_use]
    pub fn rate(&self) -> f64 {
        self.bytes as f64 / self.seconds.max(1e-3)
    }
}

/// The results of the steps.
#[derive(Clone, Debug)]
pub struct Explanation {
    /// From the simplest on.
    pub steps: Vec<Step>,
    /// The limit of the whole copy, as text.
    pub limit: String,
    /// The streams over the network alone, by the kernel.
    pub wire: Wire,
}

/// Bytes received, of this many (0: unknown), including those of incomplete blocks: a slow link takes seconds
/// for each.
#[must_use]
pub fn moved(progress: &Progress, total: u64) -> u64 {
    let blocks = u64::from(progress.here.blocks.max(progress.there.blocks));
    let most = progress.bytes.saturating_add(blocks * BLOCK as u64);
    let most = if total > 0 { most.min(total.max(progress.bytes)) } else { most };
    // The receiver knows; which of the two it is, is not known here.
    progress.here.came.max(progress.there.came).clamp(progress.bytes, most)
}
