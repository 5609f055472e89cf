//! Handles of directories below the destination. A path is resolved one component after another from a handle that is
//! known to lie below it, and no link is ever followed: so nothing that is planted there can lead a write outside.

use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;

use rustix::fd::OwnedFd;
use rustix::fs::{self, AtFlags, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;
use tidecast_paths::Access;

use super::entry_error::{Doing, EntryError, EntryResult};

/// Handles that one writer holds.
const HANDLES: usize = 32;
pub(super) const STEP: OFlags =
    OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// The directories that one writer has used last.
#[derive(Debug)]
pub(super) struct Dirs {
    base: Arc<OwnedFd>,
    /// The last used is the last.
    known: Vec<(Vec<u8>, Arc<OwnedFd>)>,
}

/// Called before a name is removed that is in the way of a directory; the last argument is its path.
pub(super) type MayReplace<'g> = dyn FnMut(&OwnedFd, &[u8], &[u8]) -> EntryResult + 'g;

/// Why a directory cannot be made.
enum NoDirectory {
    System(Errno),
    Because(EntryError),
}

impl From<Errno> for NoDirectory {
    fn from(e: Errno) -> Self {
        Self::System(e)
    }
}

/// Opens a name in a directory; the last argument is its path.
type Opens<'o> = dyn FnMut(&OwnedFd, &[u8], &[u8]) -> Result<OwnedFd, Errno> + 'o;

/// The path of the directory in which an entry lies, and the entry's own name.
pub(super) fn split(path: &[u8]) -> (&[u8], &[u8]) {
    match path.iter().rposition(|b| *b == b'/') {
        Some(at) => (&path[..at], &path[at + 1..]),
        None => (&[], path),
    }
}

impl Dirs {
    pub(super) fn new(base: Arc<OwnedFd>) -> Self {
        Self { base, known: Vec::new() }
    }

    /// A directory that must be there; [`Errno::PERM`]: another user may have planted it.
    pub(super) fn find(&mut self, path: &[u8]) -> Result<Arc<OwnedFd>, Errno> {
        self.reach(path, &mut |at, name, _| {
            let fd = fs::openat(at, name, STEP, Mode::empty())?;
            if is_planted_dir(at, &fd)? { Err(Errno::PERM) } else { Ok(fd) }
        })
    }

    /// A directory that is created if it is missing, as are those above it; non-directories in its way are
    /// removed. `made` is called for each, `gives_way` before a removal.
    pub(super) fn make(
        &mut self,
        path: &[u8],
        made: &mut dyn FnMut(&[u8]) -> EntryResult,
        gives_way: &mut MayReplace<'_>,
    ) -> EntryResult<Arc<OwnedFd>> {
        let mut trouble = None;
        let reached = self.reach(path, &mut |at, name, path| {
            let stepped = step(at, name, &mut || gives_way(at, name, path)).and_then(|(fd, is_new)| {
                if is_new { made(path).map(|()| fd).map_err(NoDirectory::Because) } else { Ok(fd) }
            });
            stepped.map_err(|stop| match stop {
                NoDirectory::System(e) => e,
                NoDirectory::Because(t) => {
                    trouble = Some(t);
                    Errno::CANCELED
                }
            })
        });
        reached.map_err(|e| trouble.unwrap_or(EntryError { doing: "make a directory for", error: e.into() }))
    }

    fn reach(&mut self, path: &[u8], open: &mut Opens<'_>) -> Result<Arc<OwnedFd>, Errno> {
        if let Some(fd) = self.known(path) {
            return Ok(fd);
        }
        let mut end = split(path).0.len();
        let mut at = loop {
            match self.known(&path[..end]) {
                Some(fd) => break fd,
                None => end = split(&path[..end]).0.len(),
            }
        };
        while end < path.len() {
            let begin = if end == 0 { 0 } else { end + 1 };
            end = path[begin..].iter().position(|b| *b == b'/').map_or(path.len(), |n| begin + n);
            at = Arc::new(open(&at, &path[begin..end], &path[..end])?);
            if self.known.len() >= HANDLES {
                self.known.remove(0);
            }
            self.known.push((path[..end].to_vec(), at.clone()));
        }
        Ok(at)
    }

    fn known(&mut self, path: &[u8]) -> Option<Arc<OwnedFd>> {
        if path.is_empty() {
            return Some(self.base.clone());
        }
        let at = self.known.iter().rposition(|(known, _)| known == path)?;
        if at + 1 < self.known.len() {
            let last = self.known.remove(at);
            self.known.push(last);
        }
        self.known.last().map(|(_, fd)| fd.clone())
    }
}

/// Whether a name in a directory may have been planted by another user. Root is to say itself what it trusts.
pub(super) fn is_planted(dir: &OwnedFd, stat: &Stat) -> Result<bool, Errno> {
    let me = rustix::process::geteuid();
    if me.is_root() || [0, me.as_raw()].contains(&stat.st_uid) {
        return Ok(false);
    }
    let dir = fs::fstat(dir)?;
    Ok(Access { owner: dir.st_uid, mode: dir.st_mode }.lets_plant(stat.st_uid, me.as_raw()))
}

fn is_planted_dir(dir: &OwnedFd, opened: &OwnedFd) -> Result<bool, Errno> {
    Ok(!rustix::process::geteuid().is_root() && is_planted(dir, &fs::fstat(opened)?)?)
}

/// A directory in another, and whether it was made.
fn step(
    at: &OwnedFd,
    name: &[u8],
    gives_way: &mut dyn FnMut() -> EntryResult,
) -> Result<(OwnedFd, bool), NoDirectory> {
    let mut made = false;
    for _ in 0..4 {
        match fs::openat(at, name, STEP, Mode::empty()) {
            Ok(fd) => {
                if !made && is_planted_dir(at, &fd)? {
                    let why = "it belongs to another user, in a directory where all may create names";
                    return Err(NoDirectory::Because(EntryError::because("write into", why)));
                }
                return Ok((fd, made));
            }
            Err(Errno::NOENT) => match fs::mkdirat(at, name, Mode::from_raw_mode(0o700)) {
                Ok(()) => made = true,
                Err(Errno::EXIST) => {}
                Err(e) => return Err(e.into()),
            },
            // A link or a file: never the target of a link.
            Err(Errno::NOTDIR | Errno::LOOP) => {
                gives_way().map_err(NoDirectory::Because)?;
                match fs::unlinkat(at, name, AtFlags::empty()) {
                    Ok(()) | Err(Errno::NOENT | Errno::ISDIR) => {}
                    Err(e) => return Err(e.into()),
                }
            }
            Err(e) => return Err(e.into()),
        }
    }
    // Another program makes and removes it all the time.
    Err(Errno::AGAIN.into())
}

/// The entry of a name, if it exists.
pub(super) fn look(dir: impl AsFd, name: &[u8]) -> EntryResult<Option<fs::Stat>> {
    match fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => Ok(Some(stat)),
        Err(Errno::NOENT) => Ok(None),
        Err(e) => Err(e).doing("stat"),
    }
}

pub(super) fn kind(stat: &fs::Stat) -> FileType {
    FileType::from_raw_mode(stat.st_mode)
}

/// Sets the mode of a directory that is open by name only, perhaps because its owner may not list it.
pub(super) fn set_mode(dir: impl AsFd, mode: u32) -> Result<(), Errno> {
    let number = dir.as_fd().as_raw_fd();
    fs::chmod(format!("/proc/self/fd/{number}"), Mode::from_raw_mode(mode))
}
