//! One tree by several pairs of hosts: each side's hosts see the same file system.
//!
//! First the pairs divide the files ([`crate::batches`]), until no pair fails; then one of them copies
//! everything again. It finds the files in place, and settles directories, links, deletion and all that was
//! missed.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use super::ends::Ends;
use super::event::{Event, Warning};
use super::job::{Job, LOOK, Share, Watch};
use super::location::Location;
use crate::batches::Batches;
use crate::error::Error;
use crate::job::{Change, Written};
use crate::transfer::{Monitor, Outcome, Progress};

/// A pair of hosts and its results.
struct Pair {
    job: Job,
    name: String,
    /// Of its finished rounds.
    done: Outcome,
    bytes: u64,
    seconds: f64,
    /// If it broke: files of which it had found that they are there.
    kept: u64,
    broke: Option<String>,
}

/// The results of a pair of hosts.
#[derive(Clone, Debug)]
pub struct PairDone {
    /// Where it took files from, without paths of more than one source.
    pub from: Location,
    /// Where it put them.
    pub to: Location,
    /// Batches of files that it took.
    pub batches: usize,
    /// Files that it copied.
    pub files: u64,
    /// Bytes that it wrote.
    pub bytes: u64,
    /// Seconds for which it copied.
    pub seconds: f64,
    /// Why it broke, if it did.
    pub broke: Option<String>,
}

impl PairDone {
    /// Bytes a second.
    #[must_use]
    pub fn rate(&self) -> f64 {
        self.bytes as f64 / self.seconds.max(1e-3)
    }

    /// `from -> to`.
    #[must_use]
    pub fn name(&self) -> String {
        name(&self.from, &self.to)
    }
}

/// How a pair is called.
#[must_use]
pub(super) fn name(from: &Location, to: &Location) -> String {
    format!("{from} -> {to}")
}

/// The state shared by all pairs.
struct Many<'m> {
    job: &'m Job,
    board: Arc<Batches>,
    watch: &'m Watch,
    say: &'m mpsc::Sender<Event>,
}

/// Copies by these pairs.
pub(super) fn run(
    job: &Job,
    pairs: &[(Location, Location)],
    watch: &Watch,
    say: &mpsc::Sender<Event>,
) -> Result<(Outcome, Vec<PairDone>), Error> {
    let (board, began) = (Arc::new(Batches::default()), Instant::now());
    let mut pairs: Vec<Pair> =
        pairs.iter().enumerate().map(|(number, places)| pair(job, number, places, &board)).collect();
    let many = Many { job, board, watch, say };
    if !job.receive.dry_run {
        many.divide(&mut pairs)?;
    }
    let last = many.final_copy(&mut pairs)?;
    let outcome = sum(last, &pairs, began.elapsed());
    Ok((outcome, pairs.into_iter().map(|pair| pair.done(&many.board)).collect()))
}

impl Pair {
    fn done(self, board: &Batches) -> PairDone {
        PairDone {
            batches: self.job.share.as_ref().map_or(0, |share| board.count(share.pair)),
            files: self.done.written.files,
            from: self.job.from,
            to: self.job.to,
            bytes: self.bytes,
            seconds: self.seconds,
            broke: self.broke,
        }
    }
}

fn pair(job: &Job, number: usize, (from, to): &(Location, Location), board: &Arc<Batches>) -> Pair {
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
    job.receive.shared = true;
    job.receive.delete = false;
    Pair { job, name: name(from, to), done: Outcome::default(), bytes: 0, seconds: 0.0, kept: 0, broke: None }
}

impl Many<'_> {
    /// All files, by all pairs that work, until all are there.
    fn divide(&self, pairs: &mut [Pair]) -> Result<(), Error> {
        loop {
            let mut working: Vec<&mut Pair> = pairs.iter_mut().filter(|p| p.broke.is_none()).collect();
            let jobs: Vec<Job> = working.iter().map(|pair| pair.job.clone()).collect();
            self.board.begin(jobs.len() as u64);
            let ended = self.side_by_side(&jobs);
            let (mut left, mut broken) = (0, None);
            for (pair, (outcome, progress, seconds)) in working.iter_mut().zip(ended) {
                // Progress is reported now and then only.
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

    fn broke(&self, pair: &mut Pair, e: &Error) {
        let (name, why) = (pair.name.clone(), e.to_string());
        let _ = self.say.send(Event::Warning(Warning::PairBroke { pair: name, why: why.clone() }));
        pair.broke = Some(why);
    }

    /// The final copy, by one pair: everything that is not a file, and files that were missed.
    fn final_copy(&self, pairs: &mut [Pair]) -> Result<Outcome, Error> {
        let leftovers: Vec<String> =
            pairs.iter().filter_map(|pair| Some(pair.job.share.as_ref()?.identity.clone())).collect();
        let mut broken = Error::Cancelled;
        for pair in pairs.iter_mut().filter(|pair| pair.broke.is_none()) {
            let mut job = Job { from: pair.job.from.clone(), to: pair.job.to.clone(), ..self.job.clone() };
            job.receive.leftovers.clone_from(&leftovers);
            // Data that has just been compared or copied need not be read once more.
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

    /// Copies by all pairs at the same time; for each its result, its progress, and its seconds.
    fn side_by_side(&self, jobs: &[Job]) -> Vec<(Result<Outcome, Error>, Progress, f64)> {
        let monitors: Vec<Arc<Monitor>> = jobs.iter().map(|_| Arc::default()).collect();
        self.watch.look_at(monitors.clone());
        let (running, over) = mpsc::channel::<()>();
        std::thread::scope(|scope| {
            let started = jobs.iter().zip(&monitors).map(|(job, monitor)| {
                let (ends, running) = (Ends { job, monitor, say: self.say.clone() }, running.clone());
                scope.spawn(move || {
                    let ended = one(&ends);
                    drop(running);
                    ended
                })
            });
            let working: Vec<_> = started.collect();
            drop(running);
            while over.recv_timeout(LOOK) == Err(mpsc::RecvTimeoutError::Timeout) {
                if self.watch.is_stopped() {
                    monitors.iter().for_each(|monitor| monitor.cancel());
                }
            }
            let failed = || (Err(Error::Cancelled), Progress::default(), 0.0);
            working.into_iter().map(|work| work.join().unwrap_or_else(|_| failed())).collect()
        })
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

/// Adds the results of another round or another pair.
fn add(to: &mut Outcome, other: &Outcome) {
    // Names that one pair has created are found as existing by the others, and by the last copy.
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

/// The key of a change.
fn named(change: &Change) -> (String, Option<String>) {
    (change.path.clone(), change.path_base64.clone())
}

/// The total result: the last copy knows which names exist, and which do not.
fn sum(mut last: Outcome, pairs: &[Pair], took: Duration) -> Outcome {
    let copied: u64 = pairs.iter().map(|pair| pair.done.written.files).sum();
    let settled = Written {
        planned: std::mem::take(&mut last.written.planned),
        more_planned: std::mem::take(&mut last.written.more_planned),
        ..Written::default()
    };
    pairs.iter().for_each(|pair| add(&mut last, &pair.done));
    add(&mut last, &Outcome { written: settled, ..Outcome::default() });
    // Files finished by a failed pair were found as existing by others; apart from those that it had found
    // itself, they were copied.
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
