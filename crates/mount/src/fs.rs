//! The answers to the kernel's requests. Names and attributes come from the [`Tree`] at once, and never
//! change; data comes from [`Files`], at once or later. Nothing here waits for the network.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use fuser::{
    AccessFlags, Errno, FileAttr, FileHandle, Filesystem, Generation, INodeNo, InitFlags, IoctlFlags,
    KernelConfig, LockOwner, Notifier, OpenAccMode, OpenFlags, ReplyAttr, ReplyData, ReplyDirectory,
    ReplyDirectoryPlus, ReplyEmpty, ReplyEntry, ReplyIoctl, ReplyLseek, ReplyOpen, ReplyStatfs, ReplyXattr,
    Request,
};

use parking_lot::Mutex;

use crate::counters::Kind;
use crate::files::{Fault, Files};
use crate::passthrough::{self, Passthrough};
use crate::tree::{Child, Node, Tree};
use crate::waits::Asker;

/// Without an end: nothing in a published tree ever changes.
const ALWAYS: Duration = Duration::from_secs(u32::MAX as u64);
const GENERATION: Generation = Generation(0);
/// Background requests that the kernel may have in flight, such as read-ahead.
const BACKGROUND: u16 = 128;
const BLOCK: u32 = 4096;
/// The longest name.
const NAME: u32 = 255;

/// See the head of the file.
pub(crate) struct Fs {
    files: Arc<Files>,
    passthrough: Arc<Passthrough>,
    pages: Arc<Pages>,
    has_xattrs: bool,
}

/// Gives the kernel all pages of a small file before the answer to open: this saves a message for each page.
/// Done once a file, since the kernel keeps the pages as long as it has memory; and only on a mount that no
/// earlier process has served, since a page that is being read at that time cannot be stored.
#[derive(Default)]
pub(crate) struct Pages {
    kernel: OnceLock<Notifier>,
    given: Mutex<Vec<u64>>,
}

impl Pages {
    /// From now on pages can be given.
    pub(crate) fn reach(&self, kernel: Notifier) {
        let _ = self.kernel.set(kernel);
    }

    /// Whether this is the first time for a file of the mount that may be given.
    fn first(&self, ino: INodeNo, len: u64) -> Option<&Notifier> {
        let kernel = self.kernel.get().filter(|_| 0 < len && len < passthrough::LEAST)?;
        let (at, bit) = ((ino.0 / 64) as usize, 1 << (ino.0 % 64));
        let mut given = self.given.lock();
        if given.len() <= at {
            given.resize(at + 1, 0);
        }
        let word = given.get_mut(at)?;
        let first = *word & bit == 0;
        *word |= bit;
        first.then_some(kernel)
    }
}

impl Fs {
    pub(crate) fn new(files: Arc<Files>, passthrough: Passthrough) -> Fs {
        let has_xattrs = files.tree.has_xattrs();
        Fs { files, passthrough: Arc::new(passthrough), pages: Arc::default(), has_xattrs }
    }

    pub(crate) fn pages(&self) -> Arc<Pages> {
        self.pages.clone()
    }

    fn tree(&self) -> &Tree {
        &self.files.tree
    }

    fn count(&self, kind: Kind) {
        self.files.counters.request(kind);
    }

    /// A file, if the number is one.
    fn file(&self, ino: INodeNo) -> Result<u32, Errno> {
        match self.tree().at(ino) {
            Some(Node::File(file)) => Ok(file),
            Some(Node::Dir(_)) => Err(Errno::EISDIR),
            None => Err(Errno::ENOENT),
        }
    }

    fn dir(&self, ino: INodeNo) -> Result<u32, Errno> {
        match self.tree().at(ino) {
            Some(Node::Dir(dir)) => Ok(dir),
            Some(Node::File(_)) => Err(Errno::ENOTDIR),
            None => Err(Errno::ENOENT),
        }
    }

    /// The entries of a directory, the two dots first, from an offset on; each with the offset of the next.
    fn entries(&self, dir: u32, offset: u64) -> impl Iterator<Item = (u64, Child<'_>)> {
        let from = usize::try_from(offset).unwrap_or(usize::MAX);
        let up = Node::Dir(self.tree().parent(dir));
        let dots: [Child<'_>; 2] =
            [Child { node: Node::Dir(dir), name: b"." }, Child { node: up, name: b".." }];
        let rest = self.tree().children(dir, from.saturating_sub(dots.len()));
        let from = from.min(dots.len());
        let entries = dots.into_iter().skip(from).chain(rest);
        (offset + 1..).zip(entries)
    }
}

fn errno(fault: Fault) -> Errno {
    match fault {
        Fault::Interrupted => Errno::EINTR,
        Fault::Lost => Errno::EIO,
    }
}

impl Filesystem for Fs {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        let wanted = InitFlags::FUSE_PARALLEL_DIROPS
            | InitFlags::FUSE_CACHE_SYMLINKS
            | InitFlags::FUSE_DO_READDIRPLUS
            | InitFlags::FUSE_READDIRPLUS_AUTO
            | InitFlags::FUSE_NO_OPEN_SUPPORT
            | InitFlags::FUSE_NO_OPENDIR_SUPPORT
            | InitFlags::FUSE_EXPLICIT_INVAL_DATA
            | InitFlags::FUSE_PASSTHROUGH
            | InitFlags::FUSE_HAS_RESEND;
        // A capability that the kernel lacks is not used: each one only affects speed.
        let _ = config.add_capabilities(wanted & config.capabilities());
        let _ = config.set_max_background(BACKGROUND);
        // Backing files must not be on a stacked file system; other file systems may be stacked on this one.
        let _ = config.set_max_stack_depth(1);
        Ok(())
    }

    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        self.count(Kind::Lookup);
        let found = self.dir(parent).map(|dir| self.tree().lookup(dir, name.as_bytes()));
        match found {
            Ok(Some(node)) => reply.entry(&ALWAYS, &self.tree().attr(node), GENERATION),
            // Inode 0: there is no such name, and the kernel may remember that.
            Ok(None) => {
                let nothing = FileAttr { ino: INodeNo(0), ..self.tree().attr(Node::Dir(0)) };
                reply.entry(&ALWAYS, &nothing, GENERATION);
            }
            Err(error) => reply.error(error),
        }
    }

    fn getattr(&self, _: &Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        self.count(Kind::Getattr);
        match self.tree().at(ino) {
            Some(node) => reply.attr(&ALWAYS, &self.tree().attr(node)),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn readlink(&self, _: &Request, ino: INodeNo, reply: ReplyData) {
        self.count(Kind::Readlink);
        let target = self.file(ino).ok().and_then(|file| self.tree().manifest().file(file)?.symlink());
        match target {
            Some(target) => reply.data(&target),
            None => reply.error(Errno::EINVAL),
        }
    }

    fn open(&self, request: &Request, ino: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        self.count(Kind::Open);
        let file = match self.file(ino) {
            Ok(file) if flags.acc_mode() == OpenAccMode::O_RDONLY => file,
            Ok(_) => return reply.error(Errno::EROFS),
            Err(error) => return reply.error(error),
        };
        if self.files.recorder.is_none() && self.files.is_complete() && self.passthrough.retire() {
            // Everything is here: the kernel need not ask again, for any file.
            return reply.error(Errno::ENOSYS);
        }
        let asker = Asker { file, pid: request.pid() };
        let (files, passthrough, pages) = (self.files.clone(), self.passthrough.clone(), self.pages.clone());
        self.files.open(asker, move |ready| match ready {
            Ok(len) => {
                if let Some(kernel) = pages.first(ino, len) {
                    // In vain if the kernel has no room; it asks, then.
                    files.show(file, len, |bytes| kernel.store(ino, 0, bytes));
                }
                passthrough.open(reply, ino.0, len, || files.whole(file));
            }
            Err(fault) => reply.error(errno(fault)),
        });
    }

    fn read(
        &self,
        request: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        self.count(Kind::Read);
        let file = match self.file(ino) {
            Ok(file) => file,
            Err(error) => return reply.error(error),
        };
        let asker = Asker { file, pid: request.pid() };
        self.files.read(asker, offset, size, move |read| match read {
            Ok(bytes) => reply.data(bytes),
            Err(fault) => reply.error(errno(fault)),
        });
    }

    fn release(
        &self,
        _: &Request,
        ino: INodeNo,
        handle: FileHandle,
        _: OpenFlags,
        _: Option<LockOwner>,
        _: bool,
        reply: ReplyEmpty,
    ) {
        self.count(Kind::Release);
        reply.ok();
        self.passthrough.closed(ino.0, handle);
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        self.count(Kind::Other);
        // Nothing to flush, now and ever.
        reply.error(Errno::ENOSYS);
    }

    fn opendir(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        self.count(Kind::Other);
        // The kernel caches listings, and need not open directories at all.
        reply.error(Errno::ENOSYS);
    }

    fn readdir(&self, _: &Request, ino: INodeNo, _: FileHandle, offset: u64, mut reply: ReplyDirectory) {
        self.count(Kind::Readdir);
        let dir = match self.dir(ino) {
            Ok(dir) => dir,
            Err(error) => return reply.error(error),
        };
        for (next, child) in self.entries(dir, offset) {
            let (ino, kind) = (self.tree().ino(child.node), self.tree().kind(child.node));
            if reply.add(ino, next, kind, OsStr::from_bytes(child.name)) {
                break;
            }
        }
        reply.ok();
    }

    fn readdirplus(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        mut reply: ReplyDirectoryPlus,
    ) {
        self.count(Kind::Readdir);
        let dir = match self.dir(ino) {
            Ok(dir) => dir,
            Err(error) => return reply.error(error),
        };
        for (next, child) in self.entries(dir, offset) {
            let (ino, name) = (self.tree().ino(child.node), OsStr::from_bytes(child.name));
            let attr = self.tree().attr(child.node);
            if reply.add(ino, next, name, &ALWAYS, &attr, GENERATION) {
                break;
            }
        }
        reply.ok();
    }

    fn statfs(&self, _: &Request, _: INodeNo, reply: ReplyStatfs) {
        self.count(Kind::Statfs);
        let blocks = self.tree().manifest().total_len().div_ceil(u64::from(BLOCK));
        reply.statfs(blocks, 0, 0, self.tree().entries(), 0, BLOCK, NAME, BLOCK);
    }

    fn getxattr(&self, _: &Request, ino: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        self.count(Kind::Xattr);
        if !self.has_xattrs {
            return reply.error(Errno::ENOSYS);
        }
        let Some(node) = self.tree().at(ino) else { return reply.error(Errno::ENOENT) };
        match self.tree().xattrs(node).into_iter().find(|(own, _)| *own == name.as_bytes()) {
            Some((_, value)) => give_xattr(value, size, reply),
            None => reply.error(Errno::NO_XATTR),
        }
    }

    fn listxattr(&self, _: &Request, ino: INodeNo, size: u32, reply: ReplyXattr) {
        self.count(Kind::Xattr);
        if !self.has_xattrs {
            return reply.error(Errno::ENOSYS);
        }
        let Some(node) = self.tree().at(ino) else { return reply.error(Errno::ENOENT) };
        let names = self.tree().xattrs(node).into_iter().flat_map(|(name, _)| name.iter().chain([&0]));
        give_xattr(&names.copied().collect::<Vec<u8>>(), size, reply);
    }

    fn ioctl(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        _: IoctlFlags,
        _: u32,
        _: &[u8],
        _: u32,
        reply: ReplyIoctl,
    ) {
        self.count(Kind::Ioctl);
        // Python asks each file that it opens whether it is a terminal, and the kernel remembers no answer.
        reply.error(Errno::ENOTTY);
    }

    fn access(&self, _: &Request, _: INodeNo, _: AccessFlags, reply: ReplyEmpty) {
        self.count(Kind::Other);
        // The kernel checks modes.
        reply.error(Errno::ENOSYS);
    }

    fn lseek(&self, _: &Request, _: INodeNo, _: FileHandle, _: i64, _: i32, reply: ReplyLseek) {
        self.count(Kind::Other);
        // The kernel then takes the whole file for data, which is always right.
        reply.error(Errno::ENOSYS);
    }
}

/// Answers as getxattr(2) wants it: the size, or the value if there is room for it.
fn give_xattr(value: &[u8], size: u32, reply: ReplyXattr) {
    let len = u32::try_from(value.len()).unwrap_or(u32::MAX);
    if size == 0 {
        reply.size(len);
    } else if len <= size {
        reply.data(value);
    } else {
        reply.error(Errno::ERANGE);
    }
}
