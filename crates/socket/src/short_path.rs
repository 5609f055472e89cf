//! A socket's path, however long: the system takes 107 bytes, and homes on shared file systems have longer ones.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};

/// Most bytes of a path that the kernel takes (unix(7)).
const MOST: usize = 107;

/// A short path that stands for another until it is dropped.
#[derive(Debug)]
pub struct ShortPath {
    path: PathBuf,
    _dir: Option<File>,
}

impl ShortPath {
    /// Leaves a short path as it is; a file with a long path is reached through a handle of its directory.
    ///
    /// # Errors
    /// The directory cannot be opened.
    pub fn of(path: &Path) -> io::Result<Self> {
        let (dir, name) = match (path.parent(), path.file_name()) {
            (Some(dir), Some(name)) if path.as_os_str().len() > MOST => (dir, name),
            _ => return Ok(Self { path: path.to_owned(), _dir: None }),
        };
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let dir = File::from(rustix::fs::open(dir, flags, Mode::empty())?);
        let path = PathBuf::from(format!("/proc/self/fd/{}", dir.as_raw_fd())).join(name);
        Ok(Self { path, _dir: Some(dir) })
    }

    /// The path to give to the system.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::answers;
    use std::os::unix::net::UnixListener;

    #[test]
    fn a_socket_is_reached_however_long_its_path() {
        let base = tempfile::tempdir().unwrap();
        for depth in [0, 1, 8] {
            let dir = base.path().join(vec!["a".repeat(100); depth].join("/"));
            std::fs::create_dir_all(&dir).unwrap();
            let path = dir.join("daemon.sock");
            assert!(!answers(&path));
            let listener = UnixListener::bind(ShortPath::of(&path).unwrap().path()).unwrap();
            assert!(path.exists() && answers(&path));
            drop(listener);
            assert!(!answers(&path));
        }
        assert!(!answers(&base.path().join("b".repeat(200)).join("daemon.sock")), "no such directory");
    }
}
