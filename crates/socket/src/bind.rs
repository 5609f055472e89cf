//! Binds a socket to a path.
//!
//! A dead socket is first moved away and looked at once more, so that a file which took its name meanwhile is put back and
//! never deleted. Processes that start at one path take turns by a lock on its directory.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{AtFlags, FileType, FlockOperation, Mode, OFlags, RenameFlags, Stat};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

use tidecast_paths::{End, STICKY, follow, others_write, reopen};

use crate::ShortPath;

/// Connections that wait to be accepted.
const BACKLOG: i32 = 128;
/// Another process may hold the directory's lock for this time; then binding continues without the lock,
/// since the checks do not depend on it.
const LOCKED: Duration = Duration::from_secs(2);
const LOOK: Duration = Duration::from_millis(10);
/// Dead sockets that are removed before we give up: another process creates them as fast.
const TRIES: usize = 16;

/// Why a socket cannot be made at a path.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// Something else has the name.
    #[error("the path is {0}, not a socket, and was left unchanged; name another path")]
    NotASocket(&'static str),
    /// A socket of another user has the name.
    #[error("the socket at this path belongs to user {0}; name another path")]
    Foreign(u32),
    /// A process listens there.
    #[error("another process is listening on it")]
    InUse,
    /// Another user could replace the socket by one of his own.
    #[error("other users can write to {}; name a path in a directory of your own", .0.display())]
    Shared(PathBuf),
    /// Another user could replace a directory on the way to the socket.
    #[error("other users can put another directory in the place of {}; name a path in a directory of your own", .0.display())]
    Exchangeable(PathBuf),
    /// The system refused.
    #[error(transparent)]
    Io(#[from] io::Error),
}

impl From<Errno> for BindError {
    fn from(errno: Errno) -> Self {
        BindError::Io(errno.into())
    }
}

/// A name that stands for our socket.
#[derive(Debug)]
pub struct Bound {
    dir: File,
    name: OsString,
    id: (u64, u64),
}

impl Bound {
    /// Removes the name, unless it stands for something else by now.
    pub fn remove(self) {
        let _lock = Lock::of(&self.dir);
        if stat(&self.dir, &self.name).ok().flatten().is_some_and(|there| id(&there) == self.id) {
            let _ = unlink(&self.dir, &self.name, |moved, _| id(moved) == self.id);
        }
    }
}

/// A socket for streams that listens at `path`, with these permission bits; as [`bind`].
///
/// # Errors
/// As [`bind`].
pub fn listen(path: &Path, mode: u32) -> Result<(UnixListener, Bound), BindError> {
    let (socket, bound) = bind(path, SocketType::STREAM, mode)?;
    Ok((UnixListener::from(socket), bound))
}

/// A socket that listens at `path`, with these permission bits. A dead socket of this user in its place is replaced.
///
/// # Errors
/// Another file has the name, or a socket in use; other users may write to the directory; else the system's
/// error.
pub fn bind(path: &Path, kind: SocketType, mode: u32) -> Result<(OwnedFd, Bound), BindError> {
    let name = path.file_name().ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?.to_owned();
    let parent = path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let dir = open(parent)?;
    safe(&dir, parent)?;
    let lock = Lock::of(&dir);
    let socket = rustix::net::socket_with(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None)?;
    let short = ShortPath::of(path)?;
    let address = SocketAddrUnix::new(short.path())?;
    for _ in 0..TRIES {
        match rustix::net::bind(&socket, &address) {
            Err(Errno::ADDRINUSE) => clear(&dir, &name, kind)?,
            Err(error) => return Err(error.into()),
            Ok(()) => {
                let made =
                    stat(&dir, &name)?.filter(is_socket).ok_or(BindError::Shared(parent.to_owned()))?;
                // Before it listens, so that no other user connects by the bits that the umask left.
                rustix::fs::chmodat(&dir, &name, Mode::from_raw_mode(mode), AtFlags::empty())?;
                rustix::net::listen(&socket, BACKLOG)?;
                drop(lock);
                return Ok((socket, Bound { dir, name, id: id(&made) }));
            }
        }
    }
    Err(BindError::InUse)
}

/// Opens a directory that no other user may have planted, on a way on which no other user may exchange a name.
fn open(path: &Path) -> Result<File, BindError> {
    let mut shared = None;
    let end = follow(path, &mut |step| {
        if step.planter().is_some() || step.owner.is_some() && step.dir.lets_exchange() {
            shared = Some(step.path.to_owned());
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        Ok(())
    });
    match (end, shared) {
        (_, Some(at)) => Err(BindError::Exchangeable(at)),
        (Ok(End::Missing(_)), _) => Err(Errno::NOENT.into()),
        (Ok(End::Other(_)), _) => Err(Errno::NOTDIR.into()),
        // One that we may enter and not list is as good, but has no lock.
        (Ok(End::Dir(dir)), _) => Ok(reopen(&dir, OFlags::RDONLY | OFlags::DIRECTORY).unwrap_or(dir).into()),
        (Err(error), _) => Err(error.into()),
    }
}

/// Refuses a directory in which another user could replace the socket.
fn safe(dir: &File, path: &Path) -> Result<(), BindError> {
    let at = dir.metadata()?;
    let ours = at.uid() == 0 || at.uid() == rustix::process::geteuid().as_raw();
    let sticky = at.mode() & STICKY != 0;
    let shared = others_write(at.uid(), at.gid(), at.mode());
    if ours && (sticky || !shared) { Ok(()) } else { Err(BindError::Shared(path.to_owned())) }
}

/// Removes the file of this name, if it is a dead socket of ours.
fn clear(dir: &File, name: &OsStr, kind: SocketType) -> Result<(), BindError> {
    let Some(there) = stat(dir, name)? else { return Ok(()) };
    judge(&there)?;
    if lives(dir, name, kind) {
        return Err(BindError::InUse);
    }
    unlink(dir, name, |moved, aside| id(moved) == id(&there) && !lives(dir, aside, kind))
}

/// Removes a socket if `is_meant` is true after it has lost its name. Otherwise it gets its name back:
/// another socket has taken the name between the two checks.
fn unlink(dir: &File, name: &OsStr, is_meant: impl Fn(&Stat, &OsStr) -> bool) -> Result<(), BindError> {
    let mut aside = OsString::from(".");
    aside.push(name);
    aside.push(format!(".{}", std::process::id()));
    match rename(dir, name, &aside) {
        Ok(()) => {}
        Err(Errno::NOENT) => return Ok(()),
        Err(error) => return Err(error.into()),
    }
    // By kind too: a number of an inode may have been used again.
    if stat(dir, &aside)?.is_some_and(|moved| is_socket(&moved) && is_meant(&moved, &aside)) {
        return Ok(rustix::fs::unlinkat(dir, &aside, AtFlags::empty())?);
    }
    Ok(rename(dir, &aside, name)?)
}

/// Never replaces an existing name. NFS has no such renaming: there by a link.
fn rename(dir: &File, from: &OsStr, to: &OsStr) -> Result<(), Errno> {
    match rustix::fs::renameat_with(dir, from, dir, to, RenameFlags::NOREPLACE) {
        Err(Errno::INVAL | Errno::NOSYS) => {
            rustix::fs::linkat(dir, from, dir, to, AtFlags::empty())?;
            rustix::fs::unlinkat(dir, from, AtFlags::empty())
        }
        done => done,
    }
}

fn judge(there: &Stat) -> Result<(), BindError> {
    if !is_socket(there) {
        return Err(BindError::NotASocket(match FileType::from_raw_mode(there.st_mode) {
            FileType::RegularFile => "a file",
            FileType::Directory => "a directory",
            FileType::Symlink => "a symbolic link",
            FileType::Fifo => "a pipe",
            _ => "a device",
        }));
    }
    let own = rustix::process::geteuid().as_raw();
    if there.st_uid != own && there.st_uid != 0 { Err(BindError::Foreign(there.st_uid)) } else { Ok(()) }
}

/// Whether a process listens there; true also if that cannot be determined.
fn lives(dir: &File, name: &OsStr, kind: SocketType) -> bool {
    let at = Path::new("/proc/self/fd").join(dir.as_raw_fd().to_string()).join(name);
    // A queue that is full is not waited for: a process listens.
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let tried = rustix::net::socket_with(AddressFamily::UNIX, kind, flags, None)
        .and_then(|socket| rustix::net::connect(&socket, &SocketAddrUnix::new(at)?));
    !matches!(tried, Err(Errno::CONNREFUSED | Errno::NOENT))
}

fn stat(dir: &File, name: &OsStr) -> Result<Option<Stat>, BindError> {
    match rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => Ok(Some(stat)),
        Err(Errno::NOENT) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

fn is_socket(stat: &Stat) -> bool {
    FileType::from_raw_mode(stat.st_mode) == FileType::Socket
}

#[allow(clippy::unnecessary_cast)] // widths differ between architectures
fn id(stat: &Stat) -> (u64, u64) {
    (stat.st_dev as u64, stat.st_ino as u64)
}

/// The lock of a directory until it is dropped, if it could be locked.
struct Lock<'a>(&'a File);

impl<'a> Lock<'a> {
    fn of(dir: &'a File) -> Option<Self> {
        let until = Instant::now() + LOCKED;
        loop {
            match rustix::fs::flock(dir.as_fd(), FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => return Some(Self(dir)),
                Err(Errno::WOULDBLOCK | Errno::INTR) if Instant::now() < until => std::thread::sleep(LOOK),
                Err(_) => return None,
            }
        }
    }
}

impl Drop for Lock<'_> {
    fn drop(&mut self) {
        let _ = rustix::fs::flock(self.0.as_fd(), FlockOperation::Unlock);
    }
}

#[cfg(test)]
#[path = "bind_tests.rs"]
mod tests;
