//! Creates a cache, or a part of it, in a directory of the caller: by the caller's own process, with its
//! rights, its umask and its view of the file system. The daemon sends the manifest and open files, and
//! writes nothing there.
//!
//! The new files have a temporary name, closed to others, until they are complete; then they take their name
//! in one step. Others may write to the directory meanwhile: every name is resolved beneath it and through no
//! link.

mod error;
mod found;
mod inside;
mod making;
mod scratch;
mod standing;

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::fs::{File, Permissions};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{RenameFlags, XattrFlags};
use rustix::io::Errno;
use tidecast_metainfo::{FileRef, Manifest, Mtime};
use tidecast_paths::{Copied, Root, fill};

use crate::client::Client;
use crate::client::descriptors::Descriptors;
use crate::model::types::CacheInfo;

pub use error::Error;
use error::at;
use found::{Found, Owners};
use inside::{Inside, join};
pub use making::{How, Made, Wanted};
use making::{Making, open};
use scratch::Scratch;

/// Whether this process sees the daemon's file at [`CacheInfo::path`], and may read it; else why not.
///
/// # Errors
/// A text for people: the obstacle.
pub fn sees(info: &CacheInfo) -> Result<&Path, String> {
    let path = info.path.as_deref().ok_or("the daemon reported no path")?;
    let shown = path.display();
    let meta = std::fs::symlink_metadata(path)
        .map_err(|e| format!("cannot access {shown} from this process ({e})"))?;
    if info.inode.is_some_and(|told| told != (meta.dev(), meta.ino())) {
        return Err(format!(
            "{shown} is a different file for this process than for the daemon (container or mount namespace)"
        ));
    }
    let read = match meta.file_type() {
        kind if kind.is_dir() => std::fs::read_dir(path).map(drop),
        kind if kind.is_file() => File::open(path).map(drop),
        _ => Ok(()),
    };
    read.map_err(|e| format!("cannot read {shown} ({e})"))?;
    Ok(path)
}

/// Creates a symbolic link to the store; an existing one of this user to the same target stays. One to another
/// cache in a store is replaced: it was made by an earlier job, maybe on another host that shares the directory,
/// or for an older version. One that another user may have planted is refused, wherever it leads: that user could
/// let it lead elsewhere later.
///
/// # Errors
/// [`Error::Exists`]; [`Error::Foreign`]; the system's error.
pub fn symlink(target: &Path, dir: &Path, name: &OsStr, force: bool) -> Result<PathBuf, Error> {
    let (root, path) = (open(dir)?, dir.join(name));
    match root.symlink(target, name) {
        Ok(()) => Ok(path),
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
            let owners = Owners::of(&root).map_err(at("stat", dir))?;
            relink(target, &root, owners, &path, force)
        }
        Err(e) => Err(at("create", &path)(e)),
    }
}

/// Has the name of `path` in `root`, which exists, lead to `target`.
fn relink(target: &Path, root: &Root, owners: Owners, path: &Path, force: bool) -> Result<PathBuf, Error> {
    let name = path.file_name().ok_or_else(|| Error::Name(path.as_os_str().to_owned()))?;
    // Owner and target of one inode: another one may have the name at the next look.
    let found = Found::open(root, name).map_err(at("stat", path))?;
    let counts = match &found {
        Some(found) => owners.may_count(found.meta.uid, path, force)?,
        None => false,
    };
    let there = match found.map(|found| found.target()).transpose() {
        Ok(there) => there.flatten().map(PathBuf::from),
        Err(e) => return Err(at("read", path)(e)),
    };
    if counts && there.as_deref() == Some(target) {
        return Ok(path.to_owned());
    }
    if !force && !there.is_some_and(|there| leads_to_a_store(&there)) {
        return Err(Error::Exists(path.to_owned()));
    }
    let scratch = scratch_name();
    root.symlink(target, &scratch).map_err(at("create", path))?;
    replace(root, &scratch, name, path).inspect_err(|_| drop(root.remove_file(&scratch)))?;
    Ok(path.to_owned())
}

/// Whether a link is of the kind that is made here: to `caches/NUMBER/tree/..` of a store, on any host.
fn leads_to_a_store(target: &Path) -> bool {
    let parts: Vec<&[u8]> = target.components().map(|part| part.as_os_str().as_bytes()).collect();
    let is_number = |part: &[u8]| part.len() == 16 && part.iter().all(u8::is_ascii_hexdigit);
    target.is_absolute()
        && parts.windows(3).any(|w| matches!(w, [b"caches", number, b"tree"] if is_number(number)))
}

/// Creates files of a cache. Waits, and blocks a thread of its own with the disk.
///
/// # Errors
/// The daemon sends no files, the name exists, or a system's error. Incomplete files are removed then.
pub async fn place(client: &Client, info: &CacheInfo, wanted: Wanted) -> Result<Made, Error> {
    let manifest = manifest(client, info).await?;
    let view = sees(info).ok().map(Path::to_owned);
    let looking = tokio::task::spawn_blocking(move || -> Result<_, Error> {
        let making = Making::new(&manifest, &wanted, view.as_deref())?;
        let stood = making.stands()?;
        Ok((manifest, wanted, view, stood))
    });
    let failed = |e: tokio::task::JoinError| Error::Malformed(e.to_string());
    let (manifest, wanted, view, stood) = looking.await.map_err(failed)??;
    if stood {
        return Ok(Made { path: wanted.dir.join(&wanted.name), stood, ..Made::default() });
    }
    let mut files = client.files(&info.cache).await?;
    let making = move || Making::new(&manifest, &wanted, view.as_deref())?.make(&mut files);
    tokio::task::spawn_blocking(making).await.map_err(failed)?
}

/// Where a part of a cache is below [`CacheInfo::path`], through no link: that could lead anywhere on this host.
///
/// # Errors
/// The daemon sends no manifest, there is no such path, or a link on the way leads out of the cache.
pub async fn real_path(client: &Client, info: &CacheInfo, path: &Path) -> Result<PathBuf, Error> {
    let view = info.path.as_deref().map(Root::open);
    if let Some(Ok(view)) = view
        && view.look(path).is_ok_and(|there| there.is_some_and(|meta| !meta.is_symlink()))
    {
        return Ok(path.to_owned());
    }
    Inside::new(&manifest(client, info).await?).real(path)
}

async fn manifest(client: &Client, info: &CacheInfo) -> Result<Manifest, Error> {
    let (_, manifest) = client.manifest(&info.cache).await?;
    Manifest::parse(&manifest).map_err(|e| Error::Malformed(e.to_string()))
}

/// Bytes of the files below a path of a cache.
///
/// # Errors
/// The daemon sends no manifest, or there is no such path.
pub async fn bytes(client: &Client, info: &CacheInfo, path: &Path) -> Result<u64, Error> {
    let manifest = manifest(client, info).await?;
    let (files, _) = Inside::new(&manifest).part(path)?;
    Ok(files.values().filter_map(|index| manifest.file(*index)).map(|file| file.len()).sum())
}

/// The set-group-ID bit.
const SETGID: u32 = 0o2000;

impl Making<'_> {
    fn make(mut self, files: &mut Descriptors) -> Result<Made, Error> {
        let path = self.made.path.clone();
        let scratch = Scratch::new(&self.root);
        let made = self.fill(Path::new(&scratch.name), files).and_then(|()| {
            if self.wanted.force {
                return replace(&self.root, &scratch.name, &self.wanted.name, &path);
            }
            self.root.rename(&scratch.name, &self.wanted.name, false).map_err(|e| match e.kind() {
                io::ErrorKind::AlreadyExists => Error::Exists(path.clone()),
                _ => at("create", &path)(e),
            })
        });
        scratch.remove(&self.root);
        made.map(|()| self.made)
    }

    fn fill(&mut self, top: &Path, files: &mut Descriptors) -> Result<(), Error> {
        let cannot = |below: &Path, path: &Path| {
            let path = join(path, below);
            move |source| Error::Io { op: "create", path, source }
        };
        let shown = self.made.path.clone();
        for below in self.dirs.keys() {
            let path = join(top, below);
            // Closed until it is complete, whatever the umask.
            let made = self.root.make_dir(&path, 0o700).and_then(|()| self.chmod_dir(&path, 0o700));
            made.map_err(cannot(below, &shown))?;
        }
        let mut twins: HashMap<u32, Vec<PathBuf>> = HashMap::new();
        for (below, index) in self.files.clone() {
            let Some(file) = self.manifest.file(index) else { continue };
            if file.is_empty() {
                self.empty(file, &join(top, &below)).map_err(cannot(&below, &shown))?;
            } else {
                twins.entry(file.same_as()).or_default().push(below);
            }
        }
        for index in crate::model::files::missing(self.manifest, &[]) {
            if twins.is_empty() {
                break;
            }
            let given = files.next().map_err(at("receive files from the daemon for", &shown))?;
            let given = given.ok_or_else(|| Error::Malformed("too few files".into()))?;
            let mut first_names: HashMap<u32, PathBuf> = HashMap::new();
            for below in twins.remove(&index).unwrap_or_default() {
                let Some(&number) = self.files.get(&below) else { continue };
                let Some(file) = self.manifest.file(number) else { continue };
                // Names of one file are names of one file here, too.
                let first = first_names.entry(file.hard_link().unwrap_or(number)).or_insert(below.clone());
                let link = || self.root.link_to(join(top, first), &self.root, join(top, &below));
                if *first == below || link().is_err() {
                    self.file(file, &given, top, &below).map_err(cannot(&below, &shown))?;
                }
            }
        }
        for (below, index) in self.dirs.iter().rev() {
            let path = join(top, below);
            let Some(dir) = self.manifest.dir(*index) else { continue };
            self.set_dir_metadata(dir, &path).map_err(cannot(below, &shown))?;
        }
        Ok(())
    }

    fn set_dir_metadata(&self, dir: tidecast_metainfo::DirRef<'_>, path: &Path) -> io::Result<()> {
        for (name, value) in dir.xattrs().filter(|(name, _)| name.starts_with(b"user.")) {
            kept(self.root.set_xattr(path, name, value))?;
        }
        if let Some(time) = dir.mtime() {
            self.root.set_time(path, (time.secs, time.nanos))?;
        }
        self.chmod_dir(path, dir.mode().map_or(0o777 & !self.umask, |mode| self.permissions(mode)))
    }

    /// Keeps the set-group-ID bit where the parent directory has it (a project's directory).
    fn chmod_dir(&self, path: &Path, mode: u32) -> io::Result<()> {
        self.root.chmod(path, mode | self.root.stat(path)?.mode & SETGID)
    }

    /// An empty file or a symbolic link.
    fn empty(&mut self, file: FileRef<'_>, path: &Path) -> io::Result<()> {
        if let Some(target) = file.symlink() {
            self.root.symlink(OsStr::from_bytes(&target), path)?;
            return file.mtime().map_or(Ok(()), |time| self.root.set_time(path, (time.secs, time.nanos)));
        }
        self.set_metadata(&self.create(file, path)?, file)
    }

    fn create(&self, file: FileRef<'_>, path: &Path) -> io::Result<File> {
        // Without a mode in the manifest the umask decides.
        let usual = if file.is_executable() { 0o777 } else { 0o666 };
        self.root.create(path, if file.mode().is_some() { 0o600 } else { usual })
    }

    fn file(&mut self, file: FileRef<'_>, given: &File, top: &Path, below: &Path) -> io::Result<()> {
        let path = join(top, below);
        let is_open = file.mode().is_none_or(|mode| mode & 0o044 == 0o044);
        if self.wanted.how == How::Hardlink
            && is_open
            && let Some((view, from)) = self.in_view(below)
            && view.link_to(from, &self.root, &path).is_ok()
        {
            self.made.links += 1;
            return Ok(());
        }
        let meta = given.metadata()?;
        if meta.len() != file.len() {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "the daemon sent a file of the wrong length",
            ));
        }
        let copy = self.create(file, &path)?;
        let copied = match self.wanted.how {
            How::Copy => tidecast_paths::copy(given, &copy).map(|()| Copied::Copy)?,
            How::Hardlink | How::Reflink => fill(given, &copy)?,
        };
        match copied {
            Copied::Reflink => self.made.reflinks += 1,
            Copied::Copy => {
                self.made.copies += 1;
                self.made.copied += file.len();
            }
        }
        self.set_metadata(&copy, file)
    }

    /// Sets a file's metadata from the manifest, but never set-user-ID or set-group-ID.
    fn set_metadata(&self, made: &File, file: FileRef<'_>) -> io::Result<()> {
        for (name, value) in file.xattrs().filter(|(name, _)| name.starts_with(b"user.")) {
            kept(rustix::fs::fsetxattr(made, name, value, XattrFlags::empty()).map_err(Into::into))?;
        }
        if let Some(Mtime { secs, nanos }) = file.mtime() {
            let epoch = std::time::UNIX_EPOCH;
            let since = std::time::Duration::new(secs.unsigned_abs(), 0);
            let time = if secs < 0 { epoch.checked_sub(since) } else { epoch.checked_add(since) };
            let time = time.and_then(|time| time.checked_add(std::time::Duration::new(0, nanos)));
            time.map_or(Ok(()), |time| made.set_modified(time))?;
        }
        file.mode()
            .map_or(Ok(()), |mode| made.set_permissions(Permissions::from_mode(self.permissions(mode))))
    }
}

/// Not every file system has attributes, or room for them.
fn kept(set: io::Result<()>) -> io::Result<()> {
    match set {
        Err(e) if matches!(Errno::from_io_error(&e), Some(Errno::OPNOTSUPP | Errno::NOSPC)) => Ok(()),
        other => other,
    }
}

/// Puts one thing in the place of another, `path`, in one step where the file system can. What cannot be removed as a whole stays
/// as it is.
fn replace(root: &Root, scratch: &OsStr, name: &OsStr, path: &Path) -> Result<(), Error> {
    root.check_removable(name).map_err(unreplaceable(path))?;
    match rustix::fs::renameat_with(root, scratch, root, name, RenameFlags::EXCHANGE) {
        Ok(()) => return remove_replaced(root, scratch, path),
        Err(Errno::NOENT) => return root.rename(scratch, name, false).map_err(at("create", path)),
        Err(Errno::INVAL | Errno::NOSYS) => {}
        Err(e) => return Err(at("replace", path)(e.into())),
    }
    let old = scratch_name();
    let placed = root.rename(name, &old, false).and_then(|()| {
        root.rename(scratch, name, false).inspect_err(|_| drop(root.rename(&old, name, false)))
    });
    placed.map_err(at("replace", path))?;
    remove_replaced(root, &old, path)
}

/// Removes what had the name of `path` and is called `old` now.
pub(super) fn remove_replaced(root: &Root, old: &OsStr, path: &Path) -> Result<(), Error> {
    let left = || path.with_file_name(old);
    root.remove_all(old).map_err(|source| Error::Left { path: path.to_owned(), left: left(), source })
}

/// Says what is in the way of a removal.
pub(super) fn unreplaceable(path: &Path) -> impl FnOnce(io::Error) -> Error {
    move |e| {
        let why = match Errno::from_io_error(&e) {
            Some(Errno::XDEV) => "a file system is mounted in it; unmount it",
            Some(Errno::ACCESS | Errno::PERM) => {
                "another user owns a directory in it, whose files you may not remove"
            }
            _ => return at("replace", path)(e),
        };
        at("replace", path)(io::Error::new(e.kind(), why))
    }
}

pub(super) fn scratch_name() -> OsString {
    OsString::from(format!(".tidecast-{}-{:08x}", std::process::id(), rand::random::<u32>()))
}
