//! Ways to a cache that a process makes by its own rights.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};

/// A symbolic link at `to`; one that leads there already will do.
pub(crate) fn symlink(path: &Path, to: &Path) -> Result<PathBuf> {
    match std::os::unix::fs::symlink(path, to) {
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
            if fs::read_link(to).is_ok_and(|there| there == path) {
                return Ok(to.to_owned());
            }
            bail!("{} stands in the way: remove it, or choose another --to", to.display());
        }
        made => made.with_context(|| format!("cannot make the link {}", to.display()))?,
    }
    Ok(to.to_owned())
}

/// A read-only bind mount at `to`, which is made for it.
pub(crate) fn bind(path: &Path, to: &Path) -> Result<PathBuf> {
    use rustix::mount::{MountFlags, MountPropagationFlags, mount_bind, mount_change, mount_remount};
    let cannot = || {
        format!(
            "cannot bind {} to {} (it takes root, or a mount namespace of your own)",
            path.display(),
            to.display()
        )
    };
    if path.is_dir() {
        fs::create_dir(to).with_context(cannot)?;
    } else {
        fs::File::create_new(to).with_context(cannot)?;
    }
    let bound =
        mount_bind(path, to).and_then(|()| mount_change(to, MountPropagationFlags::PRIVATE)).and_then(|()| {
            mount_remount(
                to,
                MountFlags::BIND | MountFlags::RDONLY | MountFlags::NOSUID | MountFlags::NODEV,
                "",
            )
        });
    if let Err(error) = bound {
        let _ = rustix::mount::unmount(to, rustix::mount::UnmountFlags::DETACH);
        let _ = if path.is_dir() { fs::remove_dir(to) } else { fs::remove_file(to) };
        return Err(error).with_context(cannot);
    }
    Ok(to.to_owned())
}
