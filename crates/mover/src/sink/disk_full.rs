//! The explanation of a full disk: it lists the staging directories of unfinished copies, which begin with a
//! dot and are easily overlooked.

use std::path::Path;

use rustix::fd::OwnedFd;
use rustix::fs::{self, AtFlags, FileType, FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use tidecast_text::{Size, escaped};

use super::dirs::kind;
use super::stage::PREFIX;
use crate::error::Error;

const DIRECTORY: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
/// Depth to which a staging directory is measured: a staged destination is in it as a tree.
const LEVELS: usize = 64;

/// The same error; if the disk is full, with the staging directories in `base` and their sizes. `own`: that
/// of this copy.
pub(super) fn explained(error: Error, base: &OwnedFd, shown: &Path, own: Option<&str>) -> Error {
    let Error::Io { doing, path, error } = error else { return error };
    if !matches!(Errno::from_io_error(&error), Some(Errno::NOSPC | Errno::DQUOT)) {
        return Error::Io { doing, path, error };
    }
    let mut held = Vec::new();
    for entry in fs::Dir::read_from(base).into_iter().flatten().flatten() {
        let name = entry.file_name().to_bytes();
        let Ok(name) = std::str::from_utf8(name) else { continue };
        let Some(dir) = name.starts_with(PREFIX).then(|| fs::openat(base, name, DIRECTORY, Mode::empty()))
        else {
            continue;
        };
        let bytes = dir.as_ref().map_or(0, |dir| size(dir, LEVELS));
        if bytes == 0 {
            continue;
        }
        let what = match (own == Some(name), dir.is_ok_and(|dir| is_locked(&dir))) {
            (true, _) => "the data copied so far, kept for the next run of this command",
            (false, true) => "files of another running copy",
            (false, false) => "left by an unfinished copy; run that command again, or remove the directory",
        };
        held.push(format!("{} holds {}, {what}", escaped(&shown.join(name)), Size(bytes)));
    }
    Error::NoSpace { doing, path, error, held: held.iter().map(|line| format!("; {line}")).collect() }
}

/// Bytes that all files in a directory take.
fn size(dir: &OwnedFd, levels: usize) -> u64 {
    let mut bytes = 0;
    for entry in fs::Dir::read_from(dir).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let Ok(stat) = fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW) else { continue };
        if kind(&stat) != FileType::Directory {
            bytes += stat.st_blocks as u64 * 512;
        } else if !matches!(name.to_bytes(), b"." | b"..")
            && levels > 0
            && let Ok(below) = fs::openat(dir, name, DIRECTORY, Mode::empty())
        {
            bytes += size(&below, levels - 1);
        }
    }
    bytes
}

fn is_locked(dir: &OwnedFd) -> bool {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let lock = fs::openat(dir, "lock", flags, Mode::empty());
    lock.is_ok_and(|lock| {
        matches!(fs::flock(&lock, FlockOperation::NonBlockingLockShared), Err(Errno::WOULDBLOCK))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_others_have_left_is_named_when_there_is_no_room() {
        let at = tempfile::tempdir().unwrap();
        for name in ["own", "left", "runs", "empty"] {
            let dir = at.path().join(format!("{PREFIX}{name}"));
            std::fs::create_dir_all(dir.join("w0")).unwrap();
            if name != "empty" {
                std::fs::write(dir.join("w0/1"), vec![1; 1 << 20]).unwrap();
            }
            std::fs::File::create(dir.join("lock")).unwrap();
        }
        let lock = std::fs::File::open(at.path().join(format!("{PREFIX}runs/lock"))).unwrap();
        fs::flock(&lock, FlockOperation::LockExclusive).unwrap();
        let base = fs::open(at.path(), DIRECTORY, Mode::empty()).unwrap();
        let own = format!("{PREFIX}own");
        let said = |errno: Errno| {
            let error = Error::io("write", "/d/f")(errno.into());
            explained(error, &base, Path::new("/d"), Some(&own)).to_string()
        };
        for errno in [Errno::NOSPC, Errno::DQUOT] {
            let said = said(errno);
            assert!(said.starts_with("cannot write /d/f: "), "{said}");
            for (name, what) in
                [("own", "kept for the next run"), ("left", "unfinished copy"), ("runs", "running copy")]
            {
                let line = said.split("; ").find(|line| line.contains(&format!("/d/{PREFIX}{name} holds 1")));
                assert!(line.is_some_and(|line| line.contains(what)), "{said}");
            }
            assert!(!said.contains("empty"));
        }
        assert!(!said(Errno::IO).contains("holds"));
    }
}
