//! A cache that is to be made in a directory: what is wanted, and where it is in the store.

use std::ffi::OsString;
use std::path::{Component, Path, PathBuf};

use tidecast_metainfo::Manifest;
use tidecast_paths::{OTHERS_WRITE, Root, umask};

use super::error::{Error, at};
use super::found::Owners;
use super::inside::{Entries, Inside};

/// How files come into a directory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum How {
    /// Hard links to the store's files; where a link is not possible, as `Reflink`. A file whose mode is
    /// narrower than the store's is not linked, as its link would be open to others.
    Hardlink,
    /// Files of the caller's own that share blocks with the store's; where that cannot be, as `Copy`.
    #[default]
    Reflink,
    /// Files of the caller's own.
    Copy,
}

/// The request.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// The directory.
    pub dir: PathBuf,
    /// Its name there.
    pub name: OsString,
    /// A path below the published directory; empty for all of it.
    pub subpath: PathBuf,
    /// How.
    pub how: How,
    /// Replace an existing file of this name.
    pub force: bool,
}

/// The created entry.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Made {
    /// Where.
    pub path: PathBuf,
    /// Files that are hard links.
    pub links: u64,
    /// Files that share blocks.
    pub reflinks: u64,
    /// Files that were copied.
    pub copies: u64,
    /// Bytes of `copies`.
    pub copied: u64,
    /// It stood there already, and nothing was made.
    pub stood: bool,
}

/// One making of a tree.
pub(super) struct Making<'a> {
    pub(super) manifest: &'a Manifest,
    pub(super) wanted: &'a Wanted,
    pub(super) root: Root,
    /// Whose names count in `root`.
    pub(super) owners: Owners,
    /// The published file or directory in the store, if this process sees it, and its device and inode.
    pub(super) view: Option<(Root, OsString)>,
    /// Paths below the target, with the index of their file; `""` is the target itself.
    pub(super) files: Entries,
    pub(super) dirs: Entries,
    /// Permissions that this process's new files do not have.
    pub(super) umask: u32,
    pub(super) made: Made,
}

impl<'a> Making<'a> {
    pub(super) fn new(
        manifest: &'a Manifest,
        wanted: &'a Wanted,
        view: Option<&Path>,
    ) -> Result<Self, Error> {
        let name = Path::new(&wanted.name);
        if !matches!(name.components().collect::<Vec<_>>()[..], [Component::Normal(n)] if n == wanted.name) {
            return Err(Error::Name(wanted.name.clone()));
        }
        if !wanted.subpath.components().all(|c| matches!(c, Component::Normal(_))) {
            return Err(Error::Absent(wanted.subpath.clone()));
        }
        let (files, dirs) = Inside::new(manifest).part(&wanted.subpath)?;
        let view =
            view.and_then(|view| Some((Root::open(view.parent()?).ok()?, view.file_name()?.to_owned())));
        let made = Made { path: wanted.dir.join(&wanted.name), ..Made::default() };
        let root = open(&wanted.dir)?;
        let owners = Owners::of(&root).map_err(at("stat", &wanted.dir))?;
        Ok(Self { manifest, wanted, root, owners, view, files, dirs, umask: umask(), made })
    }

    /// The permissions of a recorded mode: the umask decides who else may change the files, and not the owner of the cache.
    pub(super) fn permissions(&self, mode: u32) -> u32 {
        mode & 0o777 & !(self.umask & OTHERS_WRITE)
    }

    /// The place in the store of the file at a path below the target, if this process sees it.
    pub(super) fn in_view(&self, below: &Path) -> Option<(&Root, PathBuf)> {
        let (view, top) = self.view.as_ref()?;
        let file = self.manifest.file(*self.files.get(below)?)?;
        Some((view, file.path().below(Path::new(top))))
    }
}

pub(super) fn open(dir: &Path) -> Result<Root, Error> {
    Root::open(dir).map_err(at("open", dir))
}
