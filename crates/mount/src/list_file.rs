//! Prefetch lists in files: one that the user names, or one next to a manifest.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use rustix::fs::{OFlags, fstat};
use tidecast_paths::{Kind, Meta, named, reopen};

use crate::list::{List, ListError, MAX_BYTES};

/// Why the list in a file is not used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ListFileError {
    /// The system refuses.
    #[error("cannot read the prefetch list {}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's error.
        #[source]
        error: io::Error,
    },
    /// It could make a reader wait without end.
    #[error("cannot read the prefetch list {}: not a regular file; write the list to a file", .0.display())]
    NotAFile(PathBuf),
    /// It would take too much memory.
    #[error(
        "cannot read the prefetch list {}: longer than {MAX_BYTES} bytes; name directories (`lib/`) or patterns (`lib/**`) \
         instead of files",
        .0.display()
    )]
    TooLong(PathBuf),
    /// Another user has put it next to the manifest.
    #[error(
        "the prefetch list {} belongs to user {owner}, and the manifest does not; to use it, name it with --prefetch",
        path.display()
    )]
    Foreign {
        /// The file.
        path: PathBuf,
        /// That user.
        owner: u32,
    },
    /// Its text is no list.
    #[error("{} is not a prefetch list", path.display())]
    Invalid {
        /// The file.
        path: PathBuf,
        /// The fault.
        #[source]
        error: ListError,
    },
}

impl List {
    /// Reads the list in a regular file of at most [`MAX_BYTES`]. Does not wait for a pipe.
    ///
    /// # Errors
    /// It cannot be read, or is no list.
    pub fn read(path: &Path) -> Result<Self, ListFileError> {
        let (file, meta) = open(path)?;
        parse(path, file, &meta)
    }
}

/// The list next to a manifest, `env.list` for `env.torrent`, if there is one. Its owner is this user, root, or the owner of the
/// manifest: another user may have put it there.
///
/// # Errors
/// There is one, and it cannot be used.
pub fn list_beside(manifest: &Path) -> Result<Option<PathBuf>, ListFileError> {
    // A source that is no file, such as a ticket, has nothing next to it.
    let Ok((manifest_meta, path)) =
        named(manifest).and_then(|found| Ok((Meta::of(&fstat(&found)?), manifest.with_extension("list"))))
    else {
        return Ok(None);
    };
    if manifest_meta.kind != Kind::File || path == manifest {
        return Ok(None);
    }
    let (file, meta) = match open(&path) {
        Err(ListFileError::Io { error, .. }) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        opened => opened?,
    };
    if !is_trusted(meta.uid, manifest_meta.uid, rustix::process::geteuid().as_raw()) {
        return Err(ListFileError::Foreign { path, owner: meta.uid });
    }
    let list = parse(&path, file, &meta)?;
    list.check().map_err(|error| ListFileError::Invalid { path: path.clone(), error })?;
    Ok(Some(path))
}

fn is_trusted(owner: u32, of_manifest: u32, me: u32) -> bool {
    [0, me, of_manifest].contains(&owner)
}

/// Opens a regular file. Its kind is known before it is opened: to open a device may already have an effect.
fn open(path: &Path) -> Result<(File, Meta), ListFileError> {
    let failed = |error| ListFileError::Io { path: path.to_owned(), error };
    let found = named(path).map_err(failed)?;
    let meta = Meta::of(&fstat(&found).map_err(|error| failed(error.into()))?);
    if meta.kind != Kind::File {
        return Err(ListFileError::NotAFile(path.to_owned()));
    }
    let file = reopen(&found, OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY).map_err(failed)?;
    Ok((File::from(file), meta))
}

fn parse(path: &Path, file: File, meta: &Meta) -> Result<List, ListFileError> {
    let too_long = || ListFileError::TooLong(path.to_owned());
    if meta.len > MAX_BYTES {
        return Err(too_long());
    }
    let mut text = Vec::new();
    // It may grow while it is read.
    let read = file.take(MAX_BYTES + 1).read_to_end(&mut text);
    read.map_err(|error| ListFileError::Io { path: path.to_owned(), error })?;
    if text.len() as u64 > MAX_BYTES {
        return Err(too_long());
    }
    List::parse(&text).map_err(|error| ListFileError::Invalid { path: path.to_owned(), error })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, chown, symlink};

    use rustix::fs::{CWD, FileType, Mode, mknodat};

    use super::*;

    #[test]
    fn only_a_regular_file_is_read_and_nothing_waits() {
        let dir = tempfile::tempdir().unwrap();
        let (pipe, good, link) = (dir.path().join("pipe"), dir.path().join("good"), dir.path().join("link"));
        mknodat(CWD, &pipe, FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
        fs::write(&good, "bin/python3\n").unwrap();
        symlink(&good, &link).unwrap();
        for at in [&pipe, dir.path(), Path::new("/dev/zero")] {
            let refused = List::read(at);
            assert!(matches!(&refused, Err(ListFileError::NotAFile(path)) if path == at), "{refused:?}");
        }
        assert!(matches!(List::read(&dir.path().join("none")), Err(ListFileError::Io { .. })));
        assert_eq!(List::read(&good).unwrap().entries.len(), 1);
        assert_eq!(List::read(&link).unwrap().entries.len(), 1, "a link of the user");
    }

    #[test]
    fn a_list_that_is_too_long_is_not_read() {
        let dir = tempfile::tempdir().unwrap();
        let long = dir.path().join("env.list");
        File::create(&long).unwrap().set_len(MAX_BYTES + 1).unwrap();
        let text = List::read(&long).unwrap_err().to_string();
        assert!(text.contains("env.list") && text.contains(&MAX_BYTES.to_string()), "{text}");
    }

    #[test]
    fn a_list_beside_a_manifest_is_found_or_named_in_the_error() {
        let dir = tempfile::tempdir().unwrap();
        let (manifest, list) = (dir.path().join("env.torrent"), dir.path().join("env.list"));
        assert_eq!(list_beside(&manifest).unwrap(), None, "no manifest");
        fs::write(&list, "a\n").unwrap();
        assert_eq!(list_beside(&manifest).unwrap(), None, "no manifest");
        fs::write(&manifest, "").unwrap();
        assert_eq!(list_beside(&manifest).unwrap(), Some(list.clone()));
        assert_eq!(list_beside(&list).unwrap(), None, "a list has no list beside it");
        fs::write(&list, "[\n").unwrap();
        assert!(matches!(list_beside(&manifest), Err(ListFileError::Invalid { .. })));
        fs::remove_file(&list).unwrap();
        assert_eq!(list_beside(&manifest).unwrap(), None);
        mknodat(CWD, &list, FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
        let error = list_beside(&manifest).unwrap_err();
        assert!(error.to_string().contains("env.list"), "{error}");
        fs::remove_file(&list).unwrap();
        if !rustix::process::geteuid().is_root() {
            fs::write(&list, "a\n").unwrap();
            fs::set_permissions(&list, fs::Permissions::from_mode(0o000)).unwrap();
            assert!(matches!(list_beside(&manifest), Err(ListFileError::Io { .. })));
        }
    }

    #[test]
    fn a_list_of_another_user_is_not_used() {
        let (me, other, third) = (1000, 1001, 1002);
        assert!([0, me, third].into_iter().all(|owner| is_trusted(owner, third, me)));
        assert!(!is_trusted(other, third, me) && !is_trusted(other, me, me) && !is_trusted(other, 0, me));
        if !rustix::process::geteuid().is_root() {
            eprintln!("SKIPPED: only root can make another user's files");
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let (manifest, list) = (dir.path().join("env.torrent"), dir.path().join("env.list"));
        fs::write(&manifest, "").unwrap();
        fs::write(&list, "a\n").unwrap();
        chown(&list, Some(61001), None).unwrap();
        assert!(matches!(list_beside(&manifest), Err(ListFileError::Foreign { owner: 61001, .. })));
        chown(&manifest, Some(61001), None).unwrap();
        assert_eq!(list_beside(&manifest).unwrap(), Some(list));
    }
}
