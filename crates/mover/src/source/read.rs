//! Readers: open, read and hash the files of a job into a block.
//!
//! A file that changed since the walk is not sent: a mixture of two states would be worse than no copy.

use std::os::unix::ffi::OsStringExt;
use std::sync::Arc;

use rustix::fd::OwnedFd;
use rustix::fs::{self as rfs, Mode, OFlags, ResolveFlags};
use rustix::io::{self, Errno};
use tidecast_paths::openat2_again;

use super::location::open_below;
use super::state::Seen;
use super::walk::{DIRECTORY, PASSAGE};
use super::{Dir, Is, Item, TABLE, Tree};
use crate::block::Block;
use crate::digest;
use crate::entry::{Entry, Kind};
use crate::part::{BLOCK, Data, TableWriter};
use crate::spec::Follow;
use crate::xattr;

const FILE: OFlags = OFlags::RDONLY
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC)
    .union(OFlags::NONBLOCK)
    .union(OFlags::NOCTTY);

/// The directory in which the last file was.
struct LastDir {
    dir: Arc<Dir>,
    fd: OwnedFd,
}

/// Why an entry is not sent.
pub(super) enum NotSent {
    System(Errno),
    Changed,
}

impl From<Errno> for NotSent {
    fn from(e: Errno) -> Self {
        Self::System(e)
    }
}

impl Tree {
    /// Opens a path below a source, through no symbolic link unless these are followed. Those of a server lead nowhere but below the
    /// source.
    pub(super) fn open(&self, top: usize, path: &[u8], flags: OFlags) -> io::Result<OwnedFd> {
        let (fd, path) = self.tops.get(top).ok_or(Errno::NOENT)?.at(path);
        let path = path.as_ref();
        if self.follow != Follow::None {
            let how = ResolveFlags::NO_MAGICLINKS;
            let how = if self.is_served { how | ResolveFlags::BENEATH } else { how };
            return openat2_again(fd, path, flags.difference(OFlags::NOFOLLOW), how);
        }
        open_below(fd, path, flags)
    }

    pub(super) fn open_item(&self, item: &Item) -> io::Result<OwnedFd> {
        self.open(item.dir.top, &super::join(&item.dir.path, &item.name), FILE)
    }

    /// Opens an item by the handle of its directory, which is kept for the next one.
    fn open_near(&self, item: &Item, near: &mut Option<LastDir>) -> io::Result<OwnedFd> {
        let flags = if item.kind == Is::Dir { DIRECTORY } else { FILE };
        if item.name.is_empty() {
            return self.open(item.dir.top, &item.dir.path, flags);
        }
        if self.follow != Follow::None {
            return self.open(item.dir.top, &super::join(&item.dir.path, &item.name), flags);
        }
        rfs::openat(&self.near(item, near)?.fd, &*item.name, flags, Mode::empty())
    }

    fn near<'n>(&self, item: &Item, near: &'n mut Option<LastDir>) -> io::Result<&'n LastDir> {
        if near.as_ref().is_none_or(|near| !Arc::ptr_eq(&near.dir, &item.dir)) {
            let fd = self.open(item.dir.top, &item.dir.path, PASSAGE)?;
            *near = Some(LastDir { dir: item.dir.clone(), fd });
        }
        near.as_ref().ok_or(Errno::NOENT)
    }

    pub(super) fn entry(&self, item: &Item, seen: &Seen, kind: Kind) -> Entry {
        Entry { path: item.inside(), attributes: self.owners.attributes(seen), kind }
    }

    /// Fills a block with whole entries; those that do not fit are returned.
    pub(super) fn gather(&self, items: &[Item], block: &mut Block) -> Option<Vec<Item>> {
        let mut table = TableWriter::new(std::mem::take(&mut block.table));
        let mut near = None;
        let mut rest = None;
        for (at, item) in items.iter().enumerate() {
            if table.len() > TABLE {
                rest = items.get(at..).map(<[Item]>::to_vec);
                break;
            }
            match self.whole(item, block, &mut near) {
                Ok((entry, data, seen)) => {
                    if let Some(removal) = self.removal.as_ref().filter(|_| item.kind != Is::Dir) {
                        removal.note(item, &seen);
                    }
                    table.push(item.file, &entry, &data);
                }
                Err(miss) => self.missed(item, &miss),
            }
        }
        block.table = table.finish();
        rest
    }

    pub(super) fn missed(&self, item: &Item, miss: &NotSent) {
        match miss {
            NotSent::Changed => {
                self.trouble(&item.dir, &item.name, "not copied: it changed while it was read", true)
            }
            // It existed a moment ago; its removal is not a fault of the copy, but should be known.
            NotSent::System(Errno::NOENT) => {
                self.trouble(&item.dir, &item.name, "not copied: it was removed during the copy", true)
            }
            NotSent::System(e) => {
                self.trouble(&item.dir, &item.name, format!("not copied: {}", std::io::Error::from(*e)), true)
            }
        }
        self.said.lock().complete = false;
    }

    /// One entry as a whole: its bytes go to the end of the block.
    fn whole(
        &self,
        item: &Item,
        block: &mut Block,
        near: &mut Option<LastDir>,
    ) -> Result<(Entry, Data, Seen), NotSent> {
        let is_link = matches!(item.kind, Is::Symlink);
        let kind = match &item.kind {
            Is::File { sparse, .. } => return self.small(item, *sparse, block, near),
            Is::Dir => {
                let mut entry = self.entry(item, &item.seen, Kind::Dir);
                match self.open_near(item, near) {
                    Ok(fd) => entry.attributes.xattrs = self.xattrs_of(&fd)?,
                    // An unreadable directory is reported by the walk.
                    Err(Errno::ACCESS) => {}
                    Err(e) => return Err(e.into()),
                }
                let data = if item.apart { Data::Apart } else { Data::None };
                return Ok((entry, data, item.seen));
            }
            Is::Symlink => {
                let target = rfs::readlinkat(&self.near(item, near)?.fd, &*item.name, Vec::new())?;
                Kind::Symlink { target: std::ffi::OsString::from_vec(target.into_bytes()).into_vec() }
            }
            Is::HardLink(to) => Kind::HardLink { to: to.to_vec() },
            Is::Fifo => Kind::Fifo,
            Is::Socket => Kind::Socket,
            Is::Device { character, number } => Kind::Device { character: *character, number: *number },
        };
        let mut entry = self.entry(item, &item.seen, kind);
        // A link can have only those that none but root sees.
        if !matches!(item.kind, Is::HardLink(_)) && (self.is_root || !is_link) {
            entry.attributes.xattrs = self.xattrs_at(&self.near(item, near)?.fd, &item.name)?;
        }
        Ok((entry, Data::None, item.seen))
    }

    fn small(
        &self,
        item: &Item,
        sparse: bool,
        block: &mut Block,
        near: &mut Option<LastDir>,
    ) -> Result<(Entry, Data, Seen), NotSent> {
        let len = item.seen.len;
        let fd = self.open_near(item, near)?;
        let from = block.len;
        // The walk gathers no more than a block holds.
        let room = block.room().get_mut(from..from + len as usize).ok_or(NotSent::Changed)?;
        let read = || digest::read(room, |step, at| read_at(&fd, step, at as u64));
        let (digest, seen) = item.steady(&fd, read)?;
        let mut entry = self.entry(item, &seen, Kind::File { len, sparse });
        entry.attributes.xattrs = self.xattrs_of(&fd)?;
        block.len += len as usize;
        Ok((entry, Data::Bytes { offset: 0, len: len as u32, digest, root: None }, seen))
    }

    /// The extended attributes of an open file that the receiver keeps. If it keeps none, they are not read.
    pub(super) fn xattrs_of(&self, fd: &OwnedFd) -> io::Result<Option<xattr::Xattrs>> {
        self.kept(|| xattr::of(fd, self.is_root))
    }

    /// The same of a name in a directory.
    fn xattrs_at(&self, dir: &OwnedFd, name: &[u8]) -> io::Result<Option<xattr::Xattrs>> {
        self.kept(|| xattr::at(dir, name, self.is_root))
    }

    fn kept(
        &self,
        find: impl FnOnce() -> io::Result<Option<xattr::Xattrs>>,
    ) -> io::Result<Option<xattr::Xattrs>> {
        if !(self.keep.xattrs || self.keep.acls && self.keep.perms) {
            return Ok(None);
        }
        let mut xattrs = find()?;
        xattrs.iter_mut().for_each(|all| all.retain(|(name, _)| self.keep.xattr(name)));
        Ok(xattrs)
    }

    /// Fills a block with questions.
    pub(super) fn ask(&self, items: &[Item], block: &mut Block) -> Option<Vec<Item>> {
        let mut table = TableWriter::new(std::mem::take(&mut block.table));
        let (mut near, mut rest) = (None, None);
        for (at, item) in items.iter().enumerate() {
            let Is::File { sparse, .. } = item.kind else { continue };
            if table.len() > TABLE {
                rest = items.get(at..).map(<[Item]>::to_vec);
                break;
            }
            match self.question(item, sparse, block, &mut near) {
                Ok((entry, data)) => table.push(item.file, &entry, &data),
                Err(miss) => self.missed(item, &miss),
            }
        }
        block.table = table.finish();
        rest
    }

    fn question(
        &self,
        item: &Item,
        sparse: bool,
        block: &mut Block,
        near: &mut Option<LastDir>,
    ) -> Result<(Entry, Data), NotSent> {
        let root = if self.checksum { self.root(item, block, near)? } else { None };
        let mut entry = self.entry(item, &item.seen, Kind::File { len: item.seen.len, sparse });
        let found = if self.follow == Follow::None {
            self.xattrs_at(&self.near(item, near)?.fd, &item.name)
        } else {
            self.open_near(item, near).and_then(|fd| self.xattrs_of(&fd))
        };
        entry.attributes.xattrs = match found {
            Err(Errno::TOOBIG) => return Err(Errno::TOOBIG.into()),
            // Whether the file is there is known; if it is wanted it is opened.
            other => other.unwrap_or_default(),
        };
        Ok((entry, Data::Ask { root }))
    }

    /// The digest of a file's content; read through the space of a block.
    fn root(
        &self,
        item: &Item,
        block: &mut Block,
        near: &mut Option<LastDir>,
    ) -> Result<Option<tidecast_hash::Digest>, NotSent> {
        let fd = self.open_near(item, near)?;
        let len = item.seen.len;
        let (root, _) = item.steady(&fd, || {
            let mut layer = digest::Layer::new(len);
            let mut root = None;
            for offset in (0..len.max(1)).step_by(BLOCK) {
                let room = &mut block.room()[..(len - offset).min(BLOCK as u64) as usize];
                read_at(&fd, room, offset)?;
                let digest = digest::content(room, len);
                if len <= BLOCK as u64 {
                    root = Some(digest);
                }
                layer.set(offset / BLOCK as u64, digest);
            }
            Ok(root.or_else(|| layer.root()))
        })?;
        Ok(root)
    }
}

/// All of `room` from there; less is a change.
pub(super) fn read_at(fd: &OwnedFd, room: &mut [u8], offset: u64) -> Result<(), NotSent> {
    let mut done = 0;
    while done < room.len() {
        match io::pread(fd, &mut room[done..], offset + done as u64) {
            Ok(0) => return Err(NotSent::Changed),
            Ok(n) => done += n,
            Err(Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
    }
    Ok(())
}
