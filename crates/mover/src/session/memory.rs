//! A copy into shared memory: the receiving end is another program, which is notified of files and releases
//! them.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, OnceLock, mpsc};
use std::time::Duration;

use parking_lot::Mutex;
use tidecast_event::Kind;
use tidecast_event::copy::{Arrived, Attributes, Block, Copied, File, Link, Other, Symlink};

use super::event::Event;
use super::job::{Held, Job, LOOK, Watch};
use super::shm::{Dir, room};
use crate::entry::{self, Entry};
use crate::error::Error;
use crate::sink::{self, Memory};
use crate::transfer::{Monitor, Outcome};

/// The default budget, and the share of free memory.
const BUDGET: u64 = 1 << 30;
const SHARE: u64 = 4;
/// Events that wait for the consumer to read them.
const WAITING: usize = 1024;

/// Memory that was taken for a copy.
pub(super) struct Taken {
    consumer: Arc<Consumer>,
    say: SyncSender<Arrived>,
    _dir: Dir,
}

impl Taken {
    pub(super) fn new(budget: Option<u64>, blocks: bool) -> Result<Self, Error> {
        let budget = match budget {
            Some(budget) => budget,
            None => BUDGET.min(room()? / SHARE),
        };
        let dir = Dir::of_host()?;
        let (say, heard) = sync_channel(WAITING);
        let state = Arc::new(State::default());
        let (telling, said) = (state.clone(), say.clone());
        let place = dir.path().to_owned();
        let memory = Memory::new(dir.path(), budget, blocks, {
            let place = place.clone();
            move |arrived| telling.send_event(&said, for_consumer(arrived, &place))
        })?;
        let memory = Arc::new(memory);
        let consumer = Arc::new(Consumer { place, budget, memory, state, heard: Mutex::new(heard) });
        Ok(Self { consumer, say, _dir: dir })
    }

    pub(super) fn consumer(&self) -> Arc<Consumer> {
        self.consumer.clone()
    }
}

/// Copies, tells the consumer, and waits until it has given all back.
pub(super) fn run(
    mut job: Job,
    taken: &Taken,
    watch: &Watch,
    say: &mpsc::Sender<Event>,
) -> Result<Outcome, Error> {
    let Consumer { memory, state, .. } = taken.consumer.as_ref();
    job.memory = Some(Held { memory: memory.clone(), monitor: state.monitor.clone() });
    let ended = job.whole(watch, say).map_err(|error| match state.why.get() {
        Some(why) if error.kind() == Kind::Interrupted => Error::ConsumerGone(why),
        _ => error,
    });
    if let Ok(outcome) = &ended {
        let (files, bytes) = (outcome.written.files, outcome.written.bytes);
        let failed = outcome.walked.failed + outcome.written.failed;
        state.send_event(&taken.say, Arrived::Copied(Copied { files, bytes, failed }));
    }
    state.over.store(true, SeqCst);
    let outcome = ended?;
    while !(memory.is_empty() || state.has_gone() || watch.is_stopped()) {
        std::thread::sleep(LOOK / 10);
    }
    Ok(outcome)
}

/// Arrived files, as the consumer is told of them; they are in `place`.
fn for_consumer(arrived: sink::Arrived, place: &Path) -> Arrived {
    let at = |number: u64| place.join(number.to_string());
    let path = |name: &[u8]| PathBuf::from(OsStr::from_bytes(name));
    match arrived {
        sink::Arrived::Block { number, entry, offset, len } => {
            Arrived::Block(Block { path: path(&entry.path), number, at: at(number), offset, bytes: len })
        }
        sink::Arrived::File { number, entry } => Arrived::File(File {
            path: path(&entry.path),
            number,
            at: at(number),
            bytes: entry.len(),
            attributes: attributes(&entry),
        }),
        sink::Arrived::Other(entry) => {
            let (path_of, attributes) = (path(&entry.path), attributes(&entry));
            let other = || Other { path: path_of.clone(), attributes };
            match &entry.kind {
                entry::Kind::Symlink { target } => {
                    Arrived::Symlink(Symlink { path: path_of, target: path(target), attributes })
                }
                entry::Kind::HardLink { to } => {
                    Arrived::Link(Link { path: path_of, to: path(to), attributes })
                }
                entry::Kind::Dir => Arrived::Directory(other()),
                _ => Arrived::Special(other()),
            }
        }
    }
}

fn attributes(entry: &Entry) -> Attributes {
    let mtime = entry.attributes.mtime;
    Attributes { mode: entry.attributes.mode, mtime: mtime.seconds as f64 + f64::from(mtime.nanos) * 1e-9 }
}

/// The state of the consumer.
#[derive(Debug, Default)]
struct State {
    monitor: Arc<Monitor>,
    /// The reason for its end.
    why: OnceLock<&'static str>,
    quiet: AtomicBool,
    /// There are no further messages.
    over: AtomicBool,
}

impl State {
    /// Sends it when the consumer has read enough of the earlier messages; does nothing when the copy ends.
    fn send_event(&self, say: &SyncSender<Arrived>, mut what: Arrived) {
        while !self.monitor.is_cancelled() && !self.quiet.load(SeqCst) {
            match say.try_send(what) {
                Err(TrySendError::Full(back)) => what = back,
                Ok(()) | Err(TrySendError::Disconnected(_)) => return,
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    fn has_gone(&self) -> bool {
        self.why.get().is_some()
    }
}

/// The program that takes the files.
#[derive(Debug)]
pub struct Consumer {
    place: PathBuf,
    budget: u64,
    memory: Arc<Memory>,
    state: Arc<State>,
    heard: Mutex<Receiver<Arrived>>,
}

impl Consumer {
    /// The directory in shared memory, for as long as the copy runs.
    #[must_use]
    pub fn place(&self) -> &Path {
        &self.place
    }

    /// How much memory may be taken, in bytes.
    #[must_use]
    pub fn budget(&self) -> u64 {
        self.budget
    }

    /// Waits for the next message; None after the last.
    #[must_use]
    pub fn next_arrived(&self) -> Option<Arrived> {
        loop {
            let is_over = self.state.over.load(SeqCst);
            match self.heard.lock().recv_timeout(LOOK / 10) {
                Ok(said) => return Some(said),
                Err(RecvTimeoutError::Timeout) if !is_over => {}
                Err(_) => return None,
            }
        }
    }

    /// Gives a file back, or the part of it that begins at an offset; false if it was not held.
    ///
    /// # Errors
    /// Its memory cannot be freed.
    pub fn release(&self, number: u64, offset: Option<u64>) -> Result<bool, Error> {
        self.memory.release(number, offset)
    }

    /// Accepts no further files, with the reason: the rest is not copied.
    pub fn leave(&self, why: &'static str) {
        let _ = self.state.why.set(why);
        self.state.quiet.store(true, SeqCst);
        self.state.monitor.cancel();
    }
}
