//! A file that is sent in several parts, by several readers: all of them are of one state of it.
//!
//! It is opened once, so another file renamed over it meanwhile is not read. Each part is read between two
//! `stat` calls; where they differ, but the announced attributes still match, the parts read so far are read
//! again and compared by digest.

use std::ops::Range;
use std::sync::Arc;

use parking_lot::Mutex;
use rustix::fd::OwnedFd;
use rustix::fs::{self as rfs, SeekFrom};
use rustix::io::Errno;
use tidecast_hash::Digest;

use super::read::{NotSent, read_at};
use super::state::{Seen, TRIES};
use super::{Is, Item, Tree};
use crate::block::Block;
use crate::digest::{self, Layer};
use crate::entry::Kind;
use crate::part::{BLOCK, Data, TableWriter};
use crate::xattr::Xattrs;

/// How often all that was read is compared, because something of the file changed.
const PROOFS: usize = 3;

/// A file that is sent in several parts.
#[derive(Debug)]
pub(super) struct LargeFile {
    pub(super) item: Item,
    /// Blocks of zeros that are not read.
    pub(super) holes: Vec<Range<u64>>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    layer: Layer,
    /// Until all of it was read: jobs of one file follow each other, so few are open at a time.
    opened: Option<Opened>,
    proofs: usize,
}

#[derive(Clone, Debug)]
struct Opened {
    fd: Arc<OwnedFd>,
    /// The state of which are all parts that were read.
    seen: Seen,
}

impl LargeFile {
    pub(super) fn new(item: Item, holes: Vec<Range<u64>>) -> Self {
        let layer = Layer::new(item.seen.len);
        let state = Mutex::new(State { layer, opened: None, proofs: 0 });
        Self { item, holes, state }
    }

    /// Bytes of the part that begins there.
    pub(super) fn part(&self, offset: u64) -> usize {
        (self.item.seen.len - offset).min(BLOCK as u64) as usize
    }

    /// Nothing more is sent of it; whether that was known.
    fn fail(&self) -> bool {
        let mut state = self.state.lock();
        state.opened = None;
        state.layer.fail()
    }

    fn has_failed(&self) -> bool {
        self.state.lock().layer.has_failed()
    }

    /// Takes a part that was read while the file was `before`, and is `now`; false if that proves nothing. With it comes the root of the file, if
    /// all was read.
    fn take(
        &self,
        part: u64,
        digest: Digest,
        before: &Seen,
        now: &Seen,
    ) -> Result<(bool, Option<Digest>), NotSent> {
        let mut state = self.state.lock();
        if let Some(known) = state.layer.get(part) {
            // A stream broke, and it is sent once more.
            return if known == digest { Ok((true, state.layer.root())) } else { Err(NotSent::Changed) };
        }
        if state.opened.as_ref().is_none_or(|opened| opened.seen != *before) || now != before {
            return Ok((false, None));
        }
        state.layer.set(part, digest);
        Ok((true, state.root()))
    }
}

impl State {
    /// The root, when everything was read: then the file is no longer needed.
    fn root(&mut self) -> Option<Digest> {
        let root = self.layer.root();
        if root.is_some() {
            self.opened = None;
        }
        root
    }
}

impl Tree {
    fn opened(&self, whole: &LargeFile) -> Result<Opened, NotSent> {
        let mut state = whole.state.lock();
        if let Some(opened) = &state.opened {
            return Ok(opened.clone());
        }
        let fd = Arc::new(self.open_item(&whole.item)?);
        let seen = Seen::settled(&fd)?;
        if !whole.item.is_as_announced(&seen) || !are_holes(&fd, &whole.holes) || Seen::now(&fd)? != seen {
            return Err(NotSent::Changed);
        }
        let opened = Opened { fd, seen };
        if state.layer.root().is_none() && !state.layer.has_failed() {
            state.opened = Some(opened.clone());
        }
        Ok(opened)
    }

    /// Something of the file changed: if all that was read is still there, its new state is as good.
    fn renew(&self, whole: &LargeFile, room: &mut [u8]) -> Result<(), NotSent> {
        let mut state = whole.state.lock();
        let Some(Opened { fd, seen }) = state.opened.clone() else { return Ok(()) };
        let now = Seen::settled(&fd)?;
        if now == seen {
            return Ok(());
        }
        state.proofs += 1;
        if state.proofs > PROOFS || !whole.item.is_as_announced(&now) || !are_holes(&fd, &whole.holes) {
            return Err(NotSent::Changed);
        }
        let len = whole.item.seen.len;
        for offset in (0..len).step_by(BLOCK).filter(|at| !whole.holes.iter().any(|hole| hole.contains(at))) {
            let Some(known) = state.layer.get(offset / BLOCK as u64) else { continue };
            let room = &mut room[..(len - offset).min(BLOCK as u64) as usize];
            if digest::read(room, |step, at| read_at(&fd, step, offset + at as u64))? != known {
                return Err(NotSent::Changed);
            }
        }
        if Seen::now(&fd)? != now {
            return Err(NotSent::Changed);
        }
        state.opened = Some(Opened { fd, seen: now });
        Ok(())
    }

    /// Fills a block with a stretch of a longer file; or, without its bytes, with the question whether the receiver has them.
    pub(super) fn cut(&self, whole: &LargeFile, offset: u64, bytes: bool, block: &mut Block) {
        if let Err(miss) = self.stretch(whole, offset, bytes, block) {
            self.give_up(whole, &miss, block);
        }
    }

    fn give_up(&self, whole: &LargeFile, miss: &NotSent, block: &mut Block) {
        block.len = 0;
        block.table.clear();
        if !whole.fail() {
            self.missed(&whole.item, miss);
        }
    }

    fn stretch(&self, whole: &LargeFile, offset: u64, bytes: bool, block: &mut Block) -> Result<(), NotSent> {
        let (part, len) = (offset / BLOCK as u64, whole.part(offset));
        for _ in 0..TRIES {
            if whole.has_failed() {
                return Ok(());
            }
            let Opened { fd, seen } = self.opened(whole)?;
            let room = &mut block.room()[..len];
            let digest = digest::read(room, |step, at| read_at(&fd, step, offset + at as u64))?;
            let (taken, root) = whole.take(part, digest, &seen, &Seen::now(&fd)?)?;
            if !taken {
                self.renew(whole, block.room())?;
                continue;
            }
            let attributes = self.xattrs_of(&fd)?;
            block.len = if bytes { len } else { 0 };
            let len = len as u32;
            let data = if bytes {
                Data::Bytes { offset, len, digest, root }
            } else {
                Data::Same { offset, len, digest, root }
            };
            self.push(whole, &seen, attributes, &data, block);
            return Ok(());
        }
        Err(NotSent::Changed)
    }

    /// The same for zeros that are not sent.
    pub(super) fn hole(&self, whole: &LargeFile, offset: u64, len: u64, block: &mut Block) {
        // That they are zeros is certain of the state in which it was opened.
        let opened = match self.opened(whole) {
            Ok(opened) => opened,
            Err(miss) => return self.give_up(whole, &miss, block),
        };
        let root = {
            let mut state = whole.state.lock();
            if state.layer.has_failed() {
                return;
            }
            for at in (offset..offset + len).step_by(BLOCK) {
                let stretch = (offset + len - at).min(BLOCK as u64) as usize;
                state.layer.set(at / BLOCK as u64, digest::zeros(stretch));
            }
            state.root()
        };
        // This may be the first, or all, that comes of the file.
        let attributes = self.xattrs_of(&opened.fd).ok().flatten();
        self.push(whole, &opened.seen, attributes, &Data::Hole { offset, len, root }, block);
    }

    fn push(&self, whole: &LargeFile, seen: &Seen, xattrs: Option<Xattrs>, data: &Data, block: &mut Block) {
        let Is::File { sparse, .. } = whole.item.kind else { return };
        if let (Some(removal), true) = (&self.removal, data.root().is_some()) {
            // All of it was read, in this state.
            removal.note(&whole.item, seen);
        }
        let mut entry = self.entry(&whole.item, seen, Kind::File { len: whole.item.seen.len, sparse });
        entry.attributes.xattrs = xattrs;
        let mut table = TableWriter::new(std::mem::take(&mut block.table));
        table.push(whole.item.file, &entry, data);
        block.table = table.finish();
    }

    /// The blocks of a file that are holes and nothing else.
    pub(super) fn holes(&self, item: &Item) -> Vec<Range<u64>> {
        let mut holes: Vec<Range<u64>> = Vec::new();
        let Is::File { sparse: true, .. } = item.kind else { return holes };
        let Ok(fd) = self.open_item(item) else { return holes };
        let (block, len) = (BLOCK as u64, item.seen.len);
        let mut at = 0;
        while at < len {
            let data = match rfs::seek(&fd, SeekFrom::Data(at)) {
                Ok(data) => data,
                Err(Errno::NXIO) => len,
                Err(_) => return holes,
            };
            let (start, end) =
                (at.next_multiple_of(block), if data >= len { len } else { data / block * block });
            if start < end {
                holes.push(start..end);
            }
            if data >= len {
                break;
            }
            match rfs::seek(&fd, SeekFrom::Hole(data)) {
                Ok(hole) if hole > at => at = hole,
                _ => return holes,
            }
        }
        holes
    }
}

/// Whether these stretches have no data.
fn are_holes(fd: &OwnedFd, holes: &[Range<u64>]) -> bool {
    holes.iter().all(|hole| match rfs::seek(fd, SeekFrom::Data(hole.start)) {
        Ok(data) => data >= hole.end,
        Err(e) => e == Errno::NXIO,
    })
}
