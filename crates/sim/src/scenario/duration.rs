//! How long a scenario may take.

use tidecast_swarm::{Limits, Time};

use super::SECOND;
use crate::fault::Fault;
use crate::job::Job;

/// Bytes that TCP has on its way where one frame in a thousand is lost (Mathis et al. 1997), rounded down.
const LOSSY: u64 = 50_000;

/// Nanoseconds that the broadcast takes where nothing goes wrong, roughly.
pub(super) fn ideal(size: u64, slowest: u64, delay: u64) -> u64 {
    let moving = u128::from(size) * 8 * u128::from(SECOND) / u128::from(slowest.max(1));
    u64::try_from(moving).unwrap_or(u64::MAX / 1024) + 10 * delay + 2_000_000
}

/// A run that is not over by then never will be: after the last fault, time for the slowest node, for
/// every time-out of the driver, and for the rounds of textbook timers.
pub(super) fn until(job: &Job, ideal: u64) -> Time {
    let last = job.faults.iter().map(|t| t.at.0).chain(job.joins.iter().map(|j| j.0.0)).max().unwrap_or(0);
    let patience = if job.policy.choking || job.policy.distribution { 3000 } else { 600 };
    let size: u64 = job.lengths.iter().map(|&len| u64::from(len)).sum();
    let crowded = crowded(job, ideal / size.max(1));
    Time(last + 100 * ideal + delayed(job, size) + slowed(job, size) + crowded + patience * SECOND)
}

/// Nanoseconds in which every node gets the longest piece from the origin, at so many nanoseconds a byte:
/// no node can help another before it has a whole piece.
fn crowded(job: &Job, byte: u64) -> u64 {
    let longest = job.lengths.iter().copied().max().map_or(0, u64::from);
    longest * job.topology.nodes.len() as u64 * byte
}

/// Eight times the nanoseconds in which everything comes over the two longest links, a window at a time.
fn delayed(job: &Job, size: u64) -> u64 {
    let Limits { window, serving, serving_total, .. } = job.limits;
    let way = if job.topology.links.iter().any(|l| l.loss > 0) { LOSSY } else { u64::MAX };
    let way = way.min(u64::from(window.1)).min(u64::from(serving)).min(serving_total);
    let delay = job.topology.links.iter().map(|l| l.delay).max().unwrap_or(0);
    8 * (size / way) * 4 * delay
}

/// Nanoseconds in which eight copies cross the slowest wire that a fault leaves.
fn slowed(job: &Job, size: u64) -> u64 {
    let rate = |fault: &Fault| match fault {
        Fault::NodeRate { rate, .. } | Fault::LinkRate { rate, .. } if *rate > 0 => Some(*rate),
        _ => None,
    };
    let slowest = job.faults.iter().filter_map(|timed| rate(&timed.fault)).min();
    slowest.map_or(0, |rate| 8 * size / rate * SECOND)
}
