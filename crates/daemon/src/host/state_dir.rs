//! The directory that holds all state of a daemon.

use std::io;
use std::path::Path;

use tidecast_paths::{OTHERS_WRITE, Root};

use crate::model::error::Error;

/// Creates the directory if it does not exist, and ensures that only this program's user and root can change
/// it.
///
/// A user who may write to the directory could put a link there, and so move the daemon's store or its files
/// elsewhere.
///
/// # Errors
/// [`Error::Foreign`]: it, or an entry of it, belongs to another user. The system's error.
pub(crate) fn secure(dir: &Path) -> Result<(), Error> {
    let failed = |source: io::Error| Error::Dir { path: dir.to_owned(), source };
    let root = Root::make(dir).map_err(failed)?;
    let own = rustix::process::geteuid().as_raw();
    let check = |name: &Path| match root.stat(name) {
        Ok(there) if there.uid == own || there.uid == 0 => Ok(Some(there)),
        Ok(there) => Err(Error::Foreign { path: root.full(name), owner: there.uid }),
        // Removed meanwhile.
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(failed(e)),
    };
    let there = check(Path::new(""))?;
    if let Some(there) = there.filter(|there| there.uid == own && there.mode & OTHERS_WRITE != 0) {
        // First, so that entries below it cannot change any more.
        root.chmod("", there.mode & !OTHERS_WRITE).map_err(failed)?;
    }
    for name in root.list("").map_err(failed)? {
        check(Path::new(&name))?;
    }
    Ok(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, chown, symlink};

    use super::*;

    #[test]
    fn a_directory_is_made_and_closed_to_other_writers() {
        let base = tempfile::tempdir().unwrap();
        let dir = base.path().join("a/b");
        secure(&dir).unwrap();
        std::fs::set_permissions(&dir, std::fs::Permissions::from_mode(0o777)).unwrap();
        secure(&dir).unwrap();
        assert_eq!(dir.metadata().unwrap().permissions().mode() & 0o777, 0o755);
    }

    #[test]
    fn what_another_user_has_put_there_is_refused() {
        if !rustix::process::geteuid().is_root() {
            eprintln!("SKIPPED: only root can make another user's files");
            return;
        }
        let base = tempfile::tempdir().unwrap();
        let (dir, elsewhere) = (base.path().join("d"), base.path().join("elsewhere"));
        std::fs::create_dir_all(&elsewhere).unwrap();
        std::fs::create_dir(&dir).unwrap();
        symlink(&elsewhere, dir.join("depot")).unwrap();
        secure(&dir).unwrap();
        std::os::unix::fs::lchown(dir.join("depot"), Some(61001), None).unwrap();
        assert!(matches!(secure(&dir), Err(Error::Foreign { owner: 61001, .. })));
        std::fs::remove_file(dir.join("depot")).unwrap();
        chown(&dir, Some(61001), None).unwrap();
        assert!(matches!(secure(&dir), Err(Error::Foreign { owner: 61001, .. })));
    }
}
