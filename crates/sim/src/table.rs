//! The results of runs, for people: a table of all algorithms, and its explanation.

use std::time::Duration;

use tidecast_event::sim::{Crossing, Figures};
use tidecast_text::{Span, aligned, grouped};

use crate::outcome::Outcome as Run;
use crate::plan::Plan;
use crate::report::{busiest, seconds};

/// Wires named below the table, for each algorithm.
const BUSIEST: usize = 3;
/// Names of nodes in a list, at most.
const LISTED: usize = 8;

/// The lines of it, of the runs of a plan with their figures.
#[must_use]
pub fn lines(plan: &Plan, runs: &[Run], figures: &[Figures]) -> Vec<String> {
    let mut lines = vec![format!("{} ({})", plan.title(), plan.subtitle()), String::new()];
    let links = figures.iter().any(|f| f.narrowest.is_some());
    let mut head = vec!["", "median", "99%", "last", "efficiency", "origin sent", "sent twice", "control"];
    if links {
        head.push("narrowest link");
    }
    let mut rows = vec![head.into_iter().map(str::to_owned).collect::<Vec<_>>()];
    rows.extend(runs.iter().zip(figures).map(|(run, f)| row(run, f, links)));
    lines.extend(aligned(&rows, 1));
    lines.push(String::new());
    let bound = Span(duration(seconds(plan.bound.time)));
    lines.push(format!("bound: {bound}, set by {}", plan.bound.limit));
    let simple = shown(seconds(plan.bound.simple));
    let cut =
        plan.bound.cut.map_or_else(|| "unknown (search not finished)".to_owned(), |cut| shown(seconds(cut)));
    lines.push(format!("slowest node link alone: {simple}; minimum cut of the network: {cut}"));
    for (run, figures) in runs.iter().zip(figures) {
        lines.extend(missing(run, figures));
    }
    lines.push(String::new());
    let mut rows = vec![["", "busiest links", "events", "trace"].map(str::to_owned).to_vec()];
    rows.extend(runs.iter().map(|run| {
        vec![run.algorithm.clone(), wires(run, plan), grouped(run.events), format!("{:016x}", run.trace)]
    }));
    lines.extend(aligned(&rows, 2));
    lines
}

fn row(run: &Run, f: &Figures, links: bool) -> Vec<String> {
    let never = || "never".to_owned();
    let time = |at: Option<f64>| at.map_or_else(never, shown);
    let percent = |share: f64| format!("{:.1}%", share * 100.0);
    let mut row = vec![run.algorithm.clone(), time(f.median), time(f.p99), time(f.last)];
    row.push(f.efficiency.map_or_else(|| "-".to_owned(), percent));
    row.push(copies(f.origin_copies));
    row.extend([f.duplicates, f.control].map(|share| format!("{:.2}%", share * 100.0)));
    if links {
        row.push(
            f.narrowest
                .as_ref()
                .map_or_else(|| "-".to_owned(), |c| format!("{} {}", c.link, copies(c.copies))),
        );
    }
    row
}

/// The incomplete receivers, in a sentence; nothing if all are complete.
fn missing(run: &Run, f: &Figures) -> Option<String> {
    let unfinished = u64::from(f.receivers - f.complete);
    let mut parts = Vec::new();
    if f.lost > 0 {
        parts.push(format!("{} removed by faults", grouped(f.lost.into())));
    }
    if unfinished > 0 {
        parts.push(format!("{} of {} did not complete", grouped(unfinished), grouped(f.receivers.into())));
    }
    if parts.is_empty() {
        return None;
    }
    let absent = run.finished.iter().enumerate().filter(|(_, at)| at.is_none()).map(|(i, _)| i + 1);
    let mut names: Vec<String> = absent.take(LISTED + 1).map(|n| format!("n{n}")).collect();
    if names.len() > LISTED {
        names.truncate(LISTED);
        names.push("..".to_owned());
    }
    Some(format!("{}: {} ({})", run.algorithm, parts.join(", "), names.join(" ")))
}

/// The wires that were used most.
fn wires(run: &Run, plan: &Plan) -> String {
    let all = busiest(run, &plan.model, true);
    let one = |c: &Crossing| format!("{} {:.0}% ({})", c.link, c.load * 100.0, copies(c.copies));
    let named: Vec<String> = all.iter().take(BUSIEST).map(one).collect();
    named.join(", ")
}

fn copies(n: f64) -> String {
    match n {
        n if n < 9.995 => format!("{n:.2} x"),
        n if n < 99.95 => format!("{n:.1} x"),
        n => format!("{n:.0} x"),
    }
}

/// A time for people; short runs in milliseconds.
fn shown(time: f64) -> String {
    if time < 1.0 { format!("{:.3} ms", time * 1000.0) } else { Span(duration(time)).to_string() }
}

fn duration(time: f64) -> Duration {
    Duration::try_from_secs_f64(time).unwrap_or(Duration::MAX)
}
