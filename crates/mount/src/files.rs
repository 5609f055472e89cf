//! The content of files: from the cache if it is there, else when it has arrived.
//!
//! A file of at most [`WHOLE`] bytes, and every ELF file, is complete before its first open succeeds, so that
//! unavailable data is an error of open(2) and not a fault in mapped memory. Of larger files the parts that
//! are read are fetched, and the parts that are expected to be read next.

use std::cell::RefCell;
use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crossbeam_channel::{Receiver, bounded};
use parking_lot::Mutex;
use tidecast_metainfo::{FileRef, Manifest};
use tidecast_net::Urgency;
use tidecast_paths::PageBuffer;
use tidecast_store::Store;

use crate::counters::Counters;
use crate::prefetch::Prefetch;
use crate::read_ahead::ReadAhead;
use crate::record::Recorder;
use crate::tree::Tree;
use crate::waits::{Asker, WaitFailure, Waits};

/// Files of at most this size, in bytes, are fetched whole at their first open.
const WHOLE: u64 = 16 << 20;
/// The most that the kernel reads at once, bytes.
const LARGEST_READ: usize = 1 << 20;
/// Files whose ways of being read are remembered.
const REMEMBERED: usize = 1024;
const ELF: [u8; 4] = *b"\x7fELF";

thread_local! {
    static BUFFER: RefCell<PageBuffer> = RefCell::new(PageBuffer::new(LARGEST_READ));
}

/// Why a request has failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Its process was killed.
    Interrupted,
    /// The data cannot be had.
    Lost,
}

/// The state of the peers when they do not supply awaited data.
pub(crate) struct Peers {
    pub(crate) connected: Box<dyn Fn() -> usize + Send + Sync>,
    /// The last rejection: of a peer by this node, or of this node by a peer.
    pub(crate) last: Mutex<Option<String>>,
    pub(crate) timeout: Duration,
}

impl Peers {
    /// Why nothing came.
    fn why(&self) -> String {
        let within = self.timeout.as_secs();
        let last = self.last.lock().as_ref().map(|last| format!("; {last}")).unwrap_or_default();
        match (self.connected)() {
            0 => format!("no peer connected within {within} s{last}"),
            n => format!("none of the connected peers ({n}) supplied the data within {within} s{last}"),
        }
    }
}

/// See the head of the file.
pub(crate) struct Files {
    pub(crate) tree: Arc<Tree>,
    pub(crate) store: Arc<Store>,
    pub(crate) waits: Arc<Waits>,
    pub(crate) counters: Counters,
    pub(crate) recorder: Option<Recorder>,
    prefetch: Arc<Prefetch>,
    ahead: Mutex<HashMap<u32, ReadAhead>>,
    /// The pieces of all contents, each once, and how many of them, from the first, were found to be here.
    contents: Vec<u32>,
    found: AtomicUsize,
    peers: Peers,
}

impl Files {
    pub(crate) fn new(
        tree: Arc<Tree>,
        store: Arc<Store>,
        waits: Arc<Waits>,
        prefetch: Arc<Prefetch>,
        recorder: Option<Recorder>,
        contents: Vec<Range<u32>>,
        peers: Peers,
    ) -> Files {
        let (counters, ahead) = (Counters::default(), Mutex::default());
        let contents = contents.into_iter().flatten().collect();
        let found = AtomicUsize::new(0);
        Files { tree, store, waits, counters, recorder, prefetch, ahead, contents, found, peers }
    }

    pub(crate) fn heard_of_peer(&self, why: String) {
        *self.peers.last.lock() = Some(why);
    }

    /// The last rejection.
    pub(crate) fn heard(&self) -> Option<String> {
        self.peers.last.lock().clone()
    }

    fn manifest(&self) -> &Manifest {
        self.tree.manifest()
    }

    /// Whether everything in the tree is here.
    pub(crate) fn is_complete(&self) -> bool {
        // Present pieces stay present: each call continues where the last one stopped.
        let mut at = self.found.load(Ordering::Relaxed);
        while self.contents.get(at).is_some_and(|piece| self.store.has(*piece)) {
            at += 1;
        }
        self.found.fetch_max(at, Ordering::Relaxed);
        at == self.contents.len()
    }

    /// How many pieces there are, and how many of them are not here. O(pieces).
    pub(crate) fn pieces_missing(&self) -> (usize, usize) {
        let missing = self.contents.iter().filter(|piece| !self.store.has(**piece)).count();
        (self.contents.len(), missing)
    }

    /// Prepares a file for reading, then calls `then` with its length in bytes.
    pub(crate) fn open(
        self: &Arc<Self>,
        asker: Asker,
        then: impl FnOnce(Result<u64, Fault>) + Send + 'static,
    ) {
        let content = self.content(asker.file);
        let len = self.manifest().layout().file_len(content);
        let all = self.pieces(content, 0..len);
        let then = move |ready: Result<(), Fault>| then(ready.map(|()| len));
        if len == 0 {
            return then(Ok(()));
        }
        if len <= WHOLE {
            self.record(asker.file, 0..len);
            return self.need(all, asker, Duration::ZERO, then);
        }
        let first = all.start..all.start + 1;
        let files = self.clone();
        self.waits.when(first, asker, move |came| match came {
            Ok(after) if files.is_elf(content) => {
                files.record(asker.file, 0..len);
                files.need(all, asker, after, then);
            }
            came => then(files.settled(asker, 0..0, came, Duration::ZERO)),
        });
    }

    /// The cache's own file with this content, if all of it is here.
    pub(crate) fn whole(&self, file: u32) -> Option<Arc<File>> {
        let content = self.content(file);
        let pieces = self.manifest().layout().file_pieces(content);
        let whole = pieces.into_iter().all(|piece| self.store.has(piece));
        if whole && self.recorder.is_none() { self.store.backing(content) } else { None }
    }

    /// The cache's own file with this content, whether all of it is here or not.
    pub(crate) fn backing(&self, file: u32) -> Option<Arc<File>> {
        self.store.backing(self.content(file))
    }

    fn record(&self, file: u32, range: Range<u64>) {
        if let Some(recorder) = &self.recorder {
            recorder.touch(file, range);
        }
    }

    /// Waits for pieces that a reader needs; `before` was waited already.
    fn need(
        self: &Arc<Self>,
        pieces: Range<u32>,
        asker: Asker,
        before: Duration,
        then: impl FnOnce(Result<(), Fault>) + Send + 'static,
    ) {
        let files = self.clone();
        self.waits.when(pieces.clone(), asker, move |came| {
            then(files.settled(asker, pieces, came, before));
        });
    }

    /// Counts the end of a wait, and returns the error for the process.
    fn settled(
        &self,
        asker: Asker,
        pieces: Range<u32>,
        came: Result<Duration, WaitFailure>,
        before: Duration,
    ) -> Result<(), Fault> {
        match came {
            Ok(after) => {
                self.counters.needed(asker.file, before + after);
                if !after.is_zero() {
                    self.prefetch.missed(&self.waits, &pieces);
                }
                Ok(())
            }
            Err(WaitFailure::Killed) => Err(Fault::Interrupted),
            Err(failure) => {
                let path = String::from_utf8_lossy(&self.tree.path(asker.file)).into_owned();
                let missing = pieces.filter(|piece| !self.store.has(*piece)).count();
                let why = self.why(failure);
                self.counters.failed(asker.file, &why);
                tracing::error!(path, missing, why, "cannot read a file");
                Err(Fault::Lost)
            }
        }
    }

    /// Why data did not come.
    fn why(&self, failure: WaitFailure) -> String {
        match failure {
            WaitFailure::Late => self.peers.why(),
            _ => self.waits.trouble().unwrap_or_else(|| "the swarm has ended".to_owned()),
        }
    }

    /// Fetches bytes of a file for a reader of this process; `then` is called when they are here, or with the
    /// reason why not and whether another try may help. `ahead`: fetches ahead as well.
    pub(crate) fn bring(
        self: &Arc<Self>,
        file: u32,
        range: Range<u64>,
        ahead: bool,
        then: impl FnOnce(Result<(), (bool, String)>) + Send + 'static,
    ) {
        let content = self.content(file);
        let len = self.manifest().layout().file_len(content);
        let range = range.start.min(len)..range.end.min(len);
        if range.is_empty() {
            return then(Ok(()));
        }
        let pieces = self.pieces(content, range.clone());
        let ahead = if ahead { self.look_ahead(content, &range, len, 0) } else { 0..0 };
        let files = self.clone();
        self.waits.when(pieces, Asker { file, pid: 0 }, move |came| {
            then(came.map(drop).map_err(|failure| (failure == WaitFailure::Late, files.why(failure))));
        });
        if !ahead.is_empty() {
            self.waits.want(self.pieces(content, ahead), Urgency::Soon);
        }
    }

    /// Reads bytes of a file that are here.
    pub(crate) fn copy(
        &self,
        file: u32,
        offset: u64,
        bytes: &mut [u8],
    ) -> Result<usize, tidecast_store::Error> {
        let content = self.content(file);
        let left = self.manifest().layout().file_len(content).saturating_sub(offset);
        let here = bytes.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        let Some(bytes) = bytes.get_mut(..here) else { return Ok(0) };
        self.fill(content, offset, bytes)?;
        Ok(here)
    }

    /// Reads a file; calls `give` with the result, on this thread if the data is here.
    pub(crate) fn read(
        self: &Arc<Self>,
        asker: Asker,
        offset: u64,
        size: u32,
        give: impl FnOnce(Result<&[u8], Fault>) + Send + 'static,
    ) {
        let content = self.content(asker.file);
        let len = self.manifest().layout().file_len(content);
        let size = u64::from(size).min(LARGEST_READ as u64).min(len.saturating_sub(offset));
        if size == 0 {
            return give(Ok(&[]));
        }
        let range = offset..offset + size;
        self.record(asker.file, range.clone());
        let ahead = self.look_ahead(content, &range, len, WHOLE);
        let pieces = self.pieces(content, range.clone());
        let files = self.clone();
        self.need(pieces, asker, Duration::ZERO, move |ready| match ready {
            Ok(()) => files.give(content, range, give),
            Err(fault) => give(Err(fault)),
        });
        if !ahead.is_empty() {
            self.waits.want(self.pieces(content, ahead), Urgency::Soon);
        }
    }

    /// A whole file, once it is here; `None` if it cannot be had.
    pub(crate) fn fetch(self: &Arc<Self>, file: u32) -> Receiver<Option<Vec<u8>>> {
        let (send, receive) = bounded(1);
        let content = self.content(file);
        let len = self.manifest().layout().file_len(content);
        let files = self.clone();
        let asker = Asker { file, pid: 0 };
        self.waits.when(self.pieces(content, 0..len), asker, move |came| {
            let mut bytes = vec![0; len as usize];
            let read = came.is_ok() && files.fill(content, 0, &mut bytes).is_ok();
            // The caller may have ended.
            let _ = send.send(read.then_some(bytes));
        });
        receive
    }

    /// The range of an incomplete file that is expected to be read next. `whole`: smaller files were fetched
    /// whole when they were opened.
    fn look_ahead(&self, content: u32, range: &Range<u64>, len: u64, whole: u64) -> Range<u64> {
        if len <= whole || self.is_complete() {
            return 0..0;
        }
        let mut all = self.ahead.lock();
        if all.len() >= REMEMBERED && !all.contains_key(&content) {
            all.clear();
        }
        all.entry(content).or_default().read(range.clone(), len)
    }

    /// Offers a small present file to `give`, which may refuse it.
    pub(crate) fn show(&self, file: u32, len: u64, take: impl FnOnce(&[u8]) -> io::Result<()>) {
        let content = self.content(file);
        BUFFER.with_borrow_mut(|buffer| {
            let bytes = buffer.get_mut(..len as usize).unwrap_or_default();
            // An unreadable file fails when it is read, with its own error.
            if self.fill(content, 0, bytes).is_ok() && take(bytes).is_ok() {
                self.counters.gave(bytes.len());
            }
        });
    }

    fn give(&self, content: u32, range: Range<u64>, give: impl FnOnce(Result<&[u8], Fault>)) {
        BUFFER.with_borrow_mut(|buffer| {
            let wanted = (range.end - range.start) as usize;
            let bytes = buffer.get_mut(..wanted).unwrap_or_default();
            match self.fill(content, range.start, bytes) {
                Ok(()) => {
                    self.counters.gave(bytes.len());
                    give(Ok(bytes));
                }
                Err(error) => {
                    self.counters.failed(content, &error.to_string());
                    let path = String::from_utf8_lossy(&self.tree.path(content)).into_owned();
                    tracing::error!(path, %error, "cannot read the cache");
                    give(Err(Fault::Lost));
                }
            }
        });
    }

    /// Reads verified bytes of a file.
    fn fill(&self, content: u32, offset: u64, mut bytes: &mut [u8]) -> Result<(), tidecast_store::Error> {
        let layout = self.manifest().layout();
        let length = u64::from(layout.piece_length());
        let mut at = layout.file_start(content) + offset;
        while !bytes.is_empty() {
            let (piece, begin) = ((at / length) as u32, at % length);
            let here = bytes.len().min((length - begin) as usize);
            let (part, rest) = bytes.split_at_mut(here);
            self.store.read(piece, begin as u32, part)?;
            at += here as u64;
            bytes = rest;
        }
        Ok(())
    }

    fn is_elf(&self, content: u32) -> bool {
        let mut head = [0; ELF.len()];
        self.fill(content, 0, &mut head).is_ok() && head == ELF
    }

    /// A file with the same content, the first of them: it alone is fetched.
    pub(crate) fn content(&self, file: u32) -> u32 {
        self.manifest().file(file).map_or(file, FileRef::same_as)
    }

    /// The pieces that hold these bytes of a file.
    pub(crate) fn pieces(&self, content: u32, range: Range<u64>) -> Range<u32> {
        let layout = self.manifest().layout();
        let (start, length) = (layout.file_start(content), u64::from(layout.piece_length()));
        if range.is_empty() {
            let first = (start / length) as u32;
            return first..first;
        }
        ((start + range.start) / length) as u32..((start + range.end).div_ceil(length)) as u32
    }
}
