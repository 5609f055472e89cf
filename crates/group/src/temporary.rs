//! Temporary files and directories: no other user can read them, or put others in their place.

use std::fs::Permissions;
use std::io;
use std::os::unix::fs::PermissionsExt as _;

use tempfile::{Builder, NamedTempFile, TempDir};
use tidecast_paths::temporary_dir;

use crate::error::{Error, system};

/// A directory.
pub(crate) fn dir() -> Result<TempDir, Error> {
    let private = Permissions::from_mode(0o700);
    temporary_dir()
        .and_then(|base| Builder::new().permissions(private).tempdir_in(base))
        .map_err(system("create a temporary directory"))
}

/// A file whose name begins with `prefix`.
pub(crate) fn file(prefix: &str) -> io::Result<NamedTempFile> {
    Builder::new().prefix(prefix).tempfile_in(temporary_dir()?)
}
