//! Reads the files of a layout once, on all cores, and hashes every piece: for publishing and verifying alike.
//!
//! Promise: each byte is read once for both versions; files are read with `pread` in large, sequential chunks into one
//! buffer a thread, which stays in its cache (never mapped: whoever truncates a mapped file kills its reader);
//! a large file is shared among threads by ranges of pieces, small ones are taken many at a time.

use std::fs::File;
use std::num::NonZero;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::{io, thread};

use parking_lot::Mutex;
use tidecast_hash::{Digest, LEAF, Sha1, Sha1Digest, leaves};
use tidecast_metainfo::{Layout, Version, merkle};

use crate::{Error, Progress};

/// Bytes a thread reads at a time: many leaves for the lanes of the hash, few enough to stay in its cache.
const CHUNK: usize = 512 << 10;

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

/// Hashes every piece that the target wants.
pub(crate) fn run(job: Job<'_>, target: &impl Target) -> Result<(), Error> {
    let pieces = u64::from(job.layout.piece_count());
    let length = u64::from(job.layout.piece_length());
    let threads = job.threads.or_else(|| thread::available_parallelism().ok()).map_or(1, NonZero::get);
    let share = (job.layout.space() / (threads as u64 * 8)).clamp(1, MAX_SHARE);
    let share = share.div_ceil(length);
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

/// What stopped a chunk: a file, by which others need not be affected.
struct Trouble {
    file: u32,
    error: Error,
}

/// One thread's buffers and open file.
struct Worker<'a, T> {
    job: Job<'a>,
    target: &'a T,
    buffer: Vec<u8>,
    /// The first byte of `buffer` that starts a page.
    aligned: usize,
    open: Option<(u32, File)>,
    /// Leaves of the piece in hand.
    leaves: Vec<Digest>,
    /// SHA-1 of the piece in hand.
    sha1: Sha1,
}

impl<'a, T: Target> Worker<'a, T> {
    fn new(job: Job<'a>, target: &'a T) -> Self {
        let buffer = vec![0; CHUNK + PAGE];
        let aligned = buffer.as_ptr().align_offset(PAGE).min(PAGE);
        Self { job, target, buffer, aligned, open: None, leaves: Vec::new(), sha1: Sha1::new() }
    }

    /// Hashes the wanted ones of some pieces. A file in trouble costs the pieces it has a part in.
    fn share(&mut self, pieces: Range<u32>, stop: &AtomicBool) -> Result<(), Error> {
        let mut at = pieces.start;
        while at < pieces.end {
            if stop.load(Relaxed) {
                return Ok(());
            }
            if self.job.progress.is_cancelled() {
                return Err(Error::Cancelled);
            }
            if !self.target.wants(at) {
                at += 1;
                continue;
            }
            let group = self.group(at..pieces.end);
            at = group.end;
            self.reset();
            if let Err(trouble) = self.group_of(group.clone())? {
                self.open = None;
                self.target.trouble(trouble.file, group, trouble.error)?;
            }
        }
        // Nothing stays open and unsettled between shares.
        self.close_settled(pieces)
    }

    /// As many pieces from the first on as fit the buffer and can be read together; at least one.
    fn group(&self, pieces: Range<u32>) -> Range<u32> {
        let layout = self.job.layout;
        let most = (CHUNK / layout.piece_length() as usize).max(1) as u32;
        let mut end = pieces.end.min(pieces.start.saturating_add(most));
        if layout.is_aligned() {
            // Pieces of one file only: leaves of two files do not follow each other in the buffer.
            let file = layout.spans(pieces.start, 0, 1).next();
            let last = file.map_or(end, |span| layout.file_pieces(span.file).end);
            end = end.min(last);
        }
        (pieces.start + 1..end)
            .find(|p| !self.target.wants(*p))
            .map_or(pieces.start..end.max(pieces.start + 1), |e| pieces.start..e)
    }

    fn reset(&mut self) {
        self.leaves.clear();
        self.sha1 = Sha1::new();
    }

    /// Reads and hashes pieces that fit the buffer together, or one that is larger, part by part.
    fn group_of(&mut self, pieces: Range<u32>) -> Result<Result<(), Trouble>, Error> {
        if pieces.len() > 1 {
            let read = self.fill(pieces.clone(), 0, u32::MAX);
            return match read {
                Ok(len) => self.whole(pieces, len).map(Ok),
                Err(trouble) => Ok(Err(trouble)),
            };
        }
        let (piece, len) = (pieces.start, self.job.layout.piece_len(pieces.start));
        let mut begin = 0;
        while begin < len {
            let part = (len - begin).min(CHUNK as u32);
            if let Err(trouble) = self.fill(pieces.clone(), begin, part) {
                return Ok(Err(trouble));
            }
            self.hash_leaves(part as usize);
            if self.job.version.has_v1() {
                let bytes = &self.buffer[self.aligned..][..part as usize];
                self.sha1.update(bytes);
            }
            begin += part;
        }
        let leaves = std::mem::take(&mut self.leaves);
        let done = self.emit(piece, &leaves);
        self.leaves = leaves;
        done.map(Ok)
    }

    /// Hashes the `len` bytes in the buffer, which are whole pieces.
    fn whole(&mut self, pieces: Range<u32>, len: usize) -> Result<(), Error> {
        self.hash_leaves(len);
        let leaves = std::mem::take(&mut self.leaves);
        let (mut rest, mut at) = (leaves.as_slice(), self.aligned);
        for piece in pieces {
            let len = self.job.layout.piece_len(piece) as usize;
            if self.job.version.has_v1() {
                self.sha1 = Sha1::new();
                self.sha1.update(&self.buffer[at..][..len]);
                at += len;
            }
            let (own, others) = rest.split_at(len.div_ceil(LEAF).min(rest.len()));
            rest = others;
            self.emit(piece, own)?;
        }
        self.leaves = leaves;
        Ok(())
    }

    /// Appends the leaves of the first `len` bytes in the buffer, if leaves are wanted.
    fn hash_leaves(&mut self, len: usize) {
        if self.job.version.has_v2() || self.job.leaves {
            let old = self.leaves.len();
            self.leaves.resize(old + len.div_ceil(LEAF), [0; 32]);
            leaves(&self.buffer[self.aligned..][..len], &mut self.leaves[old..]);
        }
    }

    /// Ends a piece whose bytes are in `sha1` and in `leaves`.
    fn emit(&mut self, index: u32, leaves: &[Digest]) -> Result<(), Error> {
        let (layout, version) = (self.job.layout, self.job.version);
        let len = layout.piece_len(index);
        let v1 = version.has_v1().then(|| {
            let mut sha1 = std::mem::take(&mut self.sha1);
            let mut padding = (wire_len(layout, version, index) - len) as usize;
            while padding > 0 {
                let part = padding.min(ZEROS.len());
                sha1.update(&ZEROS[..part]);
                padding -= part;
            }
            sha1.finish()
        });
        let v2 = version.has_v2().then(|| merkle::root(leaves, width(layout, index)));
        self.target.piece(Piece { index, v2, v1, leaves })?;
        let payload: u32 = layout.spans(index, 0, len).filter(|s| !s.pad).map(|s| s.len).sum();
        self.job.progress.add_bytes(u64::from(payload));
        Ok(())
    }

    /// Fills the buffer with bytes `begin..begin + len` of each of `pieces`, one behind the other; says how many.
    fn fill(&mut self, pieces: Range<u32>, begin: u32, len: u32) -> Result<usize, Trouble> {
        let layout = self.job.layout;
        let mut at = 0;
        // Reads that continue each other become one.
        let mut read: Option<(u32, u64, usize)> = None;
        for piece in pieces {
            let len = len.min(layout.piece_len(piece) - begin);
            for span in layout.spans(piece, begin, len) {
                let len = span.len as usize;
                if span.pad {
                    self.buffer[self.aligned..][at..at + len].fill(0);
                } else {
                    match &mut read {
                        Some((file, offset, so_far))
                            if *file == span.file && *offset + *so_far as u64 == span.offset =>
                        {
                            *so_far += len;
                        }
                        other => {
                            if let Some((file, offset, so_far)) = other.take() {
                                self.read(file, offset, at - so_far..at)?;
                            }
                            *other = Some((span.file, span.offset, len));
                        }
                    }
                }
                at += len;
                if span.pad
                    && let Some((file, offset, so_far)) = read.take()
                {
                    let end = at - len;
                    self.read(file, offset, end - so_far..end)?;
                }
            }
        }
        if let Some((file, offset, so_far)) = read {
            self.read(file, offset, at - so_far..at)?;
        }
        Ok(at)
    }

    /// Reads from a file to a place in the buffer.
    fn read(&mut self, file: u32, offset: u64, place: Range<usize>) -> Result<(), Trouble> {
        let trouble = |error| Trouble { file, error };
        if self.open.as_ref().is_none_or(|(open, _)| *open != file) {
            self.settle()?;
            self.open = Some((file, self.target.open(file).map_err(trouble)?));
        }
        if let Some((_, handle)) = &self.open {
            handle
                .read_exact_at(&mut self.buffer[self.aligned..][place], offset)
                .map_err(|e| trouble(self.target.read_error(file, e)))?;
        }
        Ok(())
    }

    /// Closes the open file, if it is still what it was.
    fn settle(&mut self) -> Result<(), Trouble> {
        match self.open.take() {
            Some((file, handle)) => {
                self.target.settle(file, &handle).map_err(|error| Trouble { file, error })
            }
            None => Ok(()),
        }
    }

    /// [`Worker::settle`] at the end of a share.
    fn close_settled(&mut self, pieces: Range<u32>) -> Result<(), Error> {
        self.settle().or_else(|t| self.target.trouble(t.file, pieces, t.error))
    }
}

/// Alignment of a thread's buffer: page cache to page, and no load across cache lines.
const PAGE: usize = 4096;

/// Padding.
static ZEROS: [u8; 64 << 10] = [0; 64 << 10];

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
