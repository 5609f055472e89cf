//! Random clusters with random faults, every rule checked, on all cores.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tidecast_event::sim::{Running, SoakStarted, Soaked};
use tidecast_event::{Context as _, Error, PartialResult, Progress, Stage};
use tidecast_sim::soak::{self, Seeds, Summary};
use tidecast_text::count;

use super::TELLS;
use crate::operation::{Operation, start};

/// The operation of [`soak()`].
pub type Soak = Operation<SoakStarted, Soaked>;

/// Which clusters to run.
#[derive(Debug, Clone)]
pub struct SoakOptions {
    /// Their seeds.
    pub seeds: Seeds,
    /// No new run after this long.
    pub during: Option<Duration>,
    /// Runs at a time. Default: one for each core.
    pub threads: Option<usize>,
}

/// The state that running threads share with the reporting one.
#[derive(Default)]
struct SoakProgress {
    runs: AtomicU64,
    events: AtomicU64,
    stop: AtomicBool,
    /// In words, by seed.
    failures: Mutex<BTreeMap<u64, String>>,
}

impl SoakProgress {
    /// After each run, on its thread: false ends all.
    fn hear(&self, summary: &Summary) -> bool {
        self.runs.store(summary.runs, Relaxed);
        self.events.store(summary.events, Relaxed);
        let mut failures = self.failures.lock();
        for (seed, failure) in &summary.failures {
            failures.entry(*seed).or_insert_with(|| failure.to_string());
        }
        !self.stop.load(Relaxed)
    }

    /// Failures that are not in `said`.
    fn news(&self, said: &mut BTreeSet<u64>) -> Vec<String> {
        let failures = self.failures.lock();
        failures.iter().filter(|(seed, _)| said.insert(**seed)).map(|(_, text)| text.clone()).collect()
    }
}

/// Runs a random cluster with random faults for each seed, and checks every rule, until the seeds or the time are over. To stop
/// is the normal end of seeds without end.
///
/// ```
/// use tidecast::sim::{Seeds, SoakOptions, soak};
///
/// # fn main() -> Result<(), tidecast::Error> {
/// let done = soak(SoakOptions { seeds: Seeds(1..3), during: None, threads: Some(1) }).wait_blocking()?;
/// assert_eq!((done.runs, done.failures.len()), (2, 0));
/// # Ok(())
/// # }
/// ```
pub fn soak(options: SoakOptions) -> Soak {
    let SoakOptions { seeds, during, threads } = options;
    let cores = || std::thread::available_parallelism().map_or(1, usize::from);
    let threads = threads.unwrap_or_else(cores);
    start(1, async move |work| {
        let until = during.and_then(|during| Instant::now().checked_add(during));
        let (endless, range) = (seeds.is_endless(), seeds.0);
        work.started(SoakStarted { command: "sim", first_seed: range.start, threads });
        let total = if endless { 0 } else { range.end - range.start };
        let told = Arc::new(SoakProgress::default());
        let hearing = told.clone();
        let run = move || soak::run(range, threads, &|summary| hearing.hear(summary));
        let mut task = tokio::task::spawn_blocking(run);
        let mut said = BTreeSet::new();
        let summary = loop {
            let done = tokio::select! {
                done = &mut task => Some(done.context("a thread of Tidecast failed")?),
                () = tokio::time::sleep(TELLS) => None,
            };
            if work.stop.is_asked() || until.is_some_and(|end| Instant::now() >= end) {
                told.stop.store(true, Relaxed);
            }
            told.news(&mut said).into_iter().for_each(|failure| work.warning(failure));
            if let Some(summary) = done {
                break summary;
            }
            let runs = told.runs.load(Relaxed);
            let name = format!("{}, {} events", count(runs, "run"), told.events.load(Relaxed));
            let run = Some(Running { run: name, simulated_seconds: None });
            work.progress(Progress { stage: Stage::Soak, bytes: runs, total, run, ..Progress::default() });
        };
        let done = Soaked { seconds: work.seconds(), ..summary.into() };
        if !done.failures.is_empty() {
            let broken = count(done.failures.len() as u64, "run");
            let error = Error::fault(format!("{broken} violated a rule, which is a bug in this program"));
            return Err(error.with(PartialResult::Soak(Box::new(done))));
        }
        if work.stop.is_asked() && !endless {
            let error = Error::interrupted("interrupted before the last seed");
            return Err(error.with(PartialResult::Soak(Box::new(done))));
        }
        Ok(done)
    })
}
