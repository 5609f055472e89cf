//! Access control of caches: by the permissions of their directory, where the file system can enforce them, and by
//! the index of rights.
//!
//! The whole store belongs to the user who runs this program, and nothing in it is ever given away: the owner
//! of a directory could open it to others, or replace a committed tree. Readers are admitted by an access
//! control list on `caches/ID`; below it every user may read, and only this program's user write. If the file
//! system has no such lists, only caches that every user may read are open, and other readers receive
//! descriptors from the daemon.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use rustix::fs::{self, Mode, Uid, XattrFlags};
use rustix::io::Errno;
use serde_json::Value;
use tidecast_paths::{Kind, Root, is_link, sync};

use crate::error::{Context, Error};
use crate::layout::Layout;
use crate::object::Parts;
use crate::{CacheId, CacheRecord, Depot, Local};
use tidecast_paths::acl::{self, Acl};

/// Read and enter.
const ENTER: u16 = 0o5;

/// Properties of a cache that its owner decides.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Access {
    /// Group of its readers.
    pub group: Option<String>,
    /// Permission to read: of 0o444, the bits for owner, group and others.
    pub mode: u32,
    /// It leaves the host only by a direct, authenticated stream (kept for the caller).
    pub private: bool,
    /// The local user and group among its readers.
    pub local: Option<Local>,
    /// The caller's own.
    pub attributes: BTreeMap<String, Value>,
}

impl Depot {
    /// Changes the readers of a committed cache, and the caller's attributes.
    ///
    /// # Errors
    /// [`Error::NoCache`], [`Error::State`]; errors of disk and database.
    pub fn set_access(&self, id: CacheId, access: &Access) -> Result<(), Error> {
        let _disk = self.0.disk.lock();
        let old = self.committed(id)?;
        let parts = Parts::of(&self.0.layout.manifest_in(&self.0.layout.cache(id))?)?;
        // Removed readers lose access first, and new readers get it last: safe at any interruption.
        let common = if old.group == access.group { 0o444 } else { 0o404 };
        self.expose(&CacheRecord { mode: old.mode & access.mode & common, ..CacheRecord::clone(&old) })?;
        let new = self.0.write(|t| {
            // Changes made meanwhile (lease, pin) count.
            let old = self.committed(id)?;
            let new = CacheRecord {
                group: access.group.clone(),
                mode: access.mode & 0o444,
                private: access.private,
                local: access.local,
                attributes: access.attributes.clone(),
                ..CacheRecord::clone(&old)
            };
            t.withdraw(&old, &parts.objects)?;
            t.grant(&new, &parts.objects)?;
            t.put(new.clone())?;
            Ok(new)
        })?;
        self.expose(&new)
    }

    /// Opens the directory of a cache to its readers.
    pub(crate) fn expose(&self, record: &CacheRecord) -> Result<(), Error> {
        let path = self.0.layout.cache(record.id);
        let dir = own_dir(&self.0.layout, &path)?;
        let_in(&dir, &Readers::of(record)).at("set the access rights of", &path)?;
        sync(&dir).at("sync", &path)
    }

    /// Closes the directory of a cache to all users but this store's.
    pub(crate) fn conceal(&self, id: CacheId) -> Result<(), Error> {
        let path = self.0.layout.cache(id);
        let dir = match own_dir(&self.0.layout, &path) {
            Err(Error::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => return Ok(()),
            other => other?,
        };
        // The mode's middle digit is the mask of a list, so this closes it to all users on the list.
        fs::fchmod(&dir, Mode::from_raw_mode(0o700)).at("set the mode of", &path)?;
        sync(&dir).at("sync", &path)
    }

    /// Takes back the directory of a committed cache from its owner, which got it from an older program, and
    /// sets its permissions from the record. False: another program has created the path.
    pub(crate) fn reclaim(&self, record: &CacheRecord) -> Result<bool, Error> {
        let path = self.0.layout.cache(record.id);
        let there = self.0.layout.look(&path).at("stat", &path)?;
        if !there.is_dir() {
            return Ok(false);
        }
        let was_given_away = !there.is_mine();
        if was_given_away {
            self.conceal(record.id)?;
        }
        if !self.is_ours(record)? {
            return Ok(false);
        }
        if was_given_away || there.mode != Readers::of(record).mode() {
            self.expose(record)?;
        }
        Ok(true)
    }

    /// Whether the path to the view of a cache consists of this program's own directories, without links.
    pub(crate) fn is_ours(&self, record: &CacheRecord) -> Result<bool, Error> {
        let cache = self.0.layout.cache(record.id);
        let is_own = |path: &Path, kinds: &[Kind]| match self.0.layout.look(path) {
            Ok(there) => Ok(there.is_mine() && kinds.contains(&there.kind)),
            Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => Ok(false),
            Err(e) if is_link(&e) => Ok(false),
            Err(e) => Err(e).at("stat", path),
        };
        let any = [Kind::Dir, Kind::File, Kind::Symlink];
        Ok(is_own(&cache, &any[..1])?
            && is_own(&cache.join("manifest"), &any[1..2])?
            && is_own(&cache.join("tree"), &any[..1])?
            && is_own(&self.0.layout.view(record), &any)?)
    }
}

/// The users that may enter a directory besides its owner.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Readers {
    users: Vec<u32>,
    groups: Vec<u32>,
    others: bool,
}

impl Readers {
    fn of(record: &CacheRecord) -> Self {
        if record.mode & 0o004 != 0 {
            return Self { others: true, ..Self::default() };
        }
        let Some(local) = record.local else { return Self::default() };
        let is_read_by_group =
            record.mode & 0o040 != 0 && record.group.is_some() && local.gid != Local::NO_GROUP;
        Self {
            users: Some(local.uid).filter(|uid| *uid != euid().as_raw()).into_iter().collect(),
            groups: Some(local.gid).filter(|_| is_read_by_group).into_iter().collect(),
            others: false,
        }
    }

    /// The mode of a directory with these rights: with a list, its mask.
    fn mode(&self) -> u32 {
        match self {
            Self { others: true, .. } => 0o555,
            Self { users, groups, .. } if users.is_empty() && groups.is_empty() => 0o500,
            _ => 0o550,
        }
    }

    fn acl(&self) -> Acl {
        let may = |ids: &[u32]| ids.iter().map(|id| (*id, ENTER)).collect();
        Acl {
            owner: ENTER,
            users: may(&self.users),
            groups: may(&self.groups),
            mask: Some(ENTER),
            ..Acl::default()
        }
    }
}

/// Gives a directory these rights, and no others.
fn let_in(dir: &Root, readers: &Readers) -> io::Result<()> {
    let are_named = !readers.users.is_empty() || !readers.groups.is_empty();
    if are_named {
        // The list sets the mode with it, in one step.
        match fs::fsetxattr(dir, acl::ATTRIBUTE, &readers.acl().encode(), XattrFlags::empty()) {
            Ok(()) => return Ok(()),
            // No lists here, no room for one, or a user that this namespace does not know: they are given descriptors.
            Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::NOSPC | Errno::INVAL) => {}
            Err(e) => return Err(e.into()),
        }
    }
    match fs::fremovexattr(dir, acl::ATTRIBUTE) {
        Ok(()) | Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::NODATA) => {}
        Err(e) => return Err(e.into()),
    }
    let stat = fs::fstat(dir)?;
    let by_group = readers.groups.contains(&stat.st_gid);
    let mode = if readers.others {
        0o555
    } else if by_group {
        0o550
    } else {
        0o500
    };
    Ok(fs::fchmod(dir, Mode::from_raw_mode(mode))?)
}

/// Opens a directory of the store that is this program's own. One that an older program has given to another user is taken
/// back, which takes root.
pub(crate) fn own_dir(layout: &Layout, path: &Path) -> Result<Root, Error> {
    let opened = layout.beneath(path).and_then(|below| layout.dir.sub(below));
    let dir = match opened {
        Err(e) if is_link(&e) || e.kind() == io::ErrorKind::NotADirectory => {
            return Err(Error::Changed { path: path.to_owned(), why: "not a directory" });
        }
        other => other.at("open", path)?,
    };
    let there = dir.stat("").at("stat", path)?;
    if there.is_mine() {
        return Ok(dir);
    }
    if !euid().is_root() {
        return Err(Error::Foreign { path: path.to_owned(), owner: there.uid });
    }
    let group = rustix::process::getegid().as_raw();
    dir.chown("", Some(euid().as_raw()), Some(group)).at("change the owner of", path)?;
    Ok(dir)
}

fn euid() -> Uid {
    rustix::process::geteuid()
}
