//! Durability in batches: data, then the journal.
//!
//! [`Store::sync`] takes the pieces that were done before it began, makes everything written before them
//! durable, and only then appends them to the journal, with the state of the files: a file that has another one when the download is
//! opened again is checked. A few changed files are synced one by one, many with
//! one `syncfs`. If a sync fails it is unknown which data reached the disk, so the store stops journalling
//! permanently (the next start hashes unjournalled data again).

use std::collections::BTreeSet;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::bits::{Bits, ranges};
use crate::disk::{DiskFile, How};
use crate::error::Error;
use crate::journal::{Journal, SPILL, State};
use crate::store::{Download, Mode, Store};

/// Up to this many files are synced one by one.
const FEW: usize = 16;

/// Data that was written and is not durable yet.
pub(crate) struct Flush {
    durable: bool,
    bytes: AtomicU64,
    touched: Bits,
    created: Bits,
    spill: AtomicBool,
    leaves: AtomicBool,
    pending: Mutex<Vec<u32>>,
    /// The journal; held for the whole of a sync, so that there is one at a time.
    journal: Mutex<Journal>,
    poisoned: AtomicBool,
    /// Other programs need the page cache: durable data is not kept there.
    spare_cache: AtomicBool,
}

impl Flush {
    pub(crate) fn new(journal: Journal, files: u32, durable: bool) -> Self {
        Flush {
            durable,
            bytes: AtomicU64::new(0),
            touched: Bits::new(files),
            created: Bits::new(files),
            spill: AtomicBool::new(false),
            leaves: AtomicBool::new(false),
            pending: Mutex::new(Vec::new()),
            journal: Mutex::new(journal),
            poisoned: AtomicBool::new(false),
            spare_cache: AtomicBool::new(false),
        }
    }

    pub(crate) fn is_durable(&self) -> bool {
        self.durable
    }

    pub(crate) fn wrote(&self, bytes: usize) {
        self.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    pub(crate) fn touched(&self, file: u32) {
        self.touched.set(file);
    }

    pub(crate) fn created(&self, file: u32) {
        self.created.set(file);
    }

    pub(crate) fn spill_touched(&self) {
        self.spill.store(true, Ordering::Release);
    }

    pub(crate) fn leaves_touched(&self) {
        self.leaves.store(true, Ordering::Release);
    }

    /// A file is durable: jobs may have its place in the page cache.
    fn let_go(&self, open: &dyn DiskFile) {
        if let Some(file) = open.os().filter(|_| self.spare_cache.load(Ordering::Relaxed)) {
            // Only advice: a failure is harmless.
            let _ = rustix::fs::fadvise(file, 0, None, rustix::fs::Advice::DontNeed);
        }
    }

    pub(crate) fn pending(&self, piece: u32) {
        self.pending.lock().push(piece);
    }

    /// From here on the journal vouches for these pieces and for no others.
    pub(crate) fn vouch_only_for(&self, pieces: &[Range<u32>]) -> io::Result<()> {
        self.journal.lock().restart(pieces)
    }
}

impl Store {
    /// Whether written data leaves the page cache as soon as it is durable.
    pub fn spare_cache(&self, spare: bool) {
        if let Mode::Download(dl) = &self.mode {
            dl.flush.spare_cache.store(spare, Ordering::Relaxed);
        }
    }

    /// Bytes written since the last [`Store::sync`] began: call it at 256 MiB, or once a second.
    pub fn dirty_bytes(&self) -> u64 {
        match &self.mode {
            Mode::Download(dl) => dl.flush.bytes.load(Ordering::Relaxed),
            Mode::Seed(_) => 0,
        }
    }

    /// Makes written data durable, then journals the pieces done. Blocks on the disk: call it from a thread that
    /// may. With [`crate::Durability::None`] only the journal is written. For a seeding store with a state
    /// directory: saves the checked pieces.
    ///
    /// # Errors
    /// Disk full and the like; [`Error::Poisoned`] after a sync that failed.
    pub fn sync(&self) -> Result<(), Error> {
        match &self.mode {
            Mode::Seed(memory) => memory.save(self),
            Mode::Download(dl) if dl.finished.load(Ordering::Acquire) => Ok(()),
            Mode::Download(dl) => self.sync_download(dl),
        }
    }

    fn sync_download(&self, dl: &Download) -> Result<(), Error> {
        let flush = &dl.flush;
        let mut journal = flush.journal.lock();
        if flush.poisoned.load(Ordering::Acquire) {
            return Err(Error::Poisoned { path: self.disk.root().join(dl.stage.dir()) });
        }
        // In this order: pending pieces were written, and marked, before.
        let mut pieces = std::mem::take(&mut *flush.pending.lock());
        flush.bytes.store(0, Ordering::Relaxed);
        let files = flush.touched.take();
        let spilled = flush.spill.load(Ordering::Acquire);
        if flush.durable
            && let Err((path, e)) = self.make_durable(dl, &files)
        {
            flush.poisoned.store(true, Ordering::Release);
            return Err(self.fail("sync", &path, e));
        }
        // Data in the user's own files can change any time: it is checked at each start.
        pieces.retain(|p| !self.touches_in_place(dl, *p));
        pieces.sort_unstable();
        let states = self.states(dl, &files, spilled);
        if let Err(e) = journal.append(&ranges(pieces.iter().copied()), &states) {
            flush.pending.lock().append(&mut pieces);
            return Err(self.fail("write", &dl.stage.journal(), e));
        }
        Ok(())
    }

    /// The states of these files; one that cannot be looked at is checked when it is opened again.
    fn states(&self, dl: &Download, files: &[u32], spilled: bool) -> Vec<(u32, State)> {
        let mut states = Vec::with_capacity(files.len() + 1);
        for file in files.iter().filter(|file| !dl.in_place.get(**file)) {
            let meta = match self.fds.get(*file) {
                Some(open) => open.meta(),
                None => self.disk.stat(&self.file_path(*file)),
            };
            states.extend(meta.ok().map(|meta| (*file, State::from(&meta))));
        }
        let spill = dl.spill.as_ref().filter(|_| spilled).and_then(|spill| spill.meta().ok());
        states.extend(spill.map(|meta| (SPILL, State::from(&meta))));
        states
    }

    fn make_durable(&self, dl: &Download, files: &[u32]) -> Result<(), (PathBuf, io::Error)> {
        let flush = &dl.flush;
        let spill = flush.spill.swap(false, Ordering::AcqRel);
        let leaves = flush.leaves.swap(false, Ordering::AcqRel);
        if files.len() > FEW {
            // Only these files: another may be created after this and before the sync below.
            for file in files {
                flush.created.clear(*file);
            }
            self.disk.sync_all().map_err(|e| (dl.stage.dir(), e))?;
            files.iter().filter_map(|file| self.fds.get(*file)).for_each(|open| flush.let_go(&*open));
            return Ok(());
        }
        let mut dirs = BTreeSet::new();
        for file in files {
            let path = self.file_path(*file);
            let open = match self.fds.get(*file) {
                Some(open) => open,
                None => self.disk.open(&path, How::Read).map_err(|e| (path.clone(), e))?,
            };
            open.sync(false).map_err(|e| (path.clone(), e))?;
            flush.let_go(&*open);
            if flush.created.clear(*file) {
                dirs.extend(dl.stage.parents(&path).map(Path::to_path_buf));
            }
        }
        if let Some(open) = dl.spill.as_ref().filter(|_| spill) {
            open.sync(false).map_err(|e| (dl.stage.spill(), e))?;
        }
        if leaves {
            self.leaves.0.sync(false).map_err(|e| (dl.stage.leaves(), e))?;
        }
        // Deepest first, so that no durable name leads to nothing.
        for dir in dirs.iter().rev() {
            self.disk.sync_dir(dir).map_err(|e| (dir.clone(), e))?;
        }
        Ok(())
    }

    fn touches_in_place(&self, dl: &Download, piece: u32) -> bool {
        self.map.piece_files(piece).any(|f| dl.in_place.get(f))
    }
}
