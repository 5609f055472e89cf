//! The requests that wait for pieces, and their completion when the pieces are there.
//!
//! No thread waits: a request of the kernel for absent data leaves a closure, which runs on one of
//! the answering threads as soon as its last piece is verified, or its time is up, or its process was killed.
//!
//! Promise: each closure runs exactly once, and not later than the timeout after its request or the last piece that came
//! for it.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, unbounded};
use parking_lot::Mutex;
use tidecast_net::{Demand, Urgency};
use tidecast_store::Store;

/// The interval at which waiting requests are checked.
const LOOK: Duration = Duration::from_millis(250);
/// After the cache rejected received data, nothing is requested for this time.
const RETRY: Duration = Duration::from_secs(1);
/// How often it is seen, without a read, whether it takes something again.
const PROBE: Duration = Duration::from_secs(10);
/// Threads that answer.
const ANSWERING: usize = 2;

/// Why awaited data did not arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WaitFailure {
    /// No peer supplied it in time.
    Late,
    /// The process that waited was killed.
    Killed,
    /// The cache cannot take it, or the swarm has ended.
    Failed,
}

/// A waiting request, and its pieces.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asker {
    /// The file, by its place in the manifest.
    pub(crate) file: u32,
    /// The process, as the kernel named it; 0 for none.
    pub(crate) pid: u32,
}

/// A request that waits now.
#[derive(Clone, Debug)]
pub(crate) struct Waiting {
    pub(crate) asker: Asker,
    pub(crate) since: Instant,
    pub(crate) pieces: u32,
}

type Then = Box<dyn FnOnce(Result<Duration, WaitFailure>) + Send>;

/// The work of an answering thread.
pub(crate) enum Work {
    Answer(Then, Result<Duration, WaitFailure>),
    Run(Box<dyn FnOnce() + Send>),
}

struct Wait {
    asker: Asker,
    since: Instant,
    /// When a piece of it came last.
    moved: Instant,
    left: u32,
    then: Then,
}

#[derive(Default)]
struct Table {
    next: u64,
    /// In the order in which they came.
    waits: BTreeMap<u64, Wait>,
    by_piece: HashMap<u32, Vec<u64>>,
}

/// See the head of the file.
pub(crate) struct Waits {
    store: Arc<Store>,
    demand: Demand,
    table: Mutex<Table>,
    work: Sender<Work>,
    timeout: Duration,
    stopped: AtomicBool,
    /// The cache rejects received data.
    trouble: Mutex<Option<Trouble>>,
    /// Requests a piece that no reader waits for, to find out whether the cache accepts data again.
    probe: OnceLock<Box<dyn Fn() + Send + Sync>>,
}

/// Why the cache rejected data, and when it last did.
struct Trouble {
    why: String,
    last: Instant,
    /// When it was last seen whether it has passed.
    probed: Instant,
}

impl Waits {
    /// Starts the threads. A wait fails after `timeout`.
    pub(crate) fn start(store: Arc<Store>, demand: Demand, timeout: Duration) -> std::io::Result<Arc<Waits>> {
        // Not bounded here, but by the kernel: one entry for each of its unanswered requests.
        let (work, queue) = unbounded();
        let (stopped, trouble) = (AtomicBool::new(false), Mutex::default());
        let (table, probe) = (Mutex::default(), OnceLock::new());
        let waits = Waits { store, demand, table, work, timeout, stopped, trouble, probe };
        let waits = Arc::new(waits);
        for n in 0..ANSWERING {
            let queue: Receiver<Work> = queue.clone();
            let answer = move || {
                for work in queue {
                    match work {
                        Work::Answer(then, result) => then(result),
                        Work::Run(run) => run(),
                    }
                }
            };
            std::thread::Builder::new().name(format!("answer-{n}")).spawn(answer)?;
        }
        let watch = Arc::downgrade(&waits);
        let look = move || {
            while let Some(waits) = watch.upgrade().filter(|w| !w.stopped.load(Ordering::Relaxed)) {
                waits.look();
                drop(waits);
                std::thread::sleep(LOOK);
            }
        };
        std::thread::Builder::new().name("watch".into()).spawn(look)?;
        Ok(waits)
    }

    /// Has an answering thread run this.
    pub(crate) fn later(&self, run: impl FnOnce() + Send + 'static) {
        // The threads end with us.
        let _ = self.work.send(Work::Run(Box::new(run)));
    }

    /// Runs `then` as soon as all these pieces are here: at once, if they are, else later and elsewhere, with the time
    /// that it took.
    pub(crate) fn when(
        &self,
        pieces: Range<u32>,
        asker: Asker,
        then: impl FnOnce(Result<Duration, WaitFailure>) + Send + 'static,
    ) {
        let mut table = self.table.lock();
        // Under the lock: pieces that are verified from here on are reported to `arrived`, which takes it
        // too.
        let missing: Vec<u32> = pieces.filter(|piece| !self.store.has(*piece)).collect();
        if missing.is_empty() {
            drop(table);
            return then(Ok(Duration::ZERO));
        }
        if self.is_troubled() {
            drop(table);
            return then(Err(WaitFailure::Failed));
        }
        let id = table.next;
        table.next += 1;
        for piece in &missing {
            table.by_piece.entry(*piece).or_default().push(id);
        }
        let now = Instant::now();
        let left = missing.len() as u32;
        let wait = Wait { asker, since: now, moved: now, left, then: Box::new(then) };
        table.waits.insert(id, wait);
        drop(table);
        let gone = runs(&missing).any(|run| !self.demand.want(run, Urgency::Now));
        if gone || self.stopped.load(Ordering::Relaxed) {
            self.fail(|_, _| Some(WaitFailure::Failed));
        }
    }

    /// Whether a piece is here.
    pub(crate) fn has(&self, piece: u32) -> bool {
        self.store.has(piece)
    }

    /// Requests pieces that no reader waits for.
    pub(crate) fn want(&self, pieces: Range<u32>, urgency: Urgency) {
        if !self.is_troubled() && pieces.clone().any(|piece| !self.store.has(piece)) {
            self.demand.want(pieces, urgency);
        }
    }

    /// A piece is verified. Never waits. Returns whether the cache accepts data again after a rejection.
    pub(crate) fn arrived(&self, piece: u32) -> bool {
        let now = Instant::now();
        let recovered = self.trouble.lock().take().is_some();
        let mut table = self.table.lock();
        for id in table.by_piece.remove(&piece).unwrap_or_default() {
            let Some(wait) = table.waits.get_mut(&id) else { continue };
            (wait.left, wait.moved) = (wait.left - 1, now);
            if wait.left == 0
                && let Some(wait) = table.waits.remove(&id)
            {
                let took = wait.since.elapsed();
                let _ = self.work.send(Work::Answer(wait.then, Ok(took)));
            }
        }
        recovered
    }

    /// The waiting requests, oldest first.
    pub(crate) fn waiting(&self) -> Vec<Waiting> {
        let table = self.table.lock();
        let of = |w: &Wait| Waiting { asker: w.asker, since: w.since, pieces: w.left };
        table.waits.values().map(of).collect()
    }

    /// Pieces of the requests that have got no data for at least this time, limited to this number of pieces.
    pub(crate) fn overdue(&self, age: Duration, most: usize) -> Vec<u32> {
        let table = self.table.lock();
        let late = |id: &u64| table.waits.get(id).is_some_and(|wait| wait.moved.elapsed() >= age);
        let mut pieces: Vec<u32> =
            table.by_piece.iter().filter(|(_, ids)| ids.iter().any(late)).map(|(piece, _)| *piece).collect();
        pieces.sort_unstable();
        pieces.truncate(most);
        pieces
    }

    /// Whether [`Waits::stop`] was called.
    pub(crate) fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Relaxed)
    }

    /// No further data will arrive: all waiting requests fail, and all later ones.
    pub(crate) fn stop(&self) {
        self.stopped.store(true, Ordering::Relaxed);
        self.fail(|_, _| Some(WaitFailure::Failed));
    }

    /// The cache rejected received data: all waiting requests fail, and all requests for absent data within
    /// [`RETRY`]. After that only newly requested data is fetched: if the cache accepts it, there is room
    /// again.
    pub(crate) fn fail_all(self: &Arc<Self>, why: String) {
        let now = Instant::now();
        *self.trouble.lock() = Some(Trouble { why, last: now, probed: now });
        self.fail(|_, _| Some(WaitFailure::Failed));
        let waits = self.clone();
        self.later(move || {
            if waits.is_troubled() {
                waits.demand.want(0..waits.store.manifest().piece_count(), Urgency::Never);
            }
        });
    }

    /// What to ask for when the cache is in trouble and no read comes that would show whether that has passed.
    pub(crate) fn probe_with(&self, probe: impl Fn() + Send + Sync + 'static) {
        // There is one service, which reports it once.
        let _ = self.probe.set(Box::new(probe));
    }

    fn probe(&self) {
        let due = self.trouble.lock().as_mut().is_some_and(|trouble| {
            let due = trouble.probed.elapsed() >= PROBE;
            trouble.probed = if due { Instant::now() } else { trouble.probed };
            due
        });
        if let Some(probe) = self.probe.get().filter(|_| due) {
            probe();
        }
    }

    /// Why the cache rejected the last data, until it accepts data again.
    pub(crate) fn trouble(&self) -> Option<String> {
        self.trouble.lock().as_ref().map(|trouble| trouble.why.clone())
    }

    /// Whether it is too soon to try again.
    fn is_troubled(&self) -> bool {
        self.trouble.lock().as_ref().is_some_and(|trouble| trouble.last.elapsed() < RETRY)
    }

    /// Ends waits whose time is up.
    fn look(&self) {
        self.probe();
        let now = Instant::now();
        self.fail(|asker, moved| {
            let waited = now.saturating_duration_since(moved);
            if waited >= self.timeout {
                Some(WaitFailure::Late)
            } else if waited >= LOOK && is_killed(asker.pid) {
                Some(WaitFailure::Killed)
            } else {
                None
            }
        });
    }

    fn fail(&self, why: impl Fn(Asker, Instant) -> Option<WaitFailure>) {
        let mut table = self.table.lock();
        let failure = |(id, wait): (&u64, &Wait)| why(wait.asker, wait.moved).map(|why| (*id, why));
        let failed: Vec<(u64, WaitFailure)> = table.waits.iter().filter_map(failure).collect();
        if failed.is_empty() {
            return;
        }
        let table = &mut *table;
        for (id, why) in failed {
            if let Some(wait) = table.waits.remove(&id) {
                let _ = self.work.send(Work::Answer(wait.then, Err(why)));
            }
        }
        let waits = &table.waits;
        table.by_piece.retain(|_, ids| {
            ids.retain(|id| waits.contains_key(id));
            !ids.is_empty()
        });
    }
}

/// Whether a thread has a deadly signal before it. The kernel tells us of no interruption that fuser would pass on, and
/// a process that was killed must not stay for as long as its data does.
fn is_killed(pid: u32) -> bool {
    const SIGKILL: u64 = 1 << (9 - 1);
    if pid == 0 {
        return false;
    }
    let Ok(status) = std::fs::read_to_string(format!("/proc/{pid}/status")) else { return false };
    let pending = status.lines().filter_map(|line| {
        let mask = line.strip_prefix("SigPnd:").or_else(|| line.strip_prefix("ShdPnd:"))?;
        u64::from_str_radix(mask.trim(), 16).ok()
    });
    pending.fold(0, |all, mask| all | mask) & SIGKILL != 0
}

/// Ascending numbers as runs.
fn runs(numbers: &[u32]) -> impl Iterator<Item = Range<u32>> {
    let follows = |a: &u32, b: &u32| *b == *a + 1;
    numbers.chunk_by(follows).filter_map(|run| Some(*run.first()?..run.last()? + 1))
}
