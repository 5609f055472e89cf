//! Walks a file or directory and records everything about it but the bytes, in the order of BEP 52.
//!
//! Promise: the same tree gives the same result; no link is followed out of the tree; an entry that cannot be
//! read or published is an error or a warning that names it, before any hashing has begun.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{SeekFrom, fstat, seek};
use rustix::io::Errno;
use tidecast_metainfo::{Excluded, MAX_COMPONENTS};
use tidecast_paths::{Meta, Root, acl};
use xattr::FileExt;

use crate::base::Base;
use crate::exclude::Exclude;
use crate::prefix_scan::PrefixScan;
use crate::tree::{Content, Identity, Node, Time, Tree, Warning};
use crate::{Error, Progress};

/// Most holes in one sparse file that a manifest carries: 16 bytes or so each.
const MAX_HOLES: usize = 65_536;

/// Directories that stay open on the way down.
const OPEN: usize = 32;

/// How to scan.
#[derive(Debug, Clone, Default)]
pub struct ScanOptions {
    /// Patterns of names to exclude. With a `/`: matched against the path below the published directory.
    /// Without: against the name, at any depth. One that ends in a `/` is for directories only. A directory
    /// that matches is excluded with its contents.
    pub exclude: Vec<String>,
    /// Leave symbolic links out that lead out of the tree, with a warning; else they are taken as they are.
    pub skip_outside_links: bool,
    /// Of the directory's entries only these; empty: all of them.
    pub only: Vec<OsString>,
    /// The absolute path that the tree was built for; by default its own place, if something in it names that.
    pub built_for: Option<PathBuf>,
    /// The name to publish under; by default the file's or directory's own.
    pub name: Option<OsString>,
}

/// The name under which a file or directory is published by default. `root`: its path without links.
#[must_use]
pub fn own_name(path: &Path, root: &Path) -> Option<OsString> {
    path.file_name().or(root.file_name()).map(OsStr::to_owned)
}

/// Walks `path`, a file or a directory (or a symbolic link to one: only here are links followed).
///
/// # Errors
/// When something in the tree cannot be read, a pattern is malformed, or the caller cancelled.
pub fn scan(path: &Path, options: &ScanOptions, progress: &Progress) -> Result<Tree, Error> {
    let root = path.canonicalize().map_err(Error::io("find", path))?;
    let base = Base::of(&root).map_err(Error::io("open", &root))?;
    let meta = base.look(&root).map_err(Error::io("stat", &root))?;
    let own = || own_name(path, &root);
    let name = options.name.clone().or_else(own).ok_or_else(|| Error::NoName(root.clone()))?;
    let mut walk = Walk {
        base,
        exclude: Exclude::new(&options.exclude)?,
        skip_outside_links: options.skip_outside_links,
        progress,
        links: HashMap::new(),
        place: PrefixScan::new(path, &root),
        tree: Tree {
            root: root.clone(),
            built_for: None,
            name,
            dirs: Vec::new(),
            files: Vec::new(),
            left_out: Excluded {
                exclude: options.exclude.clone(),
                outside_links: options.skip_outside_links,
            },
            warnings: Vec::new(),
        },
    };
    if meta.is_dir() {
        walk.run(&meta, &options.only)?;
        walk.look_for_paths_above(&options.exclude);
        let named = walk.place.found();
        walk.tree.built_for = options.built_for.clone().or(named);
    } else if meta.is_file() {
        let handle = walk.base.open(&root)?;
        walk.file(PathBuf::new(), &root, &handle)?;
    } else {
        return Err(Error::Kind(root));
    }
    Ok(walk.tree)
}

/// Names and values of extended attributes.
type Attributes = Vec<(OsString, Vec<u8>)>;

/// A walk under way.
struct Walk<'a> {
    base: Base,
    exclude: Exclude,
    skip_outside_links: bool,
    progress: &'a Progress,
    /// First name of every file that has several, by device and inode.
    links: HashMap<(u64, u64), usize>,
    place: PrefixScan,
    tree: Tree,
}

impl Walk<'_> {
    /// Depth first, names in the order of their bytes: the order of BEP 52's file tree. The stack of directories is
    /// on the heap, so that no depth of tree overflows the thread's own.
    fn run(&mut self, meta: &Meta, only: &[OsString]) -> Result<(), Error> {
        let root = self.tree.root.clone();
        let opened = self.base.dir(&root).map_err(Error::io("list the directory", &root))?;
        let mut top = self.dir(PathBuf::new(), opened, meta)?;
        if !only.is_empty() {
            let few: Vec<OsString> = top.names.filter(|name| only.contains(name)).collect();
            top.names = few.into_iter();
        }
        let mut stack = vec![top];
        while let Some(listing) = stack.last_mut() {
            let Some(name) = listing.names.next() else {
                stack.pop();
                continue;
            };
            let path = listing.path.join(&name);
            let dir = match listing.dir.take() {
                Some(dir) => dir,
                None => {
                    let full = self.tree.root.join(&listing.path);
                    self.base.dir(&full).map_err(Error::io("list the directory", &full))?
                }
            };
            let below = self.entry(&dir, path, &name)?;
            listing.dir = Some(dir);
            if let Some(below) = below {
                // Directories far above are reopened on the way back: descriptors are few.
                let far = stack.len().checked_sub(OPEN);
                if let Some(above) = far.and_then(|i| stack.get_mut(i)) {
                    above.dir = None;
                }
                if stack.len() > usize::from(MAX_COMPONENTS) {
                    return Err(Error::TooDeep(self.tree.root.join(below.path)));
                }
                stack.push(below);
            }
        }
        if !only.is_empty() {
            self.date_root();
        }
        Ok(())
    }

    /// Warns of patterns whose paths begin above the tree, unless an entry at its top is named so too.
    fn look_for_paths_above(&mut self, globs: &[String]) {
        let Tree { root, warnings, .. } = &mut self.tree;
        for glob in globs {
            let first = glob.trim_start_matches('/').split('/').next().unwrap_or_default();
            let is_there = || first != "." && self.base.look(&root.join(first)).is_ok();
            if let Some(meant) = Exclude::meant(glob, root)
                && !is_there()
            {
                warnings.push(Warning::Above { glob: glob.clone(), meant: meant.to_owned() });
            }
        }
    }

    /// The time of a directory that is published in part is not meaningful: other files are created and
    /// removed in it. The newest of the published entries counts.
    fn date_root(&mut self) {
        let Tree { dirs, files, .. } = &mut self.tree;
        let newest = dirs.iter().skip(1).map(|d| d.mtime).chain(files.iter().map(|f| f.mtime)).max();
        if let (Some(root), Some(newest)) = (dirs.first_mut(), newest) {
            root.mtime = newest;
        }
    }

    /// Takes up one entry; returns a directory to descend into.
    fn entry(&mut self, dir: &Root, path: PathBuf, name: &OsStr) -> Result<Option<Listing>, Error> {
        // An entry that is excluded by its name alone need not be examined, which might fail.
        if self.exclude.matches(&path, false) {
            return Ok(None);
        }
        if self.progress.is_cancelled() {
            return Err(Error::Cancelled);
        }
        self.progress.add_file();
        let full = self.tree.root.join(&path);
        let meta = dir.stat(name).map_err(Error::io("stat", &full))?;
        if meta.is_dir() && self.exclude.matches(&path, true) {
            return Ok(None);
        }
        if meta.is_dir() {
            let opened = dir.sub(name).map_err(Error::io("list the directory", &full))?;
            return self.dir(path, opened, &meta).map(Some);
        } else if meta.is_file() {
            // Better to report now that it cannot be read than after hours of hashing.
            let handle = dir.open_file(name).map_err(Error::io("read", &full))?;
            self.file(path, &full, &handle)?;
        } else if meta.is_symlink() {
            let target = PathBuf::from(dir.read_link(name).map_err(Error::io("read the link", &full))?);
            if self.skip_outside_links && leads_out(&path, &target) {
                self.tree.warnings.push(Warning::OutsideLink { path, target });
                return Ok(None);
            }
            self.place.look_at_link(&target);
            // Links have no mode, and only root may give them attributes.
            let node = Node {
                path,
                mode: 0o777,
                mtime: mtime(&meta),
                xattrs: Vec::new(),
                kind: Content::Symlink { target },
            };
            self.tree.files.push(node);
        } else {
            self.tree.warnings.push(Warning::Special(path));
        }
        Ok(None)
    }

    /// Records a directory and lists it.
    fn dir(&mut self, path: PathBuf, dir: Root, meta: &Meta) -> Result<Listing, Error> {
        let full =
            if path.as_os_str().is_empty() { self.tree.root.clone() } else { self.tree.root.join(&path) };
        let mut names = dir.list("").map_err(Error::io("list the directory", &full))?;
        let handle = dir.inode("").map_err(Error::io("open", &full))?;
        names.sort_unstable_by(|a, b| a.as_bytes().cmp(b.as_bytes()));
        let (mode, xattrs) = self.attributes(&File::from(handle), &full, &path, meta.mode)?;
        let node = Node { path: path.clone(), mode, mtime: mtime(meta), xattrs, kind: () };
        self.tree.dirs.push(node);
        Ok(Listing { path, names: names.into_iter(), dir: Some(dir) })
    }

    /// Records a regular file.
    fn file(&mut self, path: PathBuf, full: &Path, handle: &File) -> Result<(), Error> {
        let meta = &Meta::of(&fstat(handle).map_err(|e| Error::io("stat", full)(e.into()))?);
        let index = self.tree.files.len();
        self.place.look(path.file_name().unwrap_or_default(), meta.mode, handle, meta.len);
        let identity = identity(meta);
        let link_of = (meta.links > 1)
            .then(|| *self.links.entry((identity.dev, identity.ino)).or_insert(index))
            .filter(|first| *first != index);
        let sparse = link_of.is_none() && meta.allocated < meta.len;
        let holes = if sparse { holes(handle, full, meta.len)? } else { Some(Vec::new()) };
        if holes.is_none() {
            self.tree.warnings.push(Warning::Fragmented(path.clone()));
        }
        let (mode, xattrs) = self.attributes(handle, full, &path, meta.mode)?;
        let node = Node {
            mode,
            mtime: identity.mtime,
            xattrs,
            kind: Content::File { identity, link_of, holes: holes.unwrap_or_default() },
            path,
        };
        self.tree.files.push(node);
        Ok(())
    }

    /// The attributes that are published, and the mode without the access list. Any user may set `user.`; the others concern
    /// local users, labels and privileges, which have no meaning on another machine or must not come from a download.
    fn attributes(
        &mut self,
        handle: &File,
        full: &Path,
        path: &Path,
        mut mode: u32,
    ) -> Result<(u32, Attributes), Error> {
        let names = match handle.list_xattr() {
            Ok(names) => names,
            Err(e) if unsupported(&e) => return Ok((mode, Vec::new())),
            Err(e) => return Err(Error::io("list the attributes of", full)(e)),
        };
        let mut found = Vec::new();
        for name in names {
            if name == acl::ATTRIBUTE {
                let list = handle.get_xattr(&name).map_err(Error::io("read the attributes of", full))?;
                mode = list.map_or(mode, |list| acl::mode_without(&list, mode));
            }
            if !name.as_bytes().starts_with(b"user.") {
                // Labels of a security module are on every file, and are not worth a warning.
                if name != "security.selinux" {
                    self.left_out(path, name);
                }
                continue;
            }
            match handle.get_xattr(&name) {
                Ok(Some(value)) => found.push((name, value)),
                Ok(None) => {}
                Err(e) => return Err(Error::io("read the attributes of", full)(e)),
            }
        }
        found.sort_unstable();
        Ok((mode, found))
    }

    /// Counts a file whose attribute is not published; the warning names the first.
    fn left_out(&mut self, path: &Path, name: OsString) {
        let known = self.tree.warnings.iter_mut().find_map(|w| match w {
            Warning::Attributes { files, .. } => Some(files),
            _ => None,
        });
        match known {
            Some(files) => *files += 1,
            None => self.tree.warnings.push(Warning::Attributes { path: path.to_owned(), name, files: 1 }),
        }
    }
}

/// A directory's path and the names in it that are yet to be taken up.
struct Listing {
    path: PathBuf,
    names: std::vec::IntoIter<OsString>,
    /// The directory, while it is open.
    dir: Option<Root>,
}

/// File systems without attributes report that in several ways.
fn unsupported(e: &io::Error) -> bool {
    e.kind() == io::ErrorKind::Unsupported || e.raw_os_error() == Some(Errno::NOSYS.raw_os_error())
}

/// Whether the text of the link at `path` names a place outside the tree.
#[must_use]
pub fn leads_out(path: &Path, target: &Path) -> bool {
    let mut depth = path.components().count().saturating_sub(1);
    target.components().any(|part| match part {
        Component::Normal(_) => {
            depth += 1;
            false
        }
        Component::CurDir => false,
        Component::ParentDir => match depth.checked_sub(1) {
            Some(up) => {
                depth = up;
                false
            }
            None => true,
        },
        Component::RootDir | Component::Prefix(_) => true,
    })
}

/// The modification time in `meta`.
fn mtime(meta: &Meta) -> Time {
    Time { seconds: meta.mtime.0, nanos: meta.mtime.1 }
}

/// The state of a file by `meta`.
pub(crate) fn identity(meta: &Meta) -> Identity {
    Identity {
        dev: meta.id.0,
        ino: meta.id.1,
        len: meta.len,
        mtime: mtime(meta),
        ctime: Time { seconds: meta.ctime.0, nanos: meta.ctime.1 },
    }
}

/// The stretches of a file of `len` bytes that hold no data; `None` if there are too many to be worth it.
fn holes(file: &File, full: &Path, len: u64) -> Result<Option<Vec<Range<u64>>>, Error> {
    let failed = |e: Errno| Error::io("find the holes of", full)(e.into());
    let mut holes = Vec::new();
    let mut at = 0;
    while at < len {
        let data = match seek(file, SeekFrom::Data(at)) {
            Ok(data) => data.min(len),
            // Nothing but a hole from here on.
            Err(Errno::NXIO) => len,
            // The file system cannot tell: data everywhere.
            Err(Errno::INVAL | Errno::OPNOTSUPP) => return Ok(Some(Vec::new())),
            Err(e) => return Err(failed(e)),
        };
        if data > at {
            if holes.len() == MAX_HOLES {
                return Ok(None);
            }
            holes.push(at..data);
        }
        if data == len {
            break;
        }
        at = seek(file, SeekFrom::Hole(data)).map_err(failed)?;
    }
    Ok(Some(holes))
}
