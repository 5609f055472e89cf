//! State that both ends of a session share with their callers: options, progress, the outcome, the request to
//! stop.

use std::io::{self, Read};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use super::control::Limits;
use super::meter::Tick;
use super::wire::Wire;
use crate::error::Error;
use crate::job::{Walked, Written};

/// The parameters of an end. Everything that is None is tuned while it runs.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(default)]
pub struct Options {
    /// Streams.
    pub streams: Option<usize>,
    /// Threads of the front: readers or writers.
    pub fronts: Option<usize>,
    /// Blocks in memory.
    pub pool: Option<usize>,
    /// Bytes a second; of several senders of the same, together.
    pub rate: Option<u64>,
    /// After this long without data from the other end it is given up.
    pub timeout: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self { streams: None, fronts: None, pool: None, rate: None, timeout: Duration::from_secs(60) }
    }
}

/// How far a copy is.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Progress {
    /// The sender's results.
    pub walked: Walked,
    /// Bytes of payload that the receiver has written.
    pub bytes: u64,
    /// Entries in blocks that the receiver has written.
    pub done: u64,
    /// This end, counted from the start.
    pub here: Tick,
    /// The other one.
    pub there: Tick,
    /// The current limit.
    pub limit: Option<super::Limit>,
    /// Everything has arrived, and the final work is done: links, deletion, syncing.
    pub ending: bool,
    /// The sender's streams, by the kernel.
    #[serde(default)]
    pub wire: Wire,
}

/// The outcome of a copy.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Outcome {
    /// The sender's results.
    pub walked: Walked,
    /// The receiver's results.
    pub written: Written,
    /// Seconds from the first connection to the end.
    pub seconds: f64,
    /// The limits, and for how long each applied.
    pub limits: Limits,
    /// Blocks that had to be sent again.
    pub again: u64,
    /// The sender's streams, by the kernel.
    #[serde(default)]
    pub wire: Wire,
}

impl Outcome {
    /// Whether all of it was done.
    ///
    /// # Errors
    /// [`Error::Missing`], [`Error::AttributesLost`]: names that are in the problems.
    pub fn verdict(&self) -> Result<(), Error> {
        match (self.walked.failed + self.written.failed, self.written.lost) {
            (0, 0) => Ok(()),
            (0, lost) => Err(Error::AttributesLost(lost)),
            (failed, _) => Err(Error::Missing(failed)),
        }
    }
}

/// Looks at a session from outside, and may stop it.
#[derive(Debug, Default)]
pub struct Monitor {
    cancelled: AtomicBool,
    /// The other end has failed, for this reason.
    lost: Mutex<Option<String>>,
    progress: Mutex<Progress>,
}

impl Monitor {
    /// Ends the session as soon as possible; the journal stays.
    pub fn cancel(&self) {
        self.cancelled.store(true, SeqCst);
    }

    /// Ends the session, as the other end is known to have failed.
    pub fn lose(&self, why: String) {
        self.lost.lock().get_or_insert(why);
    }

    /// How far it is.
    #[must_use]
    pub fn progress(&self) -> Progress {
        self.progress.lock().clone()
    }

    /// Whether [`Monitor::cancel`] was called.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.cancelled.load(SeqCst)
    }

    /// Takes over how far a session is that runs elsewhere.
    pub fn show(&self, progress: Progress) {
        *self.progress.lock() = progress;
    }

    /// Takes over the stream statistics of a remote sender.
    pub fn show_wire(&self, wire: Wire) {
        self.progress.lock().wire = wire;
    }

    /// Why the session should end, if it should.
    #[must_use]
    pub fn end_reason(&self) -> Option<Error> {
        if self.is_cancelled() {
            return Some(Error::Cancelled);
        }
        self.lost.lock().clone().map(Error::Remote)
    }

    pub(crate) fn note(&self, change: impl FnOnce(&mut Progress)) {
        change(&mut self.progress.lock());
    }
}

/// The time since the last data from the other end.
#[derive(Debug)]
pub(crate) struct LastReceived {
    last: Mutex<Instant>,
    timeout: Duration,
}

/// After this long a silence a fresh connection is tried, and if it succeeds, all are reopened: TCP itself may
/// wait twice as long as an outage has lasted before it tries again.
const STALL: Duration = Duration::from_secs(4);

impl LastReceived {
    pub(crate) fn new(timeout: Duration) -> Self {
        Self { last: Mutex::new(Instant::now()), timeout }
    }

    pub(crate) fn now(&self) {
        *self.last.lock() = Instant::now();
    }

    /// Reads from a connection; each byte counts as a sign of life. A block may take longer than the timeout
    /// of this end.
    pub(crate) fn reading<'h, R: Read>(&'h self, from: &'h mut R) -> impl Read + 'h {
        Reading { from, heard: self }
    }

    /// Whether connections should be looked at.
    pub(crate) fn stalls(&self) -> bool {
        self.last.lock().elapsed() > STALL
    }

    /// An error when it was too long ago.
    pub(crate) fn check(&self, trouble: impl FnOnce() -> Option<Error>) -> Result<(), Error> {
        if self.last.lock().elapsed() <= self.timeout {
            return Ok(());
        }
        let again = trouble().map_or(String::new(), |e| format!(" (reconnecting failed: {})", e.why()));
        Err(Error::Timeout(format!(
            "no data from the other end for {} s{again}; run the same command again to resume",
            self.timeout.as_secs()
        )))
    }
}

struct Reading<'h, R> {
    from: &'h mut R,
    heard: &'h LastReceived,
}

impl<R: Read> Read for Reading<'_, R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let read = self.from.read(buf)?;
        self.heard.now();
        Ok(read)
    }
}

/// The first reason for which a session must end.
#[derive(Debug, Default)]
pub(crate) struct Failure(Mutex<Option<Error>>);

impl Failure {
    pub(crate) fn set(&self, error: Error) {
        self.0.lock().get_or_insert(error);
    }

    pub(crate) fn take(&self) -> Option<Error> {
        self.0.lock().take()
    }

    pub(crate) fn is_set(&self) -> bool {
        self.0.lock().is_some()
    }

    pub(crate) fn text(&self) -> Option<String> {
        self.0.lock().as_ref().map(ToString::to_string)
    }
}
