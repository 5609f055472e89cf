//! Reads the files of a layout once, on all cores, and hashes every piece: for publishing and verifying alike.
//!
//! Promise: each byte is read once for both versions; files are read with `pread` in large, sequential chunks into one
//! buffer a thread, which stays in its cache (never mapped: whoever truncates a mapped file kills its reader);
//! a large file is shared among threads by ranges of pieces, small ones are taken many at a time.

use std::fs::File;
use std::num::NonZero;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::{io, thread};

use parking_lot::Mutex;
use tidecast_hash::{Digest, LEAF, Sha1Digest, Sha1Lanes};
use tidecast_metainfo::{Layout, Version, merkle};

use crate::worker::Worker;
use crate::{Error, Progress};

/// Most bytes that a thread takes on at a time: sequential for the disk, and soon shared out at the end.
const MAX_SHARE: u64 = 64 << 20;

/// What to hash and how.
#[derive(Clone, Copy)]
pub(crate) struct Job<'a> {
    pub(crate) layout: &'a Layout,
    /// Which hashes pieces have.
    pub(crate) version: Version,
    /// Whether leaf digests are wanted though the version has none.
    pub(crate) leaves: bool,
    pub(crate) threads: Option<NonZero<usize>>,
    pub(crate) progress: &'a Progress,
}

/// One hashed piece.
pub(crate) struct Piece<'a> {
    pub(crate) index: u32,
    /// Root over its leaves, padded as in [`tidecast_metainfo::Expected::v2`].
    pub(crate) v2: Option<Digest>,
    /// SHA-1, with the padding that v1 sees.
    pub(crate) v1: Option<Sha1Digest>,
    /// Its leaves; none if they were not wanted.
    pub(crate) leaves: &'a [Digest],
}

/// Where files come from and hashes go: what publishing and verifying do differently.
pub(crate) trait Target: Sync {
    /// Whether a piece is to be hashed at all.
    fn wants(&self, piece: u32) -> bool;
    /// Opens a file for reading.
    fn open(&self, file: u32) -> Result<File, Error>;
    /// Called when enough of an open file has been read: is it still what it was?
    fn settle(&self, file: u32, handle: &File) -> Result<(), Error>;
    /// An error of the system while reading a file.
    fn read_error(&self, file: u32, error: io::Error) -> Error;
    /// Takes a hashed piece.
    fn piece(&self, piece: Piece<'_>) -> Result<(), Error>;
    /// Something is wrong with a file, so that `pieces` cannot be hashed. An error from here ends the whole job.
    fn trouble(&self, file: u32, pieces: Range<u32>, error: Error) -> Result<(), Error>;
}

impl Job<'_> {
    /// Whether leaf digests are made.
    pub(crate) fn makes_leaves(&self) -> bool {
        self.version.has_v2() || self.leaves
    }
}

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

/// Bytes of a piece as v1 sees them: see [`tidecast_metainfo::Manifest::wire_len`].
pub(crate) fn wire_len(layout: &Layout, version: Version, piece: u32) -> u32 {
    if version != Version::Hybrid {
        return layout.piece_len(piece);
    }
    let length = u64::from(layout.piece_length());
    let rest = layout.space().saturating_sub(u64::from(piece) * length);
    rest.min(length) as u32
}

/// Leaves of a piece's tree, padding included, as in [`tidecast_metainfo::Manifest::piece_width`].
pub(crate) fn width(layout: &Layout, piece: u32) -> usize {
    let file = layout.spans(piece, 0, 1).next().map_or(0, |span| span.file);
    if layout.file_pieces(file).len() > 1 {
        1 << merkle::piece_level(layout.piece_length())
    } else {
        (layout.piece_len(piece) as usize).div_ceil(LEAF).next_power_of_two()
    }
}
