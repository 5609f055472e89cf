//! One tree by several pairs of hosts: each side's hosts see the same file system.
//!
//! First the pairs divide the files ([`tidecast_mover::share`]), until no pair breaks; then one of them copies as if it were alone. That
//! finds the files there, and settles directories, links, deletion and whatever was missed.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tidecast_mover::Error;
use tidecast_mover::back::{Monitor, Outcome, Progress};
use tidecast_mover::job::{Change, Written};
use tidecast_mover::share::Board;

use super::place::Place;
use super::session::{self, Ends, Job, LOOK, Share, failure};
use super::tell;
use crate::cmd::Context;
use crate::report::{Reporter, object, round};
use crate::stop::{Stop, block_on};
use crate::units::{Size, bytes_per_second};

/// A pair of hosts, and what it has done.
struct Pair<'a> {
    job: Job<'a>,
    name: String,
    /// Of its finished rounds.
    done: Outcome,
    bytes: u64,
    seconds: f64,
    /// If it broke: files of which it had found that they are there.
    kept: u64,
    broke: Option<String>,
}

impl Pair<'_> {
    fn rate(&self) -> f64 {
        self.bytes as f64 / self.seconds.max(1e-3)
    }
}

/// What all pairs have in common.
struct Many<'m, 'a> {
    job: &'m Job<'a>,
    board: Arc<Board>,
    stop: &'m Stop,
    reporter: &'m mut Reporter,
}

/// Copies by these pairs, and tells of it.
pub(super) fn run(
    job: &Job<'_>,
    pairs: &[(Place, Place)],
    shown: tell::Shown,
    context: &Context<'_>,
    reporter: &mut Reporter,
) -> crate::failure::Outcome {
    let names: Vec<String> = pairs.iter().map(|(from, to)| format!("{from} -> {to}")).collect();
    let (from, to) = (job.from.to_string(), job.to.to_string());
    reporter.started("copy", object(json!({ "from": from, "to": to, "pairs": names })));
    block_on(context.threads(), async {
        let (stop, board, began) = (Stop::listen()?, Arc::new(Board::default()), Instant::now());
        let numbered = pairs.iter().zip(names).enumerate();
        let mut pairs: Vec<Pair<'_>> =
            numbered.map(|(number, (places, name))| pair(job, number, places, name, &board)).collect();
        let mut many = Many { job, board, stop: &stop, reporter };
        if !job.receive.dry_run {
            many.divide(&mut pairs).map_err(failure)?;
        }
        let last = many.settle(&mut pairs).map_err(failure)?;
        let mut outcome = sum(last, &pairs, began.elapsed());
        if shown.itemize {
            tell::as_rsync(&mut outcome.written.planned, session::sends(job));
        }
        let told = many.table(&pairs);
        tell::tell(&outcome, job.receive.dry_run, shown, Some(told), many.reporter)
    })
}

fn pair<'a>(
    job: &Job<'a>,
    number: usize,
    (from, to): &(Place, Place),
    name: String,
    board: &Arc<Board>,
) -> Pair<'a> {
    let mut job = Job { from: from.clone(), to: to.clone(), ..job.clone() };
    // The same when the command is given again, whichever hosts these are. Of two pairs it must differ: each has a staging directory.
    let sources = job.send.sources.join(OsStr::new("\n"));
    let mut identity = format!("pair {number} of {}", sources.to_string_lossy());
    if let Some(relative) = &job.send.relative {
        let names = relative.names.as_ref().map_or(&[][..], |names| &names.0);
        identity += &data_encoding::HEXLOWER.encode(&tidecast_hash::sha256(names));
    }
    job.share = Some(Share { board: board.clone(), pair: number, identity });
    job.send.share = true;
    job.receive.delete = false;
    Pair { job, name, done: Outcome::default(), bytes: 0, seconds: 0.0, kept: 0, broke: None }
}

impl Many<'_, '_> {
    /// All files, by all pairs that work, until all are there.
    fn divide(&mut self, pairs: &mut [Pair<'_>]) -> Result<(), Error> {
        loop {
            let mut working: Vec<&mut Pair<'_>> = pairs.iter_mut().filter(|p| p.broke.is_none()).collect();
            let jobs: Vec<Job<'_>> = working.iter().map(|pair| pair.job.clone()).collect();
            self.board.begin(jobs.len() as u64);
            let ended = self.side_by_side(&jobs);
            let (mut left, mut broken) = (0, None);
            for (pair, (outcome, progress, seconds)) in working.iter_mut().zip(ended) {
                // Progress is told now and then only.
                pair.bytes += outcome.as_ref().map_or(progress.bytes, |outcome| outcome.written.bytes);
                pair.seconds += seconds;
                match outcome {
                    Ok(outcome) => {
                        left += 1;
                        add(&mut pair.done, &outcome);
                    }
                    Err(Error::Cancelled) => return Err(Error::Cancelled),
                    Err(e) => {
                        pair.kept = progress.here.kept.max(progress.there.kept);
                        self.broke(pair, &e);
                        broken = Some(e);
                    }
                }
            }
            match broken {
                None => return Ok(()),
                Some(e) if left == 0 => return Err(e),
                Some(_) => {}
            }
        }
    }

    fn broke(&mut self, pair: &mut Pair<'_>, e: &Error) {
        self.reporter.warning(&format!("{} broke, the others go on: {e}", pair.name));
        pair.broke = Some(e.to_string());
    }

    /// What is no file or was missed, by one of them.
    fn settle(&mut self, pairs: &mut [Pair<'_>]) -> Result<Outcome, Error> {
        let leftovers: Vec<String> =
            pairs.iter().filter_map(|pair| Some(pair.job.share.as_ref()?.identity.clone())).collect();
        let mut broken = Error::Cancelled;
        for pair in pairs.iter_mut().filter(|pair| pair.broke.is_none()) {
            let mut job = Job { from: pair.job.from.clone(), to: pair.job.to.clone(), ..self.job.clone() };
            job.receive.leftovers.clone_from(&leftovers);
            // What has just been compared or copied need not be read once more.
            job.send.checksum &= job.receive.dry_run;
            job.receive.checksum &= job.receive.dry_run;
            let Some((outcome, ..)) = self.side_by_side(&[job]).pop() else { continue };
            match outcome {
                Ok(outcome) => return Ok(outcome),
                Err(Error::Cancelled) => return Err(Error::Cancelled),
                Err(e) => {
                    self.broke(pair, &e);
                    broken = e;
                }
            }
        }
        Err(broken)
    }

    /// Copies at the same time; of each what came of it, how far it was, and its seconds.
    fn side_by_side(&mut self, jobs: &[Job<'_>]) -> Vec<(Result<Outcome, Error>, Progress, f64)> {
        let monitors: Vec<Monitor> = jobs.iter().map(|_| Monitor::default()).collect();
        let (say, heard) = mpsc::channel::<String>();
        std::thread::scope(|scope| {
            let started = jobs.iter().zip(&monitors).map(|(job, monitor)| {
                let ends = Ends { job, monitor, say: say.clone() };
                scope.spawn(move || one(&ends))
            });
            let working: Vec<_> = started.collect();
            drop(say);
            loop {
                match heard.recv_timeout(LOOK) {
                    Ok(warning) => self.reporter.warning(&warning),
                    Err(mpsc::RecvTimeoutError::Timeout) => {}
                    Err(mpsc::RecvTimeoutError::Disconnected) => break,
                }
                if self.stop.is_asked() {
                    monitors.iter().for_each(Monitor::cancel);
                }
                let mut all = Progress::default();
                for progress in monitors.iter().map(Monitor::progress) {
                    all.bytes += progress.bytes;
                    all.walked.bytes += progress.walked.bytes;
                }
                self.reporter.progress(&tell::snapshot(&all));
            }
            let failed = || (Err(Error::Cancelled), Progress::default(), 0.0);
            working.into_iter().map(|work| work.join().unwrap_or_else(|_| failed())).collect()
        })
    }

    /// What each pair has done, for programs and for people.
    fn table(&self, pairs: &[Pair<'_>]) -> (Value, Vec<String>) {
        let batches = |pair: &Pair<'_>| pair.job.share.as_ref().map_or(0, |s| self.board.count(s.pair));
        let fields = pairs.iter().map(|pair| {
            json!({
                "from": pair.job.from.to_string(), "to": pair.job.to.to_string(), "batches": batches(pair),
                "files": pair.done.written.files, "bytes": pair.bytes, "seconds": round(pair.seconds),
                "rate": round(pair.rate()), "broke": pair.broke,
            })
        });
        let lines = pairs.iter().map(|pair| {
            let (size, rate) = (Size(pair.bytes), bytes_per_second(pair.rate()));
            let broke = pair.broke.as_ref().map_or(String::new(), |why| format!("; broke: {why}"));
            format!("{}: {size} ({rate}), batches: {}{broke}", pair.name, batches(pair))
        });
        (fields.collect(), lines.collect())
    }
}

fn one(ends: &Ends<'_>) -> (Result<Outcome, Error>, Progress, f64) {
    let began = Instant::now();
    let outcome = ends.run();
    if let Some(share) = &ends.job.share {
        share.board.leave();
        if outcome.is_err() {
            share.board.release(share.pair);
        }
    }
    (outcome, ends.monitor.progress(), began.elapsed().as_secs_f64())
}

/// Adds what another round, or another pair, has done.
fn add(to: &mut Outcome, other: &Outcome) {
    // What one has made the others, and the last, find there.
    let told: HashSet<_> = to.written.planned.iter().map(named).collect();
    let news = other.written.planned.iter().filter(|change| !told.contains(&named(change)));
    let news: Vec<Change> = news.cloned().collect();
    to.written.planned.extend(news);
    to.written.more_planned += other.written.more_planned;
    to.written.entries += other.written.entries;
    to.written.files += other.written.files;
    to.written.bytes += other.written.bytes;
    to.written.resumed += other.written.resumed;
    to.limits.disk_in += other.limits.disk_in;
    to.limits.network += other.limits.network;
    to.limits.disk_out += other.limits.disk_out;
    to.limits.rate += other.limits.rate;
    to.walked.redone += other.walked.redone;
    to.walked.redone_bytes += other.walked.redone_bytes;
    to.again += other.again;
}

/// By what a change is known.
fn named(change: &Change) -> (String, Option<String>) {
    (change.path.clone(), change.path_base64.clone())
}

/// What came of all of it: the last copy knows what is there, and what is not.
fn sum(mut last: Outcome, pairs: &[Pair<'_>], took: Duration) -> Outcome {
    let copied: u64 = pairs.iter().map(|pair| pair.done.written.files).sum();
    let settled = Written {
        planned: std::mem::take(&mut last.written.planned),
        more_planned: std::mem::take(&mut last.written.more_planned),
        ..Written::default()
    };
    pairs.iter().for_each(|pair| add(&mut last, &pair.done));
    add(&mut last, &Outcome { written: settled, ..Outcome::default() });
    // What one that broke had finished others have found there; but for what it had itself found there it was copied.
    let (found, kept) = (last.walked.redone, pairs.iter().map(|pair| pair.kept).sum::<u64>());
    let finished = found.saturating_sub(kept);
    last.written.files += finished;
    last.written.entries += finished;
    if let Some(mean) = last.walked.redone_bytes.checked_div(found) {
        last.written.bytes += mean * finished;
    }
    last.written.kept = last.written.kept.saturating_sub(copied + finished);
    last.seconds = took.as_secs_f64();
    last
}
