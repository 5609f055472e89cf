//! Handing a cache, or a part of it, to a job: as a symbolic link, hard links, shared blocks, a place to bind to, or copies.
//!
//! The job's directory is the job's: it may plant links there, and move things while we work. So it is opened once,
//! every name below is resolved from an open directory and never through a link, and what is made stays closed to the
//! job until it is whole.

use std::ffi::{CStr, OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Component, Path, PathBuf};

use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{
    self, AtFlags, CWD, Dir, FileType, Gid, Mode, OFlags, RenameFlags, Stat, Timespec, Timestamps,
    UTIME_OMIT, Uid,
};
use rustix::io::Errno;

use crate::error::{Context, Error};
use crate::os::{Placed, fill, unlinkable};
use crate::{CacheId, Depot, Local, Reader};

/// How a job gets a cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// A symbolic link to the view.
    Symlink,
    /// Directories with hard links; where no link can be made, as `Reflink`.
    Hardlink,
    /// Files of its own that share blocks; where that cannot be, as `Copy`.
    Reflink,
    /// An empty file or directory for the caller to bind the view to, read-only.
    Bind,
    /// Files of its own.
    Copy,
}

/// What is wanted.
#[derive(Clone, Debug)]
pub struct HandOut<'a> {
    /// What of the cache: a path below the published directory; empty for all of it.
    pub subpath: &'a Path,
    /// The job's directory.
    pub dir: &'a Path,
    /// What it is called there; nothing may stand at that name.
    pub name: &'a OsStr,
    /// How.
    pub how: How,
    /// Who asks.
    pub reader: &'a Reader,
    /// Whom the directory has to belong to, and what is made in it; `None` if that is whoever runs this program.
    pub local: Option<Local>,
}

/// What was made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Handed {
    /// Where it is in the store: what to bind.
    pub source: PathBuf,
    /// Where the job finds it.
    pub path: PathBuf,
    /// Files that are hard links.
    pub links: u64,
    /// Files that share blocks.
    pub reflinks: u64,
    /// Files that were copied.
    pub copies: u64,
    /// Bytes in these copies.
    pub copied: u64,
}

impl Depot {
    /// Hands out a committed cache. It counts as use; while it lasts the cache is not evicted. For links, a
    /// [`Depot::begin_use`] keeps it as long as the job runs.
    ///
    /// # Errors
    /// [`Error::NoCache`], also for one that the reader may not read; [`Error::State`]; [`Error::Place`]; what the disk
    /// reports. Nothing is left behind then.
    pub fn hand_out(&self, id: CacheId, wish: &HandOut<'_>, now: u64) -> Result<Handed, Error> {
        let record = self.cache(id).filter(|r| r.readable_by(wish.reader)).ok_or(Error::NoCache(id))?;
        self.committed(id)?;
        let _busy = self.busy(id, now)?;
        let view = self.0.layout.view(&record);
        let (parent, name) = find(&view, wish.subpath)?;
        let source = if wish.subpath.as_os_str().is_empty() { view } else { view.join(wish.subpath) };
        let place = open_place(wish)?;
        let path = wish.dir.join(wish.name);
        let mut handing = Handing { wish, handed: Handed { source, path, ..Handed::default() } };
        handing.make(&parent, &name, &place)?;
        Ok(handing.handed)
    }
}

const DIR: OFlags = OFlags::DIRECTORY.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// The directory of the store that holds what is wanted, and its name in there.
fn find(view: &Path, subpath: &Path) -> Result<(OwnedFd, OsString), Error> {
    let bad = |why| Error::Place { path: subpath.to_owned(), why };
    if !subpath.components().all(|c| matches!(c, Component::Normal(_))) {
        return Err(bad("it is not a path below the cache"));
    }
    let (above, top) = (view.parent().unwrap_or(view), view.file_name().unwrap_or_default());
    let mut at = fs::openat(CWD, above, DIR | OFlags::PATH, Mode::empty()).at("open", above)?;
    let mut name = top.to_owned();
    for part in subpath.iter() {
        at = match fs::openat(&at, &name, DIR | OFlags::PATH, Mode::empty()) {
            Err(Errno::NOENT) => return Err(bad("it is not in the cache")),
            Err(Errno::NOTDIR | Errno::LOOP) => return Err(bad("it leads through what is no directory")),
            other => other.at("open", subpath)?,
        };
        name = part.to_owned();
    }
    match fs::statat(&at, &name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(_) => Ok((at, name)),
        Err(_) => Err(bad("it is not in the cache")),
    }
}

/// Opens the job's directory, if it is the job's.
fn open_place(wish: &HandOut<'_>) -> Result<OwnedFd, Error> {
    let place = |path: &Path, why| Error::Place { path: path.to_owned(), why };
    let name = Path::new(wish.name);
    if name.components().count() != 1
        || name.file_name() != Some(wish.name)
        || wish.name.as_bytes().contains(&0)
    {
        return Err(place(name, "a name is one part of a path"));
    }
    let flags = OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::PATH;
    let why = "it is no absolute path of a directory that is there";
    if !wish.dir.is_absolute() {
        return Err(place(wish.dir, why));
    }
    let dir = match fs::openat(CWD, wish.dir, flags, Mode::empty()) {
        Err(rustix::io::Errno::NOENT | rustix::io::Errno::NOTDIR | rustix::io::Errno::LOOP) => {
            return Err(place(wish.dir, why));
        }
        other => other.at("open", wish.dir)?,
    };
    let stat = fs::fstat(&dir).at("look at", wish.dir)?;
    if wish.local.is_some_and(|l| l.uid != stat.st_uid) {
        return Err(place(wish.dir, "the directory belongs to somebody else"));
    }
    Ok(dir)
}

struct Handing<'a> {
    wish: &'a HandOut<'a>,
    handed: Handed,
}

impl Handing<'_> {
    fn make(&mut self, from: &OwnedFd, name: &OsStr, place: &OwnedFd) -> Result<(), Error> {
        let path = self.handed.path.clone();
        let to = self.wish.name;
        match fs::statat(place, to, AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) => {}
            Ok(_) => return Err(Error::Place { path, why: "something stands there already" }),
            Err(e) => return Err(e).at("look at", &path),
        }
        if self.wish.how == How::Symlink {
            // It stays ours: to give it away by its name, after the job could have put something else there, would be
            // to give that away. Who owns the directory may remove it all the same.
            return fs::symlinkat(&self.handed.source, place, to).at("create", &path);
        }
        let scratch = scratch_name(to);
        let made = if self.wish.how == How::Bind {
            self.mount_point(from, name, place, &scratch)
        } else {
            self.entry(from.as_fd(), name, place.as_fd(), &scratch, false)
        };
        let placed =
            made.and_then(|()| match fs::renameat_with(place, &scratch, place, to, RenameFlags::NOREPLACE) {
                // Not every file system can; then somebody might come in between, into a directory of his own.
                Err(Errno::INVAL | Errno::NOSYS) => Ok(fs::renameat(place, &scratch, place, to)?),
                other => Ok(other?),
            });
        if placed.is_err() {
            let _ = remove_at(place.as_fd(), &scratch);
        }
        placed.at("hand out to", &path)
    }

    fn mount_point(&self, from: &OwnedFd, name: &OsStr, place: &OwnedFd, to: &OsStr) -> io::Result<()> {
        let stat = fs::statat(from, name, AtFlags::SYMLINK_NOFOLLOW)?;
        if kind(&stat) == FileType::Directory {
            let made = make_dir(place.as_fd(), to)?;
            fs::fchmod(&made, Mode::from_raw_mode(0o755))?;
            return self.give_fd(&made);
        }
        self.give_fd(create(place.as_fd(), to)?)
    }

    /// One file, link or directory with all that is in it. `closed`: `place` was made by us, and nobody else is in it.
    fn entry(
        &mut self,
        from: BorrowedFd<'_>,
        name: &OsStr,
        place: BorrowedFd<'_>,
        to: &OsStr,
        closed: bool,
    ) -> io::Result<()> {
        let stat = fs::statat(from, name, AtFlags::SYMLINK_NOFOLLOW)?;
        match kind(&stat) {
            FileType::Directory => self.directory(from, name, place, to, &stat),
            FileType::Symlink => {
                let target = fs::readlinkat(from, name, Vec::new())?;
                fs::symlinkat(target.as_c_str(), place, to)?;
                if closed {
                    fs::utimensat(place, to, &times(&stat), AtFlags::SYMLINK_NOFOLLOW)?;
                    self.give(place, to)?;
                }
                Ok(())
            }
            _ => self.file(from, name, place, to, &stat),
        }
    }

    fn directory(
        &mut self,
        from: BorrowedFd<'_>,
        name: &OsStr,
        place: BorrowedFd<'_>,
        to: &OsStr,
        stat: &Stat,
    ) -> io::Result<()> {
        let source = fs::openat(from, name, DIR | OFlags::RDONLY, Mode::empty())?;
        let made = make_dir(place, to)?;
        for entry in Dir::read_from(&source)? {
            let entry = entry?;
            let name = entry.file_name();
            if !matches!(name.to_bytes(), b"." | b"..") {
                let name = os_str(name);
                self.entry(source.as_fd(), name, made.as_fd(), name, true)?;
            }
        }
        fs::futimens(&made, &times(stat))?;
        fs::fchmod(&made, Mode::from_raw_mode(0o755))?;
        self.give_fd(&made)
    }

    fn file(
        &mut self,
        from: BorrowedFd<'_>,
        name: &OsStr,
        place: BorrowedFd<'_>,
        to: &OsStr,
        stat: &Stat,
    ) -> io::Result<()> {
        if self.wish.how == How::Hardlink && stat.st_size > 0 {
            match fs::linkat(from, name, place, to, AtFlags::empty()) {
                Ok(()) => {
                    self.handed.links += 1;
                    return Ok(());
                }
                Err(e) if unlinkable(&e.into()) => {}
                Err(e) => return Err(e.into()),
            }
        }
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let source = File::from(fs::openat(from, name, flags, Mode::empty())?);
        let copy = create(place, to)?;
        let placed = if self.wish.how == How::Copy {
            io::copy(&mut &source, &mut &copy)?;
            Placed::Copy
        } else {
            fill(&source, &copy)?
        };
        match placed {
            Placed::Reflink => self.handed.reflinks += 1,
            Placed::Copy => {
                self.handed.copies += 1;
                self.handed.copied += u64::try_from(stat.st_size).unwrap_or(0);
            }
        }
        // It is the job's own: it may write to it.
        fs::fchmod(&copy, Mode::from_raw_mode(stat.st_mode & 0o777 | 0o200))?;
        fs::futimens(&copy, &times(stat))?;
        self.give_fd(&copy)
    }

    fn give_fd(&self, fd: impl AsFd) -> io::Result<()> {
        match self.whom() {
            Some((uid, gid)) => Ok(fs::fchown(fd, Some(uid), Some(gid))?),
            None => Ok(()),
        }
    }

    fn give(&self, place: impl AsFd, name: &OsStr) -> io::Result<()> {
        match self.whom() {
            Some((uid, gid)) => {
                Ok(fs::chownat(place, name, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW)?)
            }
            None => Ok(()),
        }
    }

    fn whom(&self) -> Option<(Uid, Gid)> {
        let local = self.wish.local.filter(|_| rustix::process::geteuid().is_root())?;
        Some((Uid::from_raw(local.uid), Gid::from_raw(local.gid)))
    }
}

fn create(place: BorrowedFd<'_>, name: &OsStr) -> io::Result<File> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(File::from(fs::openat(place, name, flags, Mode::from_raw_mode(0o600))?))
}

/// Makes a directory that is ours alone until all is in it.
fn make_dir(place: BorrowedFd<'_>, name: &OsStr) -> io::Result<OwnedFd> {
    fs::mkdirat(place, name, Mode::from_raw_mode(0o700))?;
    let made = fs::openat(place, name, DIR | OFlags::RDONLY, Mode::empty())?;
    let stat = fs::fstat(&made)?;
    // Somebody may have put another one in its place.
    let ours = stat.st_uid == rustix::process::geteuid().as_raw() && stat.st_mode & 0o777 == 0o700;
    if ours { Ok(made) } else { Err(Errno::PERM.into()) }
}

/// Removes what was made, resolved from open directories only.
fn remove_at(place: BorrowedFd<'_>, name: &OsStr) -> io::Result<()> {
    match fs::unlinkat(place, name, AtFlags::empty()) {
        Err(Errno::ISDIR | Errno::PERM) => {}
        other => return Ok(other?),
    }
    let dir = fs::openat(place, name, DIR | OFlags::RDONLY, Mode::empty())?;
    for entry in Dir::read_from(&dir)? {
        let entry = entry?;
        if !matches!(entry.file_name().to_bytes(), b"." | b"..") {
            remove_at(dir.as_fd(), os_str(entry.file_name()))?;
        }
    }
    Ok(fs::unlinkat(place, name, AtFlags::REMOVEDIR)?)
}

fn scratch_name(name: &OsStr) -> OsString {
    static NEXT: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
    let n = NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    let mut scratch = b".tidecast-".to_vec();
    scratch.extend(name.as_bytes().iter().take(200));
    scratch.extend(format!("-{}-{n}", std::process::id()).into_bytes());
    OsString::from_vec(scratch)
}

fn os_str(name: &CStr) -> &OsStr {
    OsStr::from_bytes(name.to_bytes())
}

fn kind(stat: &Stat) -> FileType {
    FileType::from_raw_mode(stat.st_mode)
}

#[allow(clippy::unnecessary_cast)] // widths differ between architectures
fn times(stat: &Stat) -> Timestamps {
    Timestamps {
        last_access: Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT as _ },
        last_modification: Timespec { tv_sec: stat.st_mtime, tv_nsec: stat.st_mtime_nsec as _ },
    }
}
