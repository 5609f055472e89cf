//! A disk in memory that cuts the power: unsynced data is dropped, or any part of it kept.
//!
//! Each file keeps the bytes that are durable and a log of later changes; names change through one
//! log of atomic operations. A cut keeps a random subset of both logs, and of each write a random
//! subset of its 512-byte sectors. `fuse` is the number of changes after which every call fails,
//! as if the machine were gone: that instant may lie within any operation of the store.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};

use rustix::io::Errno;
use tidecast_store::disk::{Disk, DiskFile, How, Kind, Meta, NewAttributes, Room, Stamp};

use super::Rng;

const SECTOR: usize = 512;
const PAGE: u64 = 4096;
const ROOT: u64 = 0;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Content {
    bytes: Vec<u8>,
    /// Pages that hold data; others are holes.
    pages: BTreeSet<u64>,
}

#[derive(Clone, Debug)]
enum Change {
    Write(u64, Vec<u8>),
    Len(u64),
}

impl Content {
    fn apply(&mut self, change: &Change) {
        match change {
            Change::Len(len) => {
                self.bytes.resize(*len as usize, 0);
                self.pages.retain(|p| p * PAGE < *len);
            }
            Change::Write(offset, data) => {
                let end = *offset as usize + data.len();
                if self.bytes.len() < end {
                    self.bytes.resize(end, 0);
                }
                self.bytes[*offset as usize..end].copy_from_slice(data);
                self.pages.extend(offset / PAGE..(end as u64).div_ceil(PAGE));
            }
        }
    }
}

#[derive(Clone)]
enum Node {
    File { live: Content, durable: Content, log: Vec<Change>, locked: bool, version: i64 },
    Dir,
    Symlink,
}

/// Names that an operation sets, all at once: directory, name, and its new target.
type NameOp = Vec<(u64, OsString, Option<u64>)>;
type Names = BTreeMap<(u64, OsString), u64>;

#[derive(Clone, Default)]
struct State {
    /// In order, so that a seed always draws the same chances.
    nodes: BTreeMap<u64, Node>,
    names: Names,
    durable_names: Names,
    name_log: Vec<NameOp>,
    fuse: Option<u64>,
    changes: u64,
}

fn set(names: &mut Names, op: &NameOp) {
    for (dir, name, to) in op {
        match to {
            Some(to) => names.insert((*dir, name.clone()), *to),
            None => names.remove(&(*dir, name.clone())),
        };
    }
}

impl State {
    fn burn(&mut self) -> io::Result<()> {
        self.changes += 1;
        match &mut self.fuse {
            Some(0) => Err(io::Error::other("the power is gone")),
            Some(left) => {
                *left -= 1;
                Ok(())
            }
            None => Ok(()),
        }
    }

    fn name_op(&mut self, op: NameOp) -> io::Result<()> {
        self.burn()?;
        set(&mut self.names, &op);
        self.name_log.push(op);
        Ok(())
    }

    fn find(&self, path: &Path) -> io::Result<u64> {
        let mut at = ROOT;
        for part in path {
            match self.nodes.get(&at) {
                Some(Node::Dir) => {}
                Some(Node::Symlink) => return Err(Errno::LOOP.into()),
                _ => return Err(Errno::NOTDIR.into()),
            }
            at = *self.names.get(&(at, part.to_os_string())).ok_or(Errno::NOENT)?;
        }
        Ok(at)
    }

    fn parent(&self, path: &Path) -> io::Result<(u64, OsString)> {
        let dir = self.find(path.parent().unwrap())?;
        Ok((dir, path.file_name().unwrap().to_os_string()))
    }

    fn add(&mut self, node: Node) -> u64 {
        let ino = self.nodes.len() as u64;
        self.nodes.insert(ino, node);
        ino
    }

    fn sync_file(&mut self, ino: u64) {
        if let Some(Node::File { live, durable, log, .. }) = self.nodes.get_mut(&ino) {
            *durable = live.clone();
            log.clear();
        }
    }

    /// Makes an operation on a directory durable, with all earlier ones there.
    fn sync_names(&mut self, dir: u64) {
        let (mut dirs, mut keep, mut flush) = (BTreeSet::from([dir]), Vec::new(), Vec::new());
        for op in std::mem::take(&mut self.name_log).into_iter().rev() {
            if op.iter().any(|(d, ..)| dirs.contains(d)) {
                dirs.extend(op.iter().map(|(d, ..)| *d));
                flush.push(op);
            } else {
                keep.push(op);
            }
        }
        flush.iter().rev().for_each(|op| set(&mut self.durable_names, op));
        keep.reverse();
        self.name_log = keep;
    }
}

/// The disk. Clones of the `Arc` are the same machine; [`SimDisk::cut`] and [`SimDisk::kill`] give
/// the machine after the event.
pub struct SimDisk {
    state: Arc<Mutex<State>>,
    root: PathBuf,
}

impl SimDisk {
    pub fn new() -> Arc<Self> {
        let mut state = State::default();
        state.add(Node::Dir);
        Arc::new(Self::over(state))
    }

    fn over(state: State) -> Self {
        SimDisk { state: Arc::new(Mutex::new(state)), root: PathBuf::from("/sim") }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    /// Every call fails after this many changes.
    pub fn set_fuse(&self, changes: Option<u64>) {
        self.state().fuse = changes;
    }

    pub fn changes(&self) -> u64 {
        self.state().changes
    }

    /// The disk after a power cut: synced data is durable, and other data at random.
    pub fn cut(&self, rng: &mut Rng) -> Arc<Self> {
        let mut state = self.state().clone();
        let keep_one_in = 1 + rng.below(4);
        for node in state.nodes.values_mut() {
            let Node::File { live, durable, log, locked, .. } = node else { continue };
            for change in log.drain(..) {
                if !rng.one_in(keep_one_in) {
                    continue;
                }
                match change {
                    Change::Write(at, data) if rng.one_in(2) => {
                        for (i, sector) in data.chunks(SECTOR).enumerate() {
                            if rng.one_in(2) {
                                let at = at + (i * SECTOR) as u64;
                                durable.apply(&Change::Write(at, sector.to_vec()));
                            }
                        }
                    }
                    whole => durable.apply(&whole),
                }
            }
            *live = durable.clone();
            *locked = false;
        }
        for op in std::mem::take(&mut state.name_log) {
            if rng.one_in(keep_one_in) {
                set(&mut state.durable_names, &op);
            }
        }
        state.names = state.durable_names.clone();
        state.fuse = None;
        Arc::new(Self::over(state))
    }

    /// The disk after `kill -9`: nothing is lost.
    pub fn kill(&self) -> Arc<Self> {
        let mut state = self.state().clone();
        for node in state.nodes.values_mut() {
            if let Node::File { locked, .. } = node {
                *locked = false;
            }
        }
        state.fuse = None;
        Arc::new(Self::over(state))
    }

    /// Bytes of a file, if it is there.
    pub fn read(&self, path: &Path) -> Option<Vec<u8>> {
        let state = self.state();
        match state.nodes.get(&state.find(path).ok()?) {
            Some(Node::File { live, .. }) => Some(live.bytes.clone()),
            _ => None,
        }
    }

    pub fn exists(&self, path: &Path) -> bool {
        self.state().find(path).is_ok()
    }
}

impl Disk for SimDisk {
    fn root(&self) -> &Path {
        &self.root
    }

    fn open(&self, path: &Path, how: How) -> io::Result<Arc<dyn DiskFile>> {
        let mut state = self.state();
        let ino = match state.find(path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound && how == How::Create => {
                let (dir, name) = state.parent(path)?;
                let file = Node::File {
                    live: Content::default(),
                    durable: Content::default(),
                    log: Vec::new(),
                    locked: false,
                    version: 0,
                };
                let ino = state.add(file);
                state.name_op(vec![(dir, name, Some(ino))])?;
                ino
            }
            other => other?,
        };
        match state.nodes.get(&ino) {
            Some(Node::File { .. }) => {
                Ok(Arc::new(SimFile { ino, state: self.state.clone(), writable: how != How::Read }))
            }
            Some(Node::Dir) => Err(Errno::ISDIR.into()),
            _ => Err(Errno::LOOP.into()),
        }
    }

    fn stat(&self, path: &Path) -> io::Result<Meta> {
        let state = self.state();
        let ino = state.find(path)?;
        Ok(meta(&state, ino))
    }

    fn list(&self, path: &Path) -> io::Result<Vec<OsString>> {
        let state = self.state();
        let dir = state.find(path)?;
        Ok(state.names.keys().filter(|(d, _)| *d == dir).map(|(_, n)| n.clone()).collect())
    }

    fn mkdir(&self, path: &Path, _private: bool) -> io::Result<()> {
        self.make(path, Node::Dir)
    }

    fn symlink(&self, _target: &Path, path: &Path) -> io::Result<()> {
        self.make(path, Node::Symlink)
    }

    fn link(&self, existing: &Path, path: &Path) -> io::Result<()> {
        let mut state = self.state();
        let ino = state.find(existing)?;
        let (dir, name) = state.parent(path)?;
        state.name_op(vec![(dir, name, Some(ino))])
    }

    fn rename(&self, from: &Path, to: &Path, replace: bool) -> io::Result<()> {
        let mut state = self.state();
        let ino = state.find(from)?;
        if !replace && state.find(to).is_ok() {
            return Err(Errno::EXIST.into());
        }
        let (old_dir, old) = state.parent(from)?;
        let (new_dir, new) = state.parent(to)?;
        state.name_op(vec![(old_dir, old, None), (new_dir, new, Some(ino))])
    }

    fn exchange(&self, one: &Path, other: &Path) -> io::Result<()> {
        let mut state = self.state();
        let (first, second) = (state.find(one)?, state.find(other)?);
        let ((one_dir, one), (other_dir, other)) = (state.parent(one)?, state.parent(other)?);
        state.name_op(vec![(one_dir, one, Some(second)), (other_dir, other, Some(first))])
    }

    fn read_link(&self, _path: &Path) -> io::Result<OsString> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn remove_tree(&self, path: &Path) -> io::Result<()> {
        match self.stat(path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
            Ok(meta) if meta.kind == Kind::Dir => {
                self.list(path)?.into_iter().try_for_each(|name| self.remove_tree(&path.join(name)))?;
            }
            _ => {}
        }
        self.remove(path)
    }

    fn crosses_mount(&self, _: &Path) -> io::Result<bool> {
        Ok(false)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let mut state = self.state();
        let ino = state.find(path)?;
        if state.names.keys().any(|(d, _)| *d == ino) {
            return Err(Errno::NOTEMPTY.into());
        }
        let (dir, name) = state.parent(path)?;
        state.name_op(vec![(dir, name, None)])
    }

    fn set_attributes(&self, path: &Path, _attributes: &NewAttributes<'_>) -> io::Result<Vec<String>> {
        self.state().find(path).map(|_| Vec::new())
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        let mut state = self.state();
        let dir = state.find(path)?;
        state.burn()?;
        state.sync_names(dir);
        Ok(())
    }

    fn sync_all(&self) -> io::Result<()> {
        let mut state = self.state();
        state.burn()?;
        let all: Vec<u64> = state.nodes.keys().copied().collect();
        all.into_iter().for_each(|ino| state.sync_file(ino));
        state.name_log.clear();
        state.durable_names = state.names.clone();
        Ok(())
    }

    fn room(&self) -> io::Result<Room> {
        Ok(Room { bytes: u64::MAX, inodes: None, block: PAGE, reserve: false })
    }

    fn identity(&self) -> Option<Vec<u8>> {
        None
    }
}

impl SimDisk {
    fn make(&self, path: &Path, node: Node) -> io::Result<()> {
        let mut state = self.state();
        let (dir, name) = state.parent(path)?;
        if !matches!(state.nodes.get(&dir), Some(Node::Dir)) {
            return Err(Errno::NOTDIR.into());
        }
        if state.names.contains_key(&(dir, OsStr::to_os_string(&name))) {
            return Err(Errno::EXIST.into());
        }
        let ino = state.add(node);
        state.name_op(vec![(dir, name, Some(ino))])
    }
}

fn meta(state: &State, ino: u64) -> Meta {
    let (kind, size, allocated, mtime) = match &state.nodes[&ino] {
        Node::File { live, version, .. } => {
            (Kind::File, live.bytes.len() as u64, live.pages.len() as u64 * PAGE, *version)
        }
        Node::Dir => (Kind::Dir, 0, 0, 0),
        Node::Symlink => (Kind::Symlink, 0, 0, 0),
    };
    let stamp = Stamp { dev: 1, ino, size, mtime, nanos: 0 };
    Meta { kind, stamp, ctime: (mtime, 0), allocated, links: 1, mine: true, owner: 1000, mode: 0o755 }
}

struct SimFile {
    ino: u64,
    state: Arc<Mutex<State>>,
    writable: bool,
}

impl SimFile {
    fn change(&self, change: Change) -> io::Result<()> {
        if !self.writable {
            return Err(Errno::BADF.into());
        }
        let mut state = self.state.lock().unwrap();
        let burnt = state.burn();
        // The change that the cut interrupts may have reached the disk all the same.
        if let Some(Node::File { live, log, version, .. }) = state.nodes.get_mut(&self.ino) {
            live.apply(&change);
            log.push(change);
            *version += 1;
        }
        burnt
    }

    fn with<T>(&self, f: impl FnOnce(&mut Content, &mut bool) -> T) -> T {
        let mut state = self.state.lock().unwrap();
        match state.nodes.get_mut(&self.ino) {
            Some(Node::File { live, locked, .. }) => f(live, locked),
            _ => panic!("not a file"),
        }
    }
}

impl DiskFile for SimFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        Ok(self.with(|c, _| {
            let from = c.bytes.get(offset as usize..).unwrap_or_default();
            let n = from.len().min(buf.len());
            buf[..n].copy_from_slice(&from[..n]);
            n
        }))
    }

    fn write_at(&self, data: &[u8], offset: u64) -> io::Result<()> {
        self.change(Change::Write(offset, data.to_vec()))
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        // Other threads go first: they must not see the effect early.
        (0..10).for_each(|_| std::thread::yield_now());
        self.change(Change::Len(len))
    }

    fn reserve(&self, _range: Range<u64>) -> io::Result<()> {
        Ok(())
    }

    fn next_data(&self, from: u64) -> io::Result<Option<Range<u64>>> {
        Ok(self.with(|c, _| {
            let page = *c.pages.range(from / PAGE..).next()?;
            let start = from.max(page * PAGE);
            let end = ((page + 1) * PAGE).min(c.bytes.len() as u64);
            (start < end).then_some(start..end)
        }))
    }

    fn copy_from(&self, source: &dyn DiskFile, len: u64) -> io::Result<()> {
        let mut data = vec![0; len as usize];
        let n = source.read_at(&mut data, 0)?;
        data.truncate(n);
        self.write_at(&data, 0)
    }

    fn sync(&self, _metadata: bool) -> io::Result<()> {
        let mut state = self.state.lock().unwrap();
        state.burn()?;
        state.sync_file(self.ino);
        Ok(())
    }

    fn meta(&self) -> io::Result<Meta> {
        Ok(meta(&self.state.lock().unwrap(), self.ino))
    }

    fn lock(&self) -> io::Result<bool> {
        Ok(self.with(|_, locked| !std::mem::replace(locked, true)))
    }

    fn os(&self) -> Option<&Arc<File>> {
        None
    }
}
