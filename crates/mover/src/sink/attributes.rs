//! Sets the attributes of an entry: owner, extended attributes, mode, time.

use std::borrow::Cow;
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

use super::dirs::{is_planted, kind};
use super::entry_error::{Doing, EntryResult};
use super::inherit::{self, DefaultAcl, Inherited};
use crate::entry::{Attributes, Entry, Kind, Owner, Time};
use crate::error::Error;
use crate::flags::{Alter, Keep};
use crate::spec::{Accept, ReceiveSpec};
use crate::xattr;

/// Names that are remembered.
const NAMES: usize = 4096;

/// Numbers of users and (true) groups of this host, by name.
type Names = HashMap<(Arc<str>, bool), Option<u32>>;

/// Set-user-id and set-group-id.
pub(super) const SET_UID: u32 = 0o4000;
pub(super) const SET_GID: u32 = 0o2000;
/// Rights that a program has of its file, as set-user-id gives them.
const CAPABILITY: &[u8] = b"security.capability";

/// The owners that this process may set.
#[derive(Debug)]
pub(super) struct Owners {
    /// The owner of files that it creates.
    uid: u32,
    gid: u32,
    groups: Vec<u32>,
    /// Bits that the system takes away from the modes of new files.
    pub(super) umask: u32,
    keep: Keep,
    alter: Alter,
    /// The owner of everything, if set.
    user: Option<u32>,
    group: Option<u32>,
    /// See [`crate::flags::Only::window`].
    window: Option<i64>,
    names: Mutex<Names>,
}

impl Owners {
    /// # Errors
    /// When a name that is to own everything is not known here.
    pub(super) fn new(spec: &ReceiveSpec, accept: Accept) -> Result<Self, Error> {
        let groups = rustix::process::getgroups().unwrap_or_default();
        let mut alter = spec.alter.clone();
        if accept != Accept::All {
            (alter.user, alter.group) = (None, None);
        }
        Ok(Self {
            uid: rustix::process::geteuid().as_raw(),
            gid: rustix::process::getegid().as_raw(),
            groups: groups.into_iter().map(Gid::as_raw).collect(),
            umask: tidecast_paths::umask(),
            // Lists that a client may not store are not kept: files get what their directory passes on.
            keep: Keep { acls: spec.keep.acls && accept == Accept::All, ..spec.keep },
            user: alter.user.as_deref().map(|name| known("user", name, user)).transpose()?,
            group: alter.group.as_deref().map(|name| known("group", name, group)).transpose()?,
            alter,
            // With --checksum, times do not decide whether a file is copied, so the window is not used.
            window: spec.only.window.filter(|_| !spec.checksum),
            names: Mutex::default(),
        })
    }

    /// Changes an entry to its state here: its owner, and its mode.
    pub(super) fn alter(&self, entry: &mut Entry) {
        let attributes = &mut entry.attributes;
        if !self.alter.chmod.is_empty() && !matches!(entry.kind, Kind::Symlink { .. }) {
            let is_dir = entry.kind == Kind::Dir;
            attributes.mode = self.alter.chmod.apply(attributes.mode, is_dir, self.umask);
        }
        let owner = &mut attributes.owner;
        if let Some(uid) = self.user {
            (owner.uid, owner.user) = (uid, Arc::default());
        }
        if let Some(gid) = self.group {
            (owner.gid, owner.group) = (gid, Arc::default());
        }
    }

    /// The attributes of an entry with the mode that it gets: without [`Keep::perms`] that which the name has, or which the system
    /// would give it in a directory with this default access list.
    pub(super) fn settled<'a>(
        &self,
        entry: &'a Entry,
        there: Option<&Stat>,
        acl: Option<&DefaultAcl>,
    ) -> Cow<'a, Attributes> {
        if self.keep.perms {
            return Cow::Borrowed(&entry.attributes);
        }
        let mut attributes = entry.attributes.clone();
        let executes = attributes.mode & 0o111 != 0;
        attributes.mode = match there.map(|stat| stat.st_mode & 0o7777) {
            None => attributes.mode & self.usual(acl),
            Some(mode) if !self.keep.executability || !matches!(entry.kind, Kind::File { .. }) => mode,
            Some(mode) if !executes => mode & !0o111,
            Some(mode) if mode & 0o111 != 0 => mode,
            // Executable by every class that may read it.
            Some(mode) => mode | (mode & 0o444) >> 2,
        };
        Cow::Owned(attributes)
    }

    /// Whether access lists are copied.
    pub(super) fn keeps_acls(&self) -> bool {
        self.keep.acls
    }

    /// Whether the entry that has this name affects the mode of the one that replaces it.
    pub(super) fn keeps_old_mode(&self) -> bool {
        !self.keep.perms
    }

    pub(super) fn keeps_time(&self, kind: FileType) -> bool {
        self.keep.times
            && match kind {
                FileType::Directory => self.keep.dir_times,
                FileType::Symlink => self.keep.link_times,
                _ => true,
            }
    }

    /// Whether a name has that time, as far as the two file systems can tell.
    pub(super) fn same_time(&self, stat: &Stat, time: Time) -> bool {
        let has = mtime(stat);
        match self.window {
            None => same_time(stat, time),
            Some(..0) => has == time,
            Some(window) => has.seconds.abs_diff(time.seconds) <= window.unsigned_abs(),
        }
    }

    /// The owner of files that this process creates.
    pub(super) fn own(&self) -> (u32, u32) {
        (self.uid, self.gid)
    }

    pub(super) fn is_root(&self) -> bool {
        self.uid == 0
    }

    /// The owner that an entry should have here, as far as this process may set it: by name, else by number.
    /// If it is not kept, it is as it `has` it.
    pub(super) fn resolve(&self, owner: &Owner, has: (u32, u32)) -> (u32, u32) {
        // All ones means "unchanged" to the kernel, and is not a valid number.
        let valid = |id: u32, else_: u32| if id == u32::MAX { else_ } else { id };
        let (uid, gid) = self.named_owner(owner);
        let gid = valid(gid, self.gid);
        let (uid, gid) = if self.is_root() {
            (valid(uid, self.uid), gid)
        } else {
            (self.uid, if self.groups.contains(&gid) { gid } else { self.gid })
        };
        (if self.keep.owner { uid } else { has.0 }, if self.keep.group { gid } else { has.1 })
    }

    /// The owner of files that this process creates in a directory.
    pub(super) fn own_in(&self, dir: &OwnedFd) -> (u32, u32) {
        let (uid, gid) = self.own();
        let passed_on = || fs::fstat(dir).ok().filter(|stat| stat.st_mode & SET_GID != 0);
        let group = if self.keep.group { None } else { passed_on() };
        (uid, group.map_or(gid, |stat| stat.st_gid))
    }

    /// What a directory passes on, as far as the flags do not set it.
    pub(super) fn inherited(&self, dir: &OwnedFd) -> Inherited {
        Inherited { owner: self.own_in(dir), acl: self.default_acl(dir) }
    }

    /// The default access list of a directory, unless access lists are kept.
    pub(super) fn default_acl(&self, dir: &OwnedFd) -> Option<DefaultAcl> {
        if self.keep.xattr(inherit::DEFAULT.as_bytes()) { None } else { DefaultAcl::of(dir) }
    }

    /// The bits of a mode that a new entry of a directory with this list may have.
    pub(super) fn usual(&self, acl: Option<&DefaultAcl>) -> u32 {
        acl.map_or(0o777 & !self.umask, DefaultAcl::mode)
    }

    /// The intended owner, whichever may be set.
    fn named_owner(&self, owner: &Owner) -> (u32, u32) {
        (self.id(&owner.user, owner.uid, false), self.id(&owner.group, owner.gid, true))
    }

    /// Whether the file that has an entry's name may have been planted by another user, and must be replaced: size and
    /// time do not show its content, and its owner may have it open. As root: if it would become a program that runs
    /// with rights of others than its owner. Else: if it is in a directory where all users may create names.
    pub(super) fn distrusts(&self, dir: &OwnedFd, stat: &Stat, attributes: &Attributes) -> EntryResult<bool> {
        let has = stat.st_uid;
        if has == self.uid || has == 0 {
            return Ok(false);
        }
        if !self.is_root() {
            return is_planted(dir, stat).doing("stat");
        }
        let (gets, _) = self.resolve(&attributes.owner, (has, stat.st_gid));
        let capable = || attributes.xattrs.iter().flatten().any(|(name, _)| name == CAPABILITY);
        Ok(gets != has && (attributes.mode & (SET_UID | SET_GID) != 0 && self.keep.perms || capable()))
    }

    /// The mode of an entry whose owner is `has`. Without its owner, set-user-ID would grant the rights of
    /// another user. With another group, other users than its owner chose could run it.
    fn mode(&self, attributes: &Attributes, has: (u32, u32)) -> u32 {
        let mode = attributes.mode;
        // If it is not the entry's mode, it is from this host already.
        if mode & (SET_UID | SET_GID) == 0 || !self.keep.perms {
            return mode;
        }
        let meant = self.named_owner(&attributes.owner);
        match (meant.0 == has.0, meant.1 == has.1) {
            (true, true) => mode,
            (false, true) => mode & !SET_UID,
            (_, false) => mode & !(SET_UID | SET_GID),
        }
    }

    /// The same, and warns of dropped bits.
    fn kept_mode(&self, attributes: &Attributes, has: (u32, u32), warn: &mut dyn FnMut(String)) -> u32 {
        let mode = self.mode(attributes, has);
        if mode != attributes.mode {
            warn("set-user-ID or set-group-ID bit dropped because the owner is not kept".into());
        }
        mode
    }

    /// Whether an entry whose owner is `has` gets an attribute of that name.
    fn keeps(&self, name: &[u8], attributes: &Attributes, has: (u32, u32)) -> bool {
        xattr::travels(name, true)
            && self.keep.xattr(name)
            && (name != CAPABILITY || self.named_owner(&attributes.owner) == has)
    }

    /// The attributes that an entry gets whose owner is `has`.
    fn kept_xattrs<'a>(
        &self,
        attributes: &'a Attributes,
        has: (u32, u32),
    ) -> impl Iterator<Item = &'a (Vec<u8>, Vec<u8>)> {
        attributes.xattrs.iter().flatten().filter(move |(name, _)| self.keeps(name, attributes, has))
    }

    fn id(&self, name: &Arc<str>, number: u32, is_group: bool) -> u32 {
        if name.is_empty() || number == 0 || self.alter.numeric_ids {
            return number;
        }
        let key = (name.clone(), is_group);
        if let Some(id) = self.names.lock().get(&key) {
            return id.unwrap_or(number);
        }
        // Looked up without the lock: a directory service may take its time.
        let id = if is_group { group(name) } else { user(name) };
        let mut names = self.names.lock();
        if names.len() >= NAMES {
            names.clear();
        }
        names.insert(key, id);
        id.unwrap_or(number)
    }

    /// The mode with which a file is made that is to have these attributes.
    pub(super) fn first_mode(&self, attributes: &Attributes) -> Mode {
        // Without write access to a file its attributes cannot be set either.
        let write = if attributes.xattrs.as_ref().is_none_or(Vec::is_empty) { 0 } else { 0o600 };
        Mode::from_raw_mode(attributes.mode & 0o777 | write)
    }

    /// Sets the attributes of a file that was made with [`Owners::first_mode`] in a directory of ours, and
    /// which gets this at its final place. Failures are passed to `warn`.
    pub(super) fn apply_new(
        &self,
        file: &OwnedFd,
        attributes: &Attributes,
        inherited: &Inherited,
        warn: &mut dyn FnMut(String),
    ) -> EntryResult {
        let owner = self.resolve(&attributes.owner, inherited.owner);
        let chowned = owner != (self.uid, self.gid) && own(file, owner, warn);
        let mut has = if chowned { owner } else { (self.uid, self.gid) };
        // An access list sets the mode as well.
        let has_xattrs = attributes.xattrs.as_ref().is_some_and(|x| !x.is_empty());
        if attributes.mode & (SET_UID | SET_GID) != 0 || has_xattrs {
            // A server may have made it another's.
            let stat = fs::fstat(file).doing("stat")?;
            has = (stat.st_uid, stat.st_gid);
        }
        self.set_xattrs(file, attributes, has, warn);
        let has_list = give(inherited, warn, |acl| acl.give(file));
        let made = self.first_mode(attributes).bits() & !self.umask;
        let mode = self.kept_mode(attributes, has, warn);
        if made != mode || chowned || has_xattrs || has_list {
            fs::fchmod(file, Mode::from_raw_mode(mode)).doing("set the mode of")?;
        }
        if !self.keep.times {
            return Ok(());
        }
        fs::futimens(file, &times(attributes.mtime)).doing("set the time of")
    }

    /// Sets the differing attributes of an open file or directory; true if one was set.
    pub(super) fn apply(
        &self,
        file: &OwnedFd,
        stat: &Stat,
        attributes: &Attributes,
        warn: &mut dyn FnMut(String),
    ) -> EntryResult<bool> {
        let inherited = Inherited { owner: (stat.st_uid, stat.st_gid), acl: None };
        self.apply_as(file, stat, attributes, &inherited, warn)
    }

    /// The same for an entry that is new, and gets this at its final place.
    pub(super) fn apply_as(
        &self,
        file: &OwnedFd,
        stat: &Stat,
        attributes: &Attributes,
        inherited: &Inherited,
        warn: &mut dyn FnMut(String),
    ) -> EntryResult<bool> {
        let owner = self.resolve(&attributes.owner, inherited.owner);
        let chowned = owner != (stat.st_uid, stat.st_gid) && own(file, owner, warn);
        let has = if chowned { owner } else { (stat.st_uid, stat.st_gid) };
        // An access list sets the mode as well.
        let mut changed = chowned
            | self.set_xattrs(file, attributes, has, warn)
            | self.drop_xattrs(file, attributes, has, warn)
            | give(inherited, warn, |acl| acl.give(file));
        let mode = self.kept_mode(attributes, has, warn);
        if changed || stat.st_mode & 0o7777 != mode {
            fs::fchmod(file, Mode::from_raw_mode(mode)).doing("set the mode of")?;
            changed = true;
        }
        if self.keeps_time(kind(stat)) && !self.same_time(stat, attributes.mtime) {
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
        for (name, _) in here.iter().filter(|(name, _)| self.keep.xattr(name) && gone(name)) {
            match fs::fremovexattr(file, name.as_slice()) {
                Ok(()) => changed = true,
                Err(e) => {
                    let name = escaped_bytes(name);
                    warn(format!("cannot remove attribute {name}: {e}"));
                }
            }
        }
        changed
    }

    /// The differences between a name and the result of [`Owners::apply`]. The mode of a link is ignored.
    pub(super) fn differ(&self, dir: &OwnedFd, name: &[u8], stat: &Stat, attributes: &Attributes) -> Differs {
        let has = (stat.st_uid, stat.st_gid);
        let owner = self.resolve(&attributes.owner, has);
        let wanted: Vec<_> = self.kept_xattrs(attributes, owner).collect();
        let mut differs = Differs {
            time: self.keeps_time(kind(stat)) && !self.same_time(stat, attributes.mtime),
            perms: kind(stat) != FileType::Symlink && stat.st_mode & 0o7777 != self.mode(attributes, owner),
            owner: owner.0 != has.0,
            group: owner.1 != has.1,
            ..Differs::default()
        };
        if attributes.xattrs.is_some() {
            // Lack of support here is reported when attributes are set.
            let here = xattr::at(dir, name, self.is_root()).ok().flatten().unwrap_or_default();
            let here: Vec<_> = here.iter().filter(|(name, _)| self.keep.xattr(name)).collect();
            let differ = |acl: bool| {
                let of = |pairs: &[&'_ (Vec<u8>, Vec<u8>)]| -> Vec<(Vec<u8>, Vec<u8>)> {
                    pairs
                        .iter()
                        .filter(|(name, _)| xattr::is_acl(name) == acl)
                        .map(|pair| (*pair).clone())
                        .collect()
                };
                let (here, wanted) = (of(&here), of(&wanted));
                here.len() != wanted.len() || here.iter().any(|pair| !wanted.contains(pair))
            };
            (differs.acl, differs.xattr) = (differ(true), differ(false));
        }
        differs
    }

    /// Sets the attributes of an entry other than a file, under a name in a directory of ours. A link has no
    /// mode.
    pub(super) fn apply_to_name(
        &self,
        dir: &OwnedFd,
        name: &str,
        attributes: &Attributes,
        inherited: &Inherited,
        warn: &mut dyn FnMut(String),
    ) -> EntryResult {
        let owner @ (uid, gid) = self.resolve(&attributes.owner, inherited.owner);
        if owner != (self.uid, self.gid) {
            let (uid, gid) = (Uid::from_raw(uid), Gid::from_raw(gid));
            if let Err(e) = fs::chownat(dir, name, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW) {
                warn(format!("cannot set the owner: {e}"));
            }
        }
        let stat = fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW).doing("stat")?;
        let has = (stat.st_uid, stat.st_gid);
        for (attribute, value) in self.kept_xattrs(attributes, has) {
            if let Err(e) = xattr::set_at(dir, name.as_bytes(), attribute, value) {
                let attribute = escaped_bytes(attribute);
                warn(format!("cannot set attribute {attribute}: {e}"));
            }
        }
        if kind(&stat) != FileType::Symlink {
            give(inherited, warn, |acl| acl.give_name(dir, name));
            let mode = Mode::from_raw_mode(self.kept_mode(attributes, has, warn));
            fs::chmodat(dir, name, mode, AtFlags::empty()).doing("set the mode of")?;
        }
        if !self.keeps_time(kind(&stat)) {
            return Ok(());
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
                warn(format!("attribute {name} dropped because the owner is not kept"));
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
                    warn(format!("cannot set attribute {name}: {e}"));
                }
            }
        }
        changed
    }
}

/// Gives a new entry the access list that its directory passes on, if there is one; true if it has it.
fn give(
    inherited: &Inherited,
    warn: &mut dyn FnMut(String),
    to: impl FnOnce(&DefaultAcl) -> Result<(), Errno>,
) -> bool {
    let given = inherited.acl.as_ref().map(to);
    if let Some(Err(e)) = given {
        warn(format!("cannot set the access list that the directory passes on: {e}"));
    }
    given == Some(Ok(()))
}

/// The differences between a name and its entry, beside its content.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Differs {
    pub(super) time: bool,
    pub(super) perms: bool,
    pub(super) owner: bool,
    pub(super) group: bool,
    pub(super) acl: bool,
    pub(super) xattr: bool,
}

impl Differs {
    pub(super) fn any(self) -> bool {
        self != Self::default()
    }
}

fn user(name: &str) -> Option<u32> {
    User::from_name(name).ok().flatten().map(|user| user.uid.as_raw())
}

fn group(name: &str) -> Option<u32> {
    Group::from_name(name).ok().flatten().map(|group| group.gid.as_raw())
}

/// The number of a name, which may be a number itself.
fn known(what: &str, name: &str, find: fn(&str) -> Option<u32>) -> Result<u32, Error> {
    let number = || name.parse().ok().filter(|number| *number != u32::MAX);
    find(name).or_else(number).ok_or_else(|| {
        let name = tidecast_text::escaped(name);
        Error::Usage(format!(
            "--chown: the receiving host has no {what} {name}; use a name known there, or a number"
        ))
    })
}

fn own(file: &OwnedFd, (uid, gid): (u32, u32), warn: &mut dyn FnMut(String)) -> bool {
    let (uid, gid) = (Uid::from_raw(uid), Gid::from_raw(gid));
    let set = fs::fchown(file, Some(uid), Some(gid));
    if let Err(e) = set {
        warn(format!("cannot set the owner: {e}"));
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

/// The errors of a file system without support.
pub(super) fn unsupported(e: Errno) -> bool {
    matches!(e, Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL | Errno::PERM)
}

/// A directory of ours must not pass a group or access list to the files made in it.
pub(super) fn plain(dir: impl AsFd) -> Result<(), Errno> {
    fs::fchmod(&dir, Mode::from_raw_mode(0o700))?;
    match fs::fremovexattr(&dir, "system.posix_acl_default") {
        Err(e) if e != Errno::NODATA && !unsupported(e) => Err(e),
        _ => Ok(()),
    }
}
