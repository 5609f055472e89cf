//! Regular files: opening, creating, replacing, copying, locking, and durability.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{
    FileType, FlockOperation, Mode, OFlags, SeekFrom as Find, flock, fstat, fsync, ioctl_ficlone, seek,
    syncfs,
};
use rustix::io::Errno;

use crate::Root;

/// Nothing that was planted makes an open wait, or gives this process a terminal.
const SAFE: OFlags = OFlags::NONBLOCK.union(OFlags::NOCTTY);

/// How [`fill`] came by the content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Copied {
    /// The file system shares the blocks.
    Reflink,
    /// Byte by byte.
    Copy,
}

fn regular(fd: OwnedFd) -> io::Result<File> {
    match FileType::from_raw_mode(fstat(&fd)?.st_mode) {
        FileType::RegularFile => Ok(File::from(fd)),
        FileType::Directory => Err(Errno::ISDIR.into()),
        _ => Err(Errno::INVAL.into()),
    }
}

impl Root {
    fn file(&self, path: &Path, flags: OFlags, mode: u32) -> io::Result<File> {
        match self.resolve(path, flags | SAFE, Mode::from_raw_mode(mode)) {
            // A socket, or a FIFO without a reader.
            Err(Errno::NXIO) => Err(Errno::INVAL.into()),
            other => regular(other?),
        }
    }

    /// Opens a regular file for reading.
    ///
    /// # Errors
    /// `ELOOP` for a link, `EISDIR`, `EINVAL` for an entry that is neither file nor directory; else the
    /// system's error.
    pub fn open_file(&self, path: impl AsRef<Path>) -> io::Result<File> {
        self.file(path.as_ref(), OFlags::RDONLY, 0)
    }

    /// Opens a regular file for reading and writing.
    ///
    /// # Errors
    /// As [`Root::open_file`].
    pub fn open_write(&self, path: impl AsRef<Path>) -> io::Result<File> {
        self.file(path.as_ref(), OFlags::RDWR, 0)
    }

    /// Opens a regular file for reading and writing, and makes it if it is missing.
    ///
    /// # Errors
    /// As [`Root::open_file`].
    pub fn open_or_create(&self, path: impl AsRef<Path>, mode: u32) -> io::Result<File> {
        self.file(path.as_ref(), OFlags::RDWR | OFlags::CREATE, mode)
    }

    /// Makes a file that was not there, open for reading and writing.
    ///
    /// # Errors
    /// `EEXIST`, also for a link; else the system's error.
    pub fn create(&self, path: impl AsRef<Path>, mode: u32) -> io::Result<File> {
        self.file(path.as_ref(), OFlags::RDWR | OFlags::CREATE | OFlags::EXCL, mode)
    }

    /// The content of a file.
    ///
    /// # Errors
    /// As [`Root::open_file`].
    pub fn read(&self, path: impl AsRef<Path>) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        self.open_file(path)?.read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    /// Writes a small file so that it is there whole or not at all, by `PATH.new` and a rename. Durable after
    /// [`Root::sync`] of its directory.
    ///
    /// # Errors
    /// The system's error.
    pub fn write_whole(&self, path: impl AsRef<Path>, bytes: &[u8], mode: u32) -> io::Result<()> {
        let path = path.as_ref();
        let scratch = path.with_added_extension("new");
        self.remove_file(&scratch)?;
        let mut file = self.create(&scratch, mode)?;
        let written = file.write_all(bytes).and_then(|()| file.sync_all());
        written
            .and_then(|()| self.rename(&scratch, path, true))
            .inspect_err(|_| drop(self.remove_file(&scratch)))
    }

    /// Begins a file beside `path` that takes its name when it is complete.
    ///
    /// # Errors
    /// The system's error.
    pub fn scratch(&self, path: impl AsRef<Path>, mode: u32) -> io::Result<Scratch> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let path = path.as_ref();
        let parent = path.parent().unwrap_or(Path::new(""));
        let target = path.file_name().ok_or(Errno::INVAL)?.to_owned();
        let dir = self.sub(parent)?;
        let mut tries = 0;
        loop {
            let count = COUNT.fetch_add(1, Ordering::Relaxed);
            let name = OsString::from(format!(".tidecast-{}-{count}.new", std::process::id()));
            match dir.create(&name, mode) {
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists && tries < 100 => tries += 1,
                file => return Ok(Scratch { file: file?, dir, name: Some(name), target }),
            }
        }
    }

    /// Copies a regular file to a new name, sharing blocks where the file system can.
    ///
    /// # Errors
    /// As [`Root::open_file`] and [`Root::create`].
    pub fn copy(
        &self,
        from: impl AsRef<Path>,
        to: impl AsRef<Path>,
        mode: u32,
    ) -> io::Result<(File, Copied)> {
        let source = self.open_file(from)?;
        let copy = self.create(to.as_ref(), mode)?;
        match fill(&source, &copy) {
            Ok(copied) => Ok((copy, copied)),
            Err(e) => {
                let _ = self.remove_file(to);
                Err(e)
            }
        }
    }

    /// Locks a file for this process, and makes it if it is missing; `None` if another process holds it.
    ///
    /// # Errors
    /// The system's error.
    pub fn lock(&self, path: impl AsRef<Path>) -> io::Result<Option<Lock>> {
        let path = path.as_ref();
        for _ in 0..100 {
            let file = self.open_or_create(path, 0o600)?;
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Err(Errno::WOULDBLOCK) => return Ok(None),
                other => other?,
            }
            let lock = Lock { file };
            // The process that removed it meanwhile has created another, which is the one that counts.
            let there = self.look(path)?;
            if there.is_some_and(|there| fstat(&lock.file).is_ok_and(|s| crate::Meta::of(&s).id == there.id))
            {
                return Ok(Some(lock));
            }
        }
        Err(Errno::BUSY.into())
    }

    /// Makes a file or a directory durable.
    ///
    /// # Errors
    /// The system's error.
    pub fn sync(&self, path: impl AsRef<Path>) -> io::Result<()> {
        let path = path.as_ref();
        let fd = self.resolve(path, OFlags::RDONLY | SAFE, Mode::empty())?;
        sync(fd)
    }

    /// Makes everything on the file system durable.
    ///
    /// # Errors
    /// The system's error.
    pub fn sync_all(&self) -> io::Result<()> {
        Ok(syncfs(self.as_fd())?)
    }
}

/// Makes an open file or directory durable.
///
/// # Errors
/// The system's error.
pub fn sync(fd: impl AsFd) -> io::Result<()> {
    match fsync(fd) {
        // A file system whose directories need no sync returns this.
        Err(Errno::INVAL) => Ok(()),
        other => Ok(other?),
    }
}

/// Fills the empty `to` with the contents of `from`, sharing blocks where the file system can.
///
/// # Errors
/// The system's error.
pub fn fill(from: &File, to: &File) -> io::Result<Copied> {
    if ioctl_ficlone(to, from).is_ok() {
        return Ok(Copied::Reflink);
    }
    copy(from, to)?;
    Ok(Copied::Copy)
}

/// Copies the contents of `from` to the empty `to`; holes stay holes.
///
/// # Errors
/// The system's error.
pub fn copy(mut from: &File, mut to: &File) -> io::Result<()> {
    let len = from.metadata()?.len();
    to.set_len(len)?;
    let mut at = 0;
    while at < len {
        let begin = match seek(from, Find::Data(at)) {
            Err(Errno::NXIO) => break,
            // No notion of holes here: it may be data everywhere.
            Err(Errno::INVAL | Errno::OPNOTSUPP) => at,
            other => other?,
        };
        let end = seek(from, Find::Hole(begin)).unwrap_or(len);
        from.seek(SeekFrom::Start(begin))?;
        to.seek(SeekFrom::Start(begin))?;
        // The kernel copies internally where it can.
        if io::copy(&mut from.take(end.saturating_sub(begin)), &mut to)? == 0 {
            break;
        }
        at = end;
    }
    Ok(())
}

/// A lock, held until it is dropped.
#[derive(Debug)]
pub struct Lock {
    file: File,
}

impl Lock {
    /// The file that is locked.
    #[must_use]
    pub fn file(&self) -> &File {
        &self.file
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // Closing alone would not do: a process that another thread is just starting holds a copy of every descriptor until
        // its program runs, and so the lock.
        let _ = flock(&self.file, FlockOperation::Unlock);
    }
}

/// A file in the making. Dropped, it is removed.
#[derive(Debug)]
pub struct Scratch {
    file: File,
    dir: Root,
    name: Option<OsString>,
    target: OsString,
}

impl Scratch {
    /// The file.
    #[must_use]
    pub fn file(&self) -> &File {
        &self.file
    }

    /// The file, to be written with `std::io::Write`.
    pub fn file_mut(&mut self) -> &mut File {
        &mut self.file
    }

    /// Its name until it is complete.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        self.dir.full(self.name.as_deref().unwrap_or(OsStr::new("")))
    }

    /// Makes it durable and gives it its name, replacing an existing file.
    ///
    /// # Errors
    /// The system's error.
    pub fn finish(mut self) -> io::Result<()> {
        self.file.sync_all()?;
        if let Some(name) = &self.name {
            self.dir.rename(name, &self.target, true)?;
            self.name = None;
        }
        match sync(&self.dir) {
            // A directory that may be used and not read cannot be synced.
            Err(e) if Errno::from_io_error(&e) == Some(Errno::BADF) => Ok(()),
            other => other,
        }
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if let Some(name) = &self.name {
            let _ = self.dir.remove_file(name);
        }
    }
}
