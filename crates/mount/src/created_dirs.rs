//! Directories that are made for the time of a mount, and removed after it.
//!
//! They are marked by an extended attribute, so that the last of several commands that use one removes it,
//! whichever command has made it. Each command holds a shared lock on the directory of its mount, also on one without the
//! mark: another command may just be about to mark it, and would remove it, and with it the mount. It is removed
//! under an exclusive lock, and only while it is empty. On a file system that other hosts see too directories stay:
//! locks of those hosts do not reach this one.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{
    AtFlags, CWD, FlockOperation, Mode, OFlags, XattrFlags, fgetxattr, flock, fsetxattr, fstat, fstatfs,
    mkdirat, openat, statat, unlinkat,
};
use rustix::io::Errno;

use crate::place::Absent;

/// The mark of a directory that goes when its last user has gone.
const MARK: &str = "user.tidecast.made";
/// File systems of this host alone, by their magic numbers: ext4, XFS, Btrfs, tmpfs, ramfs, overlayfs, ZFS, F2FS, bcachefs.
const LOCAL: [u64; 9] = [
    0xef53,
    0x5846_5342,
    0x9123_683e,
    0x0102_1994,
    0x8584_58f6,
    0x794c_7630,
    0x2fc1_2fc1,
    0xf2f5_2010,
    0xca45_1a4e,
];

/// How often a lock is tried, and how long apart: removing a directory of a busy disk takes seconds.
const TRIES: usize = 1000;
const TRIES_UNMARKED: usize = 100;
const PAUSE: Duration = Duration::from_millis(10);

const READ: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// The directory at a path, by whether it stays.
#[derive(Debug)]
pub enum Found {
    /// It was made for a mount, and stays while it is held.
    Held(Held),
    /// It has no mark of directories to remove: it stays. Held if this user can lock it, as the process that has made it may
    /// be about to mark it.
    Stays(Option<Held>),
    /// It is no longer there.
    Gone,
}

/// A directory that a command uses, and that is there for as long.
#[derive(Debug)]
pub struct Held {
    /// With a shared lock.
    dir: OwnedFd,
    path: PathBuf,
    /// How many of the last names of `path` were made here and could not be marked.
    unmarked: usize,
}

impl Held {
    /// Makes the directory at a place. `None` if another process was faster, or is just removing it: look again.
    ///
    /// # Errors
    /// The caller may not write there, no space.
    pub fn make(absent: &Absent) -> io::Result<Option<Self>> {
        let mut dir = absent.dir().try_clone()?;
        let mut path = absent.above().to_owned();
        let mut unmarked = 0;
        for name in absent.missing() {
            match mkdirat(&dir, name, Mode::from_raw_mode(0o755)) {
                Ok(()) => {}
                // A command that ends may have removed the directories made so far, since they are empty.
                Err(Errno::EXIST | Errno::NOENT) => return Ok(None),
                Err(error) => {
                    tidy(&path, None, unmarked);
                    return Err(error.into());
                }
            }
            path.push(name);
            dir = match openat(&dir, name, READ, Mode::empty()) {
                Ok(dir) => dir,
                Err(Errno::NOENT) => return Ok(None),
                Err(error) => return Err(error.into()),
            };
            if is_local(&dir) && fsetxattr(&dir, MARK, b"1", XattrFlags::empty()).is_err() {
                unmarked += 1;
            }
        }
        if is_local(&dir) {
            let _ = lock(&dir, TRIES);
        }
        Ok(is_at(&dir, &path).then_some(Self { dir, path, unmarked }))
    }

    /// The directory at a path, held if this user can lock it.
    ///
    /// # Errors
    /// It cannot be opened.
    pub fn find(path: &Path) -> io::Result<Found> {
        Self::find_within(path, TRIES)
    }

    fn find_within(path: &Path, tries: usize) -> io::Result<Found> {
        let dir = match openat(CWD, path, READ, Mode::empty()) {
            Ok(dir) if is_local(&dir) => dir,
            Ok(_) | Err(Errno::ACCESS) => return Ok(Found::Stays(None)),
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Ok(Found::Gone),
            Err(error) => return Err(error.into()),
        };
        // A file system may have no marks.
        let locked = lock(&dir, if has_mark(&dir) { tries } else { tries.min(TRIES_UNMARKED) });
        if !is_at(&dir, path) {
            return Ok(Found::Gone);
        }
        // Only now: it may have been marked while it was waited for.
        let marked = is_marked(&dir);
        let held = Self { dir, path: path.to_owned(), unmarked: 0 };
        Ok(match locked {
            true if marked => Found::Held(held),
            true => Found::Stays(Some(held)),
            false => Found::Stays(None),
        })
    }

    /// Its path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Releases it, and removes it unless other processes use it. Returns `false` while another process uses
    /// it.
    #[must_use]
    pub fn release(self) -> Released {
        let Self { dir, path, unmarked } = self;
        Released { id: id(&dir), path, unmarked }
    }
}

/// A directory that its creator no longer uses.
#[derive(Debug)]
pub struct Released {
    /// The directory, whatever its path leads to now.
    id: Option<Id>,
    path: PathBuf,
    unmarked: usize,
}

impl Released {
    /// Removes it, if it is empty and no process uses it. `false` while a process does.
    pub fn tidy(&self) -> bool {
        tidy(&self.path, self.id, self.unmarked)
    }
}

/// Removes a directory that was made for a mount, and the parents that were made with it. `expected`: which one it is, if that is
/// known. `unmarked`: how many of the last names of the path are known to be made for a mount although they have no mark. `false`
/// while another process uses it.
fn tidy(path: &Path, expected: Option<Id>, unmarked: usize) -> bool {
    let Ok(mut dir) = openat(CWD, path, READ, Mode::empty()) else { return true };
    if expected.is_some() && expected != id(&dir) {
        return true;
    }
    for (level, at) in path.ancestors().enumerate() {
        if level >= unmarked && !is_marked(&dir) {
            return true;
        }
        if flock(&dir, FlockOperation::NonBlockingLockExclusive).is_err() {
            return false;
        }
        // By the directory itself: its path may lead elsewhere by now.
        let parent = openat(&dir, "..", OFlags::PATH | OFlags::CLOEXEC, Mode::empty());
        let (Some(name), Ok(parent)) = (at.file_name(), parent) else { return true };
        if id_at(&parent, name) != id(&dir) || unlinkat(&parent, name, AtFlags::REMOVEDIR).is_err() {
            return true;
        }
        let Ok(next) = openat(&parent, ".", READ, Mode::empty()) else { return true };
        dir = next;
    }
    true
}

/// Whether it has a shared lock on it now.
fn lock(dir: &OwnedFd, tries: usize) -> bool {
    // The process that removes it has an exclusive lock until it is gone. Without waiting for that one, this would mount
    // over a directory that is just being removed, and the kernel removes such a mount too. But other users who may open the
    // directory can keep it locked for ever, and then nothing removes it.
    for attempt in 1..=tries {
        match flock(dir, FlockOperation::NonBlockingLockShared) {
            Err(Errno::WOULDBLOCK) if attempt < tries => std::thread::sleep(PAUSE),
            done => return done.is_ok(),
        }
    }
    false
}

fn is_marked(dir: &OwnedFd) -> bool {
    // A directory of another user is not removed, whatever its mark.
    let ours = fstat(dir).is_ok_and(|stat| stat.st_uid == rustix::process::geteuid().as_raw());
    ours && has_mark(dir)
}

fn has_mark(dir: &OwnedFd) -> bool {
    fgetxattr(dir, MARK, &mut [0u8; 8]).is_ok()
}

/// The identity of a directory, whatever its name.
type Id = (u64, u64);

fn id(dir: &OwnedFd) -> Option<Id> {
    fstat(dir).ok().map(|stat| (stat.st_dev, stat.st_ino))
}

fn id_at(parent: impl AsFd, name: impl rustix::path::Arg) -> Option<Id> {
    statat(parent, name, AtFlags::SYMLINK_NOFOLLOW).ok().map(|stat| (stat.st_dev, stat.st_ino))
}

fn is_at(dir: &OwnedFd, path: &Path) -> bool {
    id(dir).is_some_and(|this| id_at(CWD, path) == Some(this))
}

fn is_local(dir: &OwnedFd) -> bool {
    fstatfs(dir).is_ok_and(|fs| u64::try_from(fs.f_type).is_ok_and(|kind| LOCAL.contains(&kind)))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::place::{Chosen, Guard, Spot, find};

    fn make(path: &Path) -> Held {
        let guard = Guard::new(&[]);
        loop {
            match find(path, &guard, Chosen::ByManifest).unwrap() {
                Spot::Absent(absent) => {
                    if let Some(held) = Held::make(&absent).unwrap() {
                        return held;
                    }
                }
                Spot::There(place) => match Held::find(place.path()).unwrap() {
                    // The one that has made it may not have marked it yet.
                    Found::Held(held) | Found::Stays(Some(held)) => return held,
                    Found::Stays(None) | Found::Gone => {}
                },
            }
        }
    }

    #[test]
    fn the_last_user_removes_what_the_first_has_made() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a/b");
        let (first, second) = (make(&path), make(&path));
        assert!(!first.release().tidy());
        assert!(path.is_dir(), "the second uses it");
        assert!(second.release().tidy());
        assert!(!dir.path().join("a").exists());
    }

    #[test]
    fn a_directory_that_is_marked_only_later_stays_for_its_second_user() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a");
        std::fs::create_dir(&path).unwrap();
        let Found::Stays(Some(second)) = Held::find(&path).unwrap() else { panic!("it has no mark") };
        let made = std::fs::File::open(&path).unwrap();
        fsetxattr(&made, MARK, b"1", XattrFlags::empty()).unwrap();
        let Found::Held(first) = Held::find(&path).unwrap() else { panic!("it has a mark") };
        assert!(!first.release().tidy());
        assert!(path.is_dir(), "the second uses it");
        assert!(second.release().tidy());
        assert!(!path.exists());
    }

    #[test]
    fn a_directory_that_another_process_keeps_locked_is_used_without_a_lock() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a");
        let held = make(&path);
        assert!(held.release().path.is_dir());
        let other = std::fs::File::open(&path).unwrap();
        flock(&other, FlockOperation::LockExclusive).unwrap();
        assert!(matches!(Held::find_within(&path, 2).unwrap(), Found::Stays(None)));
        drop(other);
        assert!(matches!(Held::find_within(&path, 2).unwrap(), Found::Held(_)));
    }

    #[test]
    fn what_was_written_meanwhile_stays_and_so_does_what_was_there() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("mine")).unwrap();
        let held = make(&dir.path().join("mine/x/y"));
        std::fs::write(dir.path().join("mine/x/note"), "").unwrap();
        assert!(held.release().tidy());
        assert!(dir.path().join("mine/x/note").exists() && !dir.path().join("mine/x/y").exists());
        assert!(matches!(Held::find(&dir.path().join("mine")).unwrap(), Found::Stays(Some(_))));
        assert!(matches!(Held::find(&dir.path().join("none")).unwrap(), Found::Gone));
    }

    #[test]
    fn users_that_come_and_go_at_once_always_have_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a/b/c");
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..200 {
                        let held = make(&path);
                        assert!(path.is_dir());
                        held.release().tidy();
                    }
                });
            }
        });
        assert!(!dir.path().join("a").exists());
    }
}
