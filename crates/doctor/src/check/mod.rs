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

use std::cmp::Ordering;

use crate::{Facts, Finding, Goal, Verdict};

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
    findings.sort_by(by_cost);
    findings
}

/// What costs most is first, and what breaks without a share before all; then notes, what is unknown, and what fits.
fn by_cost(a: &Finding, b: &Finding) -> Ordering {
    let rank = |of: &Finding| match of.verdict {
        Verdict::Costs => 0,
        Verdict::Note => 1,
        Verdict::Unknown => 2,
        Verdict::Fit => 3,
    };
    let cost = |of: &Finding| of.cost.unwrap_or(if of.verdict == Verdict::Costs { 1.0 } else { 0.0 });
    rank(a).cmp(&rank(b)).then(cost(b).total_cmp(&cost(a)))
}

#[cfg(test)]
mod tests;
