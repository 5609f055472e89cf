//! The walk: depth first, reading each directory in chunks, so that a million names in one need no more
//! memory than ten.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{self as rfs, AtFlags, FileType, OFlags, RawDir, RawDirEntry, Stat};
use rustix::io::Errno;
use tidecast_hash::sha256;

use super::links::{First, Links};
use super::list::{Listed, WHOLE};
use super::location::Dest;
use super::overlay::Others;
use super::{Dir, ENTRIES, Is, Item, Job, Seen, Tree, Work, join};
use crate::error::Error;
use crate::job::Wanted;
use crate::part::{BLOCK, MAX_PATH};
use crate::spec::{Follow, STAGING};

/// Bytes of names that are read at a time.
const NAMES: usize = 32 << 10;
/// Files of a batch, and bytes after which it is full.
const BATCH: usize = 1000;
const BATCH_BYTES: u64 = 64 << 20;
/// Bytes of files that go in one block: less than it could hold, so that they are still in a core's cache when they are sent.
const GATHER: u64 = BLOCK as u64 / 4;
/// Directories so deep are kept open and read piece by piece; deeper ones are read at once, so that few are open.
const DEEP: usize = 64;

/// Entries for one block.
#[derive(Debug, Default)]
pub(super) struct Gathered {
    items: Vec<Item>,
    bytes: u64,
}

impl Gathered {
    /// Adds an entry; a full batch is returned.
    pub(super) fn add(&mut self, item: Item) -> Option<Job> {
        let bytes = if matches!(item.kind, Is::File { .. }) { item.seen.len } else { 0 };
        let full = self.bytes + bytes > GATHER || self.items.len() >= ENTRIES;
        let job = if full { self.take() } else { None };
        self.bytes += bytes;
        self.items.push(item);
        job
    }

    /// The kind of a file.
    pub(super) fn take(&mut self) -> Option<Job> {
        self.bytes = 0;
        let items = std::mem::take(&mut self.items);
        (!items.is_empty()).then_some(Job(Work::Gather(items)))
    }
}

/// A directory under way.
struct UnderWay {
    dir: Arc<Dir>,
    /// None when all of it was read.
    fd: Option<OwnedFd>,
    /// Which it is, where links are followed.
    inode: Option<(u64, u64)>,
    /// How many levels of its contents are still to be walked.
    depth: usize,
    /// Directories in it whose turn is still to come.
    below: Vec<Arc<Dir>>,
}

/// A walk under way.
pub(super) struct Walk<'w> {
    tree: &'w Tree,
    fresh: bool,
    emit: &'w mut dyn FnMut(Job) -> bool,
    next: u64,
    gathered: Gathered,
    asked: Vec<Item>,
    links: Links,
    /// Files that are sent if no other sender has them, and their bytes.
    batch: (Vec<Item>, u64),
    /// Where it goes, if that is on this host: device and inode.
    dest: Option<(u64, u64)>,
    /// The file system of the source under way, if others are left out.
    device: Option<u64>,
    /// Names sent already, where a path can come twice.
    pub(super) listed: Option<Listed>,
    /// The consumer has stopped.
    over: bool,
    complete: bool,
}

impl<'w> Walk<'w> {
    pub(super) fn new(tree: &'w Tree, fresh: bool, emit: &'w mut dyn FnMut(Job) -> bool) -> Self {
        let (gathered, links) = (Gathered::default(), Links::default());
        Self {
            tree,
            fresh,
            emit,
            next: 0,
            gathered,
            asked: Vec::new(),
            links,
            batch: Default::default(),
            dest: tree.dest.as_ref().and_then(Dest::inode),
            device: None,
            listed: Listed::new(&tree.tops),
            over: false,
            complete: true,
        }
    }

    /// Walks all sources; whether all of them could be read.
    pub(super) fn run(&mut self) -> Result<bool, Error> {
        for (number, top) in self.tree.tops.iter().enumerate() {
            let dir = Arc::new(Dir { top: number, path: Vec::new(), inside: top.inside.clone() });
            // The content of a source that was given with a slash has no name of its own.
            let own = top.own();
            // Directories above names are not asked about, as with rsync.
            let is_left_out = match top.implied {
                true => self.leads_nowhere(top),
                false => self.tree.filter.leaves_out(&own, top.single.is_none()),
            };
            if is_left_out {
                continue;
            }
            if let Some(names) = &top.names {
                self.list(number, top.at(b"").0, names)?;
                continue;
            }
            match &top.single {
                Some(_) if !self.is_first(&own, true) => {}
                Some(name) => match top.directory().and_then(|fd| self.look(&dir, fd, name)) {
                    Ok(stat) => self.entry(&dir, name, &stat)?,
                    Err(e) => self.unread(&dir, name, e),
                },
                None => match top.directory() {
                    Ok(fd) => self.directories(dir, fd, top.depth)?,
                    Err(e) => self.unread(&dir, b"", e),
                },
            }
        }
        self.claim();
        self.flush();
        Ok(self.complete && !self.over)
    }

    pub(super) fn tree(&self) -> &'w Tree {
        self.tree
    }

    pub(super) fn is_over(&self) -> bool {
        self.over
    }

    /// A directory, and so many levels of its contents. The stack is on the heap, so that no depth overflows
    /// the thread's own.
    pub(super) fn directories(&mut self, dir: Arc<Dir>, fd: impl AsFd, depth: usize) -> Result<(), Error> {
        let stat = rfs::fstat(&fd)
            .map_err(|e| Error::io("stat", String::from_utf8_lossy(&dir.path).as_ref())(e.into()))?;
        self.device = (self.tree.one_file_system > 0).then_some(stat.st_dev);
        if !self.directory(&dir, &stat, depth) || depth == 0 {
            return Ok(());
        }
        let mut buffer = Vec::with_capacity(NAMES);
        let mut stack = Vec::new();
        stack.extend(self.open(dir, depth));
        loop {
            let all = stack.len() > DEEP;
            let Some(under_way) = stack.last_mut() else { return Ok(()) };
            if self.over {
                return Ok(());
            }
            let depth = less(under_way.depth);
            if let Some(sub) = under_way.below.pop() {
                let opened = self.open(sub, depth).filter(|sub| self.is_new(sub, &stack));
                stack.extend(opened);
            } else if under_way.fd.is_some() {
                self.names(under_way, &mut buffer, all)?;
            } else {
                stack.pop();
            }
        }
    }

    fn open(&mut self, dir: Arc<Dir>, depth: usize) -> Option<UnderWay> {
        match self.tree.open(dir.top, &dir.path, DIRECTORY) {
            Ok(fd) => {
                let stat = if self.tree.follow == Follow::None { None } else { rfs::fstat(&fd).ok() };
                let inode = stat.map(|stat| (stat.st_dev, stat.st_ino));
                Some(UnderWay { dir, fd: Some(fd), inode, depth, below: Vec::new() })
            }
            Err(e) => {
                self.unread(&dir, b"", e);
                None
            }
        }
    }

    /// The next names of a directory, or all of them: until a chunk contained directories, which are walked
    /// first.
    fn names(&mut self, under_way: &mut UnderWay, buffer: &mut Vec<u8>, all: bool) -> Result<(), Error> {
        let UnderWay { dir, fd, below, depth, .. } = under_way;
        let depth = less(*depth);
        let Some(handle) = fd.as_ref() else { return Ok(()) };
        let mut raw = RawDir::new(handle, buffer.spare_capacity_mut());
        while let Some(entry) = raw.next() {
            if self.over {
                return Ok(());
            }
            match entry {
                Ok(entry) => self.name(dir, handle, &entry, below, depth)?,
                Err(e) => {
                    self.unread(dir, b"", e);
                    break;
                }
            }
            if !all && !below.is_empty() && raw.is_buffer_empty() {
                return Ok(());
            }
        }
        *fd = None;
        Ok(())
    }

    /// One name of a directory; a directory is put into `below`.
    fn name(
        &mut self,
        dir: &Arc<Dir>,
        fd: &OwnedFd,
        entry: &RawDirEntry<'_>,
        below: &mut Vec<Arc<Dir>>,
        depth: usize,
    ) -> Result<(), Error> {
        let name = entry.file_name();
        let bytes = name.to_bytes();
        let ours = bytes.starts_with(STAGING.as_bytes());
        if bytes == b"." || bytes == b".." || ours || self.is_left_out(dir, fd, entry) {
            return Ok(());
        }
        if dir.inside.len() + 1 + bytes.len() > MAX_PATH {
            self.unread(dir, bytes, Errno::NAMETOOLONG);
            return Ok(());
        }
        match self.look(dir, fd, bytes) {
            Ok(stat) if is_dir(&stat) => {
                let (path, inside) = (join(&dir.path, bytes), join(&dir.inside, bytes));
                let sub = Arc::new(Dir { top: dir.top, path, inside });
                let is_apart = self.device.is_some_and(|device| device != stat.st_dev);
                if is_apart && self.tree.one_file_system > 1 {
                    return Ok(());
                }
                if self.directory(&sub, &stat, depth) && !is_apart {
                    below.extend((depth > 0).then_some(sub));
                } else if is_apart {
                    self.tree.apart(&sub);
                }
            }
            Ok(_) if self.listed.is_some() && !self.is_first_below(dir, bytes) => {}
            Ok(stat) => self.entry(dir, bytes, &stat)?,
            // It was removed between the two calls, so it need not be in the copy.
            Err(Errno::NOENT) if self.tree.follow != Follow::All => {}
            Err(e) => self.unread(dir, bytes, e),
        }
        Ok(())
    }

    fn is_left_out(&self, dir: &Dir, fd: &OwnedFd, entry: &RawDirEntry<'_>) -> bool {
        if self.tree.filter.is_empty() {
            return false;
        }
        let is_dir = match entry.file_type() {
            FileType::Unknown | FileType::Symlink => {
                self.look(dir, fd, entry.file_name().to_bytes()).is_ok_and(|stat| is_dir(&stat))
            }
            known => known == FileType::Directory,
        };
        self.tree.filter.leaves_out(&join(&dir.inside, entry.file_name().to_bytes()), is_dir)
    }

    /// The `stat` of a name; of a link that is followed, of its target.
    pub(super) fn look(&self, dir: &Dir, fd: impl AsFd, name: &[u8]) -> Result<Stat, Errno> {
        let stat = rfs::statat(&fd, name, AtFlags::SYMLINK_NOFOLLOW)?;
        let follow = self.tree.follow;
        if follow == Follow::None || FileType::from_raw_mode(stat.st_mode) != FileType::Symlink {
            return Ok(stat);
        }
        let path = join(&dir.path, name);
        let found = self.tree.open(dir.top, &path, OFlags::PATH | OFlags::CLOEXEC).and_then(rfs::fstat);
        match found {
            Ok(found) if follow == Follow::All || is_dir(&found) => Ok(found),
            Err(e) if follow == Follow::All => Err(e),
            _ => Ok(stat),
        }
    }

    /// Whether a directory is not one of its own ancestors, to which a followed link may lead back.
    fn is_new(&self, sub: &UnderWay, stack: &[UnderWay]) -> bool {
        let is_new = self.tree.follow == Follow::None || stack.iter().all(|above| above.inode != sub.inode);
        if !is_new {
            self.tree.trouble(
                &sub.dir,
                b"",
                "not copied: this link points to a directory above itself",
                true,
            );
        }
        is_new
    }

    /// A directory of whose contents this many levels are sent; whether it is to be gone through.
    pub(super) fn directory(&mut self, dir: &Arc<Dir>, stat: &Stat, depth: usize) -> bool {
        if self.dest == Some((stat.st_dev, stat.st_ino)) {
            self.tree.trouble(dir, b"", "skipped: this is the destination", false);
            return false;
        }
        let first =
            self.listed.as_mut().map_or(dir.top, |listed| listed.note_directory(&dir.inside, dir.top));
        if self.tree.others(dir, b"", true) != Others::Directory {
            let apart = depth == 0;
            let item = match self.earlier(first, dir) {
                Some((earlier, stat)) => self.item(&earlier, b"", &stat),
                None => self.item(dir, b"", stat),
            };
            self.add(Item { apart, ..item });
        }
        true
    }

    /// The directory of an earlier source that has the same place in the copy, and gives it its attributes.
    fn earlier(&self, first: usize, dir: &Dir) -> Option<(Arc<Dir>, Stat)> {
        let top = self.tree.tops.get(first).filter(|_| first != dir.top)?;
        let path = top.below(&dir.inside)?.to_vec();
        let stat = rfs::fstat(self.tree.open(first, &path, DIRECTORY).ok()?).ok()?;
        Some((Arc::new(Dir { top: first, path, inside: dir.inside.clone() }), stat))
    }

    /// Everything but a directory.
    pub(super) fn entry(&mut self, dir: &Arc<Dir>, name: &[u8], stat: &Stat) -> Result<(), Error> {
        match self.tree.others(dir, name, false) {
            Others::Nothing => {}
            Others::File => return Ok(()),
            Others::Directory | Others::LaterDirectory => {
                self.tree.trouble(dir, name, "skipped: another source has a directory of this name", false);
                return Ok(());
            }
        }
        let mut item = self.item(dir, name, stat);
        item.kind = match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => Is::File {
                sparse: (stat.st_blocks as u64) * 512 < stat.st_size as u64 && stat.st_size > 0,
                linked: stat.st_nlink > 1 && self.tree.keep.hard_links,
            },
            FileType::Symlink => Is::Symlink,
            FileType::Fifo => Is::Fifo,
            FileType::Socket => Is::Socket,
            FileType::CharacterDevice => Is::Device { character: true, number: stat.st_rdev },
            FileType::BlockDevice => Is::Device { character: false, number: stat.st_rdev },
            _ => {
                self.tree.trouble(dir, name, "not copied: unknown kind of file", true);
                return Ok(());
            }
        };
        if stat.st_nlink > 1 && self.tree.keeps_links_of(&item.kind) {
            let first = self.links.first((stat.st_dev, stat.st_ino), || item.inside());
            match first {
                Ok(First::This) => {}
                Ok(First::Other(path)) => item.kind = Is::HardLink(path),
                Err(e) => return Err(Error::io("store the list of hard links in", std::env::temp_dir())(e)),
            }
        }
        self.add(item);
        Ok(())
    }

    fn item(&mut self, dir: &Arc<Dir>, name: &[u8], stat: &Stat) -> Item {
        let seen = Seen::new(stat);
        self.next += 1;
        let (kind, apart, again) = (Is::Dir, false, false);
        Item { file: self.next, dir: dir.clone(), name: name.into(), seen, kind, apart, again }
    }

    pub(super) fn unread(&mut self, dir: &Dir, name: &[u8], e: Errno) {
        self.complete = false;
        self.tree.trouble(dir, name, format!("not copied: {}", std::io::Error::from(e)), true);
    }

    /// A file of a tree that others send too waits until its batch is full; all but files is left to the last copy.
    fn add(&mut self, item: Item) {
        if self.tree.claims.is_none() {
            return self.take(item);
        }
        if !matches!(item.kind, Is::File { .. }) {
            return;
        }
        self.batch.1 += item.seen.len;
        self.batch.0.push(item);
        if self.batch.0.len() >= BATCH || self.batch.1 >= BATCH_BYTES {
            self.claim();
        }
    }

    /// Sends a batch, unless another sender has it.
    fn claim(&mut self) {
        let (items, _) = std::mem::take(&mut self.batch);
        let Some(claims) = self.tree.claims.as_ref().and_then(|claims| claims.get()) else { return };
        if items.is_empty() || self.over {
            return;
        }
        let names: Vec<u8> = items.iter().flat_map(|item| [&item.inside()[..], b"\0"].concat()).collect();
        let [a, b, c, d, e, f, g, h, ..] = sha256(&names);
        if let Some(again) = claims.claim(u64::from_le_bytes([a, b, c, d, e, f, g, h])) {
            self.tree.begins.store(true, Relaxed);
            items.into_iter().for_each(|item| self.take(Item { again, ..item }));
            self.flush();
        }
    }

    /// Nothing waits for more to come.
    fn flush(&mut self) {
        let last = self.gathered.take();
        self.give(last);
        self.give_asked();
    }

    /// Passes an entry to the job it belongs to.
    fn take(&mut self, item: Item) {
        self.tree.entries.fetch_add(1, Relaxed);
        if !matches!(item.kind, Is::File { .. }) {
            let full = self.gathered.add(item);
            return self.give(full);
        }
        self.tree.files.fetch_add(1, Relaxed);
        self.tree.bytes.fetch_add(item.seen.len, Relaxed);
        if !self.fresh {
            self.asked.push(item);
            if self.asked.len() >= ENTRIES {
                self.give_asked();
            }
        } else if item.is_cut() {
            for job in self.tree.cuts(item, &Wanted::default()) {
                self.give(Some(job));
            }
        } else {
            let full = self.gathered.add(item);
            self.give(full);
        }
    }

    fn give_asked(&mut self) {
        let items = std::mem::take(&mut self.asked);
        self.give((!items.is_empty()).then_some(Job(Work::Ask(items))));
    }

    fn give(&mut self, job: Option<Job>) {
        if let Some(job) = job
            && !self.over
        {
            self.over = !(self.emit)(job);
            self.tree.begins.store(false, Relaxed);
        }
    }
}

/// One level less.
fn less(depth: usize) -> usize {
    if depth == WHOLE { WHOLE } else { depth.saturating_sub(1) }
}

pub(super) fn is_dir(stat: &Stat) -> bool {
    FileType::from_raw_mode(stat.st_mode) == FileType::Directory
}

/// To reach what is in a directory: it need not be readable.
pub(super) const PASSAGE: OFlags =
    OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
pub(super) const DIRECTORY: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC)
    .union(OFlags::NONBLOCK);
