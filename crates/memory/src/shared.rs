//! Shared memory: this rank's own directory in a file system in memory (`/dev/shm`).
//!
//! Its files are written and read, not mapped: the kernel copies, and lack of space is an error instead of a signal. The
//! directory is removed with the group; the next group of the same user removes the directories of killed processes.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use data_encoding::HEXLOWER;
use rustix::fs::{FlockOperation, flock};
use tidecast_paths::Access;

use crate::error::{Error, system};

/// The default directory of shared memory.
pub(crate) const BASE: &str = "/dev/shm";
/// The prefix of our directories' names, before 32 hexadecimal digits.
const PREFIX: &str = "tidecast-";
/// A directory without a lock is a leftover if it is older than this: a newer one may not be locked yet.
const FRESH: Duration = Duration::from_secs(60);

/// This rank's directory, removed when dropped.
#[derive(Debug)]
pub(crate) struct Shared {
    base: PathBuf,
    name: String,
    /// Locked while the owner lives.
    _lock: File,
}

impl Shared {
    /// Creates a directory, and removes those of dead processes.
    pub(crate) fn make(base: &Path) -> Result<Self, Error> {
        let at = fs::metadata(base).map_err(system("access shared memory"))?;
        if (Access { owner: at.uid(), mode: at.mode() }).lets_exchange() {
            return Err(Error::Usage(format!(
                "other users can exchange directories in {}; set TIDECAST_SHM_DIR to another directory",
                base.display()
            )));
        }
        remove_stale(base);
        let name = format!("{PREFIX}{}", HEXLOWER.encode(&rand::random::<[u8; 16]>()));
        let path = base.join(&name);
        let what = || format!("create a directory in {}", base.display());
        DirBuilder::new().mode(0o700).create(&path).map_err(system(what()))?;
        let lock = File::open(&path).map_err(system(what()))?;
        flock(&lock, FlockOperation::NonBlockingLockExclusive).map_err(|e| system(what())(e.into()))?;
        Ok(Self { base: base.to_owned(), name, _lock: lock })
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.base.join(&self.name)
    }

    /// Kernel, file system and user: ranks with different values share no memory.
    pub(crate) fn place(&self) -> Result<String, Error> {
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        let at = fs::metadata(&self.base).map_err(system("access shared memory"))?;
        Ok(format!("{}/{}/{}/{}", boot.trim(), at.dev(), at.ino(), rustix::process::geteuid().as_raw()))
    }

    /// Whether a rank's directory is visible to this process. Its random name identifies it.
    pub(crate) fn reaches(&self, name: &str) -> bool {
        let mine = |at: fs::Metadata| at.is_dir() && at.uid() == rustix::process::geteuid().as_raw();
        is_own_name(name) && fs::symlink_metadata(self.base.join(name)).is_ok_and(mine)
    }

    /// Checks that there is space for `need` bytes.
    pub(crate) fn room(&self, need: u64) -> Result<(), Error> {
        let Ok(at) = rustix::fs::statvfs(&self.base) else { return Ok(()) };
        let free = at.f_bavail.saturating_mul(at.f_frsize);
        // A file system without a size limit reports 0 blocks.
        let limited = at.f_blocks > 0 && free < need;
        if limited { Err(Error::Room { dir: self.base.clone(), free, need }) } else { Ok(()) }
    }

    /// The file with the data of a call.
    pub(crate) fn file(&self, call: u64) -> PathBuf {
        self.path().join(call.to_string())
    }

    /// Creates the file with the data of a call.
    pub(crate) fn create(&self, call: u64, capacity: u64) -> Result<Ring, Error> {
        self.room(capacity)?;
        let opened = OpenOptions::new().write(true).create_new(true).mode(0o600).open(self.file(call));
        Ok(Ring { file: opened.map_err(system("write to shared memory"))?, capacity: capacity.max(1) })
    }

    /// Opens the file that another rank writes, or that this rank's worker has written.
    pub(crate) fn open(&self, dir: &str, call: u64, capacity: u64) -> Result<Ring, Error> {
        let name = Some(dir).filter(|name| is_own_name(name));
        let name =
            name.ok_or_else(|| Error::Failed(format!("{dir:?} is not the directory of a group member")))?;
        let opened = File::open(self.base.join(name).join(call.to_string()));
        Ok(Ring { file: opened.map_err(system("read shared memory"))?, capacity: capacity.max(1) })
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(self.path());
    }
}

/// Whether a name is that of one of our directories, and so cannot lead elsewhere.
fn is_own_name(name: &str) -> bool {
    let digits = name.strip_prefix(PREFIX).map(str::as_bytes);
    digits.is_some_and(|d| d.len() == 32 && d.iter().all(u8::is_ascii_hexdigit))
}

/// Removes directories of dead processes.
fn remove_stale(base: &Path) {
    for entry in fs::read_dir(base).into_iter().flatten().flatten() {
        let path = entry.path();
        let old = |at: fs::Metadata| {
            let age = at.modified().ok().and_then(|at| SystemTime::now().duration_since(at).ok());
            at.is_dir()
                && at.uid() == rustix::process::geteuid().as_raw()
                && age.is_some_and(|age| age > FRESH)
        };
        if !entry.file_name().to_str().is_some_and(is_own_name) || !entry.metadata().is_ok_and(old) {
            continue;
        }
        let Ok(dir) = File::open(&path) else { continue };
        if flock(&dir, FlockOperation::NonBlockingLockExclusive).is_ok() {
            let _ = fs::remove_dir_all(&path);
        }
    }
}

/// A file with a window of the data: byte `n` is at `n % capacity`.
#[derive(Debug)]
pub(crate) struct Ring {
    file: File,
    capacity: u64,
}

impl Ring {
    /// The number of contiguous bytes from `at` on, at most `wish`.
    fn whole(&self, at: u64, wish: usize) -> usize {
        wish.min(usize::try_from(self.capacity - at % self.capacity).unwrap_or(usize::MAX))
    }

    pub(crate) fn write(&self, mut bytes: &[u8], mut at: u64) -> Result<(), Error> {
        while !bytes.is_empty() {
            let (now, rest) = bytes.split_at(self.whole(at, bytes.len()));
            self.file.write_all_at(now, at % self.capacity).map_err(system("write to shared memory"))?;
            at += now.len() as u64;
            bytes = rest;
        }
        Ok(())
    }

    pub(crate) fn read(&self, mut bytes: &mut [u8], mut at: u64) -> Result<(), Error> {
        while !bytes.is_empty() {
            let (now, rest) = bytes.split_at_mut(self.whole(at, bytes.len()));
            self.file.read_exact_at(now, at % self.capacity).map_err(system("read shared memory"))?;
            at += now.len() as u64;
            bytes = rest;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_ring_holds_the_last_bytes() {
        let base = tempfile::tempdir().unwrap();
        let shared = Shared::make(base.path()).unwrap();
        let ring = shared.create(3, 10).unwrap();
        let data: Vec<u8> = (0..25).collect();
        let open = || shared.open(shared.name(), 3, 10).unwrap();
        let mut got = vec![0; 25];
        for at in (0..25).step_by(7) {
            let end = (at + 7).min(25);
            ring.write(&data[at..end], at as u64).unwrap();
            open().read(&mut got[at..end], at as u64).unwrap();
        }
        assert_eq!(got, data);
        assert_eq!(fs::metadata(shared.file(3)).unwrap().len(), 10);
        assert!(open().read(&mut [0; 11], 25).is_ok(), "it goes round");
    }

    #[test]
    fn it_goes_with_its_owner_and_the_dead_are_swept_away() {
        let base = tempfile::tempdir().unwrap();
        let names = || fs::read_dir(base.path()).unwrap().count();
        let old = SystemTime::now() - 2 * FRESH;
        let dead = base.path().join(format!("{PREFIX}{}", "0".repeat(32)));
        let fresh = base.path().join(format!("{PREFIX}{}", "1".repeat(32)));
        let other = base.path().join("tidecast-of-somebody-else");
        for dir in [&dead, &fresh, &other] {
            fs::create_dir(dir).unwrap();
        }
        for dir in [&dead, &other] {
            File::open(dir).unwrap().set_modified(old).unwrap();
        }
        let living = Shared::make(base.path()).unwrap();
        assert!(!dead.exists() && fresh.exists() && other.exists());
        File::open(living.path()).unwrap().set_modified(old).unwrap();
        let second = Shared::make(base.path()).unwrap();
        assert!(living.path().exists(), "its owner lives");
        assert!(
            second.reaches(living.name()) && !second.reaches("..") && !second.reaches("tidecast-x/../..")
        );
        drop((living, second));
        assert_eq!(names(), 2);
    }

    #[test]
    fn too_little_room_is_told_before() {
        let shared = Shared::make(Path::new(BASE)).unwrap();
        assert!(matches!(shared.create(0, 1 << 60), Err(Error::Room { .. })));
        assert_eq!(shared.place().unwrap(), Shared::make(Path::new(BASE)).unwrap().place().unwrap());
    }
}
