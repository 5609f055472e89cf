//! The figures of a run, computed from an [`Outcome`].
//!
//! Times are those of receivers that count: all but those that faults removed before they were complete. A
//! time that was never reached is `None`, never a number. Floats are used only here, after all decisions.

use tidecast_event::sim::{Crossing, Figures, Run};
use tidecast_swarm::Time;

use crate::network::Model;
use crate::outcome::{Outcome, PortUse};

/// Seconds, for people.
#[must_use]
pub fn seconds(time: Time) -> f64 {
    time.0 as f64 / 1e9
}

/// Times at which receivers were complete, in order.
#[must_use]
pub fn completions(outcome: &Outcome) -> Vec<Time> {
    let mut times: Vec<Time> = outcome.finished.iter().flatten().copied().collect();
    times.sort_unstable();
    times
}

/// Receivers that count.
#[must_use]
pub fn awaited(outcome: &Outcome) -> usize {
    let complete = outcome.finished.iter().flatten().count();
    outcome.finished.len().saturating_sub(outcome.lost as usize).max(complete)
}

/// The figures of `outcome`, against the bound where there is one, on a network that behaved as `model`.
#[must_use]
pub fn figures(outcome: &Outcome, bound: Option<Time>, model: &Model) -> Figures {
    let times = completions(outcome);
    let awaited = awaited(outcome);
    // Nearest rank: the first time by which at least this many in a hundred were complete.
    let at = |percent: usize| {
        let rank = (awaited * percent).div_ceil(100);
        Some(seconds(*times.get(rank.checked_sub(1)?)?))
    };
    let last = at(100);
    let due = outcome.size as f64 * awaited as f64;
    Figures {
        receivers: awaited as u32,
        complete: times.len() as u32,
        lost: (outcome.finished.len() - awaited) as u32,
        median: at(50),
        p99: at(99),
        last,
        efficiency: bound.zip(last).map(|(bound, last)| share(seconds(bound), last)),
        origin_copies: share(outcome.origin_sent as f64, outcome.size as f64),
        narrowest: narrowest(outcome).map(|port| crossing(outcome, over(outcome), port, model)),
        duplicates: share(outcome.duplicate as f64, due),
        control: share(outcome.control as f64, due),
    }
}

/// A run for programs: these figures, and their inputs.
#[must_use]
pub fn run(outcome: &Outcome, figures: Figures) -> Run {
    Run {
        algorithm: outcome.algorithm.clone(),
        figures,
        origin_sent: outcome.origin_sent,
        control_bytes: outcome.control,
        duplicate_bytes: outcome.duplicate,
        ended: seconds(outcome.ended),
        events: outcome.events,
        trace: format!("{:016x}", outcome.trace),
        ports: outcome.ports.clone(),
        finished: outcome.finished.iter().map(|at| at.map(seconds)).collect(),
    }
}

/// Links by the share of their capacity that was used, the busiest first; nodes' own wires where
/// `nodes` and where the run counted them.
#[must_use]
pub fn busiest(outcome: &Outcome, model: &Model, nodes: bool) -> Vec<Crossing> {
    let counted = outcome.ports.iter().filter(|p| nodes || is_link(p));
    // Once, not for each of many links: it sorts the times of all receivers.
    let end = over(outcome);
    let mut all: Vec<Crossing> = counted.map(|port| crossing(outcome, end, port, model)).collect();
    // Stable: equals stay in the order of the topology.
    all.sort_by(|a, b| b.load.total_cmp(&a.load));
    all
}

/// A link between switches, not a node's wire.
pub(crate) fn is_link(port: &PortUse) -> bool {
    !port.name.contains(' ')
}

/// The slowest link; of several, the one that carried most.
fn narrowest(outcome: &Outcome) -> Option<&PortUse> {
    let links = outcome.ports.iter().filter(|p| is_link(p));
    // The first of equals, as `min_by_key` promises.
    links.min_by_key(|p| (p.rate, std::cmp::Reverse(p.bytes)))
}

/// When the last receiver was complete; the end of the run where some were lost.
fn over(outcome: &Outcome) -> Time {
    completions(outcome).last().copied().filter(|_| outcome.lost == 0).unwrap_or(outcome.ended)
}

fn crossing(outcome: &Outcome, end: Time, port: &PortUse, model: &Model) -> Crossing {
    Crossing {
        link: port.name.clone(),
        bytes: port.bytes,
        copies: share(port.bytes as f64, model.wire(outcome.size) as f64),
        load: share(port.bytes as f64, port.rate as f64 * seconds(end)).min(1.0),
    }
}

/// `part / whole`; 0 of nothing.
fn share(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { part / whole } else { 0.0 }
}

/// A run of `n` receivers, the i-th complete after i seconds: for tests.
#[cfg(test)]
pub(crate) fn sample(n: u32) -> Outcome {
    let size = 1_000_000u64;
    let second = 1_000_000_000u64;
    let end = u64::from(n) * second;
    let port = |name: &str, bytes: u64, rate: u64| PortUse { name: name.into(), bytes, rate };
    let ports = vec![
        port("s0-s1", 1_100_000, 500_000),
        port("s1-s0", 110_000, 500_000),
        port("s1-s2", 1_100_000, 50_000_000),
        port("n0 out", 1_650_000, 200_000),
    ];
    let so_far = |part: u64| ports.iter().map(|p| p.bytes * part / 10).collect();
    let samples = (0..=10).map(|part| (Time(end * part / 10), so_far(part))).collect();
    Outcome {
        algorithm: "tidecast".into(),
        finished: (1..=u64::from(n)).map(|i| Some(Time(i * second))).collect(),
        lost: 0,
        size,
        origin_sent: size * 3 / 2,
        control: u64::from(n) * size / 1000,
        duplicate: u64::from(n) * size / 100,
        ports,
        events: 12_345,
        trace: 0x00DE_C0DE,
        ended: Time(end),
        samples,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const MODEL: Model = Model { payload: 1000, frame: 1100, ..Model::exact() };

    #[test]
    fn percentiles_are_of_those_who_are_waited_for() {
        let mut run = sample(100);
        let s = figures(&run, Some(Time(50_000_000_000)), &MODEL);
        assert_eq!((s.median, s.p99, s.last), (Some(50.0), Some(99.0), Some(100.0)));
        assert_eq!((s.receivers, s.complete, s.lost, s.efficiency), (100, 100, 0, Some(0.5)));
        // The last one dies: 99 are waited for, and the 99th is the end.
        run.finished[99] = None;
        run.lost = 1;
        let s = figures(&run, None, &MODEL);
        assert_eq!((s.receivers, s.lost, s.last, s.efficiency), (99, 1, Some(99.0), None));
        // It lives and never finishes: there is no last time.
        run.lost = 0;
        let s = figures(&run, Some(Time(1)), &MODEL);
        assert_eq!((s.receivers, s.complete, s.last, s.efficiency), (100, 99, None, None));
        assert_eq!(s.p99, Some(99.0));
    }

    #[test]
    fn one_receiver_or_none() {
        let s = figures(&sample(1), None, &MODEL);
        assert_eq!((s.median, s.p99, s.last), (Some(1.0), Some(1.0), Some(1.0)));
        let s = figures(&sample(0), Some(Time(0)), &MODEL);
        assert_eq!((s.median, s.last, s.duplicates), (None, None, 0.0));
    }

    #[test]
    fn copies_have_no_headers() {
        let run = sample(10);
        let s = figures(&run, None, &MODEL);
        assert!((s.origin_copies - 1.5).abs() < 1e-9, "{s:?}");
        assert!((s.duplicates - 0.01).abs() < 1e-9 && (s.control - 0.001).abs() < 1e-9, "{s:?}");
        // The slowest link is s0-s1, not the origin's wire, though that is slower.
        let narrow = s.narrowest.unwrap();
        assert_eq!(narrow.link, "s0-s1");
        assert!((narrow.copies - 1.0).abs() < 1e-9, "{narrow:?}");
        assert!((narrow.load - 0.22).abs() < 1e-9, "{narrow:?}");
    }

    #[test]
    fn the_busiest_come_first() {
        let links = busiest(&sample(10), &MODEL, false);
        assert_eq!(links.iter().map(|c| c.link.as_str()).collect::<Vec<_>>(), ["s0-s1", "s1-s0", "s1-s2"]);
        let all = busiest(&sample(10), &MODEL, true);
        assert_eq!(all[0].link, "n0 out");
    }
}
