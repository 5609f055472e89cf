//! The real disk: a directory held open, and every name resolved beneath it without ever passing
//! through a symbolic link, so that nothing planted in the target can lead a write outside.
//!
//! The kernel does the resolving (`openat2`); where it is missing or filtered, the path is walked
//! component by component with `O_NOFOLLOW`.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{
    self, AtFlags, CWD, Dir, FallocateFlags, FileType, FlockOperation, Mode, OFlags, RenameFlags,
    ResolveFlags, SeekFrom, Timespec, Timestamps, UTIME_OMIT, XattrFlags,
};
use rustix::io::Errno;

use crate::disk::{Adorn, Disk, DiskFile, How, Kind, Meta, Room, Stamp};

/// `f_type` of tmpfs and ramfs, where reserving space means zeroing pages now.
const RAM_MAGIC: [i64; 2] = [0x0102_1994, 0x8584_58f6];

/// A directory of the operating system's.
pub struct OsDisk {
    path: PathBuf,
    root: OwnedFd,
    walk: AtomicBool,
}

impl OsDisk {
    /// Opens an existing directory. Symbolic links in `path` itself are the user's and are followed.
    ///
    /// # Errors
    /// What the system says when it is not there, not a directory, or not allowed.
    pub fn new(path: &Path) -> io::Result<Self> {
        let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = fs::openat(CWD, path, flags, Mode::empty())?;
        Ok(OsDisk { path: path.to_path_buf(), root, walk: AtomicBool::new(false) })
    }

    /// As if the kernel had no `openat2`: for tests of the fallback.
    #[must_use]
    pub fn walking(self) -> Self {
        self.walk.store(true, Ordering::Relaxed);
        self
    }

    fn resolve(&self, path: &Path, flags: OFlags, mode: Mode) -> io::Result<OwnedFd> {
        let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
        let flags = flags | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        if !self.walk.load(Ordering::Relaxed) {
            let beneath = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
            match fs::openat2(&self.root, path, flags, mode, beneath) {
                // EPERM is how some sandboxes filter calls they do not know.
                Err(Errno::NOSYS | Errno::PERM) => self.walk.store(true, Ordering::Relaxed),
                other => return Ok(other?),
            }
        }
        self.walk_to(path, flags, mode)
    }

    fn walk_to(&self, path: &Path, flags: OFlags, mode: Mode) -> io::Result<OwnedFd> {
        let (parent, name) = split(path)?;
        let mut dir: Option<OwnedFd> = None;
        let step = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        for part in parent {
            let at = dir.as_ref().map_or(self.root.as_fd(), AsFd::as_fd);
            let next = fs::openat(at, part, step, Mode::empty()).map_err(|e| no_dir(at, part, e))?;
            dir = Some(next);
        }
        let at = dir.as_ref().map_or(self.root.as_fd(), AsFd::as_fd);
        Ok(fs::openat(at, name, flags, mode)?)
    }

    /// The directory that holds the last component, and that component.
    fn parent<'a>(&self, path: &'a Path) -> io::Result<(OwnedFd, &'a OsStr)> {
        let name = path.file_name().ok_or(Errno::INVAL)?;
        let parent = path.parent().unwrap_or(Path::new(""));
        let dir = self.resolve(parent, OFlags::PATH | OFlags::DIRECTORY, Mode::empty())?;
        Ok((dir, name))
    }
}

/// With O_NOFOLLOW | O_DIRECTORY a symbolic link is ENOTDIR; `openat2` says ELOOP. Say the same.
fn no_dir(at: BorrowedFd<'_>, part: &OsStr, e: Errno) -> Errno {
    match fs::statat(at, part, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(s) if FileType::from_raw_mode(s.st_mode) == FileType::Symlink => Errno::LOOP,
        _ => e,
    }
}

fn split(path: &Path) -> io::Result<(impl Iterator<Item = &OsStr>, &OsStr)> {
    use std::path::Component;
    let plain = |c| matches!(c, Component::Normal(_));
    if path == Path::new(".") {
        return Ok((Path::new("").iter(), path.as_os_str()));
    }
    if !path.components().all(plain) {
        return Err(Errno::INVAL.into());
    }
    let name = path.file_name().ok_or(Errno::INVAL)?;
    Ok((path.parent().unwrap_or(Path::new("")).iter(), name))
}

fn meta(s: &fs::Stat) -> Meta {
    let kind = match FileType::from_raw_mode(s.st_mode) {
        FileType::RegularFile => Kind::File,
        FileType::Directory => Kind::Dir,
        FileType::Symlink => Kind::Symlink,
        _ => Kind::Other,
    };
    Meta {
        kind,
        stamp: Stamp {
            dev: s.st_dev,
            ino: s.st_ino,
            size: u64::try_from(s.st_size).unwrap_or(0),
            mtime: s.st_mtime,
            nanos: u32::try_from(s.st_mtime_nsec).unwrap_or(0),
        },
        allocated: u64::try_from(s.st_blocks).unwrap_or(0).saturating_mul(512),
        #[allow(clippy::unnecessary_cast)] // its width differs between architectures
        links: s.st_nlink as u64,
        mode: s.st_mode & 0o7777,
        mine: s.st_uid == rustix::process::geteuid().as_raw(),
    }
}

fn times(mtime: Option<(i64, u32)>) -> Timestamps {
    let omit = Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT as _ };
    let last_modification = mtime.map_or(omit, |(s, n)| Timespec { tv_sec: s, tv_nsec: i64::from(n) as _ });
    Timestamps { last_access: omit, last_modification }
}

impl Disk for OsDisk {
    fn root(&self) -> &Path {
        &self.path
    }

    fn open(&self, path: &Path, how: How) -> io::Result<Arc<dyn DiskFile>> {
        // Never hang on a pipe or become the terminal's owner, whatever was planted there.
        let base = OFlags::NONBLOCK | OFlags::NOCTTY;
        let flags = match how {
            How::Read => base | OFlags::RDONLY,
            How::Write => base | OFlags::RDWR,
            How::Create => base | OFlags::RDWR | OFlags::CREATE,
        };
        let mode = if how == How::Create { Mode::from_raw_mode(0o666) } else { Mode::empty() };
        let fd = self.resolve(path, flags, mode)?;
        match FileType::from_raw_mode(fs::fstat(&fd)?.st_mode) {
            FileType::RegularFile => Ok(Arc::new(OsFile::new(File::from(fd)))),
            FileType::Directory => Err(Errno::ISDIR.into()),
            _ => Err(Errno::INVAL.into()),
        }
    }

    fn stat(&self, path: &Path) -> io::Result<Meta> {
        if path.as_os_str().is_empty() {
            return Ok(meta(&fs::fstat(&self.root)?));
        }
        let fd = self.resolve(path, OFlags::PATH, Mode::empty());
        match fd {
            // The name itself is a link (NO_SYMLINKS refuses it): look at it from its directory.
            Err(e) if e.raw_os_error() == Some(Errno::LOOP.raw_os_error()) => {
                let (dir, name) = self.parent(path)?;
                Ok(meta(&fs::statat(&dir, name, AtFlags::SYMLINK_NOFOLLOW)?))
            }
            fd => Ok(meta(&fs::fstat(fd?)?)),
        }
    }

    fn list(&self, path: &Path) -> io::Result<Vec<OsString>> {
        let fd = self.resolve(path, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty())?;
        let mut names = Vec::new();
        for entry in Dir::read_from(fd)? {
            let name = OsString::from_vec(entry?.file_name().to_bytes().to_vec());
            if name != "." && name != ".." {
                names.push(name);
            }
        }
        Ok(names)
    }

    fn mkdir(&self, path: &Path, private: bool) -> io::Result<()> {
        let (dir, name) = self.parent(path)?;
        let mode = Mode::from_raw_mode(if private { 0o700 } else { 0o777 });
        Ok(fs::mkdirat(dir, name, mode)?)
    }

    fn symlink(&self, target: &Path, path: &Path) -> io::Result<()> {
        let (dir, name) = self.parent(path)?;
        Ok(fs::symlinkat(target, dir, name)?)
    }

    fn link(&self, existing: &Path, path: &Path) -> io::Result<()> {
        let (from, old) = self.parent(existing)?;
        let (to, new) = self.parent(path)?;
        Ok(fs::linkat(from, old, to, new, AtFlags::empty())?)
    }

    fn rename(&self, from: &Path, to: &Path, replace: bool) -> io::Result<()> {
        let (old_dir, old) = self.parent(from)?;
        let (new_dir, new) = self.parent(to)?;
        if replace {
            return Ok(fs::renameat(old_dir, old, new_dir, new)?);
        }
        match fs::renameat_with(&old_dir, old, &new_dir, new, RenameFlags::NOREPLACE) {
            // Some network file systems cannot do it in one step; look first, then.
            Err(Errno::INVAL | Errno::NOSYS) => match fs::statat(&new_dir, new, AtFlags::SYMLINK_NOFOLLOW) {
                Err(Errno::NOENT) => Ok(fs::renameat(old_dir, old, new_dir, new)?),
                Ok(_) => Err(Errno::EXIST.into()),
                Err(e) => Err(e.into()),
            },
            other => Ok(other?),
        }
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let (dir, name) = self.parent(path)?;
        match fs::unlinkat(&dir, name, AtFlags::empty()) {
            Err(Errno::ISDIR | Errno::PERM) => Ok(fs::unlinkat(dir, name, AtFlags::REMOVEDIR)?),
            other => Ok(other?),
        }
    }

    fn adorn(&self, path: &Path, adorn: &Adorn<'_>) -> io::Result<Vec<String>> {
        let at = || self.path.join(path).display().to_string();
        let fd = match self.resolve(path, OFlags::RDONLY | OFlags::NONBLOCK, Mode::empty()) {
            Err(e) if e.raw_os_error() == Some(Errno::LOOP.raw_os_error()) => {
                let (dir, name) = self.parent(path)?;
                let set = fs::utimensat(dir, name, &times(adorn.mtime), AtFlags::SYMLINK_NOFOLLOW);
                let warning = |e| format!("{}: cannot set its time: {e}", at());
                return Ok(set.err().map(warning).into_iter().collect());
            }
            Err(e) if e.kind() == io::ErrorKind::PermissionDenied => {
                return Ok(vec![format!("{}: cannot set its metadata: {e}", at())]);
            }
            other => other?,
        };
        let mut warnings = Vec::new();
        for (name, value) in adorn.xattrs {
            if let Err(e) = fs::fsetxattr(&fd, name.as_slice(), value, XattrFlags::empty()) {
                let name = String::from_utf8_lossy(name);
                warnings.push(format!("{}: cannot set attribute {name}: {e}", at()));
            }
        }
        if let Some(mode) = adorn.mode
            && let Err(e) = fs::fchmod(&fd, Mode::from_raw_mode(mode))
        {
            warnings.push(format!("{}: cannot set its mode: {e}", at()));
        }
        if adorn.mtime.is_some()
            && let Err(e) = fs::futimens(&fd, &times(adorn.mtime))
        {
            warnings.push(format!("{}: cannot set its time: {e}", at()));
        }
        Ok(warnings)
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        let fd = self.resolve(path, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty())?;
        match fs::fsync(fd) {
            // A file system whose directories need no sync says so this way.
            Err(Errno::INVAL) => Ok(()),
            other => Ok(other?),
        }
    }

    fn sync_all(&self) -> io::Result<()> {
        Ok(fs::syncfs(&self.root)?)
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
}

/// An open file of the operating system's.
pub(crate) struct OsFile {
    file: Arc<File>,
    locked: AtomicBool,
}

impl OsFile {
    pub(crate) fn new(file: File) -> Self {
        OsFile { file: Arc::new(file), locked: AtomicBool::new(false) }
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
        let mut buf = vec![0u8; 1 << 20];
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
        Ok(meta(&fs::fstat(&self.file)?))
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
