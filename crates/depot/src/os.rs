//! What the store asks of its own directories, which nobody else may write.

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, OFlags};
use rustix::io::Errno;

use crate::Size;
use crate::error::{Context, Error};
use crate::object::on_disk;

/// Up to this many things are synced one by one, more by syncing the file system.
const FEW: usize = 16;

/// How a file came to another name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Placed {
    Reflink,
    Copy,
}

/// Opens a regular file that is no link.
pub(crate) fn open(path: &Path) -> io::Result<File> {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = OpenOptions::new().read(true).custom_flags(flags.bits() as i32).open(path)?;
    if file.metadata()?.is_file() { Ok(file) } else { Err(Errno::INVAL.into()) }
}

/// Makes a file that was not there.
pub(crate) fn create(path: &Path, mode: u32) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).create_new(true).mode(mode).open(path)
}

/// Fills the empty `to` with what is in `from`, sharing blocks where the file system can.
pub(crate) fn fill(from: &File, to: &File) -> io::Result<Placed> {
    if rustix::fs::ioctl_ficlone(to, from).is_ok() {
        return Ok(Placed::Reflink);
    }
    // The kernel copies by itself where it can.
    let (mut from, mut to) = (from, to);
    io::copy(&mut from, &mut to)?;
    Ok(Placed::Copy)
}

/// Whether a file that could not be linked is to be copied: another file system, no more links, no right or no support.
pub(crate) fn unlinkable(e: &io::Error) -> bool {
    let known = [Errno::XDEV, Errno::MLINK, Errno::PERM, Errno::OPNOTSUPP, Errno::ACCESS];
    Errno::from_io_error(e).is_some_and(|e| known.contains(&e))
}

/// Whether it was for want of descriptors or memory that something could not be opened.
pub(crate) fn exhausted(e: &io::Error) -> bool {
    Errno::from_io_error(e).is_some_and(|e| [Errno::MFILE, Errno::NFILE, Errno::NOMEM].contains(&e))
}

/// Copies a file of ours to a new name; mode, time and attributes too, if it is to be `alike`. Not durable yet.
pub(crate) fn duplicate(from: &Path, to: &Path, alike: bool) -> io::Result<Placed> {
    let source = open(from)?;
    let copy = create(to, 0o600)?;
    let placed = fill(&source, &copy).and_then(|placed| {
        if alike {
            copy_attributes(&source, &copy)?;
        }
        Ok(placed)
    });
    if placed.is_err() {
        let _ = fs::remove_file(to);
    }
    placed
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

/// Makes an empty file if there is none, and sees to it that only its owner may read it.
pub(crate) fn private(path: &Path) -> Result<(), Error> {
    OpenOptions::new().append(true).create(true).mode(0o600).open(path).at("create", path)?;
    chmod(path, 0o600)
}

/// Makes a directory, also where there is one already.
pub(crate) fn make_dir(path: &Path) -> Result<(), Error> {
    match fs::create_dir(path) {
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => Ok(()),
        other => other.at("create", path),
    }
}

/// Sets permission bits.
pub(crate) fn chmod(path: &Path, mode: u32) -> Result<(), Error> {
    fs::set_permissions(path, Permissions::from_mode(mode)).at("set the mode of", path)
}

/// Removes whatever is at `path`, never through a link; nothing there is fine.
pub(crate) fn remove_all(path: &Path) -> Result<(), Error> {
    let meta = match fs::symlink_metadata(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
        other => other.at("look at", path)?,
    };
    if !meta.is_dir() {
        return fs::remove_file(path).at("remove", path);
    }
    if meta.mode() & 0o700 != 0o700 {
        chmod(path, 0o700)?;
    }
    for entry in fs::read_dir(path).at("list", path)? {
        let entry = entry.at("list", path)?;
        let at = entry.path();
        if entry.file_type().at("look at", &at)?.is_dir() {
            remove_all(&at)?;
        } else {
            remove_file(&at)?;
        }
    }
    fs::remove_dir(path).at("remove", path)
}

/// Removes a file; none there is fine.
pub(crate) fn remove_file(path: &Path) -> Result<(), Error> {
    match fs::remove_file(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other.at("remove", path),
    }
}

/// Names in a directory; none if there is no such directory.
pub(crate) fn names(path: &Path) -> Result<Vec<std::ffi::OsString>, Error> {
    match fs::read_dir(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        other => {
            let entries = other.at("list", path)?;
            entries.map(|e| Ok(e.at("list", path)?.file_name())).collect()
        }
    }
}

/// What a tree occupies, links counted once for each name.
pub(crate) fn measure(path: &Path) -> Result<Size, Error> {
    let mut size = Size::ZERO;
    let mut stack = vec![path.to_owned()];
    while let Some(path) = stack.pop() {
        let meta = match fs::symlink_metadata(&path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => continue,
            other => other.at("look at", &path)?,
        };
        size = size.plus(Size { bytes: on_disk(meta.len().min(meta.blocks() * 512)), inodes: 1 });
        if meta.is_dir() {
            stack.extend(names(&path)?.into_iter().map(|n| path.join(n)));
        }
    }
    Ok(size)
}

/// Locks a file for this process; `None` if another holds it.
pub(crate) fn lock(path: &Path) -> Result<Option<File>, Error> {
    let open = OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(path);
    let file = open.at("open", path)?;
    match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(Some(file)),
        Err(Errno::WOULDBLOCK) => Ok(None),
        Err(e) => Err(e).at("lock", path),
    }
}

/// What has to be on disk before the database may speak of it.
#[derive(Default)]
pub(crate) struct Unsynced {
    files: Vec<PathBuf>,
    dirs: BTreeSet<PathBuf>,
}

impl Unsynced {
    /// A file whose bytes or metadata are new.
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
    pub(crate) fn sync(self, root: &Path) -> Result<(), Error> {
        if self.files.len() + self.dirs.len() > FEW {
            let dir = File::open(root).at("open", root)?;
            return rustix::fs::syncfs(dir).at("sync", root);
        }
        // Names after what they name: deepest first.
        for path in self.files.iter().chain(self.dirs.iter().rev()) {
            sync(path)?;
        }
        Ok(())
    }
}

/// Makes a file or a directory durable.
pub(crate) fn sync(path: &Path) -> Result<(), Error> {
    let file = File::open(path).at("open", path)?;
    match rustix::fs::fsync(&file) {
        // A file system whose directories need no sync says so this way.
        Err(Errno::INVAL) => Ok(()),
        other => other.at("sync", path),
    }
}

/// Writes a small file so that it is there whole or not at all. Durable only after [`sync`] of its directory.
pub(crate) fn write_whole(path: &Path, bytes: &[u8], mode: u32) -> Result<(), Error> {
    use std::io::Write;
    let scratch = path.with_added_extension("new");
    remove_file(&scratch)?;
    let mut file = create(&scratch, mode).at("create", &scratch)?;
    file.write_all(bytes).and_then(|()| file.sync_all()).at("write", &scratch)?;
    fs::rename(&scratch, path).at("rename", path)
}
