//! A bind mount of a cache, which a process makes by its own rights. The owner of the directory around it may exchange names
//! there: it is mounted on what was opened, not on what has the name.

use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

use rustix::fd::OwnedFd;
use rustix::fs::{Mode, OFlags, fstat, openat};
use rustix::io::Errno;
use rustix::mount::{
    MountFlags, MountPropagationFlags, UnmountFlags, mount_bind, mount_change, mount_remount, unmount,
};
use tidecast_paths::{Kind, Meta, Root, named};

use super::materialize::{Error, remove_replaced, scratch_name, unreplaceable};

/// A name only, and no link's target.
const NAMED: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// A read-only bind mount at `to`, which is made for it; `force`: a file or directory of that name is replaced.
pub(super) fn bind(path: &Path, to: &Path, force: bool) -> Result<PathBuf, Error> {
    let cannot = |source: std::io::Error| Error::Bind { path: path.to_owned(), to: to.to_owned(), source };
    let dir = to.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let name = to.file_name().ok_or_else(|| cannot(Errno::INVAL.into()))?;
    let root = Root::open(dir).map_err(cannot)?;
    let source = named(path).and_then(|found| Ok(Meta::of(&fstat(found)?))).map_err(cannot)?;
    let is_tree = source.kind == Kind::Dir;
    let there = root.look(name).map_err(cannot)?;
    if there.is_some_and(|there| there.id == source.id) && root.crosses_mount(name).map_err(cannot)? {
        return Ok(to.to_owned());
    }
    let left = there.filter(|there| there.kind == source.kind);
    let is_left = left.map_or(Ok(false), |there| is_left(&root, name.as_ref(), &there)).map_err(cannot)?;
    let aside = (there.is_some() && !is_left).then(scratch_name);
    if let Some(aside) = &aside {
        if !force {
            return Err(Error::Exists(to.to_owned()));
        }
        root.check_removable(name).map_err(unreplaceable(to))?;
        root.rename(name, aside, false).map_err(cannot)?;
    }
    let made = match is_tree {
        _ if is_left => Ok(()),
        true => root.make_dir(name, 0o777),
        false => root.create(name, 0o666).map(drop),
    };
    let mounted = made.and_then(|()| Ok(mount(&root, name.as_ref(), path, source.id)?));
    if let Err(error) = mounted {
        if !is_left {
            let _ = root.remove(name);
        }
        aside.iter().for_each(|aside| drop(root.rename(aside, name, false)));
        return Err(cannot(error));
    }
    match aside {
        Some(aside) => remove_replaced(&root, &aside, to).map(|()| to.to_owned()),
        None => Ok(to.to_owned()),
    }
}

/// Whether a name is what an ended bind mount leaves: an empty directory or file of this user.
fn is_left(root: &Root, name: &Path, there: &Meta) -> std::io::Result<bool> {
    Ok(match there.kind {
        _ if !there.is_mine() => false,
        Kind::Dir => root.list(name)?.is_empty(),
        Kind::File => there.len == 0,
        _ => false,
    })
}

fn mount(root: &Root, name: &Path, path: &Path, source: (u64, u64)) -> Result<(), Errno> {
    let open = || openat(root, name, NAMED, Mode::empty());
    mount_bind(path, by_descriptor(&open()?))?;
    // A name that is a mount point stays what it is.
    let mounted = open()?;
    if Meta::of(&fstat(&mounted)?).id != source {
        return Err(Errno::STALE);
    }
    let at = by_descriptor(&mounted);
    let flags = MountFlags::BIND | MountFlags::RDONLY | MountFlags::NOSUID | MountFlags::NODEV;
    let closed =
        mount_change(&at, MountPropagationFlags::PRIVATE).and_then(|()| mount_remount(&at, flags, ""));
    if closed.is_err() {
        let _ = unmount(&at, UnmountFlags::DETACH);
    }
    closed
}

/// The path by which the kernel finds what was opened and nothing else.
fn by_descriptor(fd: &OwnedFd) -> String {
    format!("/proc/self/fd/{}", fd.as_raw_fd())
}
