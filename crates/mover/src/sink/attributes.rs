//! Giving a name what belongs to it beside its bytes: owner, extended attributes, mode, time.

use std::collections::HashMap;
use std::sync::Arc;

use nix::unistd::{Group, User};
use parking_lot::Mutex;
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{
    self, AtFlags, FileType, Gid, Mode, Stat, Timespec, Timestamps, UTIME_OMIT, Uid, XattrFlags,
};
use rustix::io::Errno;

use tidecast_text::escaped_bytes;

use super::dirs::kind;
use super::trouble::{Doing, Tried};
use crate::entry::{Attributes, Owner, Time};
use crate::xattr;

/// Names that are remembered.
const NAMES: usize = 4096;

/// Numbers of users and (true) groups of this host, by name.
type Names = HashMap<(Arc<str>, bool), Option<u32>>;

/// Set-user-id and set-group-id.
const SET_UID: u32 = 0o4000;
const SET_GID: u32 = 0o2000;
/// Rights that a program has of its file, as set-user-id gives them.
const CAPABILITY: &[u8] = b"security.capability";

/// Who may own what this process writes.
#[derive(Debug)]
pub(super) struct Owners {
    /// Who owns what it makes.
    uid: u32,
    gid: u32,
    groups: Vec<u32>,
    /// Bits that the system takes away from the modes of new files.
    pub(super) umask: u32,
    names: Mutex<Names>,
}

impl Owners {
    pub(super) fn new() -> Self {
        let groups = rustix::process::getgroups().unwrap_or_default();
        Self {
            uid: rustix::process::geteuid().as_raw(),
            gid: rustix::process::getegid().as_raw(),
            groups: groups.into_iter().map(Gid::as_raw).collect(),
            umask: umask(),
            names: Mutex::default(),
        }
    }

    /// Who owns what this process makes.
    pub(super) fn own(&self) -> (u32, u32) {
        (self.uid, self.gid)
    }

    pub(super) fn is_root(&self) -> bool {
        self.uid == 0
    }

    /// The owner that an entry should have here, as far as this process may give it: by name, else by number.
    pub(super) fn resolve(&self, owner: &Owner) -> (u32, u32) {
        // All ones means "leave it" to the kernel, and is nobody's number.
        let valid = |id: u32, else_: u32| if id == u32::MAX { else_ } else { id };
        let (uid, gid) = self.meant(owner);
        let gid = valid(gid, self.gid);
        if self.is_root() {
            return (valid(uid, self.uid), gid);
        }
        (self.uid, if self.groups.contains(&gid) { gid } else { self.gid })
    }

    /// The owner that is meant, whoever may be given.
    fn meant(&self, owner: &Owner) -> (u32, u32) {
        (self.id(&owner.user, owner.uid, false), self.id(&owner.group, owner.gid, true))
    }

    /// The mode of an entry whose owner is `has`. Without its owner a program must not run with the rights of one: what was
    /// theirs to give would be given of others. With another group, others than its owner chose may run it.
    fn mode(&self, attributes: &Attributes, has: (u32, u32)) -> u32 {
        let mode = attributes.mode;
        if mode & (SET_UID | SET_GID) == 0 {
            return mode;
        }
        let meant = self.meant(&attributes.owner);
        match (meant.0 == has.0, meant.1 == has.1) {
            (true, true) => mode,
            (false, true) => mode & !SET_UID,
            (_, false) => mode & !(SET_UID | SET_GID),
        }
    }

    /// The same, and says what is missing.
    fn kept_mode(&self, attributes: &Attributes, has: (u32, u32), warn: &mut dyn FnMut(String)) -> u32 {
        let mode = self.mode(attributes, has);
        if mode != attributes.mode {
            warn("its set-user-id or set-group-id bit is dropped, since its owner is not kept".into());
        }
        mode
    }

    /// Whether an entry whose owner is `has` gets an attribute of that name.
    fn keeps(&self, name: &[u8], attributes: &Attributes, has: (u32, u32)) -> bool {
        xattr::travels(name, true) && (name != CAPABILITY || self.meant(&attributes.owner) == has)
    }

    /// The attributes that an entry gets whose owner is `has`.
    fn kept_xattrs<'a>(
        &self,
        attributes: &'a Attributes,
        has: (u32, u32),
    ) -> impl Iterator<Item = &'a (Vec<u8>, Vec<u8>)> {
        attributes.xattrs.iter().flatten().filter(move |(name, _)| self.keeps(name, attributes, has))
    }

    fn id(&self, name: &Arc<str>, number: u32, group: bool) -> u32 {
        if name.is_empty() || number == 0 {
            return number;
        }
        let key = (name.clone(), group);
        if let Some(id) = self.names.lock().get(&key) {
            return id.unwrap_or(number);
        }
        // Looked up without the lock: a directory service may take its time.
        let id = if group {
            Group::from_name(name).ok().flatten().map(|group| group.gid.as_raw())
        } else {
            User::from_name(name).ok().flatten().map(|user| user.uid.as_raw())
        };
        let mut names = self.names.lock();
        if names.len() >= NAMES {
            names.clear();
        }
        names.insert(key, id);
        id.unwrap_or(number)
    }

    /// The mode with which a file is made that is to have these attributes.
    pub(super) fn first_mode(&self, attributes: &Attributes) -> Mode {
        // Who may not write a file cannot give it attributes either.
        let write = if attributes.xattrs.as_ref().is_none_or(Vec::is_empty) { 0 } else { 0o600 };
        Mode::from_raw_mode(attributes.mode & 0o777 | write)
    }

    /// Dresses a file that was made with [`Owners::first_mode`] in a directory of ours. What could not be done is said to `warn`.
    pub(super) fn dress_new(
        &self,
        file: &OwnedFd,
        attributes: &Attributes,
        warn: &mut dyn FnMut(String),
    ) -> Tried {
        let owner = self.resolve(&attributes.owner);
        let chowned = owner != (self.uid, self.gid) && own(file, owner, warn);
        let mut has = if chowned { owner } else { (self.uid, self.gid) };
        if attributes.mode & (SET_UID | SET_GID) != 0
            || attributes.xattrs.as_ref().is_some_and(|x| !x.is_empty())
        {
            // A server may have made it another's.
            let stat = fs::fstat(file).doing("look at")?;
            has = (stat.st_uid, stat.st_gid);
        }
        self.set_xattrs(file, attributes, has, warn);
        let made = self.first_mode(attributes).bits() & !self.umask;
        let mode = self.kept_mode(attributes, has, warn);
        if made != mode || chowned {
            fs::fchmod(file, Mode::from_raw_mode(mode)).doing("set the mode of")?;
        }
        fs::futimens(file, &times(attributes.mtime)).doing("set the time of")
    }

    /// Gives an open file or directory what differs from what it has; true if something did.
    pub(super) fn dress(
        &self,
        file: &OwnedFd,
        stat: &Stat,
        attributes: &Attributes,
        warn: &mut dyn FnMut(String),
    ) -> Tried<bool> {
        let owner = self.resolve(&attributes.owner);
        let chowned = owner != (stat.st_uid, stat.st_gid) && own(file, owner, warn);
        let has = if chowned { owner } else { (stat.st_uid, stat.st_gid) };
        let mut changed = chowned
            | self.set_xattrs(file, attributes, has, warn)
            | self.drop_xattrs(file, attributes, has, warn);
        let mode = self.kept_mode(attributes, has, warn);
        if chowned || stat.st_mode & 0o7777 != mode {
            fs::fchmod(file, Mode::from_raw_mode(mode)).doing("set the mode of")?;
            changed = true;
        }
        if !same_time(stat, attributes.mtime) {
            fs::futimens(file, &times(attributes.mtime)).doing("set the time of")?;
            changed = true;
        }
        Ok(changed)
    }

    /// Takes away those that it should not have; true if it had one.
    fn drop_xattrs(
        &self,
        file: &OwnedFd,
        attributes: &Attributes,
        has: (u32, u32),
        warn: &mut dyn FnMut(String),
    ) -> bool {
        if attributes.xattrs.is_none() {
            return false;
        }
        let Ok(Some(here)) = xattr::of(file, self.is_root()) else { return false };
        let mut changed = false;
        let gone = |name: &[u8]| self.kept_xattrs(attributes, has).all(|(other, _)| other != name);
        for (name, _) in here.iter().filter(|(name, _)| gone(name)) {
            match fs::fremovexattr(file, name.as_slice()) {
                Ok(()) => changed = true,
                Err(e) => {
                    let name = escaped_bytes(name);
                    warn(format!("its attribute {name} could not be removed: {e}"));
                }
            }
        }
        changed
    }

    /// Whether [`Owners::dress`] has anything to do for this name.
    /// The mode of a link means nothing.
    pub(super) fn differ(&self, dir: &OwnedFd, name: &[u8], stat: &Stat, attributes: &Attributes) -> bool {
        let has = (stat.st_uid, stat.st_gid);
        let wanted: Vec<_> = self.kept_xattrs(attributes, has).collect();
        let is_link = kind(stat) == FileType::Symlink;
        !is_link && stat.st_mode & 0o7777 != self.mode(attributes, has)
            || !same_time(stat, attributes.mtime)
            || self.resolve(&attributes.owner) != has
            || attributes.xattrs.is_some()
                && match xattr::at(dir, name, self.is_root()) {
                    Ok(Some(here)) => {
                        here.len() != wanted.len() || here.iter().any(|pair| !wanted.contains(&pair))
                    }
                    // That they cannot be had here is told by whoever sets them.
                    Ok(None) | Err(_) => !wanted.is_empty(),
                }
    }

    /// Dresses what is no file, under a name in a directory of ours. A link has no mode.
    pub(super) fn dress_name(
        &self,
        dir: &OwnedFd,
        name: &str,
        attributes: &Attributes,
        link: bool,
        warn: &mut dyn FnMut(String),
    ) -> Tried {
        let owner @ (uid, gid) = self.resolve(&attributes.owner);
        if owner != (self.uid, self.gid) {
            let (uid, gid) = (Uid::from_raw(uid), Gid::from_raw(gid));
            if let Err(e) = fs::chownat(dir, name, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW) {
                warn(format!("its owner could not be set: {e}"));
            }
        }
        let stat = fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW).doing("look at")?;
        let has = (stat.st_uid, stat.st_gid);
        for (attribute, value) in self.kept_xattrs(attributes, has) {
            if let Err(e) = xattr::set_at(dir, name.as_bytes(), attribute, value) {
                let attribute = escaped_bytes(attribute);
                warn(format!("its attribute {attribute} could not be set: {e}"));
            }
        }
        if !link {
            let mode = Mode::from_raw_mode(self.kept_mode(attributes, has, warn));
            fs::chmodat(dir, name, mode, AtFlags::empty()).doing("set the mode of")?;
        }
        fs::utimensat(dir, name, &times(attributes.mtime), AtFlags::SYMLINK_NOFOLLOW).doing("set the time of")
    }

    /// Sets those that differ; true if one did.
    fn set_xattrs(
        &self,
        file: &OwnedFd,
        attributes: &Attributes,
        owner: (u32, u32),
        warn: &mut dyn FnMut(String),
    ) -> bool {
        let mut changed = false;
        for (name, value) in attributes.xattrs.iter().flatten() {
            if !self.keeps(name, attributes, owner) {
                let name = escaped_bytes(name);
                warn(format!("its attribute {name} is dropped, since its owner is not kept"));
                continue;
            }
            let mut has = vec![0; value.len() + 1];
            if fs::fgetxattr(file, name.as_slice(), has.as_mut_slice()) == Ok(value.len())
                && has[..value.len()] == *value
            {
                continue;
            }
            match fs::fsetxattr(file, name.as_slice(), value, XattrFlags::empty()) {
                Ok(()) => changed = true,
                Err(e) => {
                    let name = escaped_bytes(name);
                    warn(format!("its attribute {name} could not be set: {e}"));
                }
            }
        }
        changed
    }
}

fn own(file: &OwnedFd, (uid, gid): (u32, u32), warn: &mut dyn FnMut(String)) -> bool {
    let (uid, gid) = (Uid::from_raw(uid), Gid::from_raw(gid));
    let set = fs::fchown(file, Some(uid), Some(gid));
    if let Err(e) = set {
        warn(format!("its owner could not be set: {e}"));
    }
    set.is_ok()
}

pub(super) fn times(mtime: Time) -> Timestamps {
    Timestamps {
        last_access: Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT as _ },
        last_modification: Timespec { tv_sec: mtime.seconds, tv_nsec: i64::from(mtime.nanos) as _ },
    }
}

pub(super) fn mtime(stat: &Stat) -> Time {
    Time { seconds: stat.st_mtime, nanos: u32::try_from(stat.st_mtime_nsec).unwrap_or(0) }
}

/// To the second, if one of the two file systems counts no finer.
pub(super) fn same_time(stat: &Stat, time: Time) -> bool {
    let has = mtime(stat);
    has.seconds == time.seconds && (has.nanos == time.nanos || has.nanos == 0 || time.nanos == 0)
}

/// What the system takes away from modes; read, since asking for it any other way would change it.
fn umask() -> u32 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("Umask:"));
    line.and_then(|octal| u32::from_str_radix(octal.trim(), 8).ok()).unwrap_or(0o777)
}

/// What a file system without that says.
pub(super) fn unsupported(e: Errno) -> bool {
    matches!(e, Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL | Errno::PERM)
}

/// A directory of ours must not give what is made in it its own group or access list.
pub(super) fn plain(dir: impl AsFd) -> Result<(), Errno> {
    fs::fchmod(&dir, Mode::from_raw_mode(0o700))?;
    match fs::fremovexattr(&dir, "system.posix_acl_default") {
        Err(e) if e != Errno::NODATA && !unsupported(e) => Err(e),
        _ => Ok(()),
    }
}
