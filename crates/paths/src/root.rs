//! The open directory, and names below it.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use rustix::fs::{
    AtFlags, CWD, Mode, OFlags, RenameFlags, fstat, linkat, mkdirat, openat, readlinkat, renameat,
    renameat_with, statat, symlinkat, unlinkat,
};
use rustix::io::Errno;

use crate::Meta;
use crate::entries::entries;
use crate::resolve::{self, How};
use crate::way::Step;

/// An open directory. All its methods work beneath it.
#[derive(Debug)]
pub struct Root {
    fd: OwnedFd,
    path: PathBuf,
    how: How,
}

/// The directory that holds a name: the root itself, or one that was opened.
pub(crate) enum Parent<'a> {
    Root(BorrowedFd<'a>),
    Opened(OwnedFd),
}

impl AsFd for Parent<'_> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Parent::Root(fd) => *fd,
            Parent::Opened(fd) => fd.as_fd(),
        }
    }
}

impl AsFd for Root {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Root {
    /// Opens a directory. Links in `path` itself were chosen by the caller and are followed, but for those that another user may
    /// have planted.
    ///
    /// # Errors
    /// The system's error if it does not exist, is not a directory, or access is denied;
    /// [`io::ErrorKind::PermissionDenied`] for a planted link.
    pub fn open(path: &Path) -> io::Result<Self> {
        Root::readable(crate::way::to_dir(path, None)?, path)
    }

    fn readable(dir: OwnedFd, path: &Path) -> io::Result<Self> {
        let fd = match openat(&dir, ".", OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::RDONLY, Mode::empty())
        {
            // Names below it can be used without the right to list it.
            Err(Errno::ACCESS) => dir,
            other => other?,
        };
        Ok(Root::from_fd(fd, path))
    }

    /// A directory that is open already; `path` is for messages.
    #[must_use]
    pub fn from_fd(fd: OwnedFd, path: &Path) -> Self {
        Root { fd, path: path.to_path_buf(), how: How::default() }
    }

    /// Creates the directory and those above it if they are missing, and opens it. To be used with paths that
    /// the caller chose.
    ///
    /// # Errors
    /// As [`Root::open`].
    pub fn make(path: &Path) -> io::Result<Self> {
        Root::readable(crate::way::to_dir(path, Some(0o777))?, path)
    }

    /// As [`Root::make`]; created directories are accessible to their owner only.
    ///
    /// # Errors
    /// The system's error.
    pub fn make_private(path: &Path) -> io::Result<Self> {
        Root::readable(crate::way::to_dir(path, Some(0o700))?, path)
    }

    /// As [`Root::make_private`], with a rule of the caller's own in place of that for planted links.
    ///
    /// # Errors
    /// Those of `look`; the system's error.
    pub fn make_private_by(
        path: &Path,
        look: &mut dyn FnMut(&Step<'_>) -> io::Result<()>,
    ) -> io::Result<Self> {
        Root::readable(crate::way::to_dir_by(path, 0o700, look)?, path)
    }

    /// As if the kernel had no `openat2`: for tests of the fallback.
    #[must_use]
    pub fn walking(mut self) -> Self {
        self.how.walk = true;
        self
    }

    /// The path by which it was opened. For messages and for other processes; another file may have that path
    /// by now.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Where it is now, without links: the same for every path that leads to it.
    ///
    /// # Errors
    /// The system's error where `/proc` is missing.
    pub fn real_path(&self) -> io::Result<PathBuf> {
        let link = format!("/proc/self/fd/{}", self.fd.as_raw_fd());
        Ok(PathBuf::from(OsString::from_vec(readlinkat(CWD, link, Vec::new())?.into_bytes())))
    }

    /// A path beneath it as a user would write it.
    #[must_use]
    pub fn full(&self, path: impl AsRef<Path>) -> PathBuf {
        let path = path.as_ref();
        if path.as_os_str().is_empty() { self.path.clone() } else { self.path.join(path) }
    }

    /// Opens a directory beneath as a root of its own, to work on many names of one directory.
    ///
    /// # Errors
    /// `ELOOP` for a link, `ENOTDIR`; else the system's error.
    pub fn sub(&self, path: impl AsRef<Path>) -> io::Result<Root> {
        let path = path.as_ref();
        let flags = OFlags::DIRECTORY | OFlags::RDONLY;
        let fd = match self.resolve(path, flags, Mode::empty()) {
            Err(Errno::ACCESS) => self.resolve(path, OFlags::DIRECTORY | OFlags::PATH, Mode::empty())?,
            other => other?,
        };
        Ok(Root { fd, path: self.full(path), how: self.how })
    }

    /// The same directory once more, by a descriptor of its own.
    ///
    /// # Errors
    /// The system's error.
    pub fn again(&self) -> io::Result<Root> {
        Ok(Root { fd: self.fd.try_clone()?, path: self.path.clone(), how: self.how })
    }

    pub(crate) fn how(&self) -> How {
        self.how
    }

    pub(crate) fn resolve(&self, path: &Path, flags: OFlags, mode: Mode) -> Result<OwnedFd, Errno> {
        resolve::open(self.fd.as_fd(), path, flags, mode, self.how)
    }

    /// The directory that holds the last component, and that component.
    pub(crate) fn parent<'a>(&self, path: &'a Path) -> Result<(Parent<'_>, &'a OsStr), Errno> {
        let path = resolve::plain(path)?;
        let name = path.file_name().ok_or(Errno::INVAL)?;
        let parent = path.parent().unwrap_or(Path::new(""));
        if parent.as_os_str().is_empty() {
            return Ok((Parent::Root(self.fd.as_fd()), name));
        }
        let dir = self.resolve(parent, OFlags::PATH | OFlags::DIRECTORY, Mode::empty())?;
        Ok((Parent::Opened(dir), name))
    }

    /// The metadata of a name; of a link, the link's. The empty path is the root.
    ///
    /// # Errors
    /// The system's error.
    pub fn stat(&self, path: impl AsRef<Path>) -> io::Result<Meta> {
        let path = path.as_ref();
        if path.as_os_str().is_empty() {
            return Ok(Meta::of(&fstat(&self.fd)?));
        }
        let (dir, name) = self.parent(path)?;
        Ok(Meta::of(&statat(dir, name, AtFlags::SYMLINK_NOFOLLOW)?))
    }

    /// As [`Root::stat`]; `None` if there is nothing.
    ///
    /// # Errors
    /// The system's error.
    pub fn look(&self, path: impl AsRef<Path>) -> io::Result<Option<Meta>> {
        match self.stat(path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
            other => other.map(Some),
        }
    }

    /// Whether a name, or a directory on the path to it, is a mount point. Mounts are distinguished as the
    /// kernel does, so that a bind mount of the same file system counts, too. So does a directory of another
    /// device without a mount, a subvolume: no rename leads there either. False for a missing name.
    ///
    /// # Errors
    /// The system's error.
    pub fn crosses_mount(&self, path: impl AsRef<Path>) -> io::Result<bool> {
        let how = How { one_mount: true, ..self.how };
        match resolve::open(self.fd.as_fd(), path.as_ref(), OFlags::PATH, Mode::empty(), how) {
            Err(Errno::XDEV) => Ok(true),
            Ok(fd) => {
                let (meta, root) = (Meta::of(&fstat(&fd)?), Meta::of(&fstat(&self.fd)?));
                // Some file systems report devices of their own for files (overlayfs).
                Ok(meta.is_dir() && meta.id.0 != root.id.0)
            }
            // Without the right to search a directory nothing below it can be replaced either.
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::ACCESS) => Ok(false),
            Err(e) => Err(e.into()),
        }
    }

    /// Whether the directory exists, is not a link, and is not reached through one.
    #[must_use]
    pub fn is_dir(&self, path: impl AsRef<Path>) -> bool {
        self.stat(path).is_ok_and(|m| m.is_dir())
    }

    /// Whether the regular file exists, is not a link, and is not reached through one.
    #[must_use]
    pub fn is_file(&self, path: impl AsRef<Path>) -> bool {
        self.stat(path).is_ok_and(|m| m.is_file())
    }

    /// The names in a directory, in no order.
    ///
    /// # Errors
    /// The system's error.
    pub fn list(&self, path: impl AsRef<Path>) -> io::Result<Vec<OsString>> {
        let dir = self.resolve(path.as_ref(), OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty())?;
        Ok(entries(&dir)?.into_iter().map(|(name, _)| name).collect())
    }

    /// Creates a directory; the umask applies to its mode.
    ///
    /// # Errors
    /// `EEXIST`; else the system's error.
    pub fn make_dir(&self, path: impl AsRef<Path>, mode: u32) -> io::Result<()> {
        let (dir, name) = self.parent(path.as_ref())?;
        Ok(mkdirat(dir, name, Mode::from_raw_mode(mode))?)
    }

    /// Creates a directory if it is missing. An existing one keeps its mode; a link or a file in its place is
    /// an error.
    ///
    /// # Errors
    /// `ELOOP` for a link, `ENOTDIR`; else the system's error.
    pub fn ensure_dir(&self, path: impl AsRef<Path>, mode: u32) -> io::Result<()> {
        let (dir, name) = self.parent(path.as_ref())?;
        made(dir.as_fd(), name, mode, self.how).map(drop)
    }

    /// Creates a directory and missing ones above it.
    ///
    /// # Errors
    /// As [`Root::ensure_dir`].
    pub fn make_dirs(&self, path: impl AsRef<Path>, mode: u32) -> io::Result<()> {
        let path = path.as_ref();
        if path.as_os_str().is_empty() || self.is_dir(path) {
            return Ok(());
        }
        let mut at: Option<OwnedFd> = None;
        for part in resolve::plain(path)?.iter() {
            let from = at.as_ref().map_or(self.fd.as_fd(), AsFd::as_fd);
            at = Some(made(from, part, mode, self.how)?);
        }
        Ok(())
    }

    /// Makes a symbolic link with this text.
    ///
    /// # Errors
    /// The system's error.
    pub fn symlink(&self, target: impl AsRef<OsStr>, path: impl AsRef<Path>) -> io::Result<()> {
        let (dir, name) = self.parent(path.as_ref())?;
        Ok(symlinkat(target.as_ref().as_bytes(), dir, name)?)
    }

    /// The text of a symbolic link.
    ///
    /// # Errors
    /// `EINVAL` if it is not a link; else the system's error.
    pub fn read_link(&self, path: impl AsRef<Path>) -> io::Result<OsString> {
        let (dir, name) = self.parent(path.as_ref())?;
        Ok(OsString::from_vec(readlinkat(dir, name, Vec::new())?.into_bytes()))
    }

    /// Gives a file another name. Of a link, the link gets it, not its target.
    ///
    /// # Errors
    /// The system's error.
    pub fn link(&self, existing: impl AsRef<Path>, path: impl AsRef<Path>) -> io::Result<()> {
        self.link_to(existing, self, path)
    }

    /// As [`Root::link`], with the other name beneath another root.
    ///
    /// # Errors
    /// The system's error.
    pub fn link_to(&self, existing: impl AsRef<Path>, to: &Root, path: impl AsRef<Path>) -> io::Result<()> {
        let (from, old) = self.parent(existing.as_ref())?;
        let (to, new) = to.parent(path.as_ref())?;
        Ok(linkat(from, old, to, new, AtFlags::empty())?)
    }

    /// Renames, replacing an existing name if `replace`.
    ///
    /// # Errors
    /// `EEXIST` unless `replace`; else the system's error.
    pub fn rename(&self, from: impl AsRef<Path>, to: impl AsRef<Path>, replace: bool) -> io::Result<()> {
        self.rename_to(from, self, to, replace)
    }

    /// As [`Root::rename`], to a name beneath another root.
    ///
    /// # Errors
    /// As [`Root::rename`].
    pub fn rename_to(
        &self,
        from: impl AsRef<Path>,
        target: &Root,
        to: impl AsRef<Path>,
        replace: bool,
    ) -> io::Result<()> {
        let (old_dir, old) = self.parent(from.as_ref())?;
        let (new_dir, new) = target.parent(to.as_ref())?;
        if replace {
            return Ok(renameat(old_dir, old, new_dir, new)?);
        }
        match renameat_with(&old_dir, old, &new_dir, new, RenameFlags::NOREPLACE) {
            // Some network file systems cannot do it in one step; look first, then.
            Err(Errno::INVAL | Errno::NOSYS) => match statat(&new_dir, new, AtFlags::SYMLINK_NOFOLLOW) {
                Err(Errno::NOENT) => Ok(renameat(old_dir, old, new_dir, new)?),
                Ok(_) => Err(Errno::EXIST.into()),
                Err(e) => Err(e.into()),
            },
            other => Ok(other?),
        }
    }

    /// Exchanges two names in one step.
    ///
    /// # Errors
    /// `EINVAL`, `ENOSYS` or `EOPNOTSUPP` where the file system cannot do it; else the system's error.
    pub fn exchange(&self, one: impl AsRef<Path>, other: impl AsRef<Path>) -> io::Result<()> {
        let (old_dir, old) = self.parent(one.as_ref())?;
        let (new_dir, new) = self.parent(other.as_ref())?;
        Ok(renameat_with(old_dir, old, new_dir, new, RenameFlags::EXCHANGE)?)
    }

    /// Removes a name: of a file, a link, or an empty directory.
    ///
    /// # Errors
    /// The system's error.
    pub fn remove(&self, path: impl AsRef<Path>) -> io::Result<()> {
        let (dir, name) = self.parent(path.as_ref())?;
        match unlinkat(&dir, name, AtFlags::empty()) {
            Err(e @ (Errno::ISDIR | Errno::PERM)) => match unlinkat(dir, name, AtFlags::REMOVEDIR) {
                Err(Errno::NOTDIR) => Err(e.into()),
                other => Ok(other?),
            },
            other => Ok(other?),
        }
    }

    /// Removes an empty directory, nothing else.
    ///
    /// # Errors
    /// The system's error: it is not empty, or not a directory.
    pub fn remove_dir(&self, path: impl AsRef<Path>) -> io::Result<()> {
        let (dir, name) = self.parent(path.as_ref())?;
        Ok(unlinkat(dir, name, AtFlags::REMOVEDIR)?)
    }

    /// Removes the name of a file or a link, never a directory; none there is fine.
    ///
    /// # Errors
    /// The system's error.
    pub fn remove_file(&self, path: impl AsRef<Path>) -> io::Result<()> {
        let removed =
            self.parent(path.as_ref()).and_then(|(dir, name)| unlinkat(dir, name, AtFlags::empty()));
        match removed {
            Err(Errno::NOENT) => Ok(()),
            other => Ok(other?),
        }
    }
}

/// The last name on a path of the caller's choice that is there, and whether it is a link: why [`Root::make`] failed.
#[must_use]
pub fn last_there(path: &Path) -> Option<(&Path, bool)> {
    path.ancestors().find_map(|at| Some((at, at.symlink_metadata().ok()?.is_symlink())))
}

/// A directory that was made, or is there.
fn made(at: BorrowedFd<'_>, name: &OsStr, mode: u32, how: How) -> io::Result<OwnedFd> {
    match mkdirat(at, name, Mode::from_raw_mode(mode)) {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(e) => return Err(e.into()),
    }
    Ok(resolve::open(at, Path::new(name), OFlags::PATH | OFlags::DIRECTORY, Mode::empty(), how)?)
}
