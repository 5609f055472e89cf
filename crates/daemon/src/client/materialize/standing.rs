//! What has the name already: whether it counts as delivered. It has the cache's content, and no other user can change it
//! later.
//!
//! In a directory where all users may create names (mode 1777, as `/tmp`), a user can prepare the link, file or tree that
//! another is about to receive. As with `tidecast get`, it counts only if this user, root or the directory's owner has made
//! it. A regular file may also be the store's: a hard link has the owner of the store.
//!
//! Owner and content are those of one descriptor: a name may lead to another file at the next look.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::fs::fstat;
use tidecast_depot::root_of;
use tidecast_metainfo::FileRef;
use tidecast_paths::{Meta, Root, unmapped};

use super::error::{Error, at};
use super::found::{Found, REPLACEABLE, foreign};
use super::inside::join;
use super::making::Making;

/// Whose files and directories count in a tree.
#[derive(Clone, Copy, Debug)]
struct Inside {
    me: u32,
    /// The owner of the tree, who counts by [`Owners::may_count`].
    top: u32,
}

impl Making<'_> {
    /// Whether the target exists with the same content. Other content, or a file of another user, is an error, unless it
    /// is to be replaced.
    pub(super) fn stands(&self) -> Result<bool, Error> {
        let (path, force) = (&self.made.path, self.wanted.force);
        let Some(found) = Found::open(&self.root, &self.wanted.name).map_err(at("stat", path))? else {
            return Ok(false);
        };
        let top = Path::new("");
        if !self.is_the_stores(top, &found.meta) && !self.owners.may_count(found.meta.uid, path, force)? {
            return Ok(false);
        }
        let is_same = match self.files.get(top).and_then(|index| self.manifest.file(*index)) {
            Some(file) => self
                .is_same_file(file, &self.root, &self.wanted.name, top, &found)
                .map_err(at("compare", path)),
            None => self.is_same_tree(&found.meta),
        };
        match is_same {
            Ok(true) => Ok(true),
            _ if force => Ok(false),
            Ok(false) => Err(Error::Exists(path.clone())),
            Err(e) => Err(e),
        }
    }

    fn is_same_tree(&self, found: &Meta) -> Result<bool, Error> {
        let failed = |e| at("compare", &self.made.path)(e);
        if !found.is_dir() {
            return Ok(false);
        }
        let top = self.root.sub(&self.wanted.name).map_err(failed)?;
        if top.stat("").map_err(failed)?.id != found.id {
            return Ok(false);
        }
        let inside = Inside { me: self.owners.me, top: found.uid };
        // All names first: to read the content takes long.
        for (below, index) in &self.dirs {
            let Some(dir) = self.same_dir(&top, below, *index, inside)? else { return Ok(false) };
            let names = dir.list("").map_err(failed)?;
            let is_known = |name: &OsString| {
                let below = join(below, Path::new(name));
                self.files.contains_key(&below) || self.dirs.contains_key(&below)
            };
            if !names.iter().all(is_known) {
                return Ok(false);
            }
        }
        let mut same = 0;
        for (below, index) in &self.dirs {
            let Some(dir) = self.same_dir(&top, below, *index, inside)? else { return Ok(false) };
            match self.same_files(&dir, below, inside)? {
                Some(files) => same += files,
                None => return Ok(false),
            }
        }
        Ok(same == self.files.len())
    }

    /// The directory, if it is as in the manifest.
    fn same_dir(&self, top: &Root, below: &Path, index: u32, inside: Inside) -> Result<Option<Root>, Error> {
        let path = join(&self.made.path, below);
        let dir = match top.sub(below) {
            Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
                return Ok(None);
            }
            Err(e) if tidecast_paths::is_link(&e) => return Ok(None),
            other => other.map_err(at("compare", &path))?,
        };
        let there = dir.stat("").map_err(at("compare", &path))?;
        self.refuse_foreign(below, &there, inside)?;
        let mode = self.manifest.dir(index).and_then(|dir| dir.mode());
        Ok(mode.is_none_or(|mode| self.permissions(mode) == there.mode & 0o777).then_some(dir))
    }

    /// The number of files in a directory; `None` if one differs from the manifest.
    fn same_files(&self, dir: &Root, below: &Path, inside: Inside) -> Result<Option<usize>, Error> {
        let mut same = 0;
        for name in dir.list("").map_err(at("compare", &join(&self.made.path, below)))? {
            let below = join(below, Path::new(&name));
            if self.dirs.contains_key(&below) {
                continue;
            }
            let failed = |e| at("compare", &join(&self.made.path, &below))(e);
            let file = self.files.get(&below).and_then(|index| self.manifest.file(*index));
            let (Some(file), Some(found)) = (file, Found::open(dir, &name).map_err(failed)?) else {
                return Ok(None);
            };
            self.refuse_foreign(&below, &found.meta, inside)?;
            if !self.is_same_file(file, dir, &name, &below, &found).map_err(failed)? {
                return Ok(None);
            }
            same += 1;
        }
        Ok(Some(same))
    }

    /// In a tree whose owner counts, another user's files do not: a directory may have been open to all.
    fn refuse_foreign(&self, below: &Path, there: &Meta, inside: Inside) -> Result<(), Error> {
        if [0, inside.me, inside.top].contains(&there.uid) || self.is_the_stores(below, there) {
            return Ok(());
        }
        Err(foreign(&join(&self.made.path, below), REPLACEABLE))
    }

    /// Whether a regular file is the store's: a hard link to the file there, or to an earlier one of the same daemon.
    fn is_the_stores(&self, below: &Path, there: &Meta) -> bool {
        let Some((view, top)) = self.view.as_ref().filter(|_| there.is_file()) else { return false };
        let owner = view.stat(top).map(|meta| meta.uid).ok().filter(|owner| Some(*owner) != unmapped());
        owner == Some(there.uid) || self.is_linked(below, there)
    }

    fn is_linked(&self, below: &Path, there: &Meta) -> bool {
        self.in_view(below).is_some_and(|(view, path)| view.stat(path).is_ok_and(|meta| meta.id == there.id))
    }

    /// Whether `found`, which has this name in this directory, is as in the manifest. The content is read, unless it is the
    /// store's own inode: a time can be set back.
    fn is_same_file(
        &self,
        file: FileRef<'_>,
        dir: &Root,
        name: &OsStr,
        below: &Path,
        found: &Found,
    ) -> io::Result<bool> {
        let there = &found.meta;
        let is_dated = file.mtime().is_none_or(|t| (t.secs, t.nanos) == there.mtime);
        if let Some(target) = file.symlink() {
            return Ok(found.target()?.is_some_and(|found| found.as_bytes() == &*target) && is_dated);
        }
        if !there.is_file() || there.len != file.len() || !is_dated {
            return Ok(false);
        }
        if self.is_linked(below, there) {
            return Ok(true);
        }
        let is_moded = file.mode().is_none_or(|mode| self.permissions(mode) == there.mode & 0o777);
        if file.is_empty() || !is_moded {
            return Ok(is_moded);
        }
        let opened = dir.open_file(name)?;
        // The name may have been replaced since its owner was checked.
        if Meta::of(&fstat(&opened)?).id != there.id {
            return Ok(false);
        }
        Ok(Some(root_of(&opened, file.len())?) == file.pieces_root())
    }
}

#[cfg(test)]
#[path = "standing_tests.rs"]
mod tests;
