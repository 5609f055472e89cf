//! One thread of the engine: its buffer, its open file, and the ways in which it hashes a group of pieces.
//!
//! Leaves and pieces are hashed many at a time where the hash has lanes for them: small pieces lie in the buffer
//! together; large ones are read side by side, a slice of each at a time, so that their SHA-1, which a piece has
//! just one chain of, fills the lanes too.

use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use rustix::fs::{Advice, fadvise};
use tidecast_hash::{Digest, LEAF, Sha1, Sha1Digest, Sha1Lanes, leaves};
use tidecast_metainfo::{Layout, Span, merkle};
use tidecast_paths::PageBuffer;

use crate::Error;
use crate::job::{Job, Piece, Target, width, wire_len};

/// Bytes a thread reads and hashes at a time: many leaves for the lanes of the hash, few enough to stay in its cache.
const CHUNK: usize = 512 << 10;

/// Of these, bytes of each piece when pieces are read side by side.
const SLICE: usize = CHUNK / Sha1Lanes::COUNT;

/// Reads side by side, or not from the start, are announced to the system if they are at least this long.
const WORTH_ANNOUNCING: u64 = 1 << 20;

/// Bytes that SHA-1 works on at a time.
const SHA1_BLOCK: usize = 64;

/// Padding.
static ZEROS: [u8; 64 << 10] = [0; 64 << 10];

/// The error of a group: a file, which need not affect other groups.
struct ReadFailure {
    file: u32,
    error: Error,
}

/// One thread's share of a job under way.
pub(crate) struct Worker<'a, T> {
    job: Job<'a>,
    target: &'a T,
    buffer: PageBuffer,
    open: Option<(u32, File)>,
    /// From how many whole pieces on their SHA-1 are made side by side, if ever.
    lanes_from: Option<usize>,
    /// Most pieces in a group.
    most: u32,
    /// Leaves of the group in hand, piece after piece, if leaves are made.
    leaves: Vec<Digest>,
    /// SHA-1 of each of its pieces, if the version has it.
    v1: Vec<Sha1Digest>,
}

impl<'a, T: Target> Worker<'a, T> {
    pub(crate) fn new(job: Job<'a>, target: &'a T) -> Self {
        let length = job.layout.piece_length() as usize;
        // Other programs' v1 pieces may have any length; lanes take whole blocks.
        let lanes_from =
            Sha1Lanes::pays_from().filter(|_| job.version.has_v1() && length.is_multiple_of(SHA1_BLOCK));
        let lanes = lanes_from.map_or(1, |_| Sha1Lanes::COUNT);
        Self {
            job,
            target,
            buffer: PageBuffer::new(CHUNK),
            open: None,
            lanes_from,
            most: (CHUNK / length).max(lanes) as u32,
            leaves: Vec::new(),
            v1: Vec::new(),
        }
    }

    /// Hashes the wanted ones of some pieces. A file in trouble costs the pieces that were read together with it.
    pub(crate) fn share(&mut self, pieces: Range<u32>, stop: &AtomicBool) -> Result<(), Error> {
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
            self.leaves.clear();
            self.v1.clear();
            match self.hash(group.clone()) {
                Ok(()) => self.hand_over(group)?,
                Err(trouble) => {
                    self.open = None;
                    self.target.trouble(trouble.file, group, trouble.error)?;
                }
            }
        }
        // Nothing stays open and unsettled between shares.
        self.close_file().or_else(|t| self.target.trouble(t.file, pieces, t.error))
    }

    /// As many pieces from the first on as are best hashed together; at least one.
    fn group(&self, pieces: Range<u32>) -> Range<u32> {
        let (layout, first) = (self.job.layout, pieces.start);
        let mut end = first.saturating_add(self.most).min(pieces.end);
        if layout.is_aligned() {
            // Pieces of one file only: leaves of two files do not follow each other in the buffer.
            let file = layout.spans(first, 0, 1).next();
            end = end.min(file.map_or(end, |span| layout.file_pieces(span.file).end));
        }
        let unwanted = (first + 1..end).find(|p| !self.target.wants(*p));
        let count = (unwanted.unwrap_or(end) - first).max(1);
        // Side by side, all must be as long.
        let is_whole = |piece: &u32| layout.piece_len(*piece) == layout.piece_length();
        let whole = (first..first + count).take_while(is_whole).count();
        let fit = (CHUNK / layout.piece_length() as usize).max(1) as u32;
        let count = if count > fit && self.lanes_pay(whole) { whole as u32 } else { count.min(fit) };
        first..first + count
    }

    /// Whether the SHA-1 of this many whole pieces are faster side by side than one after another.
    fn lanes_pay(&self, pieces: usize) -> bool {
        self.lanes_from.is_some_and(|least| pieces >= least)
    }

    /// Reads a group and hashes it, into `leaves` and `v1`.
    fn hash(&mut self, group: Range<u32>) -> Result<(), ReadFailure> {
        let length = self.job.layout.piece_length() as usize;
        if group.len() == 1 {
            self.hash_one(group.start)
        } else if group.len() * length <= CHUNK {
            self.hash_together(group)
        } else {
            self.hash_side_by_side(group)
        }
    }

    /// One piece, of any size, part by part.
    fn hash_one(&mut self, piece: u32) -> Result<(), ReadFailure> {
        let len = self.job.layout.piece_len(piece);
        let mut sha1 = Sha1::new();
        for begin in (0..len).step_by(CHUNK) {
            let read = self.fill(piece..piece + 1, begin, CHUNK as u32)?;
            if self.job.makes_leaves() {
                let old = self.leaves.len();
                self.leaves.resize(old + read.div_ceil(LEAF), [0; 32]);
                leaves(&self.buffer[..read], &mut self.leaves[old..]);
            }
            if self.job.version.has_v1() {
                sha1.update(&self.buffer[..read]);
            }
        }
        if self.job.version.has_v1() {
            self.v1.push(self.padded(sha1, piece));
        }
        Ok(())
    }

    /// Pieces that fit the buffer together.
    fn hash_together(&mut self, group: Range<u32>) -> Result<(), ReadFailure> {
        let layout = self.job.layout;
        let read = self.fill(group.clone(), 0, u32::MAX)?;
        let bytes = &self.buffer[..read];
        if self.job.makes_leaves() {
            self.leaves.resize(read.div_ceil(LEAF), [0; 32]);
            leaves(bytes, &mut self.leaves);
        }
        if !self.job.version.has_v1() {
            return Ok(());
        }
        // All but the last are whole: only a file's last piece may be short.
        let parts: Vec<&[u8]> = bytes.chunks(layout.piece_length() as usize).collect();
        let whole = parts.iter().filter(|p| p.len() == layout.piece_length() as usize).count();
        for some in parts[..whole].chunks(Sha1Lanes::COUNT) {
            if !self.lanes_pay(some.len()) {
                break;
            }
            let mut lanes = Sha1Lanes::new();
            lanes.update(&std::array::from_fn(|lane| some[lane.min(some.len() - 1)]));
            self.v1.extend(&lanes.finish()[..some.len()]);
        }
        for (piece, part) in group.zip(parts).skip(self.v1.len()) {
            let mut sha1 = Sha1::new();
            sha1.update(part);
            self.v1.push(self.padded(sha1, piece));
        }
        Ok(())
    }

    /// Whole pieces that do not fit the buffer together: a slice of each at a time.
    fn hash_side_by_side(&mut self, group: Range<u32>) -> Result<(), ReadFailure> {
        let length = self.job.layout.piece_length() as usize;
        self.announce(group.clone())?;
        let mut lanes = Sha1Lanes::new();
        let (count, per_piece) = (group.len(), length.div_ceil(LEAF));
        let mut digests = [[0; 32]; CHUNK / LEAF];
        if self.job.makes_leaves() {
            self.leaves.resize(count * per_piece, [0; 32]);
        }
        for begin in (0..length).step_by(SLICE) {
            let slice = SLICE.min(length - begin);
            let read = self.fill(group.clone(), begin as u32, slice as u32)?;
            debug_assert_eq!(read, count * slice);
            let bytes = &self.buffer[..read];
            lanes.update(&std::array::from_fn(|lane| &bytes[lane.min(count - 1) * slice..][..slice]));
            if self.job.makes_leaves() {
                let digests = &mut digests[..read.div_ceil(LEAF)];
                leaves(bytes, digests);
                let own = slice.div_ceil(LEAF);
                for (lane, own) in digests.chunks(own).enumerate() {
                    let at = lane * per_piece + begin / LEAF;
                    self.leaves[at..at + own.len()].copy_from_slice(own);
                }
            }
        }
        self.v1.extend(&lanes.finish()[..count]);
        Ok(())
    }

    /// Ends the SHA-1 of a piece with the padding that v1 has after a file.
    fn padded(&self, mut sha1: Sha1, piece: u32) -> Sha1Digest {
        let (layout, version) = (self.job.layout, self.job.version);
        let mut padding = (wire_len(layout, version, piece) - layout.piece_len(piece)) as usize;
        while padding > 0 {
            let part = padding.min(ZEROS.len());
            sha1.update(&ZEROS[..part]);
            padding -= part;
        }
        sha1.finish()
    }

    /// Gives the target each piece of a hashed group.
    fn hand_over(&mut self, group: Range<u32>) -> Result<(), Error> {
        let layout = self.job.layout;
        let mut rest = self.leaves.as_slice();
        for (index, piece) in group.enumerate() {
            let len = layout.piece_len(piece);
            let (leaves, others) = rest.split_at(rest.len().min((len as usize).div_ceil(LEAF)));
            rest = others;
            let has_v2 = self.job.version.has_v2();
            self.target.piece(Piece {
                index: piece,
                v2: has_v2.then(|| merkle::root(leaves, width(layout, piece))),
                v1: self.v1.get(index).copied(),
                leaves,
            })?;
            let payload = layout.spans(piece, 0, len).filter(|s| !s.pad);
            self.job.progress.add_bytes(payload.map(|s| u64::from(s.len)).sum());
        }
        Ok(())
    }

    /// Fills the buffer with bytes `begin..begin + len` of each of `pieces` (as far as they exist), one after
    /// the other, and returns their number.
    fn fill(&mut self, pieces: Range<u32>, begin: u32, len: u32) -> Result<usize, ReadFailure> {
        let mut at = 0;
        for (span, len) in runs(self.job.layout, pieces, begin, len) {
            let place = at..at + len as usize;
            at = place.end;
            if span.pad {
                self.buffer[place].fill(0);
                continue;
            }
            self.reach(span.file)?;
            if let Some((file, handle)) = &self.open {
                let read = handle.read_exact_at(&mut self.buffer[place], span.offset);
                read.map_err(|e| ReadFailure { file: *file, error: self.target.read_error(*file, e) })?;
            }
        }
        Ok(at)
    }

    /// Tells the system the next reads, where it cannot guess them from the order of reading.
    fn announce(&mut self, pieces: Range<u32>) -> Result<(), ReadFailure> {
        for (span, len) in runs(self.job.layout, pieces, 0, u32::MAX) {
            if span.pad || len < WORTH_ANNOUNCING {
                continue;
            }
            self.reach(span.file)?;
            if let Some((_, handle)) = &self.open {
                // A hint: without it, all is just slower.
                let _ = fadvise(handle, span.offset, std::num::NonZero::new(len), Advice::WillNeed);
            }
        }
        Ok(())
    }

    /// Makes `file` the open one.
    fn reach(&mut self, file: u32) -> Result<(), ReadFailure> {
        if self.open.as_ref().is_none_or(|(open, _)| *open != file) {
            self.close_file()?;
            let handle = self.target.open(file);
            self.open = Some((file, handle.map_err(|error| ReadFailure { file, error })?));
        }
        Ok(())
    }

    /// Closes the open file, if it has not changed.
    fn close_file(&mut self) -> Result<(), ReadFailure> {
        let Some((file, handle)) = self.open.take() else {
            return Ok(());
        };
        let settled = self.target.check_unchanged(file, &handle);
        settled.map_err(|error| ReadFailure { file, error })
    }
}

/// Bytes `begin..begin + len` of each of `pieces` as stretches of files, each as long as it goes.
fn runs(layout: &Layout, pieces: Range<u32>, begin: u32, len: u32) -> impl Iterator<Item = (Span, u64)> {
    let spans = pieces.flat_map(move |piece| {
        let len = len.min(layout.piece_len(piece).saturating_sub(begin));
        layout.spans(piece, begin, len)
    });
    let mut spans = spans.peekable();
    std::iter::from_fn(move || {
        let first = spans.next()?;
        let mut len = u64::from(first.len);
        let follows = |next: &Span, len: u64| {
            !next.pad && !first.pad && next.file == first.file && next.offset == first.offset + len
        };
        while let Some(next) = spans.next_if(|next| follows(next, len)) {
            len += u64::from(next.len);
        }
        Some((first, len))
    })
}
