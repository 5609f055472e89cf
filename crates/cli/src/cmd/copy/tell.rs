//! What is said of a copy while it runs and when it is over.

use std::time::Duration;

use serde_json::{Value, json};
use tidecast_mover::back::{Limit, Outcome, Progress};
use tidecast_mover::job::Problem;
use tidecast_mover::session::{Done, PairDone, moved};
use tidecast_mover::{Error, Kind};
use tidecast_text::{Size, Span, bytes_per_second, count, escaped, grouped};

use crate::failure::{Code, Failure};
use crate::report::{Parallel, Reporter, SYNCING, Snapshot, object, round};

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

/// The exit code that an error deserves.
pub(super) fn failure(error: Error) -> Failure {
    let code = match error.kind() {
        Kind::Usage => Code::Usage,
        Kind::CutOff => Code::Cut,
        Kind::Fault => Code::Fault,
    };
    match error {
        Error::Cancelled => Failure::cut("cut off; give the command again to go on"),
        other => Failure::new(code, other),
    }
}

/// What each of several pairs has done, for programs and for people.
fn pairs(pairs: &[PairDone]) -> (Value, Vec<String>) {
    let fields = pairs.iter().map(|pair| {
        json!({
            "from": pair.from.to_string(), "to": pair.to.to_string(), "batches": pair.batches,
            "files": pair.files, "bytes": pair.bytes, "seconds": round(pair.seconds),
            "rate": round(pair.rate()), "broke": pair.broke,
        })
    });
    let lines = pairs.iter().map(|pair| {
        let (size, rate) = (Size(pair.bytes), bytes_per_second(pair.rate()));
        let broke = pair.broke.as_ref().map_or(String::new(), |why| format!("; broke: {why}"));
        format!("{}: {size} ({rate}), batches: {}{broke}", pair.name(), pair.batches)
    });
    (fields.collect(), lines.collect())
}

/// Tells what came of it.
pub(super) fn tell(done: &Done, dry: bool, shown: Shown, reporter: &Reporter) -> crate::failure::Outcome {
    let outcome = &done.outcome;
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
    let (pairs, lines) = pairs(&done.pairs);
    if !done.pairs.is_empty() {
        fields.insert("pairs".into(), pairs);
    }
    summary(outcome, dry).iter().chain(&lines).for_each(|line| reporter.result(line));
    match outcome.verdict() {
        Ok(()) => Ok(fields),
        Err(error) => Err(Failure::from(error).with(fields)),
    }
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
