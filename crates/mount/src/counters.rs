//! Counters of a mount's requests and their cost: the figures of `tidecast status`.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tidecast_event::mount::Failures;

/// Kinds of requests of the kernel.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Kind {
    Lookup,
    Getattr,
    Readlink,
    Open,
    Read,
    Release,
    Readdir,
    Xattr,
    Statfs,
    Ioctl,
    Other,
}

/// Their names, in their order.
const KINDS: [&str; 11] = [
    "lookup", "getattr", "readlink", "open", "read", "release", "readdir", "xattr", "statfs", "ioctl",
    "other",
];

/// Files whose waiting is kept one by one; later ones count in the totals only.
const FILES: usize = 1 << 16;
/// Reasons of failures that are kept.
const REASONS: usize = 20;

/// How long processes have waited for a file.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Waited {
    pub(crate) times: u64,
    pub(crate) total: Duration,
    pub(crate) longest: Duration,
}

/// See the head of the file.
#[derive(Default)]
pub(crate) struct Counters {
    kinds: [AtomicU64; KINDS.len()],
    /// Opens and reads whose data was here, and those that had to wait.
    hits: AtomicU64,
    misses: AtomicU64,
    /// Bytes handed to the kernel.
    read: AtomicU64,
    errors: AtomicU64,
    files: Mutex<HashMap<u32, Waited>>,
    failures: Mutex<HashMap<String, Failure>>,
}

/// Failures of one reason: their number, and the last one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Failure {
    pub(crate) times: u64,
    pub(crate) file: u32,
    pub(crate) last: Instant,
}

impl Failure {
    /// The event's form of it.
    pub(crate) fn told(&self, why: String, path: String) -> Failures {
        Failures { why, times: self.times, path, seconds: self.last.elapsed().as_secs_f64() }
    }
}

impl Counters {
    pub(crate) fn request(&self, kind: Kind) {
        if let Some(count) = self.kinds.get(kind as usize) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Data of a file was needed, and came after this long; at once if it was here.
    pub(crate) fn needed(&self, file: u32, after: Duration) {
        if after.is_zero() {
            self.hits.fetch_add(1, Ordering::Relaxed);
            return;
        }
        self.misses.fetch_add(1, Ordering::Relaxed);
        let mut files = self.files.lock();
        if files.len() < FILES || files.contains_key(&file) {
            let waited = files.entry(file).or_default();
            waited.times += 1;
            waited.total += after;
            waited.longest = waited.longest.max(after);
        }
    }

    /// An open or a read of a file has failed.
    pub(crate) fn failed(&self, file: u32, why: &str) {
        self.errors.fetch_add(1, Ordering::Relaxed);
        let mut failures = self.failures.lock();
        if failures.len() >= REASONS
            && !failures.contains_key(why)
            && let Some(oldest) = failures.iter().min_by_key(|(_, of)| of.last).map(|(why, _)| why.clone())
        {
            failures.remove(&oldest);
        }
        let failure =
            failures.entry(why.to_owned()).or_insert(Failure { times: 0, file, last: Instant::now() });
        *failure = Failure { times: failure.times + 1, file, last: Instant::now() };
    }

    /// Why opens and reads have failed, the last in front.
    pub(crate) fn failures(&self) -> Vec<(String, Failure)> {
        let mut all: Vec<_> = self.failures.lock().iter().map(|(why, of)| (why.clone(), *of)).collect();
        all.sort_by_key(|(_, of)| std::cmp::Reverse(of.last));
        all
    }

    pub(crate) fn gave(&self, bytes: usize) {
        self.read.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    pub(crate) fn requests(&self) -> Vec<(&'static str, u64)> {
        KINDS.into_iter().zip(self.kinds.iter().map(|count| count.load(Ordering::Relaxed))).collect()
    }

    /// Hits, misses, errors.
    pub(crate) fn outcome(&self) -> (u64, u64, u64) {
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        (of(&self.hits), of(&self.misses), of(&self.errors))
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.read.load(Ordering::Relaxed)
    }

    /// Files by the time that readers waited for them, longest first.
    pub(crate) fn slowest(&self, most: usize) -> Vec<(u32, Waited)> {
        let mut all: Vec<(u32, Waited)> = self.files.lock().iter().map(|(file, w)| (*file, *w)).collect();
        all.sort_by_key(|(file, w)| (std::cmp::Reverse(w.total), *file));
        all.truncate(most);
        all
    }
}
