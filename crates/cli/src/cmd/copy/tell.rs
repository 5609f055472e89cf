//! What is said of a copy when it is over.

use std::time::Duration;

use tidecast::event::copy::{Done, Limit, Pair};
use tidecast_text::{Size, Span, bytes_per_second, count, escaped, grouped};

use crate::report::Reporter;

/// What is said in rsync's manner.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Shown {
    /// Each change, in letters.
    pub(super) itemize: bool,
    /// How much was found and done.
    pub(super) stats: bool,
}

/// In rsync's words and numbers.
fn stats(done: &Done) -> Vec<String> {
    vec![
        format!("Number of files: {} (reg: {})", grouped(done.entries), grouped(done.files)),
        format!("Number of deleted files: {}", grouped(done.deleted)),
        format!("Number of regular files transferred: {}", grouped(done.files_copied)),
        format!("Total file size: {} bytes", grouped(done.bytes)),
        format!("Total transferred file size: {} bytes", grouped(done.bytes_copied)),
    ]
}

/// What one of several pairs has done.
fn of_pair(pair: &Pair) -> String {
    let (size, rate) = (Size(pair.bytes), bytes_per_second(pair.rate));
    let broke = pair.broke.as_ref().map_or(String::new(), |why| format!("; broke: {why}"));
    format!("{} -> {}: {size} ({rate}), batches: {}{broke}", pair.from, pair.to, pair.batches)
}

/// Tells what came of it.
pub(super) fn tell(done: &Done, shown: Shown, reporter: &Reporter) {
    if let Some(ladder) = &done.ladder {
        reporter.result(&format!("the limit: {}", ladder.limit));
    }
    for problem in &done.problems {
        // A program has the names as they are in `problems`.
        let path = if reporter.is_json() { problem.path.clone() } else { escaped(&problem.path).to_string() };
        reporter.warning(&format!("{path}: {}", problem.what));
    }
    if done.problems_more > 0 {
        reporter.warning(&format!("and {}", count(done.problems_more, "more problem")));
    }
    for change in &done.planned {
        match &change.itemized {
            Some(line) => reporter.result(&escaped(line).to_string()),
            None if shown.itemize => {}
            None => reporter.result(&format!("{}: {}", change.what, escaped(&change.path))),
        }
    }
    if done.planned_more > 0 {
        reporter.result(&format!("and {}", count(done.planned_more, "more change")));
    }
    if shown.stats {
        stats(done).iter().for_each(|line| reporter.result(line));
    }
    summary(done).iter().for_each(|line| reporter.result(line));
    done.pairs.iter().for_each(|pair| reporter.result(&of_pair(pair)));
}

fn summary(done: &Done) -> Vec<String> {
    let (dry, seconds) = (done.dry_run, done.transfer_seconds.max(1e-3));
    let would = if dry { "would be copied" } else { "copied" };
    let mut first = format!("{} {would}, {}", count(done.files_copied, "file"), Size(done.bytes_copied));
    if !dry {
        let rate = bytes_per_second(done.bytes_copied as f64 / seconds);
        let files = done.files_copied as f64 / seconds;
        first += &format!(" in {} ({rate}, {files:.0} files/s)", Span(Duration::from_secs_f64(seconds)));
    }
    for (n, what) in
        [(done.files_kept, "there already"), (done.deleted, if dry { "to be deleted" } else { "deleted" })]
    {
        if n > 0 {
            first += &format!("; {n} {what}");
        }
    }
    if done.bytes_resumed > 0 {
        first += &format!("; {} were left by an interrupted copy", Size(done.bytes_resumed));
    }
    let all = done.limits.all();
    let known: f64 = all.iter().map(|(_, seconds)| seconds).sum();
    let mut lines = vec![first];
    // What took less than two looks of the controller had no limit that is worth a line.
    if known >= 1.0 && !dry {
        let parts = all.iter().filter(|(limit, seconds)| *limit != Limit::Rate || *seconds > 0.0);
        let parts = parts.map(|(limit, seconds)| format!("{} {:.0}%", limit.name(), seconds / known * 100.0));
        let parts = parts.collect::<Vec<_>>().join(", ");
        lines.push(format!("limit: {} ({parts} of the time)", done.limits.main().name()));
    }
    lines
}
