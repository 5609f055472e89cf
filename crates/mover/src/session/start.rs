//! The request for a copy, and the running copy.

use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;

use super::connect_options::ConnectOptions;
use super::event::{Event, Explanation, Warning};
use super::job::{Job, LOOK, Watch};
use super::location::Location;
use super::memory::{self, Consumer};
use super::pairs::{self, PairDone};
use super::{explain, stream};
use crate::error::Error;
use crate::job::Change;
use crate::spec::{Follow, InPlace, ReceiveSpec, SendSpec};
use crate::transfer::{Options, Outcome};

/// The memory of a program that takes files, and the kind of its notifications.
#[derive(Clone, Copy, Debug, Default)]
pub struct Memory {
    /// Bytes at most; None: 1 GiB, or a quarter of the free memory.
    pub budget: Option<u64>,
    /// Whether the program is notified of parts of files as they arrive.
    pub blocks: bool,
}

/// The kind of copy.
#[derive(Clone, Copy, Debug, Default)]
pub enum How {
    /// As it is asked for.
    #[default]
    Plain,
    /// The same, after steps that measure the limit.
    Explained,
    /// Into shared memory, for a program.
    Memory(Memory),
}

/// A copy: sources, destination, and options.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Copy {
    /// The sender's settings. The sources are set.
    pub send: SendSpec,
    /// The receiver's settings. The destination is set.
    pub receive: ReceiveSpec,
    /// Streams, threads, memory, limits.
    pub options: Options,
    /// How the ends are reached.
    pub reach: ConnectOptions,
    /// The kind of copy.
    pub how: How,
    /// From where to where, of each pair of hosts; at least one.
    pairs: Vec<(Location, Location)>,
    /// The first of the sources that is a descriptor.
    descriptor: Option<Location>,
}

impl Copy {
    /// Copies files and directories to a destination, all named as with rsync, with default options.
    ///
    /// # Errors
    /// [`Error::Usage`]: a name is not valid, or the sources are on different hosts.
    pub fn new(sources: &[OsString], to: &OsStr) -> Result<Self, Error> {
        if sources.is_empty() {
            let to = Location::all(to)?.into_iter().next();
            let to = to.map_or(String::new(), |to| to.to_string());
            return Err(Error::Usage(format!(
                "{to} is the only path given; give a source and a destination"
            )));
        }
        Self::between(sources, Location::all(to)?, How::Plain)
    }

    /// Sends generated data instead of files: this many bytes, in files of this many (0: one). Sources name only
    /// the host.
    ///
    /// # Errors
    /// As [`Copy::new`].
    pub fn of_noise((bytes, file): (u64, u64), sources: &[OsString], to: &OsStr) -> Result<Self, Error> {
        let mut copy = Self::between(sources, Location::all(to)?, How::Plain)?;
        copy.send.null = Some((bytes, file));
        Ok(copy)
    }

    /// Copies into shared memory of this host, for a program.
    ///
    /// # Errors
    /// As [`Copy::new`].
    pub fn to_memory(sources: &[OsString], memory: Memory) -> Result<Self, Error> {
        Self::between(sources, vec![Location::Local(OsString::new())], How::Memory(memory))
    }

    fn between(sources: &[OsString], to: Vec<Location>, how: How) -> Result<Self, Error> {
        let from = sources.iter().map(|path| Location::all(path)).collect::<Result<Vec<_>, _>>()?;
        let paths = from.iter().filter_map(|places| Some(places.first()?.path().to_owned())).collect();
        let nothing = vec![Location::Local(OsString::new())];
        let first = from.first().unwrap_or(&nothing);
        let is_dash = |place: &Location| place.path() == "-" && place.is_here();
        if from.len() > 1 && to.first().is_some_and(is_dash) {
            return Err(Error::Usage(
                "standard output (-) takes one file; for a directory of this name write ./-".into(),
            ));
        }
        let same = |other: &&Vec<Location>| {
            other.len() == first.len() && other.iter().zip(first).all(|(a, b)| a.same_host(b))
        };
        if let Some([other, ..]) = from.iter().find(|other| !same(other)).map(Vec::as_slice) {
            let first = first.first().map_or(String::new(), ToString::to_string);
            return Err(Error::Usage(format!(
                "all sources must be on one host, but {other} and {first} are on different hosts"
            )));
        }
        let most = first.len().max(to.len());
        let pairs: Vec<_> =
            first.iter().cycle().cloned().zip(to.iter().cycle().cloned()).take(most).collect();
        let dest = to.first().map_or(OsString::new(), |to| to.path().to_owned());
        Ok(Self {
            send: SendSpec { sources: paths, ..SendSpec::default() },
            receive: ReceiveSpec { dest, ..ReceiveSpec::default() },
            options: Options::default(),
            reach: ConnectOptions::default(),
            how,
            pairs,
            descriptor: from.into_iter().flatten().find(stream::is_descriptor),
        })
    }

    /// From where to where, of each pair of hosts; at least one.
    #[must_use]
    pub fn pairs(&self) -> &[(Location, Location)] {
        &self.pairs
    }

    /// How the pairs are called.
    #[must_use]
    pub fn names(&self) -> Vec<String> {
        self.pairs.iter().map(|(from, to)| pairs::name(from, to)).collect()
    }

    /// Where one file is written that is for a pipe, a device or standard output; None for all other copies.
    #[must_use]
    pub fn stream(&self) -> Option<std::path::PathBuf> {
        let is_plain = matches!(self.how, How::Plain) && self.pairs.len() == 1;
        self.job().ok().filter(|_| is_plain).and_then(|job| stream::end(&job).map(Path::to_owned))
    }

    /// Whether the options are compatible.
    fn check(&self) -> Result<(), Error> {
        let usage = |why: &str| Err(Error::Usage(why.into()));
        let Some((from, to)) = self.pairs.first() else { return usage("missing source or destination") };
        if let Some(read) = self.descriptor.as_ref().filter(|_| self.send.follow == Follow::None) {
            let file = if read.path() == "-" { "; for a file of this name write ./-" } else { "" };
            return Err(Error::Usage(format!(
                "{read} is standard input or a pipe, which copy does not read; write it to a file and copy that file{file}"
            )));
        }
        let null = self.receive.null || self.send.null.is_some();
        let alone = !matches!(self.how, How::Plain) || null;
        let several = self.pairs.len() > 1;
        if several && (alone || self.reach.through_ssh) {
            return usage(
                "--explain, --from-null, --to-null, --to-memory and --via ssh need exactly one pair of hosts",
            );
        }
        if self.send.remove {
            if several || alone {
                return usage("--remove-source-files needs a copy of files by exactly one pair of hosts");
            }
            if self.receive.in_place == InPlace::Append {
                return usage(
                    "--remove-source-files with --append would remove files that were not compared; use --append-verify",
                );
            }
            if self.send.follow != Follow::None {
                return usage(
                    "--remove-source-files would remove the targets of symbolic links; leave out -L and -k, or name the files themselves",
                );
            }
        }
        if self.reach.through_ssh && (from.is_server() || to.is_server()) {
            return usage(
                "--via ssh needs a path of the form host:path; a copy-server cannot be reached by ssh",
            );
        }
        if self.reach.through_ssh && !from.is_here() && !to.is_here() {
            return usage("--via ssh works between this host and another one, not between two remote hosts");
        }
        let mut listening: Vec<&Location> = Vec::new();
        for (from, to) in &self.pairs {
            let listens = if from.is_server() && !to.is_server() { from } else { to };
            if !listening.contains(&listens) {
                listening.push(listens);
            }
        }
        if listening.len() > 1 && !self.reach.address.is_empty() && self.reach.address != ["all"] {
            return Err(Error::Usage(format!(
                "--address lists the addresses of one host, but {} hosts listen; use --address all for all addresses of each",
                listening.len()
            )));
        }
        Ok(())
    }

    fn job(&self) -> Result<Job, Error> {
        self.check()?;
        let Some((from, to)) = self.pairs.first().cloned() else {
            return Err(Error::Usage("missing source or destination".into()));
        };
        Ok(Job {
            send: self.send.clone(),
            receive: self.receive.clone(),
            options: self.options.clone(),
            reach: Arc::new(self.reach.clone()),
            from,
            to,
            share: None,
            memory: None,
            stream: None,
        })
    }

    /// Starts it, on threads of its own.
    ///
    /// # Errors
    /// [`Error::Usage`]: the options are not compatible. Of a copy into memory also: there is no memory.
    pub fn start(self) -> Result<Copying, Error> {
        let job = self.job()?;
        let lacks = self.reach.check_congestion(&job.from, &job.to)?;
        let (say, heard) = mpsc::channel();
        if let Some(why) = lacks {
            let _ = say.send(Event::Warning(Warning::Congestion(why)));
        }
        let watch = Arc::new(Watch::new(self.pairs.len() > 1));
        let (taken, consumer) = match self.how {
            How::Memory(Memory { budget, blocks }) => {
                let taken = memory::Taken::new(budget, blocks)?;
                let consumer = taken.consumer();
                (Some(taken), Some(consumer))
            }
            How::Plain | How::Explained => (None, None),
        };
        let (how, pairs, looked_at) = (self.how, self.pairs, watch.clone());
        let work = move || {
            if let Some(taken) = taken {
                return memory::run(job, &taken, &looked_at, &say).map(Done::from);
            }
            run(&job, how, &pairs, &looked_at, &say)
        };
        let thread = std::thread::Builder::new().name("copy".into()).spawn(work);
        let thread = thread.map_err(Error::io("start", "a thread"))?;
        Ok(Copying { thread: Some(thread), watch, heard, consumer })
    }
}

fn run(
    job: &Job,
    how: How,
    pairs: &[(Location, Location)],
    watch: &Watch,
    say: &mpsc::Sender<Event>,
) -> Result<Done, Error> {
    let mut done = if matches!(how, How::Explained) {
        let (outcome, ladder) = explain::run(job, watch, say)?;
        Done { ladder: Some(ladder), ..Done::from(outcome) }
    } else if pairs.len() > 1 {
        let (outcome, pairs) = pairs::run(job, pairs, watch, say)?;
        Done { pairs, ..Done::from(outcome) }
    } else if stream::end(job).is_some() {
        return stream::run(job, watch, say).map(Done::from);
    } else {
        Done::from(job.whole(watch, say)?)
    };
    if job.receive.itemize {
        as_rsync(&mut done.outcome.written.planned, job.sends());
    }
    Ok(done)
}

/// Puts changes in the order of their names, deletions first, and has them be sent, if this end `sends`.
fn as_rsync(planned: &mut [Change], sends: bool) {
    for line in planned.iter_mut().filter_map(|change| change.itemized.as_mut()).filter(|_| sends) {
        if let Some(rest) = line.strip_prefix('>') {
            *line = format!("<{rest}");
        }
    }
    planned.sort_by(|a, b| (a.what != "delete", &a.path).cmp(&(b.what != "delete", &b.path)));
}

/// The result of a copy.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Done {
    /// The outcome; [`Outcome::verdict`] tells whether everything was copied.
    pub outcome: Outcome,
    /// Of a copy that was explained: the steps.
    pub ladder: Option<Explanation>,
    /// Of several pairs of hosts: the results of each.
    pub pairs: Vec<PairDone>,
}

impl From<Outcome> for Done {
    fn from(outcome: Outcome) -> Self {
        Self { outcome, ladder: None, pairs: Vec::new() }
    }
}

/// A copy that runs. One that is dropped is stopped.
#[derive(Debug)]
pub struct Copying {
    thread: Option<JoinHandle<Result<Done, Error>>>,
    watch: Arc<Watch>,
    heard: mpsc::Receiver<Event>,
    consumer: Option<Arc<Consumer>>,
}

impl Copying {
    /// The next event, or after a tenth of a second the progress; None when it is over.
    pub fn next_event(&mut self) -> Option<Event> {
        match self.heard.recv_timeout(LOOK) {
            Ok(event) => Some(event),
            Err(mpsc::RecvTimeoutError::Timeout) => Some(Event::Progress(Box::new(self.watch.progress()))),
            Err(mpsc::RecvTimeoutError::Disconnected) => None,
        }
    }

    /// Ends it as soon as possible; copied data stays, and [`Copying::wait`] returns [`Error::Cancelled`].
    pub fn stop(&self) {
        self.watch.stop();
    }

    /// The consumer of a copy into memory.
    #[must_use]
    pub fn consumer(&self) -> Option<Arc<Consumer>> {
        self.consumer.clone()
    }

    /// Waits until it is over.
    ///
    /// # Errors
    /// The error that ended it. Problems of single names are in the outcome.
    pub fn wait(mut self) -> Result<Done, Error> {
        let ended = self.thread.take().map(JoinHandle::join);
        ended.and_then(Result::ok).unwrap_or(Err(Error::Cancelled))
    }
}

impl Drop for Copying {
    fn drop(&mut self) {
        if let Some(thread) = self.thread.take() {
            self.watch.stop();
            let _ = thread.join();
        }
    }
}
