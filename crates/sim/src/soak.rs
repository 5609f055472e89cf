//! Many seeds on all cores: each is a scenario with every checker on, now and then twice, since the same
//! seed must be the same run.
//!
//! A summary consists of integers and names; a failure is printed with the command that reproduces it.

use std::any::Any;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::str::FromStr;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use tidecast_event::sim::{Broken, Soaked};
use tidecast_swarm::Time;

use crate::check::{Rule, Violation};
use crate::job::Job;
use crate::outcome::Outcome;
use crate::progress::Progress;
use crate::scenario::Scenario;
use crate::world::World;

/// One seed in this many is run twice.
const REPLAYED: u64 = 16;

/// The seeds to run, as text: `A..B`, `A..` (endless), `A`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seeds(pub Range<u64>);

impl Seeds {
    /// From this one on, endless.
    #[must_use]
    pub fn from(first: u64) -> Self {
        Self(first..u64::MAX)
    }

    /// Whether they continue until the run is told to stop.
    #[must_use]
    pub fn is_endless(&self) -> bool {
        self.0.end == u64::MAX
    }
}

impl FromStr for Seeds {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let bad = || format!("invalid seeds {text:?}; write 1..1000, 1000.. (endless), 17 or random");
        let number = |digits: &str| digits.parse::<u64>().map_err(|_| bad());
        let seeds = match text.split_once("..") {
            Some((from, "")) => number(from)?..u64::MAX,
            Some((from, to)) => number(from)?..number(to)?,
            None => number(text)?..number(text)?.saturating_add(1),
        };
        if seeds.is_empty() { Err(bad()) } else { Ok(Self(seeds)) }
    }
}

/// One run that broke no rule.
#[derive(Clone, Debug)]
pub struct Ran {
    /// The outcome.
    pub outcome: Outcome,
    /// The features of the run: kinds of faults that struck, and conditions.
    pub met: BTreeSet<&'static str>,
}

/// One run that broke a rule.
#[derive(Clone, Debug)]
pub struct Failure {
    /// The rule, and the observation.
    pub violation: Violation,
    /// The scenario in words: it remains readable when the distributions change and its seed means another.
    pub scenario: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seed = self.violation.seed;
        writeln!(f, "{}", self.violation)?;
        writeln!(f, "  {}", self.scenario)?;
        write!(f, "  reproduce: tidecast sim --seeds {seed}..{}", seed + 1)
    }
}

/// The results of many runs.
#[derive(Clone, Debug, Default)]
pub struct Summary {
    /// Runs that are over.
    pub runs: u64,
    /// Events that engines handled in them.
    pub events: u64,
    /// Payload that was delivered, bytes.
    pub delivered: u64,
    /// Runs that met each kind of fault, or were of each kind.
    pub met: BTreeMap<&'static str, u64>,
    /// Runs that broke a rule, by seed.
    pub failures: BTreeMap<u64, Failure>,
}

impl Summary {
    fn add(&mut self, ran: Result<Ran, Failure>) {
        self.runs += 1;
        match ran {
            Ok(Ran { outcome, met }) => {
                let done = outcome.finished.iter().flatten().count() as u64;
                self.events += outcome.events;
                self.delivered += outcome.size * done;
                met.into_iter().for_each(|kind| *self.met.entry(kind).or_default() += 1);
            }
            Err(failure) => drop(self.failures.insert(failure.violation.seed, failure)),
        }
    }
}

impl From<Summary> for Soaked {
    fn from(summary: Summary) -> Self {
        let text = summary.to_string();
        let failures = summary.failures.into_iter().map(|(seed, failure)| Broken {
            seed,
            what: failure.violation.to_string(),
            scenario: failure.scenario,
        });
        let Summary { runs, events, delivered, met, .. } = summary;
        let failures = failures.collect();
        Self { seconds: 0.0, runs, events, delivered, met, failures, text }
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Summary { runs, events, delivered, met, failures } = self;
        writeln!(f, "{runs} runs, {events} events, {} GB delivered", delivered / 1_000_000_000)?;
        let sound = (runs - failures.len() as u64).max(1);
        let shares =
            met.iter().map(|(kind, n)| format!("{kind} {}.{}%", n * 100 / sound, n * 1000 / sound % 10));
        writeln!(f, "runs with: {}", shares.collect::<Vec<_>>().join(", "))?;
        failures.values().try_for_each(|failure| writeln!(f, "{failure}"))?;
        write!(f, "{} violated an invariant", failures.len())
    }
}

/// Runs one seed.
///
/// # Errors
/// The first rule that was broken; a panic is one too.
pub fn seed(seed: u64) -> Result<Ran, Failure> {
    let scenario = Scenario::new(seed);
    let ran = job(&scenario.job).and_then(|ran| {
        let again = seed.is_multiple_of(REPLAYED);
        if again { same(&scenario.job, &ran.outcome).map(|()| ran) } else { Ok(ran) }
    });
    ran.map_err(|violation| Failure { violation, scenario: scenario.to_string() })
}

/// Runs one job.
///
/// # Errors
/// The first rule that was broken; a panic is one too.
pub fn job(job: &Job) -> Result<Ran, Violation> {
    let broken = |rule, message| Violation { seed: job.seed, at: Time(0), node: None, rule, message };
    let run = || {
        let mut world = World::new(job).map_err(|error| broken(Rule::Driver, error.to_string()))?;
        let outcome = world.run(&Progress::new())?;
        Ok(Ran { outcome, met: features(job, world.effective_faults()) })
    };
    // State left behind by a panic belongs to the world, which is dropped.
    catch_unwind(AssertUnwindSafe(run))
        .unwrap_or_else(|panic| Err(broken(Rule::Panic, panic_message(&*panic))))
}

/// Runs a job again, which must have the same result as before.
///
/// # Errors
/// When it does not.
pub fn same(again: &Job, first: &Outcome) -> Result<(), Violation> {
    let second = job(again)?.outcome;
    if second.trace == first.trace {
        return Ok(());
    }
    let message = format!("trace {:016x}, then {:016x}", first.trace, second.trace);
    Err(Violation { seed: again.seed, at: first.ended, node: None, rule: Rule::Replay, message })
}

/// The message of a panic.
fn panic_message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("a panic without a message").to_owned()
}

/// The features of a run: faults and conditions.
fn features(job: &Job, struck: &BTreeSet<&'static str>) -> BTreeSet<&'static str> {
    let ways = [
        ("plan", job.plan.is_some()),
        ("plan on demand", job.opens.is_some()),
        ("partial wants", !job.wants.is_empty()),
        ("classic", job.policy.choking || job.policy.distribution || job.policy.endgame),
        ("no fault", struck.is_empty()),
        ("several kinds", struck.len() > 1),
        ("over 100 nodes", job.topology.nodes.len() > 100),
    ];
    struck.iter().copied().chain(ways.into_iter().filter(|way| way.1).map(|way| way.0)).collect()
}

/// Runs seeds on this many threads, in order of their numbers but not in step. After each, `tell` gets the
/// total so far, and ends it by returning false.
pub fn run(seeds: Range<u64>, threads: usize, tell: &(dyn Fn(&Summary) -> bool + Sync)) -> Summary {
    let (next, stop) = (AtomicU64::new(seeds.start), AtomicBool::new(false));
    let summary = Mutex::new(Summary::default());
    let work = || {
        while !stop.load(Relaxed) {
            let number = next.fetch_add(1, Relaxed);
            if number >= seeds.end {
                return;
            }
            let ran = seed(number);
            let mut all = summary.lock().unwrap_or_else(PoisonError::into_inner);
            all.add(ran);
            if !tell(&all) {
                stop.store(true, Relaxed);
            }
        }
    };
    std::thread::scope(|scope| (0..threads.max(1)).for_each(|_| drop(scope.spawn(work))));
    summary.into_inner().unwrap_or_else(PoisonError::into_inner)
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
        for bad in ["", "..", "..5", "5..5", "9..1", "-1..3", "a..b", "1...3", "99999999999999999999"] {
            assert!(seeds(bad).unwrap_err().contains("1..1000"), "{bad}");
        }
    }
}
