//! A bind mount of a cache, which a process makes by its own rights.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::materialize::Error;

/// A read-only bind mount at `to`, which is made for it.
pub(super) fn bind(path: &Path, to: &Path) -> Result<PathBuf, Error> {
    use rustix::mount::{MountFlags, MountPropagationFlags, mount_bind, mount_change, mount_remount};
    let cannot = |source| Error::Bind { path: path.to_owned(), to: to.to_owned(), source };
    let id = |path: &Path| fs::symlink_metadata(path).ok().map(|meta| (meta.dev(), meta.ino()));
    if id(to).is_some() && id(to) == id(path) {
        return Ok(to.to_owned());
    }
    if path.is_dir() {
        fs::create_dir(to).map_err(cannot)?;
    } else {
        fs::File::create_new(to).map_err(cannot)?;
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
        return Err(cannot(error.into()));
    }
    Ok(to.to_owned())
}
