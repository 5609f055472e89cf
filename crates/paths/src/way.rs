//! The way to a path that the caller has named: name by name and link by link, each directory by its descriptor. The owner
//! of each name, and of its directory, is checked before the name is followed.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use rustix::fd::OwnedFd;
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, fstat, fstatfs, mkdirat, openat, readlinkat, statat};
use rustix::io::Errno;

use crate::planted::Access;

/// Links that are followed, as many as the kernel follows, and names that others make first.
const MAX_TURNS: usize = 40;
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
}

impl Step<'_> {
    /// The user who may have planted this name for the caller, if another than the caller may have
    /// ([`Access::lets_plant`]).
    #[must_use]
    pub fn planter(&self) -> Option<u32> {
        self.owner.filter(|owner| self.dir.lets_plant(*owner, rustix::process::geteuid().as_raw()))
    }
}

/// Follows `path` to its end, or to the first name that is missing; `look` sees each name before it is followed.
///
/// # Errors
/// Those of `look` and of the system; too many links. A missing name is no error: the way ends there.
pub fn follow(path: &Path, look: &mut dyn FnMut(&Step<'_>) -> io::Result<()>) -> io::Result<()> {
    walk(path, None, look).map(drop)
}

/// Opens a directory on a way without a link that another user may have planted; with `make`, makes what is missing of it,
/// with these permissions before the umask. So does the kernel where `fs.protected_symlinks` is set.
pub(crate) fn to_dir(path: &Path, make: Option<u32>) -> io::Result<OwnedFd> {
    match walk(path, make, &mut refuse_planted_link)? {
        End::Dir(dir) => Ok(dir),
        End::Missing => Err(Errno::NOENT.into()),
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
        End::Missing => Err(Errno::NOENT.into()),
    }
}

fn refuse_planted_link(step: &Step<'_>) -> io::Result<()> {
    step.planter().filter(|_| step.is_link).map_or(Ok(()), |owner| Err(planted(step.path, owner)))
}

/// Refuses a path that leads to a file, pipe or device that another user may have planted, or through such a link.
pub(crate) fn refuse_planted(path: &Path) -> io::Result<()> {
    follow(path, &mut |step| step.planter().map_or(Ok(()), |owner| Err(planted(step.path, owner))))
}

/// The end of a way.
enum End {
    Dir(OwnedFd),
    /// A file, pipe or device.
    Other(OwnedFd),
    Missing,
}

/// The refusal of a name that another user may have planted.
pub(crate) fn planted(path: &Path, owner: u32) -> io::Error {
    let why = format!(
        "{} belongs to another user ({owner}), and all users may create names in its directory",
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
    let mut turns = 0;
    put_first(&mut left, path, false);
    while let Some((name, of_link)) = left.pop_front() {
        let is_up = name == *OsStr::new("..");
        if name == *OsStr::new("/") || is_up {
            dir = openat(&dir, &name, NAMED, Mode::empty())?;
            at.push(&name);
            continue;
        }
        at.push(&name);
        let here = fstat(&dir)?;
        let mut there = statat(&dir, &name, AtFlags::SYMLINK_NOFOLLOW);
        let step = Step {
            path: &at,
            dir: Access { owner: here.st_uid, mode: here.st_mode },
            owner: there.map(|stat| stat.st_uid).ok(),
            is_link: there.is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Symlink),
        };
        look(&step)?;
        // The target of a dangling link is not made, as mkdir(2) makes none.
        if let (Err(Errno::NOENT), Some(mode), false) = (there, make, of_link) {
            match mkdirat(&dir, &name, Mode::from_raw_mode(mode)) {
                Ok(()) => there = statat(&dir, &name, AtFlags::SYMLINK_NOFOLLOW),
                // Another process was faster, perhaps with a link: it is looked at like all others.
                Err(Errno::EXIST) => {
                    turns = turn(turns)?;
                    at.pop();
                    left.push_front((name, of_link));
                    continue;
                }
                Err(error) => return Err(error.into()),
            }
        }
        match there.map(|stat| FileType::from_raw_mode(stat.st_mode)) {
            Err(Errno::NOENT) => return Ok(End::Missing),
            Err(error) => return Err(error.into()),
            // It leads to an open file, whatever it says.
            Ok(FileType::Symlink) if is_proc(&dir) => {
                let found = openat(&dir, &name, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
                match FileType::from_raw_mode(fstat(&found)?.st_mode) {
                    FileType::Directory => dir = found,
                    _ if left.is_empty() => return Ok(End::Other(found)),
                    _ => return Err(Errno::NOTDIR.into()),
                }
            }
            Ok(FileType::Symlink) => {
                turns = turn(turns)?;
                let target = readlinkat(&dir, &name, Vec::new())?.into_bytes();
                at.pop();
                put_first(&mut left, Path::new(OsStr::from_bytes(&target)), true);
            }
            Ok(FileType::Directory) => dir = openat(&dir, &name, NAMED, Mode::empty())?,
            Ok(_) if left.is_empty() => {
                let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                return Ok(End::Other(openat(&dir, &name, flags, Mode::empty())?));
            }
            Ok(_) => return Err(Errno::NOTDIR.into()),
        }
    }
    Ok(End::Dir(dir))
}

/// One more turn off the way.
fn turn(turns: usize) -> io::Result<usize> {
    if turns < MAX_TURNS { Ok(turns + 1) } else { Err(Errno::LOOP.into()) }
}

/// Whether a directory is one of procfs, whose links do not lead where they say.
fn is_proc(dir: &OwnedFd) -> bool {
    fstatfs(dir).is_ok_and(|fs| fs.f_type == rustix::fs::PROC_SUPER_MAGIC)
}

/// `of_link`: the path is the target of a link.
fn put_first(left: &mut VecDeque<(OsString, bool)>, path: &Path, of_link: bool) {
    for part in path.components().rev() {
        if part != Component::CurDir {
            left.push_front((part.as_os_str().to_owned(), of_link));
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
