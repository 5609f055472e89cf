//! A view of a directory with one more place in it, in a mount namespace of our own, where the user may make none for real.
//!
//! An empty file system in memory covers the directory, everything in it is bound into that, and it becomes read-only: a
//! file that the command wants to write beside the place is an error, and not lost with the view. A directory that cannot
//! be listed, or holds more than may be bound, is the lower layer of an overlay instead, without an upper one.

use std::collections::BTreeSet;
use std::ffi::{CString, OsString};
use std::fs::{self, DirBuilder, File};
use std::io::ErrorKind;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};
use rustix::mount::{MountFlags, mount, mount_bind, mount_bind_recursive, mount_remount};

use super::error::{Error, failed};
use crate::mountpoint::table_path;
use crate::place::Absent;

type Result<T> = std::result::Result<T, Error>;

/// More names than this are not bound one by one: each takes a mount, of which a namespace has 100,000
/// (`fs.mount-max`).
const MOST: usize = 10_000;

/// Shows the command the place. `scratch` is an empty directory, in which a new root may be made.
///
/// # Errors
/// The system refuses.
pub fn show(absent: &Absent, scratch: &Path) -> Result<PathBuf> {
    let above = absent.above();
    let held = open(above)?;
    let at = absent.path();
    let is_root = above == Path::new("/");
    let over = if is_root { scratch } else { above };
    match list(&held) {
        Ok(names) if names.len() <= MOST => cover(&held, over, &names, absent),
        Ok(_) => overlay(&held, over, scratch, absent),
        Err(error) if error.kind() == ErrorKind::PermissionDenied => overlay(&held, over, scratch, absent),
        Err(error) => Err(error.into()),
    }
    .map_err(|why| {
        failed(format!("cannot show {} to the command", at.display()))(std::io::Error::other(why))
    })?;
    if is_root {
        std::os::unix::fs::chroot(scratch).map_err(failed("cannot change the root"))?;
        std::env::set_current_dir("/").map_err(failed("cannot enter the new root"))?;
    }
    Ok(at)
}

fn open(dir: &Path) -> Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let held = rustix::fs::open(dir, flags, Mode::empty());
    held.map_err(failed(format!("cannot open {}", dir.display())))
}

/// The identity of a directory, valid also when it is covered.
fn before(held: &OwnedFd) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", held.as_raw_fd()))
}

fn list(held: &OwnedFd) -> std::io::Result<Vec<OsString>> {
    let entries = fs::read_dir(before(held))?;
    // One more than is bound tells that there are too many.
    entries.take(MOST + 1).map(|entry| Ok(entry?.file_name())).collect()
}

fn make_place(in_dir: &Path, absent: &Absent) -> std::io::Result<()> {
    let place = in_dir.join(absent.missing().iter().collect::<PathBuf>());
    DirBuilder::new().recursive(true).mode(0o755).create(place)
}

fn memory(over: &Path) -> std::io::Result<()> {
    Ok(mount("tidecast", over, "tmpfs", MountFlags::NOSUID | MountFlags::NODEV, c"mode=755")?)
}

/// Covers `over` by an empty file system, binds all that is in the directory into it, and makes it read-only.
fn cover(held: &OwnedFd, over: &Path, names: &[OsString], absent: &Absent) -> Result<()> {
    let before = before(held);
    memory(over)?;
    for name in names {
        match bind(&before.join(name), &over.join(name)) {
            Ok(()) => {}
            // Gone meanwhile, or hidden from this user anyway.
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::PermissionDenied) => {
                tracing::debug!(name = %name.display(), %error, "not visible to the command");
            }
            Err(error) => return Err(failed(format!("cannot bind-mount {}", name.display()))(error)),
        }
    }
    make_place(over, absent)?;
    let flags = MountFlags::BIND | MountFlags::RDONLY | MountFlags::NOSUID | MountFlags::NODEV;
    mount_remount(over, flags, "").map_err(|e| Error::System(e.into()))
}

fn bind(old: &Path, new: &Path) -> std::io::Result<()> {
    let kind = fs::symlink_metadata(old)?.file_type();
    if kind.is_symlink() {
        return std::os::unix::fs::symlink(fs::read_link(old)?, new);
    }
    if kind.is_dir() {
        fs::create_dir(new)?;
    } else {
        File::create(new)?;
    }
    Ok(mount_bind_recursive(old, new)?)
}

/// Covers `over` by a read-only overlay of the place and the directory. Mounts in the directory, and the
/// paths to the user's own directories, are bound into it as they are.
fn overlay(held: &OwnedFd, over: &Path, scratch: &Path, absent: &Absent) -> Result<()> {
    let (before, kept) = (before(held), kept(absent.above())?);
    memory(scratch)?;
    let (layer, merged) = (scratch.join("layer"), scratch.join("merged"));
    for dir in [&layer, &merged] {
        DirBuilder::new().mode(0o755).create(dir)?;
    }
    make_place(&layer, absent)?;
    // The directory by its descriptor: a path could hold the characters that part options.
    std::env::set_current_dir(scratch)?;
    let options = CString::new(format!("lowerdir=layer:{}", before.display()));
    let options = options.map_err(std::io::Error::other)?;
    let flags = MountFlags::RDONLY | MountFlags::NOSUID | MountFlags::NODEV;
    mount("tidecast", &merged, "overlay", flags, options.as_c_str()).map_err(failed(
        "the directory cannot be listed or holds too many files, and this kernel has no overlayfs for users",
    ))?;
    for name in kept {
        let (old, new) = (before.join(&name), merged.join(&name));
        if let Err(error) = mount_bind_recursive(&old, &new) {
            tracing::debug!(name = %name.display(), %error, "read-only for the command");
        }
    }
    // Only the overlay is visible at the place; the directory where it was made is covered with the scratch
    // directory.
    let bound = mount_bind_recursive(&merged, over).or_else(|_| mount_bind(&merged, over));
    bound.map_err(|e| Error::System(e.into()))
}

/// The names in a directory that contain a mount, or lead to the user's own directories.
fn kept(above: &Path) -> Result<BTreeSet<OsString>> {
    let mut paths: Vec<PathBuf> = vec![std::env::temp_dir()];
    paths.extend(std::env::home_dir());
    paths.extend(std::env::current_dir());
    let table = fs::read("/proc/self/mountinfo").map_err(failed("cannot read the mount table"))?;
    let at = |line: &[u8]| line.split(|byte| *byte == b' ').nth(4).map(table_path);
    paths.extend(table.split(|byte| *byte == b'\n').filter_map(at));
    let first = |path: PathBuf| {
        let path = path.canonicalize().unwrap_or(path);
        let rest = path.strip_prefix(above).ok()?;
        Some(rest.components().next()?.as_os_str().to_owned())
    };
    Ok(paths.into_iter().filter_map(first).collect())
}
