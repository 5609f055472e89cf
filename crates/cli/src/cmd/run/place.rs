//! A place to mount at, in a mount namespace of our own, without leaving a trace on the host: a path that is not there
//! is made in an empty file system in memory, into which everything around it is bound.

use std::fs::{self, DirBuilder, File};
use std::os::fd::AsRawFd;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use rustix::fs::{Mode, OFlags};
use rustix::mount::{MountFlags, mount, mount_bind_recursive};

/// The directory at this path, made visible to this namespace only if it was not there. `scratch` is an empty directory
/// in which a new root may be made.
///
/// # Errors
/// What is there is no directory; the system refuses.
pub(super) fn make(at: &Path, scratch: &Path) -> Result<PathBuf> {
    if at.is_dir() {
        return at.canonicalize().with_context(|| format!("cannot use {}", at.display()));
    }
    let above = at.ancestors().skip(1).find(|dir| dir.is_dir()).unwrap_or(Path::new("/"));
    let rest = at.strip_prefix(above).unwrap_or(at).to_owned();
    let above = above.canonicalize().with_context(|| format!("cannot use {}", above.display()))?;
    if above == Path::new("/") {
        cover(Path::new("/"), scratch)?;
        std::os::unix::fs::chroot(scratch).context("cannot change the root")?;
        std::env::set_current_dir("/").context("cannot go to the new root")?;
    } else {
        cover(&above, &above)?;
    }
    let at = above.join(rest);
    let made = DirBuilder::new().recursive(true).mode(0o755).create(&at);
    made.with_context(|| format!("cannot make {}", at.display()))?;
    Ok(at)
}

/// Covers `over` by an empty file system, and binds all that is in `from` into it.
fn cover(from: &Path, over: &Path) -> Result<()> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let held = rustix::fs::open(from, flags, Mode::empty())
        .with_context(|| format!("cannot open {}", from.display()))?;
    // It is still reachable by its descriptor once it is covered.
    let before = PathBuf::from(format!("/proc/self/fd/{}", held.as_raw_fd()));
    let entries: Vec<_> = fs::read_dir(&before)
        .and_then(Iterator::collect)
        .with_context(|| format!("cannot read {}", from.display()))?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV;
    mount("tidecast", over, "tmpfs", flags, c"mode=755")
        .with_context(|| format!("cannot cover {}", over.display()))?;
    for entry in entries {
        let (old, new) = (before.join(entry.file_name()), over.join(entry.file_name()));
        let bound = bind(&old, &new);
        // Something that may not be looked at stays out of sight.
        if let Err(error) = bound {
            tracing::debug!(path = %new.display(), %error, "not visible to the command");
        }
    }
    Ok(())
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
