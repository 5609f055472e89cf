//! Where a tree is at home on this host: the socket of its server, its log, its manifest, and its data.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::ErrorKind;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use data_encoding::HEXLOWER;
use rustix::fs::{FlockOperation, flock, statvfs};
use tidecast_metainfo::Manifest;
use tidecast_node::{Source, id_bytes, read_manifest};
use tidecast_paths::{Access, Root};

use crate::error::{Error, home};

const RAM: &str = "/dev/shm";
/// A tree is kept in RAM if it takes at most this fraction (one part in N) of the free space there.
const SHARE: u64 = 4;
/// Names tried for a user's own directory: other users can occupy some.
const NAMES: u32 = 64;

/// The directory of a tree on this host, which is this user's alone.
#[derive(Debug, Clone)]
pub struct Home {
    dir: PathBuf,
    /// The user has chosen the directory of the data.
    told: bool,
    id: String,
}

impl Home {
    /// Of this tree; made if need be. `cache`: the directory that the user has named.
    ///
    /// # Errors
    /// The directory cannot be made, or belongs to another user.
    pub fn of(source: &Source, cache: Option<&Path>) -> Result<Home, Error> {
        let id = HEXLOWER.encode(&source.id());
        let base = match cache {
            Some(dir) => {
                let root = Root::make(dir).map_err(home("create the cache", dir))?;
                let base = root.real_path().map_err(home("use the cache", dir))?;
                check_way(&base)?;
                base
            }
            None => own(&std::env::temp_dir())?,
        };
        let dir = base.join(id.get(..16).unwrap_or(&id));
        private(&dir)?;
        Ok(Home { dir, told: cache.is_some(), id })
    }

    /// Where all of this is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.dir
    }

    /// Where the server listens.
    #[must_use]
    pub fn socket(&self) -> PathBuf {
        self.dir.join("socket")
    }

    /// The status of each server.
    #[must_use]
    pub fn log(&self) -> PathBuf {
        self.dir.join("log")
    }

    /// The log, to be written on.
    pub(crate) fn open_log(&self) -> Result<File, Error> {
        let log = OpenOptions::new().create(true).append(true).open(self.log());
        log.map_err(home("write", self.log()))
    }

    /// An empty directory for whatever purpose.
    ///
    /// # Errors
    /// It cannot be made.
    pub fn scratch(&self) -> Result<PathBuf, Error> {
        let dir = self.dir.join("empty");
        private(&dir)?;
        Ok(dir)
    }

    /// Where the manifest is kept.
    #[must_use]
    pub fn manifest_path(&self) -> PathBuf {
        self.dir.join("manifest")
    }

    /// The directory itself, open.
    pub(crate) fn root(&self) -> Result<Root, Error> {
        Root::open(&self.dir).map_err(home("use", &self.dir))
    }

    /// Held by the process that starts a server; others wait.
    pub(crate) fn lock(&self) -> Result<File, Error> {
        let path = self.dir.join("starting");
        let file = File::create(&path).map_err(home("make", &path))?;
        flock(&file, FlockOperation::LockExclusive).map_err(home("lock", path))?;
        Ok(file)
    }

    /// The manifest, if it was fetched before.
    #[must_use]
    pub fn manifest(&self) -> Option<Manifest> {
        let path = self.manifest_path();
        if !path.exists() {
            return None;
        }
        let manifest = read_manifest(&path).ok()?;
        (HEXLOWER.encode(&id_bytes(&manifest)) == self.id).then_some(manifest)
    }

    /// Keeps the manifest for the next process.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn keep(&self, manifest: &Manifest) -> Result<(), Error> {
        let path = self.manifest_path();
        let mut file = tempfile::NamedTempFile::new_in(&self.dir).map_err(home("write into", &self.dir))?;
        std::io::Write::write_all(&mut file, &manifest.to_bytes()).map_err(home("write", &path))?;
        file.persist(&path).map_err(home("write", path))?;
        Ok(())
    }

    /// The place of the data: where it is already, else RAM if there is enough, unless the user has chosen a
    /// place.
    pub(crate) fn data(&self, manifest: &Manifest) -> Result<PathBuf, Error> {
        let here = self.dir.join("data");
        if self.told || here.exists() {
            return Ok(here);
        }
        let free = statvfs(RAM).map_or(0, |room| room.f_bavail.saturating_mul(room.f_frsize));
        if manifest.total_len() > free / SHARE {
            return Ok(here);
        }
        // Without a directory there, as in a container without shared memory, the data is on the disk.
        let Ok(base) = own(Path::new(RAM)) else { return Ok(here) };
        let dir = base.join(self.id.get(..16).unwrap_or(&self.id));
        private(&dir)?;
        Ok(dir.join("data"))
    }
}

/// This user's own directory below one that all may write to. A name that another user has occupied is left for the
/// next one.
fn own(below: &Path) -> Result<PathBuf, Error> {
    let first = below.join(format!("tidecast-{}", rustix::process::geteuid().as_raw()));
    let next = (2..=NAMES).map(|number| {
        let mut name = first.clone().into_os_string();
        name.push(format!("-{number}"));
        PathBuf::from(name)
    });
    for dir in std::iter::once(first.clone()).chain(next) {
        match private(&dir) {
            Ok(()) => return Ok(dir),
            Err(Error::Foreign(_)) => {}
            Err(other) => return Err(other),
        }
    }
    Err(Error::Foreign(first))
}

/// Checks that not every user can put another directory in the place of this one, which has no links on its way. The
/// owners and groups of the directories above it are trusted.
fn check_way(dir: &Path) -> Result<(), Error> {
    for at in dir.ancestors() {
        let meta = fs::metadata(at).map_err(home("use", at))?;
        if (Access { owner: meta.uid(), mode: meta.mode() }).lets_exchange() {
            return Err(Error::OpenToAll(at.to_owned()));
        }
    }
    Ok(())
}

/// Makes a directory that belongs to this user alone. A file or directory of another user in its place is not
/// used.
fn private(dir: &Path) -> Result<(), Error> {
    match DirBuilder::new().mode(0o700).create(dir) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(home("make", dir)(error)),
        _ => {}
    }
    let meta = fs::symlink_metadata(dir).map_err(home("use", dir))?;
    let ours = meta.uid() == rustix::process::geteuid().as_raw();
    if !meta.is_dir() || !ours || meta.mode() & 0o022 != 0 {
        return Err(Error::Foreign(dir.to_owned()));
    }
    Ok(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_cache_that_every_user_may_exchange_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let base = dir.path().canonicalize().unwrap();
        let inner = base.join("inner");
        fs::create_dir(&inner).unwrap();
        for (mode, refused) in
            [(0o755, false), (0o2770, false), (0o1777, false), (0o777, true), (0o702, true)]
        {
            fs::set_permissions(&base, fs::Permissions::from_mode(mode)).unwrap();
            let checked = check_way(&inner);
            assert_eq!(matches!(checked, Err(Error::OpenToAll(at)) if at == base), refused, "{mode:o}");
        }
    }
}
