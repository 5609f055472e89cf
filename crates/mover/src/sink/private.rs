//! Directories of this process's own in places to which others may write too.
//!
//! Files assembled in such a directory get a final name afterwards, so no other user may ever have had access
//! to it. A name proves nothing: another user may have created it first. The descriptor of the directory
//! does: its owner, its mode, and its contents.

use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{self, AtFlags, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;

use super::attributes::plain;
use super::dirs::kind;
use super::entry_error::{Doing, EntryError, EntryResult};
use super::remove::remove_all;

const DIRECTORY: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
/// Names that are tried when others are taken.
const TRIES: usize = 16;

/// A directory to which no other user has access.
#[derive(Debug)]
pub(super) struct Private {
    pub(super) name: String,
    pub(super) dir: OwnedFd,
    /// Whether an earlier run of the same user has left it.
    pub(super) found: bool,
}

impl Private {
    /// Opens the directory of that name if it is this user's own, and creates it if the name is free. Entries
    /// of other users are left alone: then a random name is added.
    pub(super) fn open(base: &OwnedFd, name: &str, is_known: &dyn Fn(&[u8]) -> bool) -> EntryResult<Self> {
        let mut tried = name.to_owned();
        for _ in 0..TRIES {
            let made = match fs::mkdirat(base, tried.as_str(), Mode::from_raw_mode(0o700)) {
                Ok(()) => true,
                Err(Errno::EXIST) => false,
                Err(e) => return Err(e).doing("create a staging directory in"),
            };
            match fs::openat(base, tried.as_str(), DIRECTORY, Mode::empty()) {
                Ok(dir) if is_own(&dir, made, is_known)? => {
                    plain(&dir).doing("set the mode of")?;
                    return Ok(Self { name: tried, dir, found: !made });
                }
                // It was removed meanwhile.
                Err(Errno::NOENT) => continue,
                // Another user's, or not a directory at all.
                Ok(_) | Err(Errno::NOTDIR | Errno::LOOP | Errno::ACCESS | Errno::PERM) => {}
                Err(e) => return Err(e).doing("open"),
            }
            tried = format!("{name}-{:016x}", rand::random::<u64>());
        }
        Err(EntryError::because(
            "create a staging directory in",
            "other users take or remove every name tried",
        ))
    }

    /// The directory of that name, if it is there and this user's own.
    pub(super) fn find(
        base: &OwnedFd,
        name: &str,
        is_known: &dyn Fn(&[u8]) -> bool,
    ) -> EntryResult<Option<Self>> {
        match fs::openat(base, name, DIRECTORY, Mode::empty()) {
            Ok(dir) if is_own(&dir, false, is_known)? => {
                Ok(Some(Self { name: name.into(), dir, found: true }))
            }
            Ok(_) | Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::ACCESS | Errno::PERM) => Ok(None),
            Err(e) => Err(e).doing("open"),
        }
    }

    /// Removes it with all that is in it.
    pub(super) fn remove(&self, base: &OwnedFd) -> EntryResult {
        remove(base, &self.name, &self.dir)
    }
}

/// Removes the contents of `dir`, and its name in `base` if that still refers to it: a replacement stays.
pub(super) fn remove(base: &OwnedFd, name: &str, dir: &OwnedFd) -> EntryResult {
    remove_all(dir, name.as_bytes())?;
    if !names(base, name, dir)? {
        return Ok(());
    }
    match fs::unlinkat(base, name, AtFlags::REMOVEDIR) {
        Err(Errno::NOENT) => Ok(()),
        other => other.doing("remove"),
    }
}

/// Whether a name still is that of an open file or directory.
pub(super) fn names(at: &OwnedFd, name: &str, fd: &OwnedFd) -> EntryResult<bool> {
    let open = fs::fstat(fd).doing("stat")?;
    let there = fs::statat(at, name, AtFlags::SYMLINK_NOFOLLOW);
    Ok(there.is_ok_and(|there| (there.st_dev, there.st_ino) == (open.st_dev, open.st_ino)))
}

/// Whether a file in a private directory is one that this user has made there, and has no other name.
pub(super) fn is_own_file(dir: &OwnedFd, file: impl AsFd) -> Result<bool, Errno> {
    let (around, stat) = (fs::fstat(dir)?, fs::fstat(file)?);
    Ok(kind(&stat) == FileType::RegularFile && stat.st_nlink == 1 && stat.st_uid == around.st_uid)
}

fn is_own(dir: &OwnedFd, made: bool, is_known: &dyn Fn(&[u8]) -> bool) -> EntryResult<bool> {
    let stat = fs::fstat(dir).doing("stat")?;
    if !is_of_this_user(dir, &stat)? {
        return Ok(false);
    }
    // Where a file system has no modes, a new directory is as closed as it can be.
    if made {
        return Ok(true);
    }
    if stat.st_mode & 0o077 != 0 {
        return Ok(false);
    }
    // A directory of this user's that another has moved here holds something else.
    for entry in fs::Dir::read_from(dir).doing("list")? {
        let entry = entry.doing("list")?;
        let name = entry.file_name().to_bytes();
        if !matches!(name, b"." | b"..") && !is_known(name) {
            return Ok(false);
        }
    }
    Ok(true)
}

fn is_of_this_user(dir: &OwnedFd, stat: &Stat) -> EntryResult<bool> {
    if stat.st_uid == rustix::process::geteuid().as_raw() {
        return Ok(true);
    }
    // A file server may map root to another number: that number owns the files made there.
    let name = format!("own-{:016x}", rand::random::<u64>());
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let Ok(probe) = fs::openat(dir, name.as_str(), flags, Mode::from_raw_mode(0o600)) else {
        return Ok(false);
    };
    let owner = fs::fstat(&probe).doing("stat")?.st_uid;
    fs::unlinkat(dir, name.as_str(), AtFlags::empty()).doing("remove")?;
    Ok(owner == stat.st_uid)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    const NAME: &str = ".tidecast-copy-x";

    fn base() -> (tempfile::TempDir, OwnedFd) {
        let at = tempfile::tempdir().unwrap();
        let fd = fs::open(at.path(), DIRECTORY, Mode::empty()).unwrap();
        (at, fd)
    }

    fn open(base: &OwnedFd) -> Private {
        Private::open(base, NAME, &|name| name == b"lock").unwrap()
    }

    #[test]
    fn its_own_is_found_again_and_removed() {
        let (at, fd) = base();
        let first = open(&fd);
        assert!(!first.found && first.name == NAME);
        std::fs::write(at.path().join(NAME).join("lock"), "").unwrap();
        let second = open(&fd);
        assert!(second.found && second.name == NAME);
        second.remove(&fd).unwrap();
        assert_eq!(std::fs::read_dir(at.path()).unwrap().count(), 0);
    }

    #[test]
    fn what_may_be_of_others_is_left_alone() {
        let wide = |at: &std::path::Path| {
            std::fs::create_dir(at).unwrap();
            std::fs::set_permissions(at, PermissionsExt::from_mode(0o777)).unwrap();
        };
        let strange = |at: &std::path::Path| {
            std::fs::create_dir(at).unwrap();
            std::fs::set_permissions(at, PermissionsExt::from_mode(0o700)).unwrap();
            std::fs::write(at.join("thesis"), "x").unwrap();
        };
        let link = |at: &std::path::Path| symlink("/", at).unwrap();
        let file = |at: &std::path::Path| std::fs::write(at, "x").unwrap();
        let all: [&dyn Fn(&std::path::Path); 4] = [&wide, &strange, &link, &file];
        for plant in all {
            let (at, fd) = base();
            plant(&at.path().join(NAME));
            assert!(Private::find(&fd, NAME, &|_| false).unwrap().is_none());
            let own = open(&fd);
            assert!(!own.found && own.name != NAME && own.name.starts_with(NAME));
            let mode = std::fs::metadata(at.path().join(&own.name)).unwrap().permissions().mode();
            assert_eq!(mode & 0o7777, 0o700);
            own.remove(&fd).unwrap();
            assert!(at.path().join(NAME).symlink_metadata().is_ok());
        }
    }

    #[test]
    fn what_has_taken_its_name_is_not_removed() {
        let (at, fd) = base();
        let own = open(&fd);
        std::fs::rename(at.path().join(NAME), at.path().join("moved")).unwrap();
        std::fs::create_dir(at.path().join(NAME)).unwrap();
        std::fs::write(at.path().join(NAME).join("kept"), "x").unwrap();
        own.remove(&fd).unwrap();
        assert!(at.path().join(NAME).join("kept").exists());
    }
}
