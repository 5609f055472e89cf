//! The real disk: a directory held open, and every name resolved beneath it without ever passing through a symbolic link, so
//! that nothing planted in the target can lead a write outside. Crate `paths` does the resolving.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use rustix::fs::{
    self, FallocateFlags, FlockOperation, Mode, SeekFrom, Timespec, Timestamps, UTIME_OMIT, XattrFlags,
};
use rustix::io::Errno;
use tidecast_paths::{PageBuffer, Root};

use crate::disk::{Disk, DiskFile, How, Kind, Meta, NewAttributes, Room, Stamp};

/// `f_type` of tmpfs and ramfs, where reserving space means zeroing pages now.
const RAM_MAGIC: [i64; 2] = [0x0102_1994, 0x8584_58f6];

/// `f_type` of file systems that hosts share: NFS, Lustre, GPFS, BeeGFS, CephFS, SMB, CIFS, 9P, AFS.
const SHARED_MAGIC: [i64; 9] = [
    0x6969,
    0x0bd0_0bd0,
    0x4750_4653,
    0x1983_0326,
    0x00c3_6400,
    0xfe53_4d42,
    0xff53_4d42,
    0x0102_1997,
    0x5346_414f,
];

/// The set-group-ID bit.
const SETGID: u32 = 0o2000;

/// A directory of the operating system's.
pub struct OsDisk {
    root: Root,
    /// Other hosts may use its file system.
    shared: bool,
}

impl OsDisk {
    /// Opens an existing directory. Symbolic links in `path` itself are the user's and are followed.
    ///
    /// # Errors
    /// The system's error if it does not exist, is not a directory, or not allowed.
    pub fn new(path: &Path) -> io::Result<Self> {
        Ok(Root::open(path)?.into())
    }

    /// As if the kernel had no `openat2`: for tests of the fallback.
    #[must_use]
    pub fn walking(self) -> Self {
        OsDisk { root: self.root.walking(), ..self }
    }
}

impl From<Root> for OsDisk {
    /// A directory that is open already.
    #[allow(clippy::unnecessary_cast)] // its width differs between architectures
    fn from(root: Root) -> Self {
        let shared =
            fs::fstatfs(&root).is_ok_and(|of| SHARED_MAGIC.contains(&(of.f_type as i64 & 0xffff_ffff)));
        OsDisk { root, shared }
    }
}

fn meta(m: &tidecast_paths::Meta) -> Meta {
    let kind = match m.kind {
        tidecast_paths::Kind::File => Kind::File,
        tidecast_paths::Kind::Dir => Kind::Dir,
        tidecast_paths::Kind::Symlink => Kind::Symlink,
        tidecast_paths::Kind::Other => Kind::Other,
    };
    Meta {
        kind,
        stamp: Stamp { dev: m.id.0, ino: m.id.1, size: m.len, mtime: m.mtime.0, nanos: m.mtime.1 },
        ctime: m.ctime,
        allocated: m.allocated,
        links: m.links,
        mode: m.mode,
        mine: m.is_mine(),
        owner: m.uid,
    }
}

/// The set-group-ID bit of a directory.
fn inherited(mode: u32) -> u32 {
    if fs::FileType::from_raw_mode(mode) == fs::FileType::Directory { mode & SETGID } else { 0 }
}

fn times((secs, nanos): (i64, u32)) -> Timestamps {
    Timestamps {
        last_access: Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT as _ },
        last_modification: Timespec { tv_sec: secs, tv_nsec: i64::from(nanos) as _ },
    }
}

impl Disk for OsDisk {
    fn root(&self) -> &Path {
        self.root.path()
    }

    fn open(&self, path: &Path, how: How) -> io::Result<Arc<dyn DiskFile>> {
        let file = match how {
            How::Read => self.root.open_file(path)?,
            How::Write => self.root.open_write(path)?,
            How::Create => self.root.open_or_create(path, 0o666)?,
        };
        let mut open = OsFile::new(file);
        open.writing = (!self.shared).then(Mutex::default);
        Ok(Arc::new(open))
    }

    fn stat(&self, path: &Path) -> io::Result<Meta> {
        self.root.stat(path).map(|m| meta(&m))
    }

    fn list(&self, path: &Path) -> io::Result<Vec<OsString>> {
        self.root.list(path)
    }

    fn mkdir(&self, path: &Path, private: bool) -> io::Result<()> {
        self.root.make_dir(path, if private { 0o700 } else { 0o777 })
    }

    fn symlink(&self, target: &Path, path: &Path) -> io::Result<()> {
        self.root.symlink(target, path)
    }

    fn link(&self, existing: &Path, path: &Path) -> io::Result<()> {
        self.root.link(existing, path)
    }

    fn rename(&self, from: &Path, to: &Path, replace: bool) -> io::Result<()> {
        self.root.rename(from, to, replace)
    }

    fn exchange(&self, one: &Path, other: &Path) -> io::Result<()> {
        self.root.exchange(one, other)
    }

    fn read_link(&self, path: &Path) -> io::Result<OsString> {
        self.root.read_link(path)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.root.remove(path)
    }

    fn remove_tree(&self, path: &Path) -> io::Result<()> {
        self.root.remove_all(path)
    }

    fn crosses_mount(&self, path: &Path) -> io::Result<bool> {
        self.root.crosses_mount(path)
    }

    fn set_attributes(&self, path: &Path, attributes: &NewAttributes<'_>) -> io::Result<Vec<String>> {
        let fd = match self.root.inode(path) {
            Err(e) if tidecast_paths::is_link(&e) => {
                let Some(time) = attributes.mtime else { return Ok(Vec::new()) };
                let set = self.root.set_time(path, time);
                let warning = |e| format!("cannot set the time: {e}");
                return Ok(set.err().map(warning).into_iter().collect());
            }
            Err(e) if e.kind() == io::ErrorKind::PermissionDenied => {
                return Ok(vec![format!("cannot set the metadata: {e}")]);
            }
            other => other?,
        };
        let mut warnings = Vec::new();
        for (name, value) in attributes.xattrs {
            if let Err(e) = fs::fsetxattr(&fd, name.as_slice(), value, XattrFlags::empty()) {
                let name = String::from_utf8_lossy(name);
                warnings.push(format!("cannot set attribute {name}: {e}"));
            }
        }
        if let Some(mode) = attributes.mode {
            // Keeps the set-group-ID bit of a directory (a project's).
            let mode = mode | fs::fstat(&fd).map_or(0, |now| inherited(now.st_mode));
            // Some file systems take any mode and keep their own.
            let set = fs::fchmod(&fd, Mode::from_raw_mode(mode)).and_then(|()| fs::fstat(&fd));
            match set.map(|now| now.st_mode & 0o7777) {
                Ok(now) if now == mode => {}
                Ok(now) => {
                    warnings.push(format!("the file system keeps mode {now:04o} instead of {mode:04o}"))
                }
                Err(e) => warnings.push(format!("cannot set the mode to {mode:04o}: {e}")),
            }
        }
        if let Some(time) = attributes.mtime
            && let Err(e) = fs::futimens(&fd, &times(time))
        {
            warnings.push(format!("cannot set the time: {e}"));
        }
        Ok(warnings)
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        self.root.sync(path)
    }

    fn sync_all(&self) -> io::Result<()> {
        self.root.sync_all()
    }

    fn room(&self) -> io::Result<Room> {
        let v = fs::fstatvfs(&self.root)?;
        let magic = fs::fstatfs(&self.root)?.f_type as i64;
        Ok(Room {
            // A RAM file system without a limit reports no blocks at all.
            bytes: if v.f_blocks == 0 { u64::MAX } else { v.f_bavail.saturating_mul(v.f_frsize) },
            inodes: (v.f_files > 0).then_some(v.f_favail),
            block: v.f_frsize.max(1),
            reserve: !RAM_MAGIC.contains(&magic),
        })
    }

    fn identity(&self) -> Option<Vec<u8>> {
        let mut identity = self.root.real_path().ok()?.into_os_string().into_vec();
        if !self.shared {
            // A home directory may be shared by hosts whose own directories have the same path.
            identity.push(0);
            identity.extend_from_slice(rustix::system::uname().nodename().to_bytes());
        }
        Some(identity)
    }
}

/// An open file of the operating system's.
pub(crate) struct OsFile {
    file: Arc<File>,
    locked: AtomicBool,
    /// Held by the thread that writes, on a file system of this host: those let one at a time write to an inode, and others
    /// spin until then. File systems that hosts share may take the writes of several.
    writing: Option<Mutex<()>>,
}

impl OsFile {
    pub(crate) fn new(file: File) -> Self {
        OsFile { file: Arc::new(file), locked: AtomicBool::new(false), writing: None }
    }
}

impl Drop for OsFile {
    fn drop(&mut self) {
        // Closing alone would not do: a process that another thread is just starting holds a copy
        // of every descriptor until its program runs, and so the lock.
        if *self.locked.get_mut() {
            let _ = fs::flock(&self.file, FlockOperation::Unlock);
        }
    }
}

impl DiskFile for OsFile {
    fn read_at(&self, mut buf: &mut [u8], mut offset: u64) -> io::Result<usize> {
        let mut done = 0;
        while !buf.is_empty() {
            match self.file.read_at(buf, offset) {
                Ok(0) => break,
                Ok(n) => {
                    done += n;
                    offset += n as u64;
                    buf = buf.get_mut(n..).unwrap_or_default();
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        Ok(done)
    }

    fn write_at(&self, data: &[u8], offset: u64) -> io::Result<()> {
        let _alone = self.writing.as_ref().map(Mutex::lock);
        self.file.write_all_at(data, offset)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.file.set_len(len)
    }

    fn reserve(&self, range: Range<u64>) -> io::Result<()> {
        let len = range.end.saturating_sub(range.start);
        if len == 0 {
            return Ok(());
        }
        match fs::fallocate(&self.file, FallocateFlags::KEEP_SIZE, range.start, len) {
            Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL | Errno::PERM) => Ok(()),
            other => Ok(other?),
        }
    }

    fn next_data(&self, from: u64) -> io::Result<Option<Range<u64>>> {
        let size = self.file.metadata()?.len();
        if from >= size {
            return Ok(None);
        }
        let start = match fs::seek(&self.file, SeekFrom::Data(from)) {
            Ok(start) => start,
            Err(Errno::NXIO) => return Ok(None),
            // No notion of holes here: it may be data everywhere.
            Err(Errno::INVAL | Errno::OPNOTSUPP) => return Ok(Some(from..size)),
            Err(e) => return Err(e.into()),
        };
        let end = fs::seek(&self.file, SeekFrom::Hole(start)).unwrap_or(size);
        Ok(Some(start..end.max(start.saturating_add(1))))
    }

    fn copy_from(&self, source: &dyn DiskFile, len: u64) -> io::Result<()> {
        let size = source.meta()?.stamp.size;
        if let Some(file) = source.os()
            && fs::ioctl_ficlone(&self.file, file).is_ok()
        {
            return self.file.set_len(len.min(size));
        }
        let mut at = 0;
        let mut buf = PageBuffer::new(1 << 20);
        while at < len.min(size) {
            let want = usize::try_from(len.min(size) - at).unwrap_or(usize::MAX).min(buf.len());
            let part = buf.get_mut(..want).unwrap_or_default();
            let n = source.read_at(part, at)?;
            if n == 0 {
                break;
            }
            self.write_at(part.get(..n).unwrap_or_default(), at)?;
            at += n as u64;
        }
        Ok(())
    }

    fn sync(&self, metadata: bool) -> io::Result<()> {
        if metadata { self.file.sync_all() } else { self.file.sync_data() }
    }

    fn meta(&self) -> io::Result<Meta> {
        Ok(meta(&tidecast_paths::Meta::of(&fs::fstat(&self.file)?)))
    }

    fn lock(&self) -> io::Result<bool> {
        match fs::flock(&self.file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {
                self.locked.store(true, Ordering::Release);
                Ok(true)
            }
            Err(Errno::WOULDBLOCK) => Ok(false),
            // A file system without locks: going on unlocked beats refusing to work there.
            Err(Errno::NOLCK | Errno::OPNOTSUPP | Errno::NOSYS) => Ok(true),
            Err(e) => Err(e.into()),
        }
    }

    fn os(&self) -> Option<&Arc<File>> {
        Some(&self.file)
    }
}
