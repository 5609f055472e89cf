//! Files that arrive in parts: each part is written at its offset in a file of the staging directory, which
//! gets its name when all have arrived and their root matches the sender's.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::{Arc, OnceLock, Weak};

use parking_lot::Mutex;
use rustix::fs::{self, FallocateFlags, OFlags};
use rustix::io::Errno;
use tidecast_hash::{Digest, parents};
use tidecast_metainfo::merkle;

use super::attributes::unsupported;
use super::entry_error::{Doing, EntryResult};
use super::inplace::Base;
use super::journal::{Id, Left, id, staged};
use super::stage::Stage;
use crate::digest;
use crate::entry::{Entry, Kind};
use crate::part::BLOCK;

/// Unfinished files whose handles are held.
const HANDLES: usize = 128;
/// Zero blocks of this size are skipped.
const PAGE: usize = 4096;
const PARTS: u64 = BLOCK as u64;

/// All unfinished files, by their numbers.
#[derive(Debug, Default)]
pub(super) struct PartFiles {
    files: Mutex<HashMap<u64, Arc<PartFile>>>,
    handles: Mutex<VecDeque<Weak<PartFile>>>,
}

/// An unfinished file.
#[derive(Debug)]
pub(super) struct PartFile {
    pub(super) entry: Entry,
    pub(super) id: Id,
    handle: Mutex<Option<Arc<File>>>,
    /// Parts that an earlier run has left: their content may be anything.
    left: OnceLock<Left>,
    /// The file that is updated with it.
    pub(super) base: OnceLock<Base>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    layer: Layer,
    /// Parts that are written.
    written: u64,
    root: Option<Digest>,
    /// Parts that the file which is updated has.
    held: BTreeSet<u64>,
    /// Of these, parts that are assumed to equal the sender's: then the file has no root.
    presumed: u64,
    over: bool,
}

/// The next step for a file after a part was written.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// More is to come.
    Wait,
    /// It is whole; asked for only once.
    Finish,
    /// Everything has arrived, and it differs from the data that the sender has read.
    Differs,
}

impl PartFiles {
    /// The file with that number, begun if need be; None if it is over, which is noted before it is forgotten here.
    pub(super) fn get(
        &self,
        number: u64,
        entry: &Entry,
        is_over: impl Fn() -> bool,
    ) -> Option<Arc<PartFile>> {
        let mut files = self.files.lock();
        if is_over() {
            return None;
        }
        let new = || {
            let (id, handle, left, state) = (id(entry), Mutex::default(), OnceLock::new(), Mutex::default());
            Arc::new(PartFile { entry: entry.clone(), id, handle, left, base: OnceLock::new(), state })
        };
        Some(files.entry(number).or_insert_with(new).clone())
    }

    /// The same if it was begun.
    pub(super) fn find(&self, number: u64) -> Option<Arc<PartFile>> {
        self.files.lock().get(&number).cloned()
    }

    pub(super) fn forget(&self, number: u64) {
        self.files.lock().remove(&number);
    }

    /// Those that are not complete.
    pub(super) fn left(&self) -> Vec<Arc<PartFile>> {
        self.files.lock().values().cloned().collect()
    }

    /// The file in the staging directory, opened and made if need be.
    pub(super) fn handle(
        &self,
        part_file: &Arc<PartFile>,
        stage: &Stage,
        reserve: bool,
    ) -> EntryResult<Arc<File>> {
        let mut handle = part_file.handle.lock();
        if let Some(file) = &*handle {
            return Ok(file.clone());
        }
        let name = staged(&part_file.id);
        let fd = match stage.file(&name, OFlags::RDWR) {
            Err(Errno::NOENT) => {
                let fd = stage.file(&name, OFlags::RDWR | OFlags::CREATE | OFlags::EXCL).doing("create")?;
                let len = part_file.entry.len();
                fs::ftruncate(&fd, len).doing("create")?;
                if reserve && !part_file.is_sparse() && part_file.base.get().is_none() {
                    match fs::fallocate(&fd, FallocateFlags::KEEP_SIZE, 0, len) {
                        Err(e) if !unsupported(e) => return Err(e).doing("reserve space for"),
                        _ => {}
                    }
                }
                fd
            }
            other => other.doing("open")?,
        };
        let file = Arc::new(File::from(fd));
        *handle = Some(file.clone());
        drop(handle);
        let mut handles = self.handles.lock();
        handles.push_back(Arc::downgrade(part_file));
        let old =
            if handles.len() > HANDLES { handles.pop_front().and_then(|old| old.upgrade()) } else { None };
        drop(handles);
        if let Some(old) = old.filter(|old| !Arc::ptr_eq(old, part_file)) {
            *old.handle.lock() = None;
        }
        Ok(file)
    }
}

impl PartFile {
    /// Takes a stretch as the caller's to write; false if it was taken before.
    pub(super) fn claim(&self, stretch: &Stretch) -> bool {
        let mut state = self.state.lock();
        !state.over && state.layer.add(stretch)
    }

    /// Whether a part has arrived.
    pub(super) fn has(&self, part: u64) -> bool {
        self.state.lock().layer.parts.contains_key(&part)
    }

    /// The part is written. With `root` if the sender sent it in this part.
    pub(super) fn written(&self, parts: u64) -> Next {
        let mut state = self.state.lock();
        state.written += parts;
        self.next(&mut state)
    }

    /// The sender's digest.
    pub(super) fn root(&self, root: &Digest) -> Next {
        let mut state = self.state.lock();
        state.root = Some(*root);
        self.next(&mut state)
    }

    fn next(&self, state: &mut State) -> Next {
        let parts = self.entry.len().div_ceil(PARTS).saturating_sub(state.presumed);
        if state.presumed > 0 && !state.over && state.written == parts {
            state.over = true;
            return Next::Finish;
        }
        let Some(root) = state.root.filter(|_| !state.over && state.written == parts) else {
            return Next::Wait;
        };
        state.over = true;
        if state.layer.root(self.entry.len()) == root { Next::Finish } else { Next::Differs }
    }

    /// Whether an earlier run may have left a part.
    pub(super) fn is_left(&self, part: u64) -> bool {
        self.left.get().is_some_and(|left| left.contains(&part))
    }

    /// Parts that are there since an earlier run.
    pub(super) fn left(&self) -> Vec<u64> {
        self.left.get().into_iter().flatten().copied().collect()
    }

    /// Takes a file that is to be updated, whose first parts are assumed to equal the sender's; returns their
    /// number, if it has one already.
    pub(super) fn updates(&self, base: Base, presumed: u64) -> u64 {
        let mut state = self.state.lock();
        if self.base.set(base).is_ok() {
            state.presumed = presumed;
        }
        state.presumed
    }

    /// Whether the file that is updated has the very bytes of a part, which then need not be staged.
    pub(super) fn is_held(&self, part: u64, digest: &Digest) -> EntryResult<bool> {
        let Some(base) = self.base.get() else { return Ok(false) };
        let is_held = self.holds(&base.file, part, digest)?;
        if is_held {
            self.state.lock().held.insert(part);
        }
        Ok(is_held)
    }

    /// Parts, in order, and holes with which a file is updated.
    pub(super) fn to_update(&self) -> (Vec<u64>, Vec<(u64, u64)>) {
        let state = self.state.lock();
        let parts = state.layer.parts.keys().copied().filter(|part| !state.held.contains(part));
        (parts.collect(), state.layer.holes.iter().map(|(first, count)| (*first, *count)).collect())
    }

    fn is_sparse(&self) -> bool {
        matches!(self.entry.kind, Kind::File { sparse: true, .. })
    }

    /// Takes over the parts that an earlier run has left. Where zeros are not written, the space between them
    /// must be zero.
    pub(super) fn resume(&self, file: &File, left: &Left) -> EntryResult {
        let len = self.entry.len();
        let mut left: Left = left.iter().copied().filter(|part| part.saturating_mul(PARTS) < len).collect();
        file.set_len(len).doing("set the size of")?;
        if self.is_sparse() {
            let (begins, ends) =
                (left.iter().map(|part| (part + 1) * PARTS), left.iter().map(|part| part * PARTS));
            let gaps = std::iter::once(0).chain(begins).zip(ends.chain(std::iter::once(len)));
            let tried =
                gaps.filter(|(begin, end)| begin < end).try_for_each(|(begin, end)| punch(file, begin, end));
            match tried {
                Err(e) if unsupported(e) => {
                    file.set_len(0).and_then(|()| file.set_len(len)).doing("set the size of")?;
                    left.clear();
                }
                other => other.doing("punch holes in")?,
            }
        }
        self.left.get_or_init(|| left);
        Ok(())
    }

    /// Whether an earlier run has left the very bytes of a part.
    pub(super) fn holds(&self, file: &File, part: u64, digest: &Digest) -> EntryResult<bool> {
        let offset = part.saturating_mul(PARTS);
        let len = self.entry.len().saturating_sub(offset).min(PARTS) as usize;
        Ok(digest::at(file, offset, len).doing("read")? == Some(*digest))
    }

    /// Writes a part where it belongs.
    pub(super) fn write(&self, file: &File, part: u64, data: &[u8]) -> EntryResult {
        let was_left = self.left.get().is_some_and(|left| left.contains(&part));
        if was_left || !self.is_sparse() {
            return file.write_all_at(data, part * PARTS).doing("write");
        }
        write_sparse(file, part * PARTS, data)
    }

    /// The same for parts that are a hole.
    pub(super) fn write_hole(&self, file: &File, first: u64, count: u64) -> EntryResult {
        let end = first.saturating_add(count);
        for part in self.left.get().into_iter().flat_map(|left| left.range(first..end)) {
            let (begin, end) = (part * PARTS, self.entry.len().min((part + 1) * PARTS));
            match punch(file, begin, end) {
                Err(e) if unsupported(e) => {
                    file.write_all_at(&vec![0; (end - begin) as usize], begin).doing("write")?
                }
                other => other.doing("punch holes in")?,
            }
        }
        Ok(())
    }
}

fn punch(file: &File, begin: u64, end: u64) -> Result<(), Errno> {
    fs::fallocate(file, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, begin, end - begin)
}

/// Writes all but the pages that are zero; they must be holes already.
pub(super) fn write_sparse(file: &File, offset: u64, data: &[u8]) -> EntryResult {
    let is_zero = |at: usize| {
        let page = &data[at..data.len().min(at + PAGE)];
        *page == [0; PAGE][..page.len()]
    };
    let (mut at, len) = (0, data.len());
    while at < len {
        let begin = at;
        while at < len && !is_zero(at) {
            at = len.min(at + PAGE);
        }
        file.write_all_at(&data[begin..at], offset + begin as u64).doing("write")?;
        while at < len && is_zero(at) {
            at = len.min(at + PAGE);
        }
    }
    Ok(())
}

/// A stretch of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stretch {
    /// A part, by its number.
    Part(u64, Digest),
    /// A hole: its first part, and how many it is.
    Hole(u64, u64),
}

impl Stretch {
    /// Its first part, and how many it is.
    pub(super) fn range(&self) -> (u64, u64) {
        match self {
            Self::Part(part, _) => (*part, 1),
            Self::Hole(part, count) => (*part, *count),
        }
    }
}

/// The digests of a file's parts, as far as they have arrived. A hole takes no space, however long it is.
#[derive(Debug, Default)]
pub(super) struct Layer {
    parts: BTreeMap<u64, Digest>,
    /// First part of each hole, and how many it is.
    holes: BTreeMap<u64, u64>,
}

impl Layer {
    /// False if it was there before, wholly or in part.
    fn add(&mut self, stretch: &Stretch) -> bool {
        let (first, count) = stretch.range();
        let end = first.saturating_add(count);
        let hole = self.holes.range(..end).next_back().is_some_and(|(at, n)| at + n > first);
        if count == 0 || hole || self.parts.range(first..end).next().is_some() {
            return false;
        }
        match stretch {
            Stretch::Part(part, digest) => self.parts.insert(*part, *digest).is_none(),
            Stretch::Hole(..) => self.holes.insert(first, count).is_none(),
        }
    }

    /// The root of a file of that length, all of whose parts have arrived.
    fn root(&self, len: u64) -> Digest {
        let parts = len.div_ceil(PARTS);
        let top = parts.next_power_of_two().trailing_zeros();
        let mut zeros = vec![digest::zeros(BLOCK)];
        for level in 0..top as usize {
            zeros.push(pair(zeros[level], zeros[level]));
        }
        self.node(0, top, len, &zeros)
    }

    fn node(&self, first: u64, level: u32, len: u64, zeros: &[Digest]) -> Digest {
        let (parts, end) = (len.div_ceil(PARTS), first + (1 << level));
        if first >= parts {
            return merkle::pad(merkle::piece_level(BLOCK as u32) + level);
        }
        let hole = self.holes.range(..=first).next_back().is_some_and(|(at, n)| at + n >= end);
        if hole && end.saturating_mul(PARTS) <= len {
            return zeros[level as usize];
        }
        if level == 0 {
            let last = || digest::zeros((len - first * PARTS).min(PARTS) as usize);
            return self.parts.get(&first).copied().unwrap_or_else(last);
        }
        let middle = first + (1 << (level - 1));
        pair(self.node(first, level - 1, len, zeros), self.node(middle, level - 1, len, zeros))
    }
}

fn pair(left: Digest, right: Digest) -> Digest {
    let mut up = [[0; 32]];
    parents(&[left, right], &mut up);
    up[0]
}
