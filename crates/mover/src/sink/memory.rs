//! Writes to memory: files are completed in a directory of shared memory, a consumer is notified of each, and
//! releases it when it has finished with it. Data that has arrived and is not released is limited, so a slow
//! consumer slows the copy as a slow disk would.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use parking_lot::{Condvar, Mutex};
use rustix::fd::OwnedFd;
use rustix::fs::{self, AtFlags, CWD, FallocateFlags, Mode, OFlags};

use super::check;
use super::entry_error::{Doing, EntryResult};
use super::numbers::Numbers;
use super::part_files::{Next, PartFile, PartFiles, Stretch, write_sparse};
use crate::block::Block;
use crate::digest;
use crate::entry::{Entry, Kind};
use crate::error::Error;
use crate::job::{Problem, Sink, Walked, Want, Wanted, Written};
use crate::part::{BLOCK, Data, Part, Parts};

/// The memory of an empty file.
const PAGE: u64 = 4096;

/// The messages to a consumer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Arrived {
    /// A part of a file, if blocks were asked for: verified, and at its place in the file `number` of the directory.
    Block {
        /// The file's number.
        number: u64,
        /// Its name.
        entry: Entry,
        /// Where in the file (bytes).
        offset: u64,
        /// How many bytes.
        len: u64,
    },
    /// A whole file, verified: it is the file `number` of the directory.
    File {
        /// Its number.
        number: u64,
        /// Its name.
        entry: Entry,
    },
    /// An entry that is not a file.
    Other(Entry),
}

/// A directory in memory that receives.
pub struct Memory {
    place: PathBuf,
    dir: OwnedFd,
    blocks: bool,
    room: MemoryBudget,
    tell: Box<dyn Fn(Arrived) + Send + Sync>,
    /// Entries that are done.
    done: Mutex<Numbers>,
    part_files: PartFiles,
    open: Mutex<HashMap<u64, Arc<Open>>>,
    /// The parts that the consumer holds: of each file its parts and their lengths; without blocks the only
    /// part is the whole file.
    held: Mutex<HashMap<u64, HeldFile>>,
    counts: Counts,
    said: Mutex<Written>,
}

/// A file that comes in parts.
#[derive(Default)]
struct Open {
    file: Mutex<Option<Arc<File>>>,
}

#[derive(Default)]
struct HeldFile {
    parts: BTreeMap<u64, u64>,
    whole: bool,
}

#[derive(Default)]
struct Counts {
    entries: AtomicU64,
    files: AtomicU64,
    bytes: AtomicU64,
}

/// How much may be in memory.
struct MemoryBudget {
    budget: u64,
    state: Mutex<Taken>,
    freed: Condvar,
}

#[derive(Default)]
struct Taken {
    bytes: u64,
    /// Things that the consumer may give back.
    held: u64,
    closed: bool,
}

impl MemoryBudget {
    /// Waits for space. An item larger than the budget is admitted when the consumer holds nothing: it would
    /// wait for ever.
    fn take(&self, bytes: u64) -> Result<(), Error> {
        let mut state = self.state.lock();
        while !state.closed && state.held > 0 && state.bytes.saturating_add(bytes) > self.budget {
            self.freed.wait(&mut state);
        }
        if state.closed {
            return Err(Error::Cancelled);
        }
        state.bytes += bytes;
        Ok(())
    }

    /// The consumer is going to be told of something.
    fn hold(&self) {
        self.state.lock().held += 1;
    }

    fn give(&self, bytes: u64, held: u64) {
        let mut state = self.state.lock();
        state.bytes -= bytes;
        state.held -= held;
        drop(state);
        self.freed.notify_all();
    }
}

/// Bytes of memory that a stretch takes.
fn pages(len: u64) -> u64 {
    len.max(1).div_ceil(PAGE) * PAGE
}

impl Memory {
    /// Receives into `place`, a private directory in memory, at most `budget` bytes at a time: more, by one
    /// file or block, only if the consumer holds nothing, plus files that began to arrive. `tell` is called
    /// for files, and with `blocks` for their parts, in the order of arrival.
    ///
    /// # Errors
    /// When the directory cannot be opened.
    pub fn new(
        place: &Path,
        budget: u64,
        blocks: bool,
        tell: impl Fn(Arrived) + Send + Sync + 'static,
    ) -> Result<Self, Error> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let dir =
            fs::openat(CWD, place, flags, Mode::empty()).map_err(|e| Error::io("open", place)(e.into()))?;
        Ok(Self {
            place: place.to_owned(),
            dir,
            blocks,
            room: MemoryBudget { budget, state: Mutex::default(), freed: Condvar::new() },
            tell: Box::new(tell),
            done: Mutex::default(),
            part_files: PartFiles::default(),
            open: Mutex::default(),
            held: Mutex::default(),
            counts: Counts::default(),
            said: Mutex::default(),
        })
    }

    /// The consumer is through with a file, or with the part of it at `offset`; false if it does not hold that.
    ///
    /// # Errors
    /// When the memory cannot be freed.
    pub fn release(&self, number: u64, offset: Option<u64>) -> Result<bool, Error> {
        let mut held = self.held.lock();
        let Some(file) = held.get_mut(&number) else { return Ok(false) };
        let freed: Vec<(u64, u64)> = match offset {
            Some(offset) => file.parts.remove(&offset).map(|len| (offset, len)).into_iter().collect(),
            None if file.whole => std::mem::take(&mut file.parts).into_iter().collect(),
            None => Vec::new(),
        };
        if freed.is_empty() {
            return Ok(false);
        }
        let over = file.whole && file.parts.is_empty();
        if over {
            held.remove(&number);
        }
        drop(held);
        self.free(number, &freed, over).map_err(|t| t.at(self.path(number)))?;
        self.room.give(freed.iter().map(|(_, len)| pages(*len)).sum(), freed.len() as u64);
        Ok(true)
    }

    fn free(&self, number: u64, parts: &[(u64, u64)], over: bool) -> EntryResult {
        let name = number.to_string();
        if over {
            return fs::unlinkat(&self.dir, name, AtFlags::empty()).doing("remove");
        }
        let flags = OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = fs::openat(&self.dir, name, flags, Mode::empty()).doing("open")?;
        for (offset, len) in parts.iter().filter(|(_, len)| *len > 0) {
            let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            fs::fallocate(&file, punch, *offset, *len).doing("free a part of")?;
        }
        Ok(())
    }

    /// Whether the consumer has given back all that it was told of.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.held.lock().is_empty()
    }

    fn path(&self, number: u64) -> PathBuf {
        self.place.join(number.to_string())
    }

    /// Handles one part.
    fn take(&self, part: &Part, data: &[u8]) -> Result<(), Error> {
        if self.done.lock().has(part.file) {
            return Ok(());
        }
        let Kind::File { len, .. } = part.entry.kind else {
            if self.done.lock().insert(part.file) {
                self.counts.entries.fetch_add(1, Relaxed);
                (self.tell)(Arrived::Other(part.entry.clone()));
            }
            return Ok(());
        };
        if len > BLOCK as u64 {
            return self.receive_part(part, data, len);
        }
        match &part.data {
            Data::Bytes { .. } => {}
            Data::Hole { root, .. } if *root == Some(digest::zeros(len as usize)) => {}
            Data::Hole { .. } => return Err(Error::Damaged("hole with a wrong digest".into())),
            Data::None | Data::Apart | Data::Ask { .. } | Data::Same { .. } => {
                return Err(Error::Damaged("part without data".into()));
            }
        }
        self.room.take(pages(len))?;
        // Its block may have arrived twice, in two threads.
        if !self.done.lock().insert(part.file) {
            self.room.give(pages(len), 0);
            return Ok(());
        }
        let written = self.make(part.file, len).and_then(|file| write_sparse(&file, 0, data));
        written.map_err(|t| t.at(self.path(part.file)))?;
        self.counts.bytes.fetch_add(data.len() as u64, Relaxed);
        match (self.blocks, len) {
            (true, 0) => self.room.give(pages(len), 0),
            (true, _) => self.report_part(part, 0, len),
            (false, _) => {}
        }
        self.whole(part.file, &part.entry)
    }

    /// An empty file of that length.
    fn make(&self, number: u64, len: u64) -> EntryResult<File> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mode = Mode::from_raw_mode(0o600);
        let file = fs::openat(&self.dir, number.to_string(), flags, mode).doing("create")?;
        fs::ftruncate(&file, len).doing("create")?;
        Ok(file.into())
    }

    /// A part of a file that comes in several.
    fn receive_part(&self, part: &Part, data: &[u8], len: u64) -> Result<(), Error> {
        let number = part.file;
        let is_over = || self.done.lock().has(number);
        let Some(part_file) = self.part_files.get(number, &part.entry, is_over) else { return Ok(()) };
        let file = self.opened(number, len)?;
        let (stretch, offset, root) = match &part.data {
            Data::Bytes { offset, digest, root, .. } => {
                (Stretch::Part(offset / BLOCK as u64, *digest), *offset, root)
            }
            Data::Hole { offset, len, root } => {
                (Stretch::Hole(offset / BLOCK as u64, len.div_ceil(BLOCK as u64)), *offset, root)
            }
            Data::None | Data::Apart | Data::Ask { .. } | Data::Same { .. } => {
                return Err(Error::Damaged("part without data".into()));
            }
        };
        let mut next = Next::Wait;
        if part_file.claim(&stretch) {
            if self.blocks && !data.is_empty() {
                self.room.take(pages(data.len() as u64))?;
            }
            write_sparse(&file, offset, data).map_err(|t| t.at(self.path(number)))?;
            self.counts.bytes.fetch_add(data.len() as u64, Relaxed);
            if self.blocks && !data.is_empty() {
                self.report_part(part, offset, data.len() as u64);
            }
            next = part_file.written(stretch.range().1);
        }
        let after = root.as_ref().map_or(Next::Wait, |root| part_file.root(root));
        let next = if after == Next::Wait { next } else { after };
        if next == Next::Wait {
            return Ok(());
        }
        self.done.lock().insert(number);
        self.part_files.forget(number);
        self.open.lock().remove(&number);
        if next == Next::Finish {
            self.whole(number, &part_file.entry)
        } else {
            self.differs(number, &part_file)
        }
    }

    /// All of a file has arrived, and it differs from the data that the sender has read.
    fn differs(&self, number: u64, part_file: &PartFile) -> Result<(), Error> {
        let what = "not copied: the data that arrived differs from the data that was read";
        let mut said = self.said.lock();
        said.failed += 1;
        if said.problems.len() < super::PROBLEMS {
            said.problems.push(Problem::new(&part_file.entry.path, what, true));
        } else {
            said.more_problems += 1;
        }
        drop(said);
        if self.blocks {
            // The consumer releases its parts of the file.
            return self.ended(number);
        }
        self.free(number, &[], true).map_err(|t| t.at(self.path(number)))?;
        self.room.give(pages(part_file.entry.len()), 0);
        Ok(())
    }

    /// The file of that number; the first thread to open it waits for space, and the others for that thread.
    fn opened(&self, number: u64, len: u64) -> Result<Arc<File>, Error> {
        let open = self.open.lock().entry(number).or_default().clone();
        let mut file = open.file.lock();
        if let Some(file) = &*file {
            return Ok(file.clone());
        }
        if !self.blocks {
            self.room.take(pages(len))?;
        }
        let made = self.make(number, len).map_err(|t| t.at(self.path(number)))?;
        Ok(file.insert(Arc::new(made)).clone())
    }

    /// Reports a part.
    fn report_part(&self, part: &Part, offset: u64, len: u64) {
        self.held.lock().entry(part.file).or_default().parts.insert(offset, len);
        self.room.hold();
        (self.tell)(Arrived::Block { number: part.file, entry: part.entry.clone(), offset, len });
    }

    /// Reports a whole file.
    fn whole(&self, number: u64, entry: &Entry) -> Result<(), Error> {
        self.counts.files.fetch_add(1, Relaxed);
        self.counts.entries.fetch_add(1, Relaxed);
        if !self.blocks {
            let parts = BTreeMap::from([(0, entry.len())]);
            self.held.lock().insert(number, HeldFile { parts, whole: true });
            self.room.hold();
        }
        (self.tell)(Arrived::File { number, entry: entry.clone() });
        if self.blocks { self.ended(number) } else { Ok(()) }
    }

    /// No further parts of a file will arrive: when the last one is released it is removed.
    fn ended(&self, number: u64) -> Result<(), Error> {
        let mut held = self.held.lock();
        let file = held.entry(number).or_default();
        file.whole = true;
        if !file.parts.is_empty() {
            return Ok(());
        }
        held.remove(&number);
        drop(held);
        self.free(number, &[], true).map_err(|t| t.at(self.path(number)))
    }
}

impl Sink for Memory {
    fn fresh(&self) -> bool {
        true
    }

    fn write(&self, _: usize, block: &Block) -> Result<Option<Want>, Error> {
        let (mut parts, mut part, mut at) = (Parts::new(&block.table, block.len), Part::default(), 0);
        let mut want = None;
        while parts.next(&mut part)? {
            let data = &block.payload()[at..at + part.data.payload()];
            at += data.len();
            if let Data::Ask { .. } = part.data {
                let wanted = Wanted { file: part.file, ..Wanted::default() };
                want.get_or_insert_with(Want::default).files.push(wanted);
            } else {
                check(block, data, &part)?;
                self.take(&part, data)?;
            }
        }
        Ok(want)
    }

    fn finish(&self, walked: &Walked) -> Result<Written, Error> {
        let mut said = self.said.lock().clone();
        let left = self.part_files.left();
        // The sender has reported the reason, if it knows one.
        if walked.failed == 0 {
            said.failed += left.len() as u64;
            let what = "not copied: parts of it did not arrive";
            said.problems
                .extend(left.iter().map(|part_file| Problem::new(&part_file.entry.path, what, true)));
        }
        Ok(Written {
            problems: said.problems,
            more_problems: said.more_problems,
            failed: said.failed,
            ..self.written()
        })
    }

    fn written(&self) -> Written {
        Written {
            entries: self.counts.entries.load(Relaxed),
            files: self.counts.files.load(Relaxed),
            bytes: self.counts.bytes.load(Relaxed),
            ..Written::default()
        }
    }

    fn stop(&self) {
        self.room.state.lock().closed = true;
        self.room.freed.notify_all();
    }
}

impl std::fmt::Debug for Memory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Memory").field("place", &self.place).finish_non_exhaustive()
    }
}

#[cfg(test)]
#[path = "memory_tests.rs"]
mod tests;
