//! Reads the files of a layout once, on all cores, and hashes every piece: for publishing and verifying alike.
//!
//! Promise: each byte is read once for both versions; files are read with `pread` in large, sequential chunks
//! into one buffer a thread, which stays in its cache (never mapped: truncating a mapped file kills its
//! readers); a large file is shared among threads by ranges of pieces, small ones are taken many at a time.

use std::num::NonZero;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;

use parking_lot::Mutex;
use tidecast_hash::Sha1Lanes;

use crate::Error;
use crate::job::{Job, Target};
use crate::worker::Worker;

/// Most bytes that a thread takes on at a time: sequential for the disk, and soon shared out at the end.
const MAX_SHARE: u64 = 64 << 20;

/// Hashes every piece that the target wants.
pub(crate) fn run(job: Job<'_>, target: &impl Target) -> Result<(), Error> {
    let pieces = u64::from(job.layout.piece_count());
    let length = u64::from(job.layout.piece_length());
    let threads = job.threads.or_else(|| thread::available_parallelism().ok()).map_or(1, NonZero::get);
    let share = (job.layout.space() / (threads as u64 * 8)).clamp(1, MAX_SHARE);
    let mut share = share.div_ceil(length);
    if job.version.has_v1() && pieces >= 32 * threads as u64 {
        // Enough to be hashed side by side.
        share = share.max(Sha1Lanes::COUNT as u64);
    }
    let threads = threads.min(pieces.div_ceil(share) as usize);
    let next = AtomicU64::new(0);
    let stop = AtomicBool::new(false);
    let failure = Mutex::new(None);
    let work = || {
        let mut worker = Worker::new(job, target);
        loop {
            let first = next.fetch_add(share, Relaxed);
            if first >= pieces || stop.load(Relaxed) {
                return;
            }
            let end = (first + share).min(pieces);
            if let Err(e) = worker.share(first as u32..end as u32, &stop) {
                stop.store(true, Relaxed);
                failure.lock().get_or_insert(e);
                return;
            }
        }
    };
    thread::scope(|scope| {
        for _ in 1..threads {
            scope.spawn(work);
        }
        work();
    });
    match failure.into_inner() {
        Some(e) => Err(e),
        None if job.progress.is_cancelled() => Err(Error::Cancelled),
        None => Ok(()),
    }
}
