//! Texts of a copy.

use std::time::Duration;

use tidecast_text::{Size, Span, bytes_per_second, count, escaped, grouped};

use crate::copy::{Done, Limit, Pair, Step};

impl Step {
    /// A line for people.
    #[must_use]
    pub fn line(&self) -> String {
        format!("{:>12}  {}", bytes_per_second(self.bytes_per_second), self.what)
    }
}

impl Done {
    /// Lines for people, printed after the warnings of [`Done::problems`]. `itemize`: changes only in rsync's letters;
    /// `stats`: with rsync's counts.
    #[must_use]
    pub fn lines(&self, itemize: bool, stats: bool) -> Vec<String> {
        let mut lines: Vec<String> =
            self.ladder.iter().map(|of| format!("bottleneck: {}", of.limit)).collect();
        for change in &self.planned {
            match &change.itemized {
                Some(line) => lines.push(escaped(line).to_string()),
                None if itemize => {}
                None => lines.push(format!("{}: {}", change.what, escaped(&change.path))),
            }
        }
        if self.planned_more > 0 {
            lines.push(format!("and {}", count(self.planned_more, "more change")));
        }
        if stats {
            lines.extend(counts(self));
        }
        lines.extend(summary(self));
        lines.extend(self.pairs.iter().map(of_pair));
        lines
    }
}

/// The counts in rsync's format.
fn counts(done: &Done) -> Vec<String> {
    vec![
        format!("Number of files: {} (reg: {})", grouped(done.entries), grouped(done.files)),
        format!("Number of deleted files: {}", grouped(done.deleted)),
        format!("Number of regular files transferred: {}", grouped(done.files_copied)),
        format!("Total file size: {} bytes", grouped(done.bytes)),
        format!("Total transferred file size: {} bytes", grouped(done.bytes_copied)),
    ]
}

/// The work of one of several pairs of hosts.
fn of_pair(pair: &Pair) -> String {
    let (size, rate) = (Size(pair.bytes), bytes_per_second(pair.rate));
    let broke = pair.broke.as_ref().map_or(String::new(), |why| format!("; failed: {why}"));
    format!("{} -> {}: {size} ({rate}), batches: {}{broke}", pair.from, pair.to, pair.batches)
}

fn summary(done: &Done) -> Vec<String> {
    let (dry, seconds) = (done.dry_run, done.transfer_seconds.max(1e-3));
    let would = if dry { "to be copied" } else { "copied" };
    let mut first = format!("{} {would}, {}", count(done.files_copied, "file"), Size(done.bytes_copied));
    if !dry {
        let rate = bytes_per_second(done.bytes_copied as f64 / seconds);
        let files = done.files_copied as f64 / seconds;
        first += &format!(" in {} ({rate}, {files:.0} files/s)", Span(Duration::from_secs_f64(seconds)));
    }
    for (n, what) in
        [(done.files_kept, "unchanged"), (done.deleted, if dry { "to be deleted" } else { "deleted" })]
    {
        if n > 0 {
            first += &format!("; {n} {what}");
        }
    }
    if done.bytes_resumed > 0 {
        first += &format!("; {} resumed from an interrupted copy", Size(done.bytes_resumed));
    }
    let all = done.limits.all();
    let known: f64 = all.iter().map(|(_, seconds)| seconds).sum();
    let mut lines = vec![first];
    // A copy that ended within two intervals of the controller has no meaningful bottleneck.
    if known >= 1.0 && !dry {
        let parts = all.iter().filter(|(limit, seconds)| *limit != Limit::Rate || *seconds > 0.0);
        let parts = parts.map(|(limit, seconds)| format!("{} {:.0}%", limit.name(), seconds / known * 100.0));
        let parts = parts.collect::<Vec<_>>().join(", ");
        lines.push(format!("limit: {} ({parts} of the time)", done.limits.main().name()));
    }
    lines
}
