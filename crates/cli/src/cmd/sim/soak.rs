//! `tidecast sim --seeds A..B`: random clusters with random faults, every rule checked, on all cores.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, anyhow};
use serde_json::{Map, Value, json};
use tidecast_sim::soak::{self, Summary};
use tidecast_text::{Span, count};

use crate::context::Context;
use crate::failure::{Failure, Outcome};
use crate::report::{Reporter, Snapshot, object};
use crate::stop::{Stop, block_on};

/// Which seeds to run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Seeds(Range<u64>);

impl FromStr for Seeds {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let bad = || format!("{text:?} names no seeds; write 1..1000, 1000.. (without end), 17 or random");
        if text == "random" {
            // Room for as many as anybody will wait for.
            return Ok(Self(u64::from(rand::random::<u32>()) << 24..u64::MAX));
        }
        let number = |digits: &str| digits.parse::<u64>().map_err(|_| bad());
        let seeds = match text.split_once("..") {
            Some((from, "")) => number(from)?..u64::MAX,
            Some((from, to)) => number(from)?..number(to)?,
            None => number(text)?..number(text)?.saturating_add(1),
        };
        if seeds.is_empty() { Err(bad()) } else { Ok(Self(seeds)) }
    }
}

/// What the threads that run tell the one that reports.
#[derive(Default)]
struct Told {
    runs: AtomicU64,
    events: AtomicU64,
    stop: AtomicBool,
    /// In words, by seed.
    failures: Mutex<BTreeMap<u64, String>>,
}

impl Told {
    /// After each run, on its thread: false ends all.
    fn hear(&self, summary: &Summary) -> bool {
        self.runs.store(summary.runs, Relaxed);
        self.events.store(summary.events, Relaxed);
        let mut failures = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
        for (seed, failure) in &summary.failures {
            failures.entry(*seed).or_insert_with(|| failure.to_string());
        }
        !self.stop.load(Relaxed)
    }

    /// Failures that are not among those `said`.
    fn news(&self, said: &mut BTreeSet<u64>) -> Vec<String> {
        let failures = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
        failures.iter().filter(|(seed, _)| said.insert(**seed)).map(|(_, text)| text.clone()).collect()
    }
}

/// Runs until the seeds or the time are over, or Ctrl-C.
pub(super) fn run(
    seeds: &Seeds,
    during: Option<Span>,
    context: &Context<'_>,
    reporter: &mut Reporter,
) -> Outcome {
    let range = seeds.0.clone();
    let cores = || std::thread::available_parallelism().map_or(1, usize::from);
    let threads = if context.threads() > 0 { context.threads() } else { cores() };
    let until = during.and_then(|Span(during)| Instant::now().checked_add(during));
    // Without an end of its own, being told to stop is the normal end.
    let endless = range.end == u64::MAX;
    block_on(0, async {
        let stop = Stop::listen()?;
        reporter.started("sim", object(json!({ "first_seed": range.start, "threads": threads })));
        reporter.note(&format!("seeds from {} on, {} at a time; Ctrl-C stops", range.start, threads));
        let told = Arc::new(Told::default());
        let (hearing, work) = (told.clone(), range.clone());
        let mut task =
            tokio::task::spawn_blocking(move || soak::run(work, threads, &|sum| hearing.hear(sum)));
        let mut said = BTreeSet::new();
        let summary = loop {
            let done = tokio::select! {
                done = &mut task => Some(done.context("a thread of Tidecast failed")?),
                () = tokio::time::sleep(Duration::from_millis(100)) => None,
            };
            if stop.is_asked() || until.is_some_and(|end| Instant::now() >= end) {
                told.stop.store(true, Relaxed);
            }
            told.news(&mut said).iter().for_each(|failure| reporter.warning(failure));
            if let Some(summary) = done {
                break summary;
            }
            let runs = told.runs.load(Relaxed);
            let total = if endless { 0 } else { range.end - range.start };
            let name = format!("{}, {} events", count(runs, "run"), told.events.load(Relaxed));
            reporter.progress(&Snapshot {
                stage: "soak",
                bytes: runs,
                total,
                run: Some((name, None)),
                ..Snapshot::default()
            });
        };
        reporter.clear();
        summary.to_string().lines().for_each(|line| reporter.result(line));
        let fields = fields(&summary);
        if !summary.failures.is_empty() {
            let broken = count(summary.failures.len() as u64, "run");
            return Err(
                Failure::from(anyhow!("{broken} broke a rule, which is a bug of this program")).with(fields)
            );
        }
        if stop.is_asked() && !endless {
            return Err(Failure::cut("interrupted before the last seed").with(fields));
        }
        Ok(fields)
    })
}

fn fields(summary: &Summary) -> Map<String, Value> {
    let failures: Vec<Value> = summary
        .failures
        .iter()
        .map(|(seed, failure)| json!({ "seed": seed, "what": failure.violation.to_string(), "scenario": failure.scenario }))
        .collect();
    object(json!({
        "runs": summary.runs, "events": summary.events, "delivered": summary.delivered, "met": summary.met, "failures": failures,
    }))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn seeds_are_ranges() {
        let seeds = |text: &str| text.parse::<Seeds>().map(|s| s.0);
        assert_eq!(seeds("1..1000"), Ok(1..1000));
        assert_eq!(seeds("7.."), Ok(7..u64::MAX));
        assert_eq!(seeds("17"), Ok(17..18));
        assert!(seeds("random").unwrap().end == u64::MAX);
        for bad in ["", "..", "..5", "5..5", "9..1", "-1..3", "a..b", "1...3", "99999999999999999999"] {
            assert!(seeds(bad).unwrap_err().contains("1..1000"), "{bad}");
        }
    }
}
