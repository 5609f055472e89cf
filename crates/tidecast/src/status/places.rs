//! The directories in which processes of this user announce themselves.
//!
//! A process uses the first possible one; a reader looks in all. Each is opened by descriptor, and used only
//! if it is a directory of this user that no other user may enter.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Read as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::thread::{Builder, ScopedJoinHandle};
use std::time::Duration;

use rustix::fs::{AtFlags, Dir, OFlags, unlinkat};
use tidecast_event::status::{LastError, Process};
use tidecast_paths::{OTHERS_WRITE, temporary_dir};
use tidecast_socket::Bound;

/// The suffix after the number of a process.
const SUFFIX: &str = ".status";
/// A process's time limit to report its status; a stopped process does not answer.
const PATIENCE: Duration = Duration::from_secs(1);
/// The longest that is read of one.
const LONGEST: u64 = 1 << 20;
/// Entries looked at.
const MOST: usize = 1000;

/// Where this process announces itself.
///
/// # Errors
/// No directory can be used.
pub(super) fn listen(command: &str) -> io::Result<(UnixListener, Bound)> {
    let mut last = io::Error::other("no directory for the status socket");
    let id = rand::random::<u32>();
    let name = format!("{command}-{}-{id:08x}{SUFFIX}", std::process::id());
    for dir in places() {
        match private(&dir)
            .and_then(|_| tidecast_socket::listen(&dir.join(&name), 0o600).map_err(io::Error::other))
        {
            Ok(listening) => return Ok(listening),
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// The user's runtime directory, from the environment or the default one; below the directory for temporary
/// files.
fn places() -> Vec<PathBuf> {
    let user = rustix::process::geteuid().as_raw();
    let told = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|dir| dir.is_absolute());
    let usual = PathBuf::from(format!("/run/user/{user}"));
    let runtime = told.into_iter().chain([usual]).map(|dir| dir.join("tidecast"));
    let mut all: Vec<PathBuf> = runtime.collect();
    all.extend(temporary_dir().ok().map(|dir| dir.join(format!("tidecast-{user}")).join("status")));
    all.dedup();
    all
}

/// Makes a directory of ours alone, and its parent if that is one too, and opens it.
fn private(dir: &Path) -> io::Result<File> {
    let make = |dir: &Path| match DirBuilder::new().mode(0o700).create(dir) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        _ => Ok(()),
    };
    // First, as it may be a link that another user has planted.
    if let Some(parent) = dir.parent() {
        if dir.ends_with("status") {
            make(parent)?;
        }
        // A runtime directory of another user is in the environment of root after `su`.
        own(parent, OTHERS_WRITE)?;
    }
    make(dir)?;
    open(dir)
}

fn open(dir: &Path) -> io::Result<File> {
    own(dir, 0o077)
}

/// Opens a directory of this user which gives others none of these permissions.
fn own(dir: &Path, others: u32) -> io::Result<File> {
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let open = OpenOptions::new().read(true).custom_flags(flags.bits().cast_signed()).open(dir)?;
    let meta = open.metadata()?;
    if meta.uid() != rustix::process::geteuid().as_raw() || meta.mode() & others != 0 {
        let why = format!("{} belongs to another user, or others may access it", dir.display());
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
    }
    Ok(open)
}

/// The status of all processes of this user, oldest first.
pub(super) fn look() -> Vec<Process> {
    let mut all: Vec<Process> =
        places().iter().filter_map(|dir| open(dir).ok()).flat_map(|dir| look_in(&dir)).collect();
    all.sort_by_key(|one| (one.since, one.pid));
    all
}

fn look_in(dir: &File) -> Vec<Process> {
    let names = Dir::read_from(dir).into_iter().flatten().flatten().map(|entry| entry.file_name().to_owned());
    let ours = |name: &std::ffi::CString| name.as_bytes().ends_with(SUFFIX.as_bytes());
    let names: Vec<_> = names.filter(ours).take(MOST).collect();
    let ask = |name: &std::ffi::CString| ask(dir, std::ffi::OsStr::from_bytes(name.as_bytes()));
    // All at once: those that are stopped let us wait. One after the other where the system refuses threads.
    std::thread::scope(|scope| {
        let begin = |name| Builder::new().spawn_scoped(scope, move || ask(name)).map_err(|_| name);
        let asked: Vec<_> = names.iter().map(begin).collect();
        let answer = |asked: Result<ScopedJoinHandle<'_, _>, _>| match asked {
            Ok(asked) => asked.join().ok().flatten(),
            Err(name) => ask(name),
        };
        asked.into_iter().filter_map(answer).collect()
    })
}

/// The status of one process; `None` if it is dead, and its socket is removed.
fn ask(dir: &File, name: &std::ffi::OsStr) -> Option<Process> {
    let at = Path::new("/proc/self/fd").join(dir.as_raw_fd().to_string()).join(name);
    let stream = match UnixStream::connect(&at) {
        Ok(stream) => stream,
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            let _ = unlinkat(dir, name, AtFlags::empty());
            return None;
        }
        Err(_) => return None,
    };
    let mut text = String::new();
    let read =
        stream.set_read_timeout(Some(PATIENCE)).and_then(|()| stream.take(LONGEST).read_to_string(&mut text));
    let said = read.ok().and_then(|_| serde_json::from_str(&text).ok());
    Some(said.unwrap_or_else(|| {
        let name = name.to_string_lossy();
        let mut parts = name.rsplit('-').skip(1);
        let pid = parts.next().and_then(|pid| pid.parse().ok());
        let message = "the process does not answer: it is stopped or hangs".to_owned();
        let last_error = Some(LastError { message, ..LastError::default() });
        Process { pid, command: parts.next().map(str::to_owned), last_error, ..Process::default() }
    }))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn who_is_dead_is_removed_and_who_is_silent_is_named() {
        let at = tempfile::tempdir().unwrap();
        let dir = private(&at.path().join("status")).unwrap();
        let socket = |name: &str| UnixListener::bind(at.path().join("status").join(name)).unwrap();
        drop(socket("get-1-0a.status"));
        let _silent = socket("share-77-0b.status");
        std::fs::write(at.path().join("status/other"), "").unwrap();
        let found = look_in(&dir);
        let [silent] = &found[..] else { panic!("{found:?}") };
        assert_eq!((silent.pid, silent.command.as_deref()), (Some(77), Some("share")));
        let mut left: Vec<_> =
            std::fs::read_dir(at.path().join("status")).unwrap().flatten().map(|e| e.file_name()).collect();
        left.sort();
        assert_eq!(left, ["other", "share-77-0b.status"]);
    }

    #[test]
    fn a_directory_that_others_may_enter_is_not_used() {
        use std::os::unix::fs::PermissionsExt as _;
        let at = tempfile::tempdir().unwrap();
        let dir = at.path().join("status");
        private(&dir).unwrap();
        std::fs::set_permissions(&dir, std::fs::Permissions::from_mode(0o750)).unwrap();
        assert!(private(&dir).is_err());
        let link = at.path().join("link");
        std::os::unix::fs::symlink(at.path(), &link).unwrap();
        assert!(private(&link).is_err());
    }
}
