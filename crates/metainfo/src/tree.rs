//! The compact file tree: names point into the info dictionary, directories are shared.
//!
//! Promise: every name in a finished tree is a safe single path component, no two entries of a
//! directory have the same name, and no path is longer or deeper than Linux can open.

use crate::error::printable;
use crate::{Error, draft};
use std::collections::BTreeMap;
use std::ops::Range;
use tidecast_hash::Digest;

/// Most files and directories together.
pub(crate) const MAX_ENTRIES: u64 = 16 << 20;
/// Longest path below the target directory, in bytes (Linux' PATH_MAX without the NUL).
const MAX_PATH: usize = 4095;
/// Most components of a path below the target directory.
pub const MAX_COMPONENTS: u8 = 200;
/// The directory of a file that was published alone.
pub(crate) const NO_DIR: u32 = u32::MAX;
const NO_LAYER: u32 = u32::MAX;

/// BEP 47 attribute `x`.
pub(crate) const EXECUTABLE: u8 = 1;
/// BEP 47 attribute `h`.
pub(crate) const HIDDEN: u8 = 2;
/// BEP 47 attribute `l`.
pub(crate) const SYMLINK: u8 = 4;
/// BEP 47 attribute `p`.
pub(crate) const PAD: u8 = 8;

#[derive(Debug, Clone, Copy)]
struct Dir {
    parent: u32,
    name_at: u32,
    path_len: u16,
    name_len: u8,
    depth: u8,
}

/// The parser's view of a file.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Props {
    pub(crate) len: u64,
    pub(crate) flags: u8,
    /// Offset of the 32 bytes of `pieces root` in the info dictionary; 0 if there is none.
    pub(crate) root_at: u32,
    /// Offset of the list `symlink path` in the info dictionary; 0 if there is none.
    pub(crate) symlink_at: u32,
}

#[derive(Debug, Clone, Copy)]
struct File {
    dir: u32,
    name_at: u32,
    root_at: u32,
    symlink_at: u32,
    /// First of this file's hashes in the manifest's layers.
    layer: u32,
    /// The first file with the same content.
    same: u32,
    name_len: u8,
    flags: u8,
}

/// The files and directories of a manifest.
#[derive(Debug, Clone, Default)]
pub(crate) struct Tree {
    name: Range<usize>,
    dirs: Vec<Dir>,
    files: Vec<File>,
    /// The first file of each content, sorted by its root.
    by_root: Vec<u32>,
}

/// A directory entry: the kind of a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Entry {
    File(u32),
    Dir(u32),
}

impl Tree {
    pub(crate) fn root_name<'a>(&self, info: &'a [u8]) -> &'a [u8] {
        info.get(self.name.clone()).unwrap_or_default()
    }

    pub(crate) fn is_single(&self) -> bool {
        self.dirs.is_empty()
    }

    pub(crate) fn dir_count(&self) -> u32 {
        self.dirs.len() as u32
    }

    pub(crate) fn file_count(&self) -> u32 {
        self.files.len() as u32
    }

    pub(crate) fn flags(&self, file: u32) -> u8 {
        self.files.get(file as usize).map_or(0, |f| f.flags)
    }

    /// Directory and name of a file.
    pub(crate) fn file_place<'a>(&self, info: &'a [u8], file: u32) -> (u32, &'a [u8]) {
        self.files.get(file as usize).map_or((NO_DIR, &[]), |f| (f.dir, name_at(info, f.name_at, f.name_len)))
    }

    /// Parent and name of a directory; the root's parent is [`NO_DIR`].
    pub(crate) fn dir_place<'a>(&self, info: &'a [u8], dir: u32) -> (u32, &'a [u8]) {
        self.dirs
            .get(dir as usize)
            .map_or((NO_DIR, &[]), |d| (d.parent, name_at(info, d.name_at, d.name_len)))
    }

    pub(crate) fn depth(&self, dir: u32) -> usize {
        self.dirs.get(dir as usize).map_or(0, |d| d.depth.into())
    }

    pub(crate) fn symlink_at(&self, file: u32) -> Option<usize> {
        let at = self.files.get(file as usize)?.symlink_at;
        (at != 0).then_some(at as usize)
    }

    /// Where in the info dictionary the file's root is.
    pub(crate) fn root_at(&self, file: u32) -> Option<usize> {
        let at = self.files.get(file as usize)?.root_at as usize;
        (at != 0).then_some(at)
    }

    /// None for files without content, and where the root of a draft is unknown.
    pub(crate) fn pieces_root(&self, info: &[u8], file: u32) -> Option<Digest> {
        let at = self.root_at(file)?;
        let root = info.get(at..at + 32)?.try_into().ok()?;
        (root != draft::UNKNOWN).then_some(root)
    }

    /// Whether roots are unknown: of all files with content, or of none.
    pub(crate) fn is_draft(&self, info: &[u8]) -> Result<bool, Error> {
        let rooted = || (0..self.file_count()).filter(|i| self.root_at(*i).is_some());
        let mut unknown = rooted().filter(|i| self.pieces_root(info, *i).is_none());
        match (unknown.next().is_some(), rooted().all(|i| self.pieces_root(info, i).is_none())) {
            (true, false) => Err(Error::Draft("only some of its files have a root")),
            (draft, _) => Ok(draft),
        }
    }

    pub(crate) fn same_as(&self, file: u32) -> u32 {
        self.files.get(file as usize).map_or(file, |f| f.same)
    }

    pub(crate) fn layer<'l>(&self, file: u32, layers: &'l [Digest], pieces: usize) -> Option<&'l [Digest]> {
        let at = self.files.get(self.same_as(file) as usize)?.layer;
        let at = (at != NO_LAYER).then_some(at as usize)?;
        layers.get(at..at.checked_add(pieces)?)
    }

    pub(crate) fn set_layer(&mut self, file: u32, layers: &mut Vec<Digest>, layer: &[Digest]) {
        let same = self.same_as(file) as usize;
        if let Some(f) = self.files.get_mut(same).filter(|f| f.layer == NO_LAYER) {
            f.layer = layers.len() as u32;
            layers.extend_from_slice(layer);
        }
    }

    /// The first file with this root.
    pub(crate) fn find_root(&self, info: &[u8], root: &Digest) -> Option<u32> {
        let key = |i: &u32| self.pieces_root(info, *i);
        let at = self.by_root.binary_search_by(|i| key(i).as_ref().cmp(&Some(root))).ok()?;
        self.by_root.get(at).copied()
    }

    /// Printable path of a directory plus a name, for messages; of a long one, the end.
    pub(crate) fn describe(&self, info: &[u8], dir: u32, name: &[u8]) -> String {
        let mut path = printable(name);
        let mut at = dir;
        while let Some(d) = self.dirs.get(at as usize).filter(|d| d.parent != NO_DIR) {
            if path.len() > 200 {
                return format!("…/{path}");
            }
            let parent = printable(name_at(info, d.name_at, d.name_len));
            path = format!("{parent}/{path}");
            at = d.parent;
        }
        path
    }

    pub(crate) fn describe_file(&self, info: &[u8], file: u32) -> String {
        let (dir, name) = self.file_place(info, file);
        self.describe(info, dir, name)
    }
}

fn name_at(info: &[u8], at: u32, len: u8) -> &[u8] {
    let at = at as usize;
    info.get(at..at + usize::from(len)).unwrap_or_default()
}

pub(crate) const SLASH: &str = "a name must not contain `/`";

/// Why a name cannot be a path component, if so.
pub(crate) fn name_fault(name: &[u8]) -> Option<&'static str> {
    match name {
        b"" => Some("the name is empty"),
        b"." | b".." => Some("the name would lead out of its directory"),
        _ if name.contains(&b'/') => Some(SLASH),
        _ if name.contains(&0) => Some("a name must not contain a NUL byte"),
        _ if name.len() > 255 => Some("a name has at most 255 bytes"),
        _ => None,
    }
}

/// A tree under construction.
pub(crate) struct TreeBuilder<'a> {
    info: &'a [u8],
    tree: Tree,
    dirs: BTreeMap<(u32, &'a [u8]), u32>,
}

impl<'a> TreeBuilder<'a> {
    /// A tree whose root has the name at `name` in `info`: a directory, or a file alone.
    pub(crate) fn new(info: &'a [u8], name: Range<usize>, single: bool) -> Result<Self, Error> {
        let mut builder =
            TreeBuilder { info, tree: Tree { name: name.clone(), ..Tree::default() }, dirs: BTreeMap::new() };
        builder.check_name(NO_DIR, &name)?;
        if !single {
            builder.tree.dirs.push(Dir {
                parent: NO_DIR,
                name_at: name.start as u32,
                path_len: name.len() as u16,
                name_len: name.len() as u8,
                depth: 0,
            });
        }
        Ok(builder)
    }

    pub(crate) fn tree(&self) -> &Tree {
        &self.tree
    }

    /// Checks a name and the path it makes; its bytes if it is good.
    fn check_name(&self, dir: u32, name: &Range<usize>) -> Result<&'a [u8], Error> {
        let bytes = self.info.get(name.clone()).unwrap_or_default();
        let parent = self.tree.dirs.get(dir as usize);
        let path_len = parent.map_or(0, |d| usize::from(d.path_len) + 1) + bytes.len();
        let depth = parent.map_or(0, |d| d.depth);
        let why = match name_fault(bytes) {
            Some(why) => why,
            None if depth >= MAX_COMPONENTS => "directories nested too deep (limit 200)",
            None if path_len > MAX_PATH => "the path is longer than 4095 bytes",
            None => {
                let entries = self.tree.dirs.len() + self.tree.files.len();
                return match entries as u64 {
                    n if n >= MAX_ENTRIES => {
                        Err(Error::TooMany { what: "files and directories", count: n + 1, max: MAX_ENTRIES })
                    }
                    _ => Ok(bytes),
                };
            }
        };
        Err(Error::Name { name: printable(bytes), path: self.tree.describe(self.info, dir, bytes), why })
    }

    /// Adds a directory; an error if it is there already.
    pub(crate) fn new_dir(&mut self, parent: u32, name: Range<usize>) -> Result<u32, Error> {
        let before = self.tree.dirs.len();
        let dir = self.dir(parent, name.clone())?;
        if self.tree.dirs.len() == before {
            let bytes = self.info.get(name).unwrap_or_default();
            return Err(Error::Duplicate(self.tree.describe(self.info, parent, bytes)));
        }
        Ok(dir)
    }

    /// Finds or adds a directory.
    pub(crate) fn dir(&mut self, parent: u32, name: Range<usize>) -> Result<u32, Error> {
        let bytes = self.check_name(parent, &name)?;
        if let Some(known) = self.dirs.get(&(parent, bytes)) {
            return Ok(*known);
        }
        let above = self.tree.dirs.get(parent as usize);
        let (path_len, depth) = above.map_or((0, 0), |d| (d.path_len + 1, d.depth + 1));
        let index = self.tree.dirs.len() as u32;
        self.tree.dirs.push(Dir {
            parent,
            name_at: name.start as u32,
            path_len: path_len + bytes.len() as u16,
            name_len: bytes.len() as u8,
            depth,
        });
        self.dirs.insert((parent, bytes), index);
        Ok(index)
    }

    /// Adds a file to a directory ([`NO_DIR`] for a file alone).
    pub(crate) fn file(&mut self, dir: u32, name: Range<usize>, props: Props) -> Result<(), Error> {
        let bytes = self.check_name(dir, &name)?;
        let index = self.tree.files.len() as u32;
        self.tree.files.push(File {
            dir,
            name_at: name.start as u32,
            root_at: props.root_at,
            symlink_at: props.symlink_at,
            layer: NO_LAYER,
            same: index,
            name_len: bytes.len() as u8,
            flags: props.flags,
        });
        Ok(())
    }

    /// Checks that no directory has two entries of one name, and finds files of equal content:
    /// those with the same root. The index is for looking names up.
    pub(crate) fn finish(self, len: impl Fn(u32) -> u64) -> Result<(Tree, Index), Error> {
        let info = self.info;
        let mut tree = self.tree;
        drop(self.dirs);
        tree.dirs.shrink_to_fit();
        tree.files.shrink_to_fit();
        let index = Index::new(&tree, info);
        index.check(&tree, info)?;
        let mut rooted: Vec<u32> =
            (0..tree.file_count()).filter(|i| tree.pieces_root(info, *i).is_some()).collect();
        rooted.sort_unstable_by_key(|i| (tree.pieces_root(info, *i), *i));
        for at in rooted {
            let root = tree.pieces_root(info, at);
            let known = tree.by_root.last().copied();
            match known.filter(|f| tree.pieces_root(info, *f) == root) {
                Some(first) if len(first) != len(at) => {
                    return Err(Error::Layer {
                        path: tree.describe_file(info, at),
                        why: "another file with this pieces root has another length",
                    });
                }
                Some(first) => {
                    if let Some(file) = tree.files.get_mut(at as usize) {
                        file.same = first;
                    }
                }
                None => tree.by_root.push(at),
            }
        }
        tree.by_root.shrink_to_fit();
        Ok((tree, index))
    }
}

/// All entries sorted by directory and name.
pub(crate) struct Index(Vec<u32>);

impl Index {
    fn new(tree: &Tree, info: &[u8]) -> Self {
        // Files first, then directories; the root, entry of nothing, is left out.
        let files = tree.file_count();
        let mut all: Vec<u32> =
            (0..files + tree.dir_count()).filter(|i| *i != files || tree.is_single()).collect();
        all.sort_unstable_by_key(|i| (Self::place(tree, info, *i), *i));
        Index(all)
    }

    fn place<'a>(tree: &Tree, info: &'a [u8], entry: u32) -> (u32, &'a [u8]) {
        match entry.checked_sub(tree.file_count()) {
            None => tree.file_place(info, entry),
            Some(dir) => tree.dir_place(info, dir),
        }
    }

    fn check(&self, tree: &Tree, info: &[u8]) -> Result<(), Error> {
        for pair in self.0.windows(2) {
            let (a, b) = (pair[0], pair[1]);
            let (dir, name) = Self::place(tree, info, a);
            if (dir, name) == Self::place(tree, info, b) {
                let path = tree.describe(info, dir, name);
                // Sorted: `a` is a file; two equal directories cannot be.
                return Err(if b >= tree.file_count() {
                    Error::FileAndDirectory(path)
                } else {
                    Error::Duplicate(path)
                });
            }
        }
        Ok(())
    }

    /// The entry of a name in a directory.
    pub(crate) fn find(&self, tree: &Tree, info: &[u8], dir: u32, name: &[u8]) -> Option<Entry> {
        let at = self.0.binary_search_by(|i| Self::place(tree, info, *i).cmp(&(dir, name))).ok()?;
        let entry = *self.0.get(at)?;
        Some(match entry.checked_sub(tree.file_count()) {
            None => Entry::File(entry),
            Some(dir) => Entry::Dir(dir),
        })
    }
}
