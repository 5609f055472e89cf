//! Files of the host, read below a root: the real one, or a directory that a test has filled.
//!
//! Each read is bounded and never waits; nothing is ever written.

use std::io::{self, BufRead as _, Read as _};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::str::FromStr;

use rustix::fs::{CWD, Dir, Mode, OFlags, ResolveFlags};

/// Most bytes of one file. With 1,000 CPUs /proc/interrupts has some megabytes.
const BYTES: u64 = 16 << 20;
/// Most bytes of a line.
const LINE: u64 = 4096;
/// Most names of one directory.
const NAMES: usize = 1 << 16;

/// Where the files of a host are.
#[derive(Debug)]
pub struct System {
    root: OwnedFd,
    planted: bool,
}

impl System {
    /// This host.
    ///
    /// # Errors
    /// `/` cannot be opened.
    pub fn host() -> io::Result<Self> {
        Ok(Self { root: directory(Path::new("/"))?, planted: false })
    }

    /// The directory `root`, which has `proc`, `sys` and so on as a host has them. Symbolic links in it lead nowhere else.
    ///
    /// # Errors
    /// It cannot be opened.
    pub fn below(root: &Path) -> io::Result<Self> {
        Ok(Self { root: directory(root)?, planted: true })
    }

    /// Whether it is this host: only then can the kernel be asked by other ways than files.
    #[must_use]
    pub fn is_host(&self) -> bool {
        !self.planted
    }

    /// The text of a file without space around it. `None`: it does not exist, cannot be read, is no UTF-8 or has more
    /// than 16 MiB.
    #[must_use]
    pub fn text(&self, path: &str) -> Option<String> {
        let file = std::fs::File::from(self.open(path, OFlags::RDONLY).ok()?);
        let mut text = String::new();
        let read = file.take(BYTES + 1).read_to_string(&mut text).ok()?;
        (read as u64 <= BYTES).then(|| text.trim().to_owned())
    }

    /// The lines of a file of any length, each of some hundred bytes at most; `None` if it cannot be read.
    pub fn lines(&self, path: &str) -> Option<impl Iterator<Item = String> + use<>> {
        let file = std::fs::File::from(self.open(path, OFlags::RDONLY).ok()?);
        let mut file = io::BufReader::new(file);
        Some(std::iter::from_fn(move || {
            let mut line = String::new();
            let read = file.by_ref().take(LINE).read_line(&mut line).ok()?;
            (read > 0).then_some(line)
        }))
    }

    /// A number in a file.
    #[must_use]
    pub fn number<T: FromStr>(&self, path: &str) -> Option<T> {
        self.text(path)?.parse().ok()
    }

    /// The names in a directory, sorted; none if it cannot be read.
    #[must_use]
    pub fn names(&self, path: &str) -> Vec<String> {
        let Ok(opened) = self.open(path, OFlags::RDONLY | OFlags::DIRECTORY) else { return Vec::new() };
        let Ok(entries) = Dir::new(opened) else { return Vec::new() };
        let names = entries.flatten().filter_map(|entry| entry.file_name().to_str().ok().map(str::to_owned));
        let mut names: Vec<_> = names.filter(|name| name != "." && name != "..").take(NAMES).collect();
        names.sort_unstable();
        names
    }

    /// The last name of the path that a symbolic link leads to.
    #[must_use]
    pub fn link(&self, path: &str) -> Option<String> {
        let target = rustix::fs::readlinkat(&self.root, below(path), Vec::new()).ok()?;
        let target = target.into_string().ok()?;
        target.rsplit('/').next().map(str::to_owned)
    }

    /// Whether there is such a file or directory.
    #[must_use]
    pub fn exists(&self, path: &str) -> bool {
        self.open(path, OFlags::PATH).is_ok()
    }

    pub(crate) fn open(&self, path: &str, flags: OFlags) -> io::Result<OwnedFd> {
        // Nothing is waited for: what is opened may be a pipe. With `PATH` nothing is opened, and openat2 refuses the flag.
        let patient = if flags.contains(OFlags::PATH) { OFlags::empty() } else { OFlags::NONBLOCK };
        let flags = flags | OFlags::CLOEXEC | patient;
        Ok(if self.planted {
            tidecast_paths::openat2_again(&self.root, below(path), flags, ResolveFlags::IN_ROOT)?
        } else {
            rustix::fs::openat(&self.root, below(path), flags, Mode::empty())?
        })
    }
}

fn directory(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(rustix::fs::openat(CWD, path, flags, Mode::empty())?)
}

/// The path from the root on.
fn below(path: &str) -> &str {
    match path.trim_start_matches('/') {
        "" => ".",
        path => path,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn files_are_read_below_the_root_and_no_link_leads_out_of_it() {
        let dir = tempfile::tempdir().unwrap();
        let secret = dir.path().join("secret");
        std::fs::write(&secret, "out").unwrap();
        let root = dir.path().join("root");
        std::fs::create_dir_all(root.join("proc/sys")).unwrap();
        std::fs::write(root.join("proc/sys/a"), " 7\n").unwrap();
        std::fs::write(root.join("proc/sys/large"), vec![b'1'; BYTES as usize + 1]).unwrap();
        std::os::unix::fs::symlink(&secret, root.join("proc/leak")).unwrap();
        std::os::unix::fs::symlink("/proc/sys/a", root.join("proc/b")).unwrap();
        let system = System::below(&root).unwrap();
        assert_eq!(system.number::<u64>("/proc/sys/a"), Some(7));
        assert_eq!(system.number::<u64>("/proc/b"), Some(7), "a root's links begin at the root");
        assert_eq!(system.link("/proc/b").as_deref(), Some("a"));
        assert_eq!(system.text("/proc/leak"), None);
        assert_eq!(system.text("/proc/sys/large"), None);
        assert_eq!(system.names("/proc/sys"), ["a", "large"]);
        assert!(system.exists("/proc/sys") && !system.exists("/proc/none"));
    }
}
