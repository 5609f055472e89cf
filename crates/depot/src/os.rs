//! File operations of the store. Every path is resolved beneath the store's open directory and through no link, so
//! a directory that was swapped for a link leads nowhere ([`tidecast_paths`]).

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::{File, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::io::Errno;
pub(crate) use tidecast_paths::{Copied as Placed, fill};
use tidecast_paths::{Lock, Meta};

use crate::Size;
use crate::error::{Context, Error};
use crate::layout::Layout;
use crate::object::on_disk;

/// Up to this many things are synced one by one, more by syncing the file system.
const FEW: usize = 16;

/// Whether a file that could not be linked is to be copied: another file system, too many links, no right or no
/// support.
pub(crate) fn unlinkable(e: &io::Error) -> bool {
    let known = [Errno::XDEV, Errno::MLINK, Errno::PERM, Errno::OPNOTSUPP, Errno::ACCESS];
    Errno::from_io_error(e).is_some_and(|e| known.contains(&e))
}

impl Layout {
    /// A path of the store, relative to its open directory.
    pub(crate) fn beneath<'p>(&self, path: &'p Path) -> io::Result<&'p Path> {
        path.strip_prefix(self.dir.path()).map_err(|_| Errno::INVAL.into())
    }

    /// Opens a regular file, not a link.
    pub(crate) fn open(&self, path: &Path) -> io::Result<File> {
        self.dir.open_file(self.beneath(path)?)
    }

    /// Makes a file that was not there.
    pub(crate) fn create(&self, path: &Path, mode: u32) -> io::Result<File> {
        self.dir.create(self.beneath(path)?, mode)
    }

    /// Metadata of a name; of a link, of the link itself.
    pub(crate) fn look(&self, path: &Path) -> io::Result<Meta> {
        self.dir.stat(self.beneath(path)?)
    }

    /// Whether it is a directory, not a link and not behind one.
    pub(crate) fn is_dir(&self, path: &Path) -> bool {
        self.look(path).is_ok_and(|m| m.is_dir())
    }

    /// Whether it is a regular file, not a link and not behind one.
    pub(crate) fn is_file(&self, path: &Path) -> bool {
        self.look(path).is_ok_and(|m| m.is_file())
    }

    /// Gives a file another name.
    pub(crate) fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.dir.link(self.beneath(from)?, self.beneath(to)?)
    }

    /// Renames, and replaces an existing name.
    pub(crate) fn rename(&self, from: &Path, to: &Path) -> Result<(), Error> {
        let rename = || self.dir.rename(self.beneath(from)?, self.beneath(to)?, true);
        rename().at("rename", to)
    }

    /// Copies a file of the store to a new name; with mode, time and attributes, if it is to be `alike`. Not
    /// durable yet.
    pub(crate) fn duplicate(&self, from: &Path, to: &Path, alike: bool) -> io::Result<Placed> {
        let source = self.open(from)?;
        let copy = self.create(to, 0o600)?;
        let placed = fill(&source, &copy).and_then(|placed| {
            if alike {
                copy_attributes(&source, &copy)?;
            }
            Ok(placed)
        });
        if placed.is_err() {
            let _ = self.remove_file(to);
        }
        placed
    }

    /// Opens a file that only its owner may read; creates it if it does not exist.
    pub(crate) fn private(&self, path: &Path) -> Result<File, Error> {
        let file = self.beneath(path).and_then(|p| self.dir.open_or_create(p, 0o600)).at("open", path)?;
        file.set_permissions(Permissions::from_mode(0o600)).at("set the mode of", path)?;
        Ok(file)
    }

    /// Makes a directory, also where there is one already.
    pub(crate) fn make_dir(&self, path: &Path) -> Result<(), Error> {
        self.beneath(path).and_then(|p| self.dir.ensure_dir(p, 0o777)).at("create", path)
    }

    /// Sets permission bits.
    pub(crate) fn chmod(&self, path: &Path, mode: u32) -> Result<(), Error> {
        self.beneath(path).and_then(|p| self.dir.chmod(p, mode)).at("set the mode of", path)
    }

    /// Sets the time of modification; of a link, the link's.
    pub(crate) fn set_time(&self, path: &Path, time: (i64, u32)) -> Result<(), Error> {
        self.beneath(path).and_then(|p| self.dir.set_time(p, time)).at("set the time of", path)
    }

    /// Removes whatever is at `path`, never through a link; nothing there is fine.
    pub(crate) fn remove_all(&self, path: &Path) -> Result<(), Error> {
        self.beneath(path).and_then(|p| self.dir.remove_all(p)).at("remove", path)
    }

    /// Removes a directory of objects that has become empty. Creating one needs the lock under which this is
    /// called, or the store is being opened. A failure is harmless.
    pub(crate) fn remove_if_empty(&self, path: &Path) {
        let _ = self.beneath(path).and_then(|p| self.dir.remove_dir(p));
    }

    /// Removes a file; none there is fine.
    pub(crate) fn remove_file(&self, path: &Path) -> Result<(), Error> {
        self.beneath(path).and_then(|p| self.dir.remove_file(p)).at("remove", path)
    }

    /// Names in a directory; none if it does not exist.
    pub(crate) fn names(&self, path: &Path) -> Result<Vec<OsString>, Error> {
        match self.beneath(path).and_then(|p| self.dir.list(p)) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
            other => other.at("list", path),
        }
    }

    /// The content of a small file.
    pub(crate) fn read(&self, path: &Path) -> Result<Vec<u8>, Error> {
        self.beneath(path).and_then(|p| self.dir.read(p)).at("read", path)
    }

    /// Overwrites a small file. After a crash it may be incomplete.
    pub(crate) fn write(&self, path: &Path, bytes: &[u8]) -> Result<(), Error> {
        self.remove_file(path)?;
        self.create(path, 0o600).and_then(|mut f| f.write_all(bytes)).at("write", path)
    }

    /// The space of a tree, links counted once for each name.
    pub(crate) fn measure(&self, path: &Path) -> Result<Size, Error> {
        let mut size = Size::ZERO;
        let mut add = |meta: &Meta| {
            size = size.plus(Size { bytes: on_disk(meta.len.min(meta.allocated)), inodes: 1 });
            Ok(())
        };
        self.beneath(path).and_then(|p| self.dir.visit(p, &mut add)).at("scan", path)?;
        Ok(size)
    }

    /// Locks a file for this process; `None` if another holds it.
    pub(crate) fn lock_file(&self, path: &Path) -> Result<Option<Lock>, Error> {
        self.beneath(path).and_then(|p| self.dir.lock(p)).at("lock", path)
    }

    /// Makes a file or a directory durable.
    pub(crate) fn sync(&self, path: &Path) -> Result<(), Error> {
        self.beneath(path).and_then(|p| self.dir.sync(p)).at("sync", path)
    }

    /// Writes a small file so that it is there whole or not at all. Durable only after [`Layout::sync`] of its directory.
    pub(crate) fn write_whole(&self, path: &Path, bytes: &[u8], mode: u32) -> Result<(), Error> {
        self.beneath(path).and_then(|p| self.dir.write_whole(p, bytes, mode)).at("write", path)
    }
}

fn copy_attributes(from: &File, to: &File) -> io::Result<()> {
    let size = rustix::fs::flistxattr_query(from).unwrap_or(0);
    let mut names = vec![0; size];
    let size = if size > 0 { rustix::fs::flistxattr(from, &mut names[..])? } else { 0 };
    for name in names[..size].split(|b| *b == 0).filter(|n| n.starts_with(b"user.")) {
        let mut value = vec![0; rustix::fs::fgetxattr_query(from, name)?];
        let len = rustix::fs::fgetxattr(from, name, &mut value[..])?;
        rustix::fs::fsetxattr(to, name, &value[..len], rustix::fs::XattrFlags::empty())?;
    }
    let meta = from.metadata()?;
    to.set_modified(meta.modified()?)?;
    to.set_permissions(Permissions::from_mode(meta.mode() & 0o7777))
}

/// Files and directories that must be durable before the database refers to them.
#[derive(Default)]
pub(crate) struct Unsynced {
    files: Vec<PathBuf>,
    dirs: BTreeSet<PathBuf>,
}

impl Unsynced {
    /// Whether the whole file system is to be synced, whatever else is added.
    pub(crate) fn is_all(&self) -> bool {
        self.files.len() + self.dirs.len() > FEW
    }

    /// A file with new bytes or metadata.
    pub(crate) fn file(&mut self, path: &Path) {
        if self.files.len() <= FEW {
            self.files.push(path.to_owned());
        }
    }

    /// A directory in which names are new.
    pub(crate) fn dir(&mut self, path: &Path) {
        if self.dirs.len() <= FEW && !self.dirs.contains(path) {
            self.dirs.insert(path.to_owned());
        }
    }

    /// Waits until all of it is on disk.
    pub(crate) fn sync(self, layout: &Layout) -> Result<(), Error> {
        if self.is_all() {
            return layout.dir.sync_all().at("sync", &layout.root);
        }
        // Names after their targets: deepest first.
        for path in self.files.iter().chain(self.dirs.iter().rev()) {
            layout.sync(path)?;
        }
        Ok(())
    }
}
