//! Directories that no other user can exchange while they are used, the one for temporary files among them. The kernel lets a
//! directory be renamed or removed that is a mount point in another mount namespace only, and then a program sees what has its
//! name now.

use std::io;
use std::path::{Path, PathBuf};

use rustix::io::Errno;

use crate::{Access, End, Root, Step, follow, unmapped_now};

/// A name on the way to a place that another user could replace.
#[derive(Debug, thiserror::Error)]
pub enum Replaceable {
    /// It is that user's, in a directory where all users may create names.
    #[error("user {owner} could put another directory there while it is used, as {name} is that user's")]
    Planted {
        /// The name.
        name: PathBuf,
        /// That user.
        owner: u32,
    },
    /// All users may rename it.
    #[error("every user could put another directory there while it is used, as all may rename {name}")]
    ByAll {
        /// The name.
        name: PathBuf,
    },
    /// Its directory is that user's, and the caller has not chosen the place.
    #[error(
        "user {owner} could put another directory there while it is used, as {name} is in a directory of that user; \
         if you trust user {owner}, name the place with --at"
    )]
    OfOther {
        /// The name.
        name: PathBuf,
        /// The owner of its directory.
        owner: u32,
    },
}

/// Whether another user than this one and root could put another name in the place of this one. `trusting`: the owner of a
/// directory is trusted, unless that user may have planted the directory.
#[must_use]
pub fn replaceable(step: &Step<'_>, trusting: bool) -> Option<Replaceable> {
    let (name, owner) = (step.path.to_owned(), step.dir.owner);
    if step.dir.lets_exchange() {
        return Some(Replaceable::ByAll { name });
    }
    if let Some(owner) = step.planter() {
        return Some(Replaceable::Planted { name, owner });
    }
    (!trusting && !is_trusted(owner)).then_some(Replaceable::OfOther { name, owner })
}

/// In a user namespace the host's root has the number of all users that it does not know: the check before the namespace was
/// entered has seen them.
fn is_trusted(owner: u32) -> bool {
    owner == 0 || owner == rustix::process::geteuid().as_raw() || Some(owner) == unmapped_now()
}

/// Why a directory does not open.
#[derive(Debug)]
pub enum Fault {
    /// Another user could exchange it, or a directory above it.
    Replaceable(Replaceable),
    /// The system's error.
    System(io::Error),
}

impl From<io::Error> for Fault {
    fn from(error: io::Error) -> Self {
        Self::System(error)
    }
}

impl From<Errno> for Fault {
    fn from(error: Errno) -> Self {
        Self::System(error.into())
    }
}

/// Opens a directory by its path without links, if no other user could exchange it or one above it; `None` if it is missing.
/// `trusting`: as of [`replaceable`].
///
/// # Errors
/// [`Fault`].
pub fn open_unreplaceable(dir: &Path, trusting: bool) -> Result<Option<Root>, Fault> {
    let Some(named) = walk(&std::path::absolute(dir)?, trusting)? else { return Ok(None) };
    // By its own path too, which other processes use: a link of procfs leads past the directories above its target.
    let found = walk(&named.real_path()?, trusting)?.ok_or(Errno::NOENT)?;
    if found.stat("")?.id != named.stat("")?.id {
        return Err(Errno::STALE.into());
    }
    Ok(Some(found))
}

/// One walk, so that the directory that is opened is the one whose path was checked.
fn walk(dir: &Path, trusting: bool) -> Result<Option<Root>, Fault> {
    let mut fault = None;
    let end = follow(dir, &mut |step| {
        fault = replaceable(step, trusting);
        if fault.is_some() { Err(io::ErrorKind::PermissionDenied.into()) } else { Ok(()) }
    });
    if let Some(why) = fault {
        return Err(Fault::Replaceable(why));
    }
    let found = match end? {
        End::Dir(found) => Root::from_fd(found, dir),
        End::Missing(_) => return Ok(None),
        End::Other(_) => return Err(Errno::NOTDIR.into()),
    };
    // The names in it are made later, and checked then by their owner; here, whether others could rename them.
    let meta = found.stat("")?;
    let access = Access { owner: meta.uid, mode: meta.mode };
    let path = dir.join("tidecast");
    let inside = Step { path: &path, dir: access, owner: None, is_link: false, is_below_planted: false };
    match replaceable(&inside, trusting) {
        Some(why) => Err(Fault::Replaceable(why)),
        None => Ok(Some(found)),
    }
}

/// TMPDIR, or `/tmp`, by its path without links. Root may have the environment of another user, and accepts no directory in one of
/// another user.
///
/// # Errors
/// `PermissionDenied`: another user could exchange it, or a directory above it. The system's.
pub fn temporary_dir() -> io::Result<PathBuf> {
    checked(&std::env::temp_dir(), !rustix::process::geteuid().is_root())
}

fn checked(dir: &Path, trusting: bool) -> io::Result<PathBuf> {
    match open_unreplaceable(dir, trusting) {
        Ok(found) => Ok(found.ok_or(Errno::NOENT)?.path().to_owned()),
        Err(Fault::System(error)) => Err(error),
        Err(Fault::Replaceable(
            Replaceable::Planted { name, .. }
            | Replaceable::ByAll { name }
            | Replaceable::OfOther { name, .. },
        )) => {
            let why = format!(
                "another user could exchange {}: choose another temporary directory (TMPDIR)",
                name.display()
            );
            Err(io::Error::new(io::ErrorKind::PermissionDenied, why))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, chown, symlink};

    use super::*;

    #[test]
    fn a_directory_that_another_user_could_exchange_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let base = dir.path().canonicalize().unwrap().join("base");
        let (inner, link) = (base.join("inner"), base.join("link"));
        fs::create_dir_all(&inner).unwrap();
        symlink(&inner, &link).unwrap();
        for (mode, good) in [(0o755, true), (0o1777, true), (0o777, false)] {
            fs::set_permissions(&base, fs::Permissions::from_mode(mode)).unwrap();
            assert_eq!(checked(&inner, true).is_ok(), good, "{mode:o}");
            assert_eq!(checked(&link, false).ok(), good.then(|| inner.clone()), "{mode:o}");
        }
        assert!(checked(&base.join("none"), true).is_err());
        if rustix::process::geteuid().is_root() {
            fs::set_permissions(&base, fs::Permissions::from_mode(0o755)).unwrap();
            chown(&base, Some(61001), None).unwrap();
            assert!(checked(&inner, true).is_ok());
            assert!(checked(&inner, false).is_err() && checked(&link, false).is_err());
        }
    }
}
