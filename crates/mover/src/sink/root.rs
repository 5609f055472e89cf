//! An empty destination. Entries get their final names below a root in the staging directory, so no file is
//! renamed alone, and the destination stays empty until everything has arrived.
//!
//! If the destination does not exist, the staging directory lies beside it, and one rename makes the root the
//! destination. If it exists and is empty, the contents of the root are moved into it, each top-level name by
//! one rename; the same happens when another program has created the destination meanwhile. A file that a
//! killed copy has begun has neither the length nor the time of the sender's, so the next copy, which asks
//! for everything below the root, replaces it.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use rustix::fd::OwnedFd;
use rustix::fs::{self, AtFlags, FileType, Mode, OFlags, RenameFlags};
use rustix::io::Errno;
use tidecast_hash::sha256;

use super::attributes::unsupported;
use super::destination::{DIRECTORY, Destination, Resolver};
use super::dirs::{Dirs, STEP, kind, look, set_mode};
use super::entry_error::{Doing, EntryError, EntryResult};
use super::numbers::Numbers;
use super::remove::{is_dir, remove_tree};
use super::stage::{PREFIX, ROOT, Stage, WHOLE, name};
use super::write::reopen;
use super::{Directory, Staging};
use crate::error::Error;
use crate::flags::Only;
use crate::spec::{Durable, InPlace, ReceiveSpec};

const SET_GID: u32 = 0o2000;
/// nfs, smb and its predecessor, fuse, 9p: access lists may come from the directory in which a name was made, or a directory in which
/// files are open gets no other name.
const REMOTE: [u64; 5] = [0x6969, 0xff53_4d42, 0xfe53_4d42, 0x6573_5546, 0x0102_1997];

/// The use of the directory below which everything is written.
#[derive(Debug)]
pub(super) enum Target {
    /// It is the destination: each file is renamed.
    Itself,
    /// It gets this name.
    Absent(Absent),
    /// Its contents are moved to this directory, which is empty.
    Empty(Arc<OwnedFd>),
}

/// A name that is to become the destination.
#[derive(Debug)]
pub(super) struct Absent {
    pub(super) parent: Arc<OwnedFd>,
    name: OsString,
    /// The parent, for messages.
    pub(super) shown: PathBuf,
}

impl Absent {
    /// The destination as one that is not there; None if each file is to be renamed there instead. `path` is how it is opened.
    pub(super) fn find(way: &Resolver, path: &Path, spec: &ReceiveSpec) -> io::Result<Option<Self>> {
        let Some((at, name)) = split(path).filter(|_| fits(spec)) else { return Ok(None) };
        let parent = way.make(at)?;
        let there = fs::statat(&parent, name, AtFlags::SYMLINK_NOFOLLOW);
        if !matches!(there, Err(Errno::NOENT)) || !passes_nothing_on(&parent) {
            return Ok(None);
        }
        let shown = Path::new(&spec.dest).parent().unwrap_or(Path::new("")).to_owned();
        Ok(Some(Self { parent: Arc::new(parent), name: name.into(), shown }))
    }

    /// The name of the staging directory.
    pub(super) fn stage(&self, identity: &str) -> String {
        beside(identity, &self.name)
    }

    fn is_taken(&self) -> bool {
        fs::statat(&*self.parent, &self.name, AtFlags::SYMLINK_NOFOLLOW).is_ok()
    }

    /// Gives the root its name, if nothing has that.
    fn rename(&self, stage: &Stage) -> Result<(), Errno> {
        match fs::renameat_with(&stage.dir, ROOT, &*self.parent, &self.name, RenameFlags::NOREPLACE) {
            // A file system that cannot promise it.
            Err(Errno::INVAL | Errno::NOSYS) if self.is_taken() => Err(Errno::EXIST),
            Err(Errno::INVAL | Errno::NOSYS) => fs::renameat(&stage.dir, ROOT, &*self.parent, &self.name),
            other => other,
        }
    }
}

/// The name of a staging directory beside a destination of that name.
fn beside(identity: &str, name: &OsStr) -> String {
    let digest = sha256(&[identity.as_bytes(), b"\0/", name.as_bytes()].concat());
    format!("{PREFIX}{}", data_encoding::HEXLOWER.encode(&digest[..8]))
}

/// The directory in which a path lies, and its last name.
fn split(path: &Path) -> Option<(&Path, &OsStr)> {
    match path.components().next_back() {
        Some(Component::Normal(name)) => Some((path.parent()?, name)),
        _ => None,
    }
}

/// Whether only a complete file can count as present in this copy, and nothing beside its own files is read.
fn fits(spec: &ReceiveSpec) -> bool {
    !(spec.dry_run || spec.discard || spec.itemize || spec.shared || spec.update)
        && spec.only == Only::default()
        && spec.in_place == InPlace::No
        && spec.link_dest.is_empty()
        && spec.backup.is_none()
        && spec.leftovers.is_empty()
}

/// Whether an existing destination is to be filled from a root: it is empty, except for copies in progress.
pub(super) fn fills(base: &OwnedFd, place: &Destination, spec: &ReceiveSpec) -> bool {
    // Without that its own mode decides about the one that it gets.
    fits(spec) && spec.keep.perms && place.rename.is_none() && is_empty(base) && passes_nothing_on(base)
}

fn is_empty(base: &OwnedFd) -> bool {
    let is_other = |name: &[u8]| !matches!(name, b"." | b"..") && !name.starts_with(PREFIX.as_bytes());
    fs::Dir::read_from(base).is_ok_and(|mut dir| {
        dir.all(|entry| entry.is_ok_and(|entry| !is_other(entry.file_name().to_bytes())))
    })
}

/// Whether an entry created in this directory has the same attributes as one created elsewhere and renamed.
fn passes_nothing_on(dir: &OwnedFd) -> bool {
    let mut list = [0; 0];
    let has_list = match fs::fgetxattr(dir, "system.posix_acl_default", &mut list) {
        Err(e) => e != Errno::NODATA && !unsupported(e),
        Ok(_) => true,
    };
    !has_list
        && fs::fstat(dir).is_ok_and(|stat| stat.st_mode & SET_GID == 0)
        && fs::fstatfs(dir).is_ok_and(|fs| !REMOTE.contains(&(fs.f_type as u64 & 0xffff_ffff)))
}

/// Takes over the staging of an earlier copy beside a destination that exists now.
pub(super) fn adopt(place: &Destination, base: &OwnedFd, identity: &str) -> EntryResult {
    let Some((at, own)) = split(place.at()).filter(|_| place.rename.is_none()) else { return Ok(()) };
    let left = beside(identity, own);
    let Ok(parent) = place.way.open(at, DIRECTORY).map(Arc::new) else { return Ok(()) };
    let Some(stage) = Stage::find(parent.clone(), &left)? else { return Ok(()) };
    let new = name(identity, place);
    match fs::renameat_with(&*parent, left.as_str(), base, new.as_str(), RenameFlags::NOREPLACE) {
        Ok(()) => Ok(()),
        Err(_) => stage.remove(),
    }
}

impl Stage {
    /// The root, made if it is missing; one that an earlier copy has left is as open as a new one again.
    pub(super) fn root(&self, umask: u32) -> EntryResult<OwnedFd> {
        if let Some(root) = self.old_root()? {
            set_mode(&root, 0o777 & !umask).doing("set the mode of")?;
            return reopen(&root);
        }
        fs::mkdirat(&self.dir, ROOT, Mode::from_raw_mode(0o777)).doing("create the directory")?;
        fs::openat(&self.dir, ROOT, DIRECTORY | OFlags::NOFOLLOW, Mode::empty()).doing("open")
    }

    /// The root left by an earlier copy of this user; any other entry of its name is removed.
    fn old_root(&self) -> EntryResult<Option<OwnedFd>> {
        let owner = fs::fstat(&self.dir).doing("stat")?.st_uid;
        match fs::openat(&self.dir, ROOT, STEP, Mode::empty()) {
            Ok(root) if fs::fstat(&root).doing("stat")?.st_uid == owner => return Ok(Some(root)),
            Ok(_) => remove_tree(&self.dir, ROOT.as_bytes())?,
            Err(Errno::NOENT) => {}
            Err(_) => fs::unlinkat(&self.dir, ROOT, AtFlags::empty()).doing("remove")?,
        }
        Ok(None)
    }

    /// A complete root that a killed copy was moving.
    pub(super) fn whole_root(&self) -> EntryResult<Option<Arc<OwnedFd>>> {
        if !look(&self.dir, WHOLE.as_bytes())?.is_some_and(|stat| kind(&stat) == FileType::RegularFile) {
            return Ok(None);
        }
        Ok(self.old_root()?.map(Arc::new))
    }
}

impl Directory {
    /// Moves the contents of the root to an existing destination; true if it did.
    pub(super) fn fill(&self, staging: &Staging) -> Result<bool, Error> {
        if staging.filled.get().is_some() {
            return Ok(false);
        }
        let dest = match &staging.target {
            Target::Empty(dest) => dest.clone(),
            Target::Absent(absent) if absent.is_taken() => {
                let dest = fs::openat(&*absent.parent, &absent.name, STEP, Mode::empty());
                let dest = dest.doing("open").and_then(|dest| reopen(&dest));
                Arc::new(dest.map_err(|t| self.fatal(t, b""))?)
            }
            Target::Absent(_) | Target::Itself => return Ok(false),
        };
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mark = fs::openat(&staging.stage.dir, WHOLE, flags, Mode::from_raw_mode(0o600)).doing("create");
        mark.map_err(|t| self.fatal(t, b""))?;
        self.move_all(&staging.root, staging.filled.get_or_init(|| dest))?;
        Ok(true)
    }

    /// Gives the root the name of the destination; whether that was there, and all was moved into it instead.
    pub(super) fn appear(&self, staging: &Staging) -> Result<bool, Error> {
        let Target::Absent(absent) = &staging.target else { return Ok(false) };
        if staging.filled.get().is_some() {
            return Ok(false);
        }
        match absent.rename(&staging.stage) {
            Ok(()) => Ok(false),
            Err(Errno::EXIST | Errno::NOTEMPTY | Errno::NOTDIR) => self.fill(staging),
            Err(e) => Err(self.fatal(EntryError { doing: "create", error: e.into() }, b"")),
        }
    }

    /// Resumes a killed copy that was moving a root here.
    pub(super) fn resume_moving(&self) -> Result<(), Error> {
        let Some(staging) = &self.staging else { return Ok(()) };
        let Some(root) = staging.whole.as_ref() else { return Ok(()) };
        self.move_all(root, &staging.root)?;
        staging.forget_root().map_err(|t| self.fatal(t, b""))
    }

    /// Moves all that is in one directory to another.
    fn move_all(&self, from: &Arc<OwnedFd>, to: &Arc<OwnedFd>) -> Result<(), Error> {
        let (mut from, mut to) = (Dirs::new(from.clone()), Dirs::new(to.clone()));
        let mut stack = vec![Vec::new()];
        while let Some(path) = stack.pop() {
            let mut move_names = || {
                let (from, to) = (from.find(&path).doing("open")?, to.find(&path).doing("open")?);
                self.move_names(&from, &to, &path, &mut stack)
            };
            for (name, trouble) in move_names().map_err(|t| self.fatal(t, &path))? {
                self.or_problem(&name, Err::<(), _>(trouble))?;
                // It may be the name of all that was proved.
                *self.proved.lock() = Numbers::default();
            }
        }
        Ok(())
    }

    /// Moves the contents of one directory, not below it; directories present at both places go on the stack.
    /// Returns names that could not be moved.
    fn move_names(
        &self,
        from: &OwnedFd,
        to: &OwnedFd,
        path: &[u8],
        stack: &mut Vec<Vec<u8>>,
    ) -> EntryResult<Vec<(Vec<u8>, EntryError)>> {
        let mut failed = Vec::new();
        for entry in fs::Dir::new(reopen(from)?).doing("list")? {
            let entry = entry.doing("list")?;
            let name = entry.file_name().to_bytes();
            if matches!(name, b"." | b"..")
                || fs::renameat_with(from, name, to, name, RenameFlags::NOREPLACE).is_ok()
            {
                continue;
            }
            let below = if path.is_empty() { name.to_vec() } else { [path, name].join(&b'/') };
            let there = look(to, name)?.map(|stat| kind(&stat));
            if there == Some(FileType::Directory) && is_dir(from, name, entry.file_type()) {
                stack.push(below);
            } else if let Err(trouble) = self.rename(from, name, to, name, &below) {
                failed.push((below, trouble));
            }
        }
        Ok(failed)
    }

    /// Moves the parts of unfinished files into the destination, where the next copy looks for them.
    pub(super) fn leave_unfinished(&self, staging: &Staging) -> EntryResult {
        staging.forget_root()?;
        let Target::Absent(absent) = &staging.target else { return Ok(()) };
        let new = name(&self.spec.offer.identity, &self.place);
        let (from, to, old) = (&*absent.parent, &**staging.base(), staging.stage.name.as_str());
        fs::renameat_with(from, old, to, new.as_str(), RenameFlags::NOREPLACE).doing("move")
    }

    /// Syncs the name of a new destination.
    pub(super) fn sync_name(&self, staging: &Staging) -> Result<(), Error> {
        let Target::Absent(absent) = &staging.target else { return Ok(()) };
        if self.spec.durable == Durable::No {
            return Ok(());
        }
        match fs::fsync(&*absent.parent) {
            // A file system whose directories need no sync returns this.
            Ok(()) | Err(Errno::INVAL) => Ok(()),
            Err(e) => Err(Error::io("sync", &absent.shown)(e.into())),
        }
    }
}

impl Staging {
    /// Removes the rest of a root that was moved.
    fn forget_root(&self) -> EntryResult {
        match remove_tree(&self.stage.dir, ROOT.as_bytes()) {
            Err(t) if t.error.kind() == std::io::ErrorKind::NotFound => {}
            other => other?,
        }
        match fs::unlinkat(&self.stage.dir, WHOLE, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(e) => Err(e).doing("remove"),
        }
    }

    /// The directory in which all has its final name.
    pub(super) fn base(&self) -> &Arc<OwnedFd> {
        self.filled.get().unwrap_or(&self.root)
    }

    /// The directory in which the staging directory lies, for messages.
    pub(super) fn shown<'p>(&'p self, place: &'p Destination) -> &'p Path {
        match &self.target {
            Target::Absent(absent) => &absent.shown,
            Target::Empty(_) | Target::Itself => &place.shown,
        }
    }
}
