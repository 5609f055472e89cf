//! Directories in shared memory, and the removal of those that killed processes left.

use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use rand::Rng as _;

use crate::error::Error;

/// Where shared memory is.
const SHM: &str = "/dev/shm";
const PREFIX: &str = "tidecast-copy-";
/// Its holder lives while it is locked.
const LOCK: &str = "lock";

/// How much of it is free, in bytes.
pub(super) fn room() -> Result<u64, Error> {
    let look = |e: rustix::io::Errno| Error::io("stat", SHM)(e.into());
    let room = rustix::fs::statvfs(SHM).map_err(look)?;
    Ok(room.f_bavail * room.f_frsize)
}

/// A directory in shared memory, for as long as this lives.
pub(super) struct Dir {
    path: PathBuf,
    _lock: File,
}

impl Dir {
    /// One in the shared memory of this host.
    pub(super) fn of_host() -> Result<Self, Error> {
        Self::new(Path::new(SHM))
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    fn new(base: &Path) -> Result<Self, Error> {
        clear(base);
        // Another program that is starting may take a directory without a lock for one that was left.
        for _ in 0..16 {
            let path = base.join(format!("{PREFIX}{:016x}", rand::rng().next_u64()));
            let cannot = || Error::io("create", &path);
            DirBuilder::new().mode(0o700).create(&path).map_err(cannot())?;
            let lock = OpenOptions::new().write(true).create_new(true).open(path.join(LOCK));
            let lock = match lock {
                Err(e) if e.kind() == io::ErrorKind::NotFound => continue,
                other => other.map_err(cannot())?,
            };
            lock.try_lock().map_err(io::Error::from).map_err(cannot())?;
            if path.join(LOCK).exists() {
                return Ok(Self { path, _lock: lock });
            }
        }
        let error = io::Error::other("another program removes it repeatedly");
        Err(Error::io("create a directory in", base)(error))
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        if let Err(e) = fs::remove_dir_all(&self.path) {
            tracing::warn!("cannot remove {}: {e}", self.path.display());
        }
    }
}

/// Removes directories left by killed copies of this user.
fn clear(base: &Path) {
    let me = rustix::process::geteuid().as_raw();
    for entry in fs::read_dir(base).into_iter().flatten().flatten() {
        let mine = entry.file_name().as_bytes().starts_with(PREFIX.as_bytes())
            && entry.metadata().is_ok_and(|meta| meta.is_dir() && meta.uid() == me);
        if !mine {
            continue;
        }
        let path = entry.path();
        match File::open(path.join(LOCK)) {
            Ok(lock) => match lock.try_lock() {
                Ok(()) => drop(fs::remove_dir_all(&path)),
                Err(TryLockError::WouldBlock | TryLockError::Error(_)) => {}
            },
            // Only if it is empty.
            Err(_) => drop(fs::remove_dir(&path)),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn directories_of_the_dead_are_removed_and_those_of_the_living_are_not() {
        let base = tempfile::tempdir().unwrap();
        let living = Dir::new(base.path()).unwrap();
        let dead = base.path().join(format!("{PREFIX}dead"));
        fs::create_dir(&dead).unwrap();
        fs::write(dead.join(LOCK), "").unwrap();
        fs::write(dead.join("7"), "x").unwrap();
        let other = base.path().join("other");
        fs::create_dir(&other).unwrap();
        let next = Dir::new(base.path()).unwrap();
        assert!(living.path.exists() && next.path.exists() && other.exists() && !dead.exists());
        let path = living.path.clone();
        drop(living);
        assert!(!path.exists());
    }
}
