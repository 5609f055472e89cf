//! What is said of a copy while it runs and when it is over.

use std::time::Duration;

use anyhow::anyhow;
use serde_json::{Value, json};
use tidecast_mover::back::{Limit, Outcome, Progress};
use tidecast_mover::job::{Change, Problem};
use tidecast_mover::part::BLOCK;
use tidecast_text::escaped;

use crate::failure::Failure;
use crate::report::{Parallel, Reporter, SYNCING, Snapshot, object, round};
use crate::units::{Size, Span, bytes_per_second, count};

/// The state of a copy under way. Its end is known only when all is walked.
pub(super) fn snapshot(progress: &Progress) -> Snapshot {
    let walked = &progress.walked;
    let total = if walked.complete { walked.bytes.saturating_sub(walked.spared) } else { 0 };
    // What the ends have found is known after the first look of the controller.
    let copy = progress.limit.map(|limit| Parallel {
        streams: progress.here.streams,
        readers: progress.here.fronts,
        writers: progress.there.fronts,
        blocks: progress.here.blocks + progress.there.blocks,
        limit: if progress.ending { SYNCING } else { name(limit) },
    });
    let bytes = moved(progress, total);
    Snapshot { stage: "copy", bytes, sent: bytes, total, copy, ..Snapshot::default() }
}

/// Bytes that have come, of so many (0: not known), with those of blocks under way: a slow link takes seconds for each.
pub(super) fn moved(progress: &Progress, total: u64) -> u64 {
    let blocks = u64::from(progress.here.blocks.max(progress.there.blocks));
    let most = progress.bytes.saturating_add(blocks * BLOCK as u64);
    let most = if total > 0 { most.min(total.max(progress.bytes)) } else { most };
    // The receiver knows; which of the two it is, is not known here.
    progress.here.came.max(progress.there.came).clamp(progress.bytes, most)
}

fn name(limit: Limit) -> &'static str {
    match limit {
        Limit::DiskIn => "reading",
        Limit::Network => "the network",
        Limit::DiskOut => "writing",
        Limit::Rate => "--limit",
    }
}

/// What is said in rsync's manner.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Shown {
    /// Each change, in letters.
    pub(super) itemize: bool,
    /// How much was found and done.
    pub(super) stats: bool,
}

/// Puts changes in the order of their names, deletions first, and has them be sent, if this end `sends`.
pub(super) fn as_rsync(planned: &mut [Change], sends: bool) {
    for line in planned.iter_mut().filter_map(|change| change.itemized.as_mut()).filter(|_| sends) {
        if let Some(rest) = line.strip_prefix('>') {
            *line = format!("<{rest}");
        }
    }
    planned.sort_by(|a, b| (a.what != "delete", &a.path).cmp(&(b.what != "delete", &b.path)));
}

/// In rsync's words and numbers.
fn stats(outcome: &Outcome) -> Vec<String> {
    let (walked, written) = (&outcome.walked, &outcome.written);
    vec![
        format!("Number of files: {} (reg: {})", grouped(walked.entries), grouped(walked.files)),
        format!("Number of deleted files: {}", grouped(written.deleted)),
        format!("Number of regular files transferred: {}", grouped(written.files)),
        format!("Total file size: {} bytes", grouped(walked.bytes)),
        format!("Total transferred file size: {} bytes", grouped(written.bytes)),
    ]
}

/// A number with a comma before each three digits.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let comma = |at: usize| if at > 0 && (digits.len() - at).is_multiple_of(3) { "," } else { "" };
    digits.char_indices().map(|(at, digit)| format!("{}{digit}", comma(at))).collect()
}

/// Tells what came of it, with further fields and lines.
pub(super) fn tell(
    outcome: &Outcome,
    dry: bool,
    shown: Shown,
    pairs: Option<(Value, Vec<String>)>,
    reporter: &Reporter,
) -> crate::failure::Outcome {
    let (walked, written) = (&outcome.walked, &outcome.written);
    let problems: Vec<&Problem> = walked.problems.iter().chain(&written.problems).collect();
    let failed = walked.failed + written.failed;
    let mut fields = object(json!({
        "entries": walked.entries, "files": walked.files, "bytes": walked.bytes,
        "files_copied": written.files, "bytes_copied": written.bytes, "files_kept": written.kept,
        "bytes_resumed": written.resumed, "deleted": written.deleted, "blocks_again": outcome.again,
        "transfer_seconds": round(outcome.seconds), "dry_run": dry,
        "limits": { "reading": round(outcome.limits.disk_in), "network": round(outcome.limits.network), "writing": round(outcome.limits.disk_out), "rate": round(outcome.limits.rate) },
        "problems": problems, "failed": failed, "attributes_lost": written.lost, "planned": written.planned, "planned_more": written.more_planned,
    }));
    reporter.clear();
    for problem in &problems {
        // A program has the names as they are in `problems`.
        let path = if reporter.is_json() { problem.path.clone() } else { escaped(&problem.path).to_string() };
        reporter.warning(&format!("{path}: {}", problem.what));
    }
    let more = walked.more_problems + written.more_problems;
    if more > 0 {
        reporter.warning(&format!("and {}", count(more, "more problem")));
    }
    for change in &written.planned {
        match &change.itemized {
            Some(line) => reporter.result(&escaped(line).to_string()),
            None if shown.itemize => {}
            None => reporter.result(&format!("{}: {}", change.what, escaped(&change.path))),
        }
    }
    if written.more_planned > 0 {
        reporter.result(&format!("and {}", count(written.more_planned, "more change")));
    }
    if shown.stats {
        stats(outcome).iter().for_each(|line| reporter.result(line));
    }
    let (pairs, lines) = pairs.unwrap_or_default();
    if !pairs.is_null() {
        fields.insert("pairs".into(), pairs);
    }
    summary(outcome, dry).iter().chain(&lines).for_each(|line| reporter.result(line));
    if failed == 0 && written.lost == 0 {
        return Ok(fields);
    }
    if failed == 0 {
        let names = count(written.lost, "name");
        return Err(
            Failure::from(anyhow!("{names} did not keep all attributes; all data is there")).with(fields)
        );
    }
    let names = count(failed, "name");
    Err(Failure::from(anyhow!("{names} could not be copied or deleted; the rest is done")).with(fields))
}

fn summary(outcome: &Outcome, dry: bool) -> Vec<String> {
    let (written, seconds) = (&outcome.written, outcome.seconds.max(1e-3));
    let would = if dry { "would be copied" } else { "copied" };
    let mut first = format!("{} {would}, {}", count(written.files, "file"), Size(written.bytes));
    if !dry {
        let rate = bytes_per_second(written.bytes as f64 / seconds);
        let files = written.files as f64 / seconds;
        first += &format!(" in {} ({rate}, {files:.0} files/s)", Span(Duration::from_secs_f64(seconds)));
    }
    for (n, what) in
        [(written.kept, "there already"), (written.deleted, if dry { "to be deleted" } else { "deleted" })]
    {
        if n > 0 {
            first += &format!("; {n} {what}");
        }
    }
    if written.resumed > 0 {
        first += &format!("; {} were left by an interrupted copy", Size(written.resumed));
    }
    let limits = &outcome.limits;
    let known = limits.disk_in + limits.network + limits.disk_out + limits.rate;
    let mut lines = vec![first];
    // What took less than two looks of the controller had no limit that is worth a line.
    if known >= 1.0 && !dry {
        let percent = |part: f64| part / known * 100.0;
        let all = [
            (Limit::DiskIn, limits.disk_in),
            (Limit::Network, limits.network),
            (Limit::DiskOut, limits.disk_out),
            (Limit::Rate, limits.rate),
        ];
        let parts = all.iter().filter(|(limit, seconds)| *limit != Limit::Rate || *seconds > 0.0);
        let parts = parts.map(|(limit, seconds)| format!("{} {:.0}%", name(*limit), percent(*seconds)));
        let parts = parts.collect::<Vec<_>>().join(", ");
        lines.push(format!("limit: {} ({parts} of the time)", name(limits.main())));
    }
    lines
}
