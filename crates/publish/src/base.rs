//! The directory beneath which a published tree is read. Other users may change the tree meanwhile: every name is resolved
//! beneath the open directory and through no link, so that a directory that is swapped for a link leads nowhere.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::{Advice, fadvise};
use tidecast_paths::{Meta, Root, acl};
use xattr::FileExt;

use crate::Error;

/// The directory that holds the published file or tree; paths are given whole.
#[derive(Debug)]
pub struct Base {
    root: Root,
}

impl Base {
    /// For the tree at `top`, a path without links: [`crate::Tree::root`].
    ///
    /// # Errors
    /// The system's error.
    pub fn of(top: &Path) -> io::Result<Self> {
        Ok(Self { root: Root::open(top.parent().unwrap_or(top))? })
    }

    fn beneath<'p>(&self, full: &'p Path) -> io::Result<&'p Path> {
        full.strip_prefix(self.root.path()).map_err(|_| io::ErrorKind::InvalidInput.into())
    }

    /// A directory, to work on its names.
    pub(crate) fn dir(&self, full: &Path) -> io::Result<Root> {
        self.root.sub(self.beneath(full)?)
    }

    pub(crate) fn look(&self, full: &Path) -> io::Result<Meta> {
        self.root.stat(self.beneath(full)?)
    }

    pub(crate) fn read_link(&self, full: &Path) -> io::Result<PathBuf> {
        self.root.read_link(self.beneath(full)?).map(PathBuf::from)
    }

    pub(crate) fn names(&self, full: &Path) -> io::Result<Vec<OsString>> {
        self.root.list(self.beneath(full)?)
    }

    /// The access list of a directory or file, if it has one.
    pub(crate) fn access_list(&self, full: &Path, is_dir: bool) -> io::Result<Option<Vec<u8>>> {
        let handle = match is_dir {
            true => self.dir(full)?.inode("")?.into(),
            false => self.root.open_file(self.beneath(full)?)?,
        };
        handle.get_xattr(acl::ATTRIBUTE)
    }

    /// Opens a regular file for reading; whatever has taken its place meanwhile cannot block or be followed.
    ///
    /// # Errors
    /// [`Error::Io`]; a link on the path is rejected.
    pub fn open(&self, full: &Path) -> Result<File, Error> {
        let file =
            self.beneath(full).and_then(|p| self.root.open_file(p)).map_err(Error::io("open", full))?;
        // A hint; a file system that does not take it reads all the same.
        let _ = fadvise(&file, 0, None, Advice::Sequential);
        Ok(file)
    }
}

/// Opens a file that the caller names beneath its directory, or makes it: a link in its place is refused.
pub(crate) fn output(path: &Path) -> io::Result<(Root, OsString, File)> {
    let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?.to_owned();
    let root = Root::open(path.parent().unwrap_or(Path::new("")))?;
    let file = root.open_or_create(&name, 0o600)?;
    Ok((root, name, file))
}
