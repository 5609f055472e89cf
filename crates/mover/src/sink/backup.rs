//! `--backup`: replaced and deleted files keep a name, beside their own or in a separate directory.
//!
//! The backup is another hard link to the file, made in the staging directory and renamed from it, so the
//! name always has one of the two files. Only where no link can be made is the file itself renamed.

use std::ffi::OsString;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use rustix::fd::OwnedFd;
use rustix::fs::{self, AtFlags, FileType, Gid, Mode, Uid};
use rustix::io::Errno;
use tidecast_paths::acl;

use super::cross_device;
use super::destination::{DIRECTORY, Destination, unreached};
use super::dirs::{Dirs, kind, look, split};
use super::entry_error::{Doing, EntryError, EntryResult};
use super::inherit;
use super::write::reopen;
use super::{Directory, Named};
use crate::error::Error;
use crate::overlap::Inode;
use crate::spec::{Durable, ReceiveSpec};
use crate::xattr;

const KEEP: &str = "make a backup of";
/// The name of the backup in a directory beside its place.
const OLD: &str = "old";
/// Backups of backups have no longer names than the system takes; this ends a search that finds none.
const TRIES: usize = 255;

/// Where backups go.
#[derive(Debug)]
pub(super) struct Backups {
    suffix: Vec<u8>,
    dir: Option<Aside>,
    /// Backups of this copy beside the files: it deletes none of them.
    made: Named,
    state: Mutex<State>,
}

/// A directory of backups.
#[derive(Debug)]
struct Aside {
    name: OsString,
    path: PathBuf,
}

#[derive(Debug, Default)]
pub(super) struct State {
    /// Names that this copy has given: no backup takes one of them.
    placed: Named,
    begun: u64,
    /// Of the directory of backups, as soon as it is there.
    dirs: Option<Dirs>,
    inode: Option<Inode>,
}

impl State {
    fn open(&mut self, dir: OwnedFd) -> io::Result<()> {
        let stat = fs::fstat(&dir)?;
        self.inode = Some((stat.st_dev, stat.st_ino));
        self.dirs = Some(Dirs::new(Arc::new(dir)));
        Ok(())
    }
}

impl Backups {
    /// # Errors
    /// The suffix is not valid, or the directory cannot hold backups.
    pub(super) fn new(spec: &ReceiveSpec, place: &Destination) -> Result<Option<Self>, Error> {
        let Some(backup) = &spec.backup else { return Ok(None) };
        let suffix = std::os::unix::ffi::OsStrExt::as_bytes(backup.suffix.as_os_str()).to_vec();
        if suffix.contains(&b'/') || suffix.contains(&0) {
            return Err(Error::Usage("--suffix must not contain a slash".into()));
        }
        if suffix.is_empty() && backup.dir.is_none() {
            return Err(Error::Usage("--suffix must not be empty without --backup-dir".into()));
        }
        let dir = backup.dir.as_ref().map(|name| Aside { name: name.clone(), path: place.beside(name) });
        let mut state = State::default();
        if let Some(dir) = &dir {
            let refused = |e| unreached("--backup-dir", &dir.name, e);
            match place.way.open(&dir.path, DIRECTORY) {
                Err(e) if e.kind() == io::ErrorKind::NotFound => {}
                other => other.and_then(|opened| state.open(opened)).map_err(refused)?,
            }
            let base = place.base.as_ref().and_then(|base| fs::fstat(base).ok());
            if suffix.is_empty() && base.is_some_and(|stat| state.inode == Some((stat.st_dev, stat.st_ino))) {
                return Err(Error::Usage(
                    "--backup-dir is the destination itself; name another directory, or add --suffix".into(),
                ));
            }
        }
        Ok(Some(Self { suffix, dir, made: Named::default(), state: Mutex::new(state) }))
    }

    /// The directory of backups, if it is there: nothing is deleted in it.
    pub(super) fn inode(&self) -> Option<Inode> {
        self.state.lock().inode
    }

    /// Whether this name is a backup of this copy.
    pub(super) fn has_made(&self, path: &[u8]) -> bool {
        self.made.has(path)
    }

    /// Whether the backup of a name that is deleted is in the same directory, which stays for it.
    pub(super) fn is_beside(&self, name: &[u8]) -> bool {
        self.dir.is_none() && self.keeps(name)
    }

    /// Whether a name that is deleted is kept as well: of a backup no other one is made.
    pub(super) fn keeps(&self, name: &[u8]) -> bool {
        self.dir.is_some() || !name.ends_with(&self.suffix)
    }
}

/// No other backup is made while this is held.
pub(super) type Kept<'b> = MutexGuard<'b, State>;

impl Directory {
    /// Backs up an entry whose name is about to be replaced or removed; directories are left to the code that
    /// removes them.
    pub(super) fn back_up(&self, at: &OwnedFd, name: &[u8], path: &[u8]) -> EntryResult<Option<Kept<'_>>> {
        self.back_up_by(at, name, path, false)
    }

    /// The same for a file that is about to be written to: the backup is a separate file.
    pub(super) fn back_up_copy(&self, at: &OwnedFd, name: &[u8], path: &[u8]) -> EntryResult {
        self.back_up_by(at, name, path, true).map(drop)
    }

    fn back_up_by(
        &self,
        at: &OwnedFd,
        name: &[u8],
        path: &[u8],
        copies: bool,
    ) -> EntryResult<Option<Kept<'_>>> {
        let (Some(backups), Some(staging)) = (&self.backups, &self.staging) else { return Ok(None) };
        let mut state = backups.state.lock();
        if look(at, name)?.is_none_or(|stat| kind(&stat) == FileType::Directory) {
            return Ok(Some(state));
        }
        let (to, target) = self.target(backups, &mut state, at, path)?;
        state.begun += 1;
        let temporary = format!("b{}", state.begun);
        let stage = &staging.stage.dir;
        match fs::linkat(at, name, stage, temporary.as_str(), AtFlags::empty()) {
            Ok(()) => self.give_backup(stage, &temporary, &to, &target, copies)?,
            Err(Errno::XDEV) => {
                let aside = cross_device::aside(at)?;
                let linked = fs::linkat(at, name, &aside.dir, OLD, AtFlags::empty()).doing(KEEP);
                let kept = linked.and_then(|()| self.give_backup(&aside.dir, OLD, &to, &target, copies));
                let removed = aside.remove(at);
                kept.and(removed)?;
            }
            Err(Errno::NOENT) => {}
            Err(Errno::PERM | Errno::MLINK | Errno::OPNOTSUPP | Errno::NOSYS) if !copies => {
                fs::renameat(at, name, &*to, target.as_slice()).doing(KEEP)?;
            }
            Err(e) => return Err(e).doing(KEEP),
        }
        if backups.dir.is_none() {
            backups.made.add(&beside(path, &target));
        }
        Ok(Some(state))
    }

    /// Gives `from/temporary`, a name in a private directory, its name as a backup.
    fn give_backup(
        &self,
        from: &OwnedFd,
        temporary: &str,
        to: &OwnedFd,
        target: &[u8],
        copies: bool,
    ) -> EntryResult {
        let renamed = if copies { Err(Errno::XDEV) } else { fs::renameat(from, temporary, to, target) };
        let renamed = match renamed {
            Err(Errno::XDEV) => {
                self.others.note(to)?;
                let aside = cross_device::aside(to)?;
                let each = self.spec.durable == Durable::Each;
                let copied = cross_device::duplicate(from, temporary.as_bytes(), &aside.dir, each)
                    .and_then(|()| fs::renameat(&aside.dir, cross_device::NEW, to, target).doing(KEEP));
                let removed = aside.remove(to);
                copied.and(removed)
            }
            Err(Errno::ISDIR | Errno::EXIST | Errno::NOTEMPTY) => Err(EntryError::because(
                KEEP,
                "a directory has the name of the backup; remove or rename the directory",
            )),
            other => other.doing(KEEP),
        };
        // It stays if the backup is this very file already.
        let _ = fs::unlinkat(from, temporary, AtFlags::empty());
        renamed
    }

    /// The directory and the name that a backup gets.
    fn target(
        &self,
        backups: &Backups,
        state: &mut State,
        at: &OwnedFd,
        path: &[u8],
    ) -> EntryResult<(Arc<OwnedFd>, Vec<u8>)> {
        let (parent, name) = split(path);
        let mut target = [name, &backups.suffix].concat();
        let Some(aside) = &backups.dir else {
            for _ in 0..TRIES {
                // A name that the source has is not taken either: it may be here already, and not be copied again.
                let beside = beside(path, &target);
                if !state.placed.has(&beside) && !self.named.as_ref().is_some_and(|named| named.has(&beside))
                {
                    break;
                }
                target.extend_from_slice(&backups.suffix);
            }
            let at = rustix::io::fcntl_dupfd_cloexec(at, 0).doing("open")?;
            return Ok((Arc::new(at), target));
        };
        if state.dirs.is_none() {
            let opened = self.place.way.make(&aside.path).and_then(|dir| state.open(dir));
            opened.map_err(|e| {
                EntryError::because(KEEP, &unreached("--backup-dir", &aside.name, e).to_string())
            })?;
        }
        let Some(dirs) = &mut state.dirs else {
            return Err(EntryError::because(KEEP, "missing backup directory"));
        };
        let mut made = Vec::new();
        let to = dirs.make(
            parent,
            &mut |path| {
                made.push(path.to_vec());
                Ok(())
            },
            &mut |_, _, _| Ok(()),
        )?;
        for path in made {
            self.copy_attributes(dirs, &path)?;
        }
        Ok((to, target))
    }

    /// Gives a directory of backups the owner, the mode and the access lists of the one at the destination.
    fn copy_attributes(&self, backups: &mut Dirs, path: &[u8]) -> EntryResult {
        let Some(staging) = &self.staging else { return Ok(()) };
        let made = reopen(&*backups.find(path).doing("open")?)?;
        let Ok(original) = Dirs::new(staging.base().clone()).find(path) else {
            let mode = Mode::from_raw_mode(0o777 & !self.owners.umask);
            return fs::fchmod(&made, mode).doing("set the mode of");
        };
        let stat = fs::fstat(&*original).doing("stat")?;
        if self.owners.is_root() {
            let (uid, gid) = (Uid::from_raw(stat.st_uid), Gid::from_raw(stat.st_gid));
            fs::fchown(&made, Some(uid), Some(gid)).doing("set the owner of")?;
        }
        let list = xattr::of_dir(&*original, acl::ATTRIBUTE);
        let mode = list.map_or(stat.st_mode, |list| acl::mode_without(&list, stat.st_mode)) & 0o7777;
        fs::fchmod(&made, Mode::from_raw_mode(mode)).doing("set the mode of")?;
        if self.owners.keeps_acls() { inherit::copy_lists(&original, &made) } else { Ok(()) }
    }
}

/// The path of a name in the directory of `path`.
fn beside(path: &[u8], name: &[u8]) -> Vec<u8> {
    let (parent, _) = split(path);
    if parent.is_empty() { name.to_vec() } else { [parent, name].join(&b'/') }
}

/// Notes that this copy has given a name, so that no backup takes it.
pub(super) fn placed(kept: &mut Option<Kept<'_>>, path: &[u8]) {
    if let Some(state) = kept {
        state.placed.add(path);
    }
}
