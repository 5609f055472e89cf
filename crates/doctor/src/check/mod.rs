//! Findings out of facts. Each check is a pure function; a file has those of one subject.

mod buffers;
mod card;
mod host;
mod limits;
mod load;
mod memory;
mod placement;
mod processors;
mod storage;
mod tcp;
mod words;

use crate::{Facts, Finding, Goal};

/// The round-trip time and the number of TCP streams that buffers are judged for.
#[must_use]
pub fn path(goal: &Goal) -> (std::time::Duration, u32) {
    buffers::path(goal)
}

/// All checks, the costliest finding first; of equal cost, in the order of the checks.
#[must_use]
pub fn all(facts: &Facts, goal: &Goal) -> Vec<Finding> {
    let checks: [fn(&Facts, &Goal) -> Vec<Finding>; 9] = [
        buffers::check,
        tcp::check,
        card::check,
        placement::check,
        processors::check,
        memory::check,
        limits::check,
        storage::check,
        host::check,
    ];
    let mut findings: Vec<Finding> = checks.iter().flat_map(|check| check(facts, goal)).collect();
    findings.sort_by(Finding::costliest_first);
    findings
}

#[cfg(test)]
mod tests;
