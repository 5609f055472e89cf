//! The way to a path that the caller has named: name by name and link by link, each directory by its descriptor. The owner
//! of each name, and of its directory, is checked before the name is followed.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use rustix::fd::OwnedFd;
use rustix::fs::{CWD, FileType, Mode, OFlags, fstat, fstatfs, mkdirat, openat, readlinkat};
use rustix::io::Errno;

use crate::planted::Access;

/// Links that are followed, as many as the kernel follows, and names that others make first.
const MAX_TURNS: usize = 40;
/// Directories that are made: as many names as a path has at most.
const MAX_NAMES: usize = 2048;
const NAMED: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// A name on the way.
#[derive(Debug)]
pub struct Step<'a> {
    /// The path so far, with this name.
    pub path: &'a Path,
    /// The directory that has the name.
    pub dir: Access,
    /// The owner of what has the name, a link itself; `None` if nothing has it.
    pub owner: Option<u32>,
    /// It is a symbolic link.
    pub is_link: bool,
    /// Another user may have planted a directory on the way to it.
    pub is_below_planted: bool,
}

impl Step<'_> {
    /// The user who may have planted this name for the caller, if another than the caller may have
    /// ([`Access::lets_plant`]). The owner of a directory that may be planted is not trusted with names in it.
    #[must_use]
    pub fn planter(&self) -> Option<u32> {
        let me = rustix::process::geteuid().as_raw();
        let is_planted = |owner: &u32| {
            self.is_below_planted && ![0, me].contains(owner) || self.dir.lets_plant(*owner, me)
        };
        self.owner.filter(is_planted)
    }
}

/// Follows `path` to its end, or to the first name that is missing; `look` sees each name before it is followed. The end is
/// what was looked at, whatever has its name meanwhile.
///
/// # Errors
/// Those of `look` and of the system; too many links. A missing name is no error: the way ends there.
pub fn follow(path: &Path, look: &mut dyn FnMut(&Step<'_>) -> io::Result<()>) -> io::Result<End> {
    walk(path, None, look)
}

/// Opens a directory on a way without a link that another user may have planted; with `make`, makes what is missing of it,
/// with these permissions before the umask. So does the kernel where `fs.protected_symlinks` is set.
pub(crate) fn to_dir(path: &Path, make: Option<u32>) -> io::Result<OwnedFd> {
    dir(walk(path, make, &mut refuse_planted_link)?)
}

/// As [`to_dir`], with another rule: `look` sees each name before it is followed or made.
pub(crate) fn to_dir_by(
    path: &Path,
    make: u32,
    look: &mut dyn FnMut(&Step<'_>) -> io::Result<()>,
) -> io::Result<OwnedFd> {
    dir(walk(path, Some(make), look)?)
}

fn dir(end: End) -> io::Result<OwnedFd> {
    match end {
        End::Dir(dir) => Ok(dir),
        End::Missing(_) => Err(Errno::NOENT.into()),
        End::Other(_) => Err(Errno::NOTDIR.into()),
    }
}

/// A descriptor (`O_PATH`) of what is at a path that the user has named, on a way without a link that another user may have
/// planted.
///
/// # Errors
/// The system's error; [`io::ErrorKind::PermissionDenied`] for a planted link.
pub fn named(path: &Path) -> io::Result<OwnedFd> {
    match walk(path, None, &mut refuse_planted_link)? {
        End::Dir(found) | End::Other(found) => Ok(found),
        End::Missing(_) => Err(Errno::NOENT.into()),
    }
}

/// The rule of [`named`] and of the paths of [`crate::Root`].
///
/// # Errors
/// [`io::ErrorKind::PermissionDenied`] for a link that another user may have planted.
pub fn refuse_planted_link(step: &Step<'_>) -> io::Result<()> {
    step.planter().filter(|_| step.is_link).map_or(Ok(()), |owner| Err(planted(step.path, owner)))
}

/// The end of a path that leads through nothing, and to nothing, that another user may have planted.
pub(crate) fn not_planted(path: &Path) -> io::Result<End> {
    follow(path, &mut refuse_planted)
}

/// The rule of [`crate::open_not_planted`].
///
/// # Errors
/// [`io::ErrorKind::PermissionDenied`] for a name that another user may have planted.
pub fn refuse_planted(step: &Step<'_>) -> io::Result<()> {
    step.planter().map_or(Ok(()), |owner| Err(planted(step.path, owner)))
}

/// The end of a way. The descriptors (`O_PATH`) name a file, and open none.
#[derive(Debug)]
pub enum End {
    /// A directory.
    Dir(OwnedFd),
    /// A file, pipe or device.
    Other(OwnedFd),
    /// A name that is missing.
    Missing(Missing),
}

/// What is missing of a path.
#[derive(Debug)]
pub struct Missing {
    /// The directory in which the first name is missing.
    pub above: OwnedFd,
    /// That name, and those after it; perhaps with `..`.
    pub names: Vec<OsString>,
    /// The path of a symbolic link that leads to the missing name.
    pub link: Option<PathBuf>,
}

/// The refusal of a name that another user may have planted.
pub(crate) fn planted(path: &Path, owner: u32) -> io::Error {
    let why = format!(
        "{} belongs to another user ({owner}), and all users may create names in its directory or in one above",
        path.display()
    );
    io::Error::new(io::ErrorKind::PermissionDenied, why)
}

fn walk(
    path: &Path,
    make: Option<u32>,
    look: &mut dyn FnMut(&Step<'_>) -> io::Result<()>,
) -> io::Result<End> {
    let mut left = VecDeque::new();
    let mut at = PathBuf::new();
    // The working directory of an absolute path may be one that this user cannot enter.
    let begin = if path.is_absolute() { "/" } else { "." };
    let mut dir = openat(CWD, begin, NAMED, Mode::empty())?;
    let (mut turns, mut made, mut is_below_planted) = (0, 0, false);
    put_first(&mut left, path, None);
    while let Some((name, link)) = left.pop_front() {
        let is_up = name == *OsStr::new("..");
        if name == *OsStr::new("/") || is_up {
            dir = openat(&dir, &name, NAMED, Mode::empty())?;
            at.push(&name);
            is_below_planted &= is_up;
            continue;
        }
        at.push(&name);
        let there = Found::at(&dir, &name)?;
        let here = fstat(&dir)?;
        let step = Step {
            path: &at,
            dir: Access { owner: here.st_uid, mode: here.st_mode },
            owner: there.as_ref().map(|found| found.owner),
            is_link: there.as_ref().is_some_and(|found| found.kind == FileType::Symlink),
            is_below_planted,
        };
        look(&step)?;
        is_below_planted |= !step.is_link && step.planter().is_some();
        match there {
            None => {
                // The target of a dangling link is not made, as mkdir(2) makes none.
                let Some(mode) = make.filter(|_| link.is_none()) else {
                    let names = [name].into_iter().chain(left.into_iter().map(|(name, _)| name)).collect();
                    return Ok(End::Missing(Missing { above: dir, names, link }));
                };
                // Made here or by another process, it is looked at like all names.
                match mkdirat(&dir, &name, Mode::from_raw_mode(mode)) {
                    Ok(()) => made = turn(made, MAX_NAMES)?,
                    Err(Errno::EXIST) => turns = turn(turns, MAX_TURNS)?,
                    Err(error) => return Err(error.into()),
                }
                at.pop();
                left.push_front((name, link));
            }
            // It leads to an open file, whatever it says.
            Some(found) if found.kind == FileType::Symlink && is_proc(&dir) => {
                let fd = openat(&dir, &name, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
                match FileType::from_raw_mode(fstat(&fd)?.st_mode) {
                    FileType::Directory => dir = fd,
                    _ if left.is_empty() => return Ok(End::Other(fd)),
                    _ => return Err(Errno::NOTDIR.into()),
                }
            }
            Some(found) if found.kind == FileType::Symlink => {
                turns = turn(turns, MAX_TURNS)?;
                let target = readlinkat(&found.fd, "", Vec::new())?.into_bytes();
                let link = at.clone();
                at.pop();
                put_first(&mut left, Path::new(OsStr::from_bytes(&target)), Some(&link));
            }
            Some(found) if found.kind == FileType::Directory => dir = found.fd,
            Some(found) if left.is_empty() => return Ok(End::Other(found.fd)),
            Some(_) => return Err(Errno::NOTDIR.into()),
        }
    }
    Ok(End::Dir(dir))
}

/// What has a name: a link itself.
struct Found {
    fd: OwnedFd,
    kind: FileType,
    owner: u32,
}

impl Found {
    /// Opened once, so that what is looked at is what is followed. `None`: nothing has the name.
    fn at(dir: &OwnedFd, name: &OsStr) -> io::Result<Option<Self>> {
        // As a directory first, which mounts one that an automounter has not mounted yet.
        let fd = match openat(dir, name, NAMED, Mode::empty()) {
            Err(Errno::NOTDIR | Errno::LOOP) => {
                openat(dir, name, NAMED.difference(OFlags::DIRECTORY), Mode::empty())
            }
            opened => opened,
        };
        let fd = match fd {
            Err(Errno::NOENT) => return Ok(None),
            other => other?,
        };
        let stat = fstat(&fd)?;
        Ok(Some(Self { fd, kind: FileType::from_raw_mode(stat.st_mode), owner: stat.st_uid }))
    }
}

/// One more turn off the way, of at most so many.
fn turn(turns: usize, most: usize) -> io::Result<usize> {
    if turns < most { Ok(turns + 1) } else { Err(Errno::LOOP.into()) }
}

/// Whether a directory is one of procfs, whose links do not lead where they say.
fn is_proc(dir: &OwnedFd) -> bool {
    fstatfs(dir).is_ok_and(|fs| fs.f_type == rustix::fs::PROC_SUPER_MAGIC)
}

/// `link`: the path is the target of that link.
fn put_first(left: &mut VecDeque<(OsString, Option<PathBuf>)>, path: &Path, link: Option<&Path>) {
    for part in path.components().rev() {
        if part != Component::CurDir {
            left.push_front((part.as_os_str().to_owned(), link.map(Path::to_owned)));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, lchown, symlink};

    use super::*;
    use crate::{Root, output};

    #[test]
    fn a_link_that_another_user_may_have_planted_is_not_followed() {
        if !rustix::process::geteuid().is_root() {
            eprintln!("SKIPPED: only root can make another user's links");
            return;
        }
        let base = tempfile::tempdir().unwrap();
        let (mine, sticky) = (base.path().join("mine"), base.path().join("tmp"));
        for dir in [&mine, &sticky] {
            std::fs::create_dir(dir).unwrap();
        }
        std::fs::set_permissions(&sticky, PermissionsExt::from_mode(0o1777)).unwrap();
        std::fs::write(mine.join("file"), "precious").unwrap();
        let (link, file) = (sticky.join("link"), sticky.join("file"));
        for (target, link) in [(&mine, &link), (&mine.join("file"), &file)] {
            symlink(target, link).unwrap();
            lchown(link, Some(61001), None).unwrap();
        }
        let refused = |done: io::Result<()>| {
            let error = done.unwrap_err();
            assert!(error.to_string().contains("belongs to another user (61001)"), "{error}");
        };
        for path in [link.clone(), link.join("."), link.join("new")] {
            refused(Root::open(&path).map(drop));
            refused(Root::make(&path).map(drop));
            refused(Root::make_private(&path).map(drop));
        }
        for path in [&file, &link.join("file")] {
            refused(output(path, b"x", 0o644, &|| false));
        }
        assert_eq!(std::fs::read(mine.join("file")).unwrap(), b"precious");
        assert!(!mine.join("new").exists());
        lchown(&link, Some(rustix::process::geteuid().as_raw()), None).unwrap();
        Root::make(&link.join("new/deep")).unwrap();
        assert!(mine.join("new/deep").is_dir(), "its own link leads there");
    }

    #[test]
    fn what_is_looked_at_is_what_is_followed() {
        if !rustix::process::geteuid().is_root() {
            eprintln!("SKIPPED: only root can make another user's links");
            return;
        }
        let base = tempfile::tempdir().unwrap();
        let (mine, sticky) = (base.path().join("mine"), base.path().join("tmp"));
        std::fs::create_dir_all(mine.join("dir")).unwrap();
        std::fs::create_dir(&sticky).unwrap();
        std::fs::set_permissions(&sticky, PermissionsExt::from_mode(0o1777)).unwrap();
        std::fs::write(mine.join("file"), "precious").unwrap();
        let ended = std::sync::atomic::AtomicBool::new(false);
        let is_over = || ended.load(std::sync::atomic::Ordering::Relaxed);
        // Now nothing has the name, now a link of another user.
        let plant = |name: &str, target: &Path| {
            let (spare, name) = (sticky.join(format!("{name}.spare")), sticky.join(name));
            while !is_over() {
                symlink(target, &spare).unwrap();
                lchown(&spare, Some(61001), None).unwrap();
                let _ = std::fs::rename(&spare, &name);
                let _ = std::fs::remove_file(&name);
                let _ = std::fs::remove_file(&spare);
            }
        };
        std::thread::scope(|scope| {
            scope.spawn(|| plant("out", &mine.join("file")));
            scope.spawn(|| plant("new", &mine.join("dir")));
            let (mut refused, mut made) = (0, 0);
            for _ in 0..400 {
                refused += usize::from(output(&sticky.join("out"), b"x", 0o644, &|| false).is_err());
                let _ = std::fs::remove_file(sticky.join("out"));
                made += usize::from(Root::make(&sticky.join("new/sub")).is_ok());
                let _ = std::fs::remove_dir_all(sticky.join("new"));
            }
            ended.store(true, std::sync::atomic::Ordering::Relaxed);
            assert!(refused > 0 && made > 0, "{refused} {made}");
        });
        assert_eq!(std::fs::read(mine.join("file")).unwrap(), b"precious");
        assert_eq!(std::fs::read_dir(mine.join("dir")).unwrap().count(), 0);
    }

    #[test]
    fn a_way_goes_through_links_and_upwards() {
        let base = tempfile::tempdir().unwrap();
        let base = base.path().canonicalize().unwrap();
        std::fs::create_dir_all(base.join("a/b")).unwrap();
        symlink("../a", base.join("a/again")).unwrap();
        symlink(base.join("a/again/b"), base.join("far")).unwrap();
        symlink("loop", base.join("loop")).unwrap();
        symlink("nowhere", base.join("dangling")).unwrap();
        for path in ["dangling", "dangling/x"] {
            assert_eq!(Root::make(&base.join(path)).unwrap_err().kind(), io::ErrorKind::NotFound);
        }
        assert!(!base.join("nowhere").exists());
        let real = |path: &str| Root::open(&base.join(path)).and_then(|root| root.real_path());
        for path in ["far", "far/../b", "a/again/../a/./b//", "far/."] {
            assert_eq!(real(path).unwrap(), base.join("a/b"), "{path}");
        }
        assert_eq!(real("far/none").unwrap_err().kind(), io::ErrorKind::NotFound);
        assert_eq!(Errno::from_io_error(&real("loop").unwrap_err()), Some(Errno::LOOP));
        let open = std::fs::File::open(base.join("a/b")).unwrap();
        let open = Path::new("/proc/self/fd").join(std::os::fd::AsRawFd::as_raw_fd(&open).to_string());
        assert_eq!(Root::open(&open.join("../b")).unwrap().real_path().unwrap(), base.join("a/b"));
        std::fs::write(base.join("file"), "").unwrap();
        for path in ["file", "file/x", "file/.."] {
            assert_eq!(real(path).unwrap_err().kind(), io::ErrorKind::NotADirectory, "{path}");
        }
        let mut seen = Vec::new();
        follow(&base.join("far/none/x"), &mut |step| {
            seen.push((step.path.to_owned(), step.is_link, step.owner.is_some()));
            Ok(())
        })
        .unwrap();
        assert_eq!(seen.last().unwrap(), &(base.join("a/../a/b/none"), false, false));
        assert!(seen.contains(&(base.join("far"), true, true)));
    }
}
