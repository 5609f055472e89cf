//! Writes to a stream (a pipe, a device, standard output): the blocks of one file, each after all blocks
//! before it.
//!
//! The sender has at most [`WINDOW`] blocks under way that are not acknowledged ([`crate::spec::SendSpec::in_order`]), and a block is
//! acknowledged when it is written. So there is a writer and a buffer for each of them: those that came early wait in
//! [`Sink::write`], and the one whose turn it is never waits for theirs.

use std::collections::BTreeSet;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use parking_lot::{Condvar, Mutex};
use tidecast_text::escaped_bytes;

use super::check;
use crate::block::Block;
use crate::entry::Kind;
use crate::error::Error;
use crate::job::{Sink, Walked, Want, Written};
use crate::part::{Data, Part, Parts};

/// Blocks under way at most.
pub const WINDOW: usize = 16;
/// Zeros of a hole that are written at a time.
const ZEROS: usize = 1 << 20;

/// Writes bytes; the question tells whether to stop waiting.
type Write = Box<dyn Fn(&[u8], &dyn Fn() -> bool) -> io::Result<()> + Send + Sync>;

/// A receiver that writes one file in order.
pub struct InOrder {
    /// Where it writes, for messages.
    shown: PathBuf,
    write: Write,
    state: Mutex<State>,
    moved: Condvar,
    stopped: AtomicBool,
    bytes: AtomicU64,
}

#[derive(Default)]
struct State {
    /// The entry and its length, when its first part has arrived.
    file: Option<(u64, u64)>,
    /// All before is written, or is being written.
    next: u64,
    /// A block is being written.
    is_busy: bool,
    /// Where the blocks begin that wait for their turn.
    waiting: BTreeSet<u64>,
}

impl InOrder {
    /// Writes by `write`, which is called with one stretch after the other, to the stream named `shown`.
    pub fn new(
        shown: impl Into<PathBuf>,
        write: impl Fn(&[u8], &dyn Fn() -> bool) -> io::Result<()> + Send + Sync + 'static,
    ) -> Self {
        Self {
            shown: shown.into(),
            write: Box::new(write),
            state: Mutex::default(),
            moved: Condvar::new(),
            stopped: AtomicBool::new(false),
            bytes: AtomicU64::new(0),
        }
    }

    fn take(&self, part: &Part, data: &[u8]) -> Result<(), Error> {
        let Kind::File { len, .. } = part.entry.kind else {
            let path = escaped_bytes(&part.entry.path);
            return Err(Error::Usage(format!(
                "{path} is not a regular file; only one regular file can be written to a pipe or device"
            )));
        };
        let (offset, stretch) = match part.data {
            Data::Bytes { offset, .. } => (offset, data.len() as u64),
            Data::Hole { offset, len, .. } => (offset, len),
            Data::None | Data::Apart | Data::Ask { .. } | Data::Same { .. } => {
                return Err(Error::Damaged("part without data".into()));
            }
        };
        if !self.turn(part.file, len, offset)? {
            return Ok(());
        }
        let written = match part.data {
            Data::Hole { .. } => self.zeros(stretch),
            _ => self.put(data),
        };
        let mut state = self.state.lock();
        state.is_busy = false;
        state.next = offset + stretch;
        drop(state);
        self.moved.notify_all();
        written
    }

    /// Waits until all before `offset` is written; false if that stretch is written already.
    fn turn(&self, file: u64, len: u64, offset: u64) -> Result<bool, Error> {
        let mut state = self.state.lock();
        if *state.file.get_or_insert((file, len)) != (file, len) {
            return Err(Error::Usage(
                "only one regular file can be written to a pipe or device, but several arrived".into(),
            ));
        }
        state.waiting.insert(offset);
        while !self.stopped.load(Relaxed) && (state.is_busy || offset > state.next) {
            // The next may be among them, and not awake yet.
            if !state.is_busy && state.waiting.len() >= WINDOW && !state.waiting.contains(&state.next) {
                return Err(Error::Damaged("blocks of a file are not contiguous".into()));
            }
            self.moved.wait(&mut state);
        }
        state.waiting.remove(&offset);
        if self.stopped.load(Relaxed) {
            return Err(Error::Cancelled);
        }
        state.is_busy = offset == state.next;
        Ok(state.is_busy)
    }

    fn zeros(&self, len: u64) -> Result<(), Error> {
        let zeros = vec![0; ZEROS];
        let mut left = len;
        while left > 0 {
            let step = left.min(ZEROS as u64);
            self.put(&zeros[..step as usize])?;
            left -= step;
        }
        Ok(())
    }

    fn put(&self, data: &[u8]) -> Result<(), Error> {
        (self.write)(data, &|| self.stopped.load(Relaxed)).map_err(|error| {
            match (error.kind(), self.stopped.load(Relaxed)) {
                (io::ErrorKind::Interrupted, true) => Error::Cancelled,
                (io::ErrorKind::BrokenPipe, _) => Error::ReaderGone(self.shown.clone()),
                _ => Error::io("write to", &self.shown)(error),
            }
        })?;
        self.bytes.fetch_add(data.len() as u64, Relaxed);
        Ok(())
    }
}

impl Sink for InOrder {
    fn fresh(&self) -> bool {
        true
    }

    fn write(&self, _: usize, block: &Block) -> Result<Option<Want>, Error> {
        let (mut parts, mut part, mut at) = (Parts::new(&block.table, block.len), Part::default(), 0);
        while parts.next(&mut part)? {
            let data = &block.payload()[at..at + part.data.payload()];
            at += data.len();
            check(block, data, &part)?;
            self.take(&part, data)?;
        }
        Ok(None)
    }

    fn finish(&self, walked: &Walked) -> Result<Written, Error> {
        let written = self.written();
        // The sender has reported the reason, if it knows one.
        if written.files == 0 && walked.failed == 0 {
            return Err(Error::Damaged("parts of the file did not arrive".into()));
        }
        Ok(written)
    }

    fn written(&self) -> Written {
        let whole = {
            let state = self.state.lock();
            u64::from(!state.is_busy && state.file.is_some_and(|(_, len)| len == state.next))
        };
        Written { entries: whole, files: whole, bytes: self.bytes.load(Relaxed), ..Written::default() }
    }

    fn stop(&self) {
        // Under the lock, so that a thread about to wait sees it.
        let _state = self.state.lock();
        self.stopped.store(true, Relaxed);
        self.moved.notify_all();
    }
}

impl std::fmt::Debug for InOrder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("InOrder").field("shown", &self.shown).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::block::{Leased, Pool};
    use crate::digest;
    use crate::entry::Entry;
    use crate::part::{BLOCK, TableWriter};

    fn block(pool: &Pool, bytes: &[u8], offset: usize) -> Leased {
        let mut block = pool.take().unwrap();
        let rest = &bytes[offset..bytes.len().min(offset + BLOCK)];
        block.room()[..rest.len()].copy_from_slice(rest);
        block.len = rest.len();
        let kind = Kind::File { len: bytes.len() as u64, sparse: false };
        let entry = Entry { path: b"f".to_vec(), kind, ..Entry::default() };
        let (offset, len) = (offset as u64, rest.len() as u32);
        let data = Data::Bytes { offset, len, digest: digest::part(rest), root: None };
        let mut table = TableWriter::new(Vec::new());
        table.push(1, &entry, &data);
        block.table = table.finish();
        block
    }

    fn sink() -> (InOrder, Arc<Mutex<Vec<u8>>>) {
        let all = Arc::new(Mutex::new(Vec::new()));
        let to = all.clone();
        let sink = InOrder::new("pipe", move |bytes, _| {
            to.lock().extend_from_slice(bytes);
            Ok(())
        });
        (sink, all)
    }

    #[test]
    fn blocks_are_written_in_order_whenever_they_come_and_once() {
        let (pool, (sink, all)) = (Pool::new(8), sink());
        let bytes: Vec<u8> = (0..3 * BLOCK + 7).map(|n| (n / 1000) as u8).collect();
        std::thread::scope(|scope| {
            for offset in [3, 2, 1, 1, 0].map(|n| n * BLOCK) {
                let block = block(&pool, &bytes, offset);
                let sink = &sink;
                scope.spawn(move || sink.write(0, &block).unwrap());
            }
        });
        assert!(*all.lock() == bytes);
        sink.write(0, &block(&pool, &bytes, BLOCK)).unwrap();
        let written = sink.finish(&Walked::default()).unwrap();
        assert_eq!((written.files, written.bytes, all.lock().len()), (1, bytes.len() as u64, bytes.len()));
    }

    #[test]
    fn what_waits_is_ended_and_gaps_are_errors() {
        let (pool, (sink, _)) = (Pool::new(WINDOW), sink());
        let (bytes, sink) = (vec![1; (WINDOW + 1) * BLOCK], &sink);
        let ended = std::thread::scope(|scope| {
            let late = |n| {
                let block = block(&pool, &bytes, n * BLOCK);
                scope.spawn(move || sink.write(0, &block))
            };
            // The first never comes: the last to wait sees that, and a session ends with its error.
            let threads: Vec<_> = (1..=WINDOW).map(late).collect();
            while sink.state.lock().waiting.len() < WINDOW {
                std::thread::yield_now();
            }
            sink.stop();
            threads.into_iter().map(|t| t.join().unwrap().unwrap_err()).collect::<Vec<_>>()
        });
        assert!(ended.iter().any(|e| matches!(e, Error::Damaged(_))));
        assert!(ended.iter().all(|e| matches!(e, Error::Damaged(_) | Error::Cancelled)));
        assert!(sink.finish(&Walked::default()).is_err());
    }

    #[test]
    fn a_reader_that_goes_is_told_as_such() {
        let pool = Pool::new(1);
        let sink = InOrder::new("pipe", |_, _| Err(io::ErrorKind::BrokenPipe.into()));
        let said = sink.write(0, &block(&pool, b"some", 0)).unwrap_err().to_string();
        assert!(said.contains("write to pipe: its reader has closed it"), "{said}");
    }
}
