//! The directory that holds the homes of trees: the one of `--cache`, the temporary directory, or shared memory. No other user
//! can put another directory in its place, or in that of a directory above it.

use std::path::{Path, PathBuf};

use rustix::io::Errno;
use tidecast_paths::{Fault, Replaceable, Root, open_unreplaceable as open};

use crate::error::{Error, Exchangeable, home};

/// The directory of `--cache`; made if need be. The user has named it: the owners and groups of the directories above it are
/// trusted.
///
/// # Errors
/// [`Error::OpenToAll`], [`Error::Planted`]; the system's error.
pub(crate) fn cache(dir: &Path) -> Result<Root, Error> {
    let refused = |fault| match fault {
        Fault::Replaceable(why) => match exchangeable(why) {
            Exchangeable::OpenToAll(at) => Error::OpenToAll(at),
            why => Error::Planted(why),
        },
        Fault::System(error) => home("use the cache", dir)(error),
    };
    if let Some(found) = open(dir, true).map_err(refused)? {
        return Ok(found);
    }
    Root::make(dir).map_err(home("create the cache", dir))?;
    let made = open(dir, true).map_err(refused)?;
    made.ok_or(Errno::NOENT).map_err(home("use the cache", dir))
}

/// The directory for temporary files, which the environment names. An ordinary user has named it, as a cache; root may have
/// the environment of another user, and trusts no other owner of a directory above it.
///
/// # Errors
/// [`Error::Temporary`]; the system's error.
pub(crate) fn temporary(dir: &Path) -> Result<Root, Error> {
    let missing = || Fault::System(Errno::NOENT.into());
    let trusting = !rustix::process::geteuid().is_root();
    open(dir, trusting).and_then(|found| found.ok_or_else(missing)).map_err(|fault| match fault {
        Fault::Replaceable(why) => Error::Temporary { dir: dir.to_owned(), why: exchangeable(why) },
        Fault::System(error) => home("use the temporary directory (TMPDIR)", dir)(error),
    })
}

/// Shared memory, if it can be used.
pub(crate) fn memory(dir: &Path) -> Option<Root> {
    open(dir, false).ok().flatten()
}

fn exchangeable(why: Replaceable) -> Exchangeable {
    let above = |name: PathBuf| name.parent().map_or_else(|| name.clone(), Path::to_owned);
    match why {
        Replaceable::ByAll { name } => Exchangeable::OpenToAll(above(name)),
        Replaceable::Planted { name, owner } => Exchangeable::Planted { name, owner },
        Replaceable::OfOther { name, owner } => Exchangeable::OfOther { dir: above(name), owner },
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, chown, symlink};

    use super::*;

    /// A user whom no test host has.
    const OTHER: u32 = 61001;

    fn set_mode(dir: &Path, mode: u32) {
        fs::set_permissions(dir, fs::Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn a_directory_that_every_user_may_exchange_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let base = dir.path().canonicalize().unwrap();
        let (inner, link) = (base.join("inner"), dir.path().join("link"));
        fs::create_dir(&inner).unwrap();
        symlink(&inner, &link).unwrap();
        for (mode, refused) in
            [(0o755, false), (0o2770, false), (0o1777, false), (0o777, true), (0o702, true)]
        {
            set_mode(&base, mode);
            for at in [&inner, &base, &base.join("new"), &link] {
                let cached = cache(at);
                assert_eq!(matches!(&cached, Err(Error::OpenToAll(at)) if *at == base), refused, "{mode:o}");
                assert_eq!(cached.is_ok(), !refused, "{mode:o} {cached:?}");
            }
            for at in [&inner, &base] {
                let kept = temporary(at);
                assert_eq!(kept.is_err(), refused, "{mode:o} {kept:?}");
                if let Err(error) = kept {
                    let text = error.to_string();
                    assert!(text.contains("TMPDIR") && text.contains("--cache"), "{text}");
                }
            }
            assert_eq!(memory(&inner).is_none(), refused, "{mode:o}");
            let _ = fs::remove_dir(base.join("new"));
        }
    }

    #[test]
    fn nothing_is_made_in_a_directory_that_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        set_mode(dir.path(), 0o777);
        assert!(cache(&dir.path().join("new")).is_err());
        assert!(!dir.path().join("new").exists());
        set_mode(dir.path(), 0o700);
        assert!(temporary(&dir.path().join("new")).unwrap_err().to_string().contains("TMPDIR"));
        assert!(!dir.path().join("new").exists(), "a temporary directory is not made");
        assert_eq!(
            cache(&dir.path().join("new")).unwrap().path(),
            dir.path().canonicalize().unwrap().join("new")
        );
    }

    #[test]
    fn a_directory_that_another_user_has_planted_is_refused() {
        if !rustix::process::geteuid().is_root() {
            eprintln!("SKIPPED: only root can make another user's directories");
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let base = dir.path().canonicalize().unwrap();
        let planted = base.join("c");
        fs::create_dir(&planted).unwrap();
        set_mode(&base, 0o1777);
        set_mode(&planted, 0o1777);
        cache(&planted).unwrap();
        chown(&planted, Some(OTHER), None).unwrap();
        for at in [&planted, &planted.join("new")] {
            let refused = cache(at);
            assert!(
                matches!(refused, Err(Error::Planted(Exchangeable::Planted { owner: OTHER, .. }))),
                "{refused:?}"
            );
            assert!(matches!(temporary(at), Err(Error::Temporary { .. })));
        }
        // In a directory of a group or of its owner nothing is planted; root may name it, and its TMPDIR may not.
        set_mode(&base, 0o755);
        cache(&planted).unwrap();
        let refused = temporary(&planted).unwrap_err().to_string();
        assert!(
            refused.contains("belongs to another user (61001)") && refused.contains("TMPDIR"),
            "{refused}"
        );
    }
}
