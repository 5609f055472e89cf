//! The hot path: blocks in, blocks out, pieces checked.
//!
//! Invariants, at any time and from any thread:
//! - a piece is `done` only if its bytes on disk hashed right after they were written, or its
//!   journal record was durable before the last start;
//! - bytes leave through `read` and `send_spans` only from done pieces, and from files that the
//!   user could have changed only while their stamp is the recorded one; the caller is responsible for
//!   bytes read through the `unverified` variants;
//! - no lock is held during reads and writes of data.

use std::cell::RefCell;
use std::fs::File;
use std::io::{self, ErrorKind};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::{Mutex, MutexGuard, RwLock};
use tidecast_hash::{Digest, LEAF, Sha1};
use tidecast_metainfo::Manifest;
use tidecast_paths::PageBuffer;

use crate::bits::{Bits, ranges};
use crate::disk::{Disk, DiskFile, How, Meta, Stamp};
use crate::error::{Context, Error};
use crate::fds::Fds;
use crate::flush::Flush;
use crate::leaves::Leaves;
use crate::map::{Map, Place};
use crate::open::Replace;
use crate::record::Record;
use crate::seed::Memory;
use crate::stage::Stage;

/// Bytes read at a time when a piece is hashed; a multiple of the leaf.
const CHUNK: usize = 16 * LEAF;
/// Why a file that was verified in place cannot be used.
pub(crate) const CHANGED: &str = "it was changed or replaced during the transfer; run the same command again";

thread_local! {
    static BUFFER: RefCell<PageBuffer> = RefCell::new(PageBuffer::new(CHUNK));
}

/// The bytes of one swarm's manifest on disk. Shared freely between threads; see the crate's head.
pub struct Store {
    pub(crate) manifest: Arc<Manifest>,
    pub(crate) map: Map,
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) mode: Mode,
    /// Where the finished data is, relative to the disk's root; empty if it is the root.
    pub(crate) home: PathBuf,
    pub(crate) fds: Fds,
    pub(crate) leaves: Leaves,
    pub(crate) done: Bits,
    pub(crate) missing: AtomicU64,
    /// Files served from `home`: their stamps when they were checked.
    pub(crate) stamps: RwLock<Vec<Option<Stamp>>>,
    /// Held for reading while a file is opened, for writing while it moves elsewhere.
    pub(crate) moving: RwLock<()>,
}

/// Leaf digests of a piece, and SHA-1 over it for v1.
type Hashed = (Vec<Digest>, Option<Sha1>);

/// A file, and a copy of it to read its data from.
type Copied<'a> = Option<(u32, &'a dyn DiskFile)>;

/// The purpose of the store.
pub(crate) enum Mode {
    /// Serve existing data.
    Seed(Memory),
    /// Bring it in.
    Download(Box<Download>),
}

/// State of a download.
pub(crate) struct Download {
    pub(crate) stage: Stage,
    pub(crate) flush: Flush,
    pub(crate) spill: Option<Arc<dyn DiskFile>>,
    /// The disk gains from reservations.
    pub(crate) reserve: bool,
    /// Files whose content is still the user's own, at the final place.
    pub(crate) in_place: Bits,
    /// Of those: files that may stay if they are identical, but are not known to be ours to replace.
    pub(crate) foreign: Bits,
    /// Files that we put at their place, earlier or now: their owner did not.
    pub(crate) ours: Bits,
    /// Directories that we made.
    pub(crate) our_dirs: Bits,
    /// The wait for another's writing to the same destination.
    pub(crate) wait: Mutex<Wait>,
    /// Files that this program placed, and rules for others.
    pub(crate) record: RwLock<Record>,
    pub(crate) replace: Replace,
    /// Permissions that its files do not get.
    pub(crate) withheld: u32,
    pub(crate) promoting: Mutex<()>,
    /// Held while a file with holes is opened; see [`Store::sized`].
    pub(crate) sizing: Mutex<()>,
    pub(crate) finished: AtomicBool,
}

/// The wait of [`Store::finish`], as other threads see and end it.
#[derive(Default)]
pub(crate) struct Wait {
    /// The lock that another process holds.
    pub(crate) lock: Option<PathBuf>,
    /// It is not worth waiting any more.
    pub(crate) ended: bool,
}

/// Bytes to send with `sendfile`, or zeros.
#[derive(Clone, Debug)]
pub struct SendSpan {
    /// The open file; `None` for bytes that are zeros (padding).
    pub file: Option<Arc<File>>,
    /// Offset in the file.
    pub offset: u64,
    /// Number of bytes.
    pub len: u32,
}

impl Store {
    /// The manifest of the data.
    pub fn manifest(&self) -> &Arc<Manifest> {
        &self.manifest
    }

    /// Where the data is (seeding) or will appear (download).
    pub fn path(&self) -> PathBuf {
        self.disk.root().join(&self.home)
    }

    /// Whether a piece is verified and here.
    pub fn has(&self, piece: u32) -> bool {
        self.done.get(piece)
    }

    /// How many pieces of the selection are not verified yet.
    pub fn missing(&self) -> u64 {
        self.missing.load(Ordering::Acquire)
    }

    /// Writes bytes of a piece. Blocks may come in any order and from many threads; bytes of a piece that is done
    /// already are dropped, so that unverified data never replaces verified data.
    ///
    /// The caller owns a block while it is written: two threads must not write the same one at once, nor one write
    /// to a piece that another is about to call done.
    ///
    /// # Errors
    /// Disk full (with the missing size), not writable, out of range.
    pub fn write(&self, piece: u32, begin: u32, data: &[u8]) -> Result<(), Error> {
        let download = self.download_mode()?;
        self.in_range(piece, begin, data.len())?;
        if self.done.get(piece) || !self.map.wanted(piece) {
            return Ok(());
        }
        let mut rest = data;
        for (place, len) in self.map.places(piece, begin, data.len() as u32) {
            let (part, after) = rest.split_at_checked(len as usize).unwrap_or((rest, &[]));
            rest = after;
            match place {
                Place::Zeros => {}
                Place::Spill(offset) => {
                    if let Some(spill) = &download.spill {
                        let written = spill.write_at(part, offset);
                        written.map_err(|e| self.fail("write", &download.stage.spill(), e))?;
                        download.flush.spill_touched();
                    }
                }
                Place::File(file, offset) => self.write_file(download, file, offset, part)?,
            }
        }
        download.flush.wrote(data.len());
        Ok(())
    }

    fn write_file(&self, dl: &Download, file: u32, offset: u64, data: &[u8]) -> Result<(), Error> {
        if dl.in_place.get(file) {
            self.promote(dl, file)?;
        }
        let open = self.open_staged(dl, file, offset, data.len())?;
        let wrote = self.map.outside_holes(file, offset, data, |at, part| open.write_at(part, at));
        // After the bytes are written, never before: a sync in between must not clear the mark.
        dl.flush.touched(file);
        wrote.map_err(|e| self.fail("write", &self.file_path(file), e))
    }

    /// The staged file, made if it is not there yet.
    fn open_staged(
        &self,
        dl: &Download,
        file: u32,
        offset: u64,
        len: usize,
    ) -> Result<Arc<dyn DiskFile>, Error> {
        if let Some(open) = self.fds.get(file) {
            return Ok(open);
        }
        let _still = self.moving.read();
        let _sized = self.sized(file);
        let path = self.file_path(file);
        match self.disk.open(&path, How::Write) {
            Ok(open) => return Ok(self.fds.put(file, open)),
            Err(e) if e.kind() == ErrorKind::NotFound => {}
            Err(e) => return Err(Error::io("open", &path, e)),
        }
        let create = || {
            let open = dl.stage.create(&*self.disk, &path)?;
            let size = self.map.file_len(file);
            // A file that one write fills needs no further calls: 50,000 small files are many.
            let holes = self.map.has_holes(file);
            if offset > 0 || (len as u64) < size || holes {
                open.set_len(size)?;
                if dl.reserve && !holes {
                    open.reserve(0..size)?;
                }
            }
            Ok(open)
        };
        // Marked before it exists, so that no other thread's use of it is synced without its name.
        dl.flush.created(file);
        let open = create().map_err(|e| self.fail("create", &path, e))?;
        Ok(self.fds.put(file, open))
    }

    /// Waits until a file with holes has its length: nothing is written in a hole, so a process that opened the
    /// file between its creation and `set_len` would read less than a piece there.
    fn sized(&self, file: u32) -> Option<MutexGuard<'_, ()>> {
        match &self.mode {
            Mode::Download(dl) if self.map.has_holes(file) => Some(dl.sizing.lock()),
            _ => None,
        }
    }

    /// The open file for reading; `None` for one that holds nothing but a hole so far.
    pub(crate) fn open_any(&self, file: u32) -> Result<Option<Arc<dyn DiskFile>>, Error> {
        if let Some(open) = self.fds.get(file) {
            return Ok(Some(open));
        }
        let _still = self.moving.read();
        let _sized = self.sized(file);
        let path = self.file_path(file);
        let how = if self.is_staged(file) { How::Write } else { How::Read };
        let opened = match self.disk.open(&path, how) {
            // A finish that was interrupted may have taken the right to write away.
            Err(e) if e.kind() == ErrorKind::PermissionDenied => self.disk.open(&path, How::Read),
            other => other,
        };
        match opened {
            Ok(open) => Ok(Some(self.fds.put(file, open))),
            Err(e) if e.kind() == ErrorKind::NotFound => {
                if self.is_staged(file) {
                    return Ok(None);
                }
                Err(Error::Missing { path: self.disk.root().join(path) })
            }
            Err(e) => Err(Error::io("open", &self.disk.root().join(path), e)),
        }
    }

    /// Reads bytes of a verified piece.
    ///
    /// # Errors
    /// [`Error::NotVerified`], [`Error::Changed`] or [`Error::Missing`] when the source has changed, or the
    /// system's error.
    pub fn read(&self, piece: u32, begin: u32, buf: &mut [u8]) -> Result<(), Error> {
        self.in_range(piece, begin, buf.len())?;
        self.must_have(piece)?;
        if self.read_raw(piece, begin, buf, None)? { Ok(()) } else { Err(Error::NotVerified { piece }) }
    }

    /// Reads bytes of a piece that need not be complete: the caller has verified them leaf by leaf, or compares a
    /// peer's data.
    ///
    /// # Errors
    /// As [`Store::read`]; [`Error::NotVerified`] only where a file ends before them.
    pub fn read_unverified(&self, piece: u32, begin: u32, buf: &mut [u8]) -> Result<(), Error> {
        self.in_range(piece, begin, buf.len())?;
        if self.read_raw(piece, begin, buf, None)? { Ok(()) } else { Err(Error::NotVerified { piece }) }
    }

    /// Reads bytes of any piece; false if a file is too short for them. `copy`: the data of this file is read there.
    fn read_raw(&self, piece: u32, begin: u32, buf: &mut [u8], copy: Copied<'_>) -> Result<bool, Error> {
        let mut rest = buf;
        for (place, len) in self.map.places(piece, begin, rest.len() as u32) {
            let (part, after) = rest.split_at_mut(len as usize);
            rest = after;
            match place {
                Place::Zeros => part.fill(0),
                Place::Spill(offset) => {
                    let Mode::Download(dl) = &self.mode else { continue };
                    let Some(spill) = &dl.spill else { return Ok(false) };
                    if spill.read_at(part, offset).at("read", &dl.stage.spill())? < part.len() {
                        return Ok(false);
                    }
                }
                Place::File(file, offset) => {
                    if let Some((_, copy)) = copy.filter(|(copied, _)| *copied == file) {
                        let read =
                            copy.read_at(part, offset).at("read the copy of", &self.file_path(file))?;
                        if read < part.len() {
                            return Ok(false);
                        }
                        continue;
                    }
                    let Some(open) = self.open_any(file)? else {
                        part.fill(0);
                        continue;
                    };
                    self.unchanged(file, &*open)?;
                    let read = open.read_at(part, offset);
                    if read.at("read", &self.disk.root().join(self.file_path(file)))? < part.len() {
                        return Ok(false);
                    }
                }
            }
        }
        Ok(true)
    }

    /// The file on disk with the content of a file, for reading without the store; for callers that know that all
    /// its pieces are verified. None for a file that is a hole, and on a disk without descriptors.
    pub fn backing(&self, file: u32) -> Option<Arc<File>> {
        self.open_any(file).ok()??.os().cloned()
    }

    /// Where the bytes of a verified piece can be sent from without copying them.
    ///
    /// # Errors
    /// As [`Store::read`]; also `Io` with `Unsupported` on a disk without descriptors.
    pub fn send_spans(&self, piece: u32, begin: u32, len: u32) -> Result<Vec<SendSpan>, Error> {
        self.must_have(piece)?;
        self.send_spans_unverified(piece, begin, len)
    }

    /// As [`Store::send_spans`], of a piece that need not be whole: the caller wrote these bytes and
    /// has verified them leaf by leaf.
    ///
    /// # Errors
    /// As [`Store::send_spans`], but for [`Error::NotVerified`].
    pub fn send_spans_unverified(&self, piece: u32, begin: u32, len: u32) -> Result<Vec<SendSpan>, Error> {
        self.in_range(piece, begin, len as usize)?;
        let mut out = Vec::with_capacity(1);
        for (place, len) in self.map.places(piece, begin, len) {
            let (open, offset, path) = match place {
                Place::Zeros => {
                    out.push(SendSpan { file: None, offset: 0, len });
                    continue;
                }
                Place::Spill(offset) => {
                    let Mode::Download(dl) = &self.mode else { continue };
                    (dl.spill.clone(), offset, dl.stage.spill())
                }
                Place::File(file, offset) => {
                    let open = self.open_any(file)?;
                    if let Some(open) = &open {
                        self.unchanged(file, &**open)?;
                    }
                    (open, offset, self.file_path(file))
                }
            };
            let file = match &open {
                None => None,
                Some(open) => match open.os() {
                    Some(file) => Some(file.clone()),
                    None => return Err(ErrorKind::Unsupported.into()).at("send", &path),
                },
            };
            out.push(SendSpan { file, offset, len });
        }
        Ok(out)
    }

    /// Records the leaf digests of a piece (verified by the caller), one per 16 KiB.
    ///
    /// # Errors
    /// A wrong number of them, or the disk's error.
    pub fn set_leaves(&self, piece: u32, leaves: &[Digest]) -> Result<(), Error> {
        let at = self.manifest.leaf_range(piece);
        if at.end - at.start != leaves.len() as u64 {
            return Err(Error::OutOfRange { piece, begin: 0, len: leaves.len() * LEAF });
        }
        self.leaves.put(at, leaves).map_err(|e| self.fail("write the leaf hashes of", &self.home, e))?;
        if let Mode::Download(dl) = &self.mode {
            dl.flush.leaves_touched();
        }
        Ok(())
    }

    /// The leaf digests of a verified piece; `None` if it is not verified or none were recorded.
    ///
    /// # Errors
    /// The disk's error.
    pub fn leaves(&self, piece: u32) -> Result<Option<Vec<Digest>>, Error> {
        if !self.done.get(piece) {
            return Ok(None);
        }
        let read = self.leaves.get(self.manifest.leaf_range(piece));
        let leaves = read.at("read the leaf hashes of", &self.home)?;
        Ok(leaves.filter(|l| self.manifest.check_leaves(piece, l) != Some(false)))
    }

    /// States that every block of a piece was written and the whole verified. It counts from now
    /// on; the next [`Store::sync`] makes it last.
    ///
    /// # Errors
    /// A piece that the manifest or the selection does not have.
    pub fn piece_done(&self, piece: u32) -> Result<(), Error> {
        if !self.map.wanted(piece) {
            return Err(Error::OutOfRange { piece, begin: 0, len: 0 });
        }
        if self.done.set(piece) {
            self.missing.fetch_sub(1, Ordering::AcqRel);
            if let Mode::Download(dl) = &self.mode {
                dl.flush.pending(piece);
            }
        }
        Ok(())
    }

    /// Hashes a piece from disk. If it is right its leaves are recorded and it counts as done.
    ///
    /// # Errors
    /// [`Error::NoHash`] if the manifest has no hash yet; missing or changed sources when seeding;
    /// [`Error::Foreign`] as [`Store::differs`]; the disk's error. A wrong piece is `Ok(false)`.
    pub fn check(&self, piece: u32) -> Result<bool, Error> {
        if !self.map.wanted(piece) {
            return Err(Error::OutOfRange { piece, begin: 0, len: 0 });
        }
        let Some(leaves) = self.verify(piece, None)? else {
            self.differs(piece)?;
            return Ok(false);
        };
        self.set_leaves(piece, &leaves)?;
        self.piece_done(piece)?;
        Ok(true)
    }

    /// The leaf digests of a piece on disk if it is right. `copy`: the data of this file is read there.
    pub(crate) fn verify(&self, piece: u32, copy: Copied<'_>) -> Result<Option<Vec<Digest>>, Error> {
        let expected = self.manifest.expected(piece);
        if expected.v2.is_none() && expected.v1.is_none() {
            return Err(Error::NoHash { piece });
        }
        let hashed =
            BUFFER.with_borrow_mut(|buffer| self.hash(piece, buffer, expected.v2.is_none(), copy))?;
        Ok(hashed.and_then(|(leaves, sha1)| {
            let right = match self.manifest.check_leaves(piece, &leaves) {
                Some(right) => right,
                None => sha1.map(Sha1::finish) == expected.v1,
            };
            right.then_some(leaves)
        }))
    }

    /// The root of a piece's data on disk, whose leaves are recorded; it does not count as verified. None if a file
    /// is too short for it.
    ///
    /// # Errors
    /// A piece that the selection or the manifest does not have, or that has no leaves (v1); missing or changed
    /// sources when seeding; the disk's error.
    pub fn hash_piece(&self, piece: u32) -> Result<Option<Digest>, Error> {
        if !self.map.wanted(piece) {
            return Err(Error::OutOfRange { piece, begin: 0, len: 0 });
        }
        let hashed = BUFFER.with_borrow_mut(|buffer| self.hash(piece, buffer, false, None))?;
        let Some((leaves, _)) = hashed else { return Ok(None) };
        let root = self.manifest.root_of_leaves(piece, &leaves).ok_or(Error::NoHash { piece })?;
        self.set_leaves(piece, &leaves)?;
        Ok(Some(root))
    }

    /// Leaf digests of the data on disk, and on request SHA-1 over it as in v1.
    fn hash(
        &self,
        piece: u32,
        buffer: &mut [u8],
        v1: bool,
        copy: Copied<'_>,
    ) -> Result<Option<Hashed>, Error> {
        let len = self.manifest.piece_len(piece);
        let mut leaves = vec![Digest::default(); (len as usize).div_ceil(LEAF)];
        let mut sha1 = v1.then(Sha1::new);
        let mut begin = 0;
        for out in leaves.chunks_mut(CHUNK / LEAF) {
            let want = ((len - begin) as usize).min(CHUNK);
            let part = buffer.get_mut(..want).unwrap_or_default();
            if !self.read_raw(piece, begin, part, copy)? {
                return Ok(None);
            }
            tidecast_hash::leaves(part, out);
            if let Some(sha1) = &mut sha1 {
                sha1.update(part);
            }
            begin += want as u32;
        }
        if let Some(sha1) = &mut sha1 {
            buffer.fill(0);
            let mut pad = self.manifest.wire_len(piece).saturating_sub(len) as usize;
            while pad > 0 {
                let part = buffer.get(..pad.min(CHUNK)).unwrap_or_default();
                sha1.update(part);
                pad -= part.len();
            }
        }
        Ok(Some((leaves, sha1)))
    }

    /// Pieces verified so far, as ranges.
    pub fn have(&self) -> Vec<Range<u32>> {
        ranges((0..self.manifest.piece_count()).filter(|p| self.done.get(*p)))
    }

    pub(crate) fn download_mode(&self) -> Result<&Download, Error> {
        match &self.mode {
            Mode::Download(dl) if !dl.finished.load(Ordering::Acquire) => Ok(dl),
            _ => Err(Error::ReadOnlyStore),
        }
    }

    /// Whether the file's bytes are in the staging area (so only this program's).
    pub(crate) fn is_staged(&self, file: u32) -> bool {
        matches!(&self.mode, Mode::Download(dl)
            if !dl.in_place.get(file) && !dl.finished.load(Ordering::Acquire))
    }

    /// Where the file is now, relative to the disk's root.
    pub(crate) fn file_path(&self, file: u32) -> PathBuf {
        match &self.mode {
            Mode::Download(dl) if self.is_staged(file) => self.map.file_path(&dl.stage.tree(), file),
            _ => self.map.file_path(&self.home, file),
        }
    }

    /// A file outside the staging area must be unchanged since it was checked; its state, if it was.
    pub(crate) fn unchanged(&self, file: u32, open: &dyn DiskFile) -> Result<Option<Meta>, Error> {
        let Some(known) = self.stamps.read().get(file as usize).copied().flatten() else {
            return Ok(None);
        };
        let path = || self.disk.root().join(self.map.file_path(&self.home, file));
        let now = open.meta().at("stat", &path())?;
        let same = now.stamp == known && now.links > 0;
        if !same && self.download_mode().is_ok() {
            return Err(Error::Foreign { path: path(), why: CHANGED });
        }
        if now.links == 0 {
            return Err(match self.disk.stat(&self.map.file_path(&self.home, file)) {
                Err(_) => Error::Missing { path: path() },
                Ok(_) => Error::Changed { path: path() },
            });
        }
        if now.stamp != known { Err(Error::Changed { path: path() }) } else { Ok(Some(now)) }
    }

    fn must_have(&self, piece: u32) -> Result<(), Error> {
        if self.done.get(piece) { Ok(()) } else { Err(Error::NotVerified { piece }) }
    }

    /// v1 peers of a hybrid may ask for the padding behind a file, so the wire's length counts.
    fn in_range(&self, piece: u32, begin: u32, len: usize) -> Result<(), Error> {
        let end = (begin as usize).checked_add(len);
        if end.is_some_and(|e| e <= self.manifest.wire_len(piece) as usize) {
            Ok(())
        } else {
            Err(Error::OutOfRange { piece, begin, len })
        }
    }

    /// As [`Error::io`]; for lack of space, with the needed size.
    pub(crate) fn fail(&self, op: &'static str, path: &Path, e: io::Error) -> Error {
        match Error::io(op, &self.disk.root().join(path), e) {
            Error::NoSpace { what, .. } => self.shortage(what),
            other => other,
        }
    }
}
