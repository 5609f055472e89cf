//! The tree as the kernel sees it: inodes, names and attributes, all out of the manifest.
//!
//! Promise: no question about names or attributes needs more than the manifest; building is one pass over its entries
//! and a sort of each directory, looking up is a binary search.
//!
//! An inode is the place of its entry, directories first: inode 1 is the published directory itself. Hard links share
//! the inode of the first of them. A file that was published alone lies by its name in a directory of its own.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fuser::{FileAttr, FileType, INodeNo};
use tidecast_metainfo::{DirRef, FileRef, Manifest, Mtime};

use crate::walk;

const BLOCK: u64 = 512;

/// The kinds of inodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Node {
    /// By its place among the manifest's directories.
    Dir(u32),
    /// By its place among the manifest's files; a symbolic link may be one.
    File(u32),
}

/// One entry of a directory.
pub(crate) struct Child<'a> {
    pub(crate) node: Node,
    pub(crate) name: &'a [u8],
}

/// See the head of the file.
pub struct Tree {
    manifest: Arc<Manifest>,
    owner: (u32, u32),
    dirs: u32,
    /// Where each directory's children begin in `children`; one more at the end.
    first: Vec<u32>,
    /// Children of all directories, each directory's by name: directories, then `dirs` + file.
    children: Vec<u32>,
    /// Files with more than one name: how many.
    links: HashMap<u32, u32>,
}

impl Tree {
    /// The tree of a manifest; everything in it belongs to `owner` (user, group).
    pub fn new(manifest: Arc<Manifest>, owner: (u32, u32)) -> Tree {
        let dirs = (manifest.dirs().len() as u32).max(1);
        let parents = || {
            let of_dirs = (1..dirs).map(|d| (manifest.dir(d).and_then(DirRef::parent).unwrap_or(0), d));
            let of_files = manifest.files().map(|f| (f.dir().unwrap_or(0), dirs + f.index()));
            of_dirs.chain(of_files)
        };
        let mut first = vec![0u32; dirs as usize + 1];
        for (parent, _) in parents() {
            first[parent as usize + 1] += 1;
        }
        for dir in 1..first.len() {
            first[dir] += first[dir - 1];
        }
        let mut next = first.clone();
        let mut children = vec![0u32; first[dirs as usize] as usize];
        for (parent, child) in parents() {
            children[next[parent as usize] as usize] = child;
            next[parent as usize] += 1;
        }
        let mut links = HashMap::new();
        for target in manifest.files().filter_map(FileRef::hard_link) {
            *links.entry(target).or_insert(1) += 1;
        }
        let mut tree = Tree { manifest, owner, dirs, first, children, links };
        for dir in 0..dirs {
            let range = tree.range(dir);
            let mut own = tree.children[range.clone()].to_vec();
            own.sort_by_key(|child| tree.name(tree.node(*child)));
            tree.children[range].copy_from_slice(&own);
        }
        tree
    }

    /// The manifest that it is of.
    pub fn manifest(&self) -> &Arc<Manifest> {
        &self.manifest
    }

    fn range(&self, dir: u32) -> std::ops::Range<usize> {
        let at = |d: u32| self.first.get(d as usize).map_or(self.children.len(), |at| *at as usize);
        at(dir)..at(dir.saturating_add(1))
    }

    fn node(&self, entry: u32) -> Node {
        entry.checked_sub(self.dirs).map_or(Node::Dir(entry), Node::File)
    }

    fn name(&self, node: Node) -> &[u8] {
        match node {
            Node::Dir(dir) => self.manifest.dir(dir).map_or(&[], |d| d.path().name()),
            Node::File(file) => self.manifest.file(file).map_or(&[], |f| f.path().name()),
        }
    }

    /// Entries in all.
    pub(crate) fn entries(&self) -> u64 {
        self.children.len() as u64 + 1
    }

    /// The object behind an inode number of the kernel.
    pub(crate) fn at(&self, ino: INodeNo) -> Option<Node> {
        let entry = u32::try_from(ino.0.checked_sub(1)?).ok()?;
        let count = self.dirs.saturating_add(self.manifest.file_count());
        (entry < count).then(|| self.node(entry))
    }

    /// The number of a node; of all hard links, that of the first.
    pub(crate) fn ino(&self, node: Node) -> INodeNo {
        let entry = match node {
            Node::Dir(dir) => dir,
            Node::File(file) => {
                let target = self.manifest.file(file).and_then(FileRef::hard_link);
                self.dirs.saturating_add(target.unwrap_or(file))
            }
        };
        INodeNo(u64::from(entry) + 1)
    }

    /// An entry of a directory by its name.
    pub(crate) fn lookup(&self, dir: u32, name: &[u8]) -> Option<Node> {
        let own = self.children.get(self.range(dir))?;
        let at = own.binary_search_by_key(&name, |child| self.name(self.node(*child))).ok()?;
        own.get(at).map(|child| self.node(*child))
    }

    /// The entries of a directory by name, from the given place on.
    pub(crate) fn children(&self, dir: u32, from: usize) -> impl Iterator<Item = Child<'_>> {
        let own = self.children.get(self.range(dir)).unwrap_or_default();
        let rest = own.get(from..).unwrap_or_default().iter();
        rest.map(|child| self.node(*child)).map(|node| Child { node, name: self.name(node) })
    }

    /// The directory that holds this one, which may be itself.
    pub(crate) fn parent(&self, dir: u32) -> u32 {
        self.manifest.dir(dir).and_then(DirRef::parent).unwrap_or(0)
    }

    /// The attributes, as stat(2) returns them.
    pub(crate) fn attr(&self, node: Node) -> FileAttr {
        match node {
            Node::Dir(dir) => {
                let of = self.manifest.dir(dir);
                let own = self.children.get(self.range(dir)).unwrap_or_default();
                let below = own.iter().filter(|child| **child < self.dirs).count() as u32;
                let mode = of.and_then(DirRef::mode).unwrap_or(0o755);
                let attr = self.common(node, FileType::Directory, mode, of.and_then(DirRef::mtime));
                FileAttr { nlink: below + 2, size: own.len() as u64, ..attr }
            }
            Node::File(file) => self.file_attr(file),
        }
    }

    fn file_attr(&self, file: u32) -> FileAttr {
        let of = self.manifest.file(file);
        let first = of.and_then(FileRef::hard_link).unwrap_or(file);
        let nlink = self.links.get(&first).copied().unwrap_or(1);
        let link = of.and_then(FileRef::symlink);
        let usual = if of.is_some_and(FileRef::is_executable) { 0o755 } else { 0o644 };
        let (kind, mode, size) = match link {
            Some(target) => (FileType::Symlink, 0o777, target.len() as u64),
            None => {
                let mode = of.and_then(FileRef::mode).unwrap_or(usual);
                (FileType::RegularFile, mode, of.map_or(0, FileRef::len))
            }
        };
        let attr = self.common(Node::File(file), kind, mode, of.and_then(FileRef::mtime));
        let holes: u64 = of.map_or(0, |f| f.holes().iter().map(|hole| hole.end - hole.start).sum());
        FileAttr { nlink, size, blocks: size.saturating_sub(holes).div_ceil(BLOCK), ..attr }
    }

    fn common(&self, node: Node, kind: FileType, mode: u32, mtime: Option<Mtime>) -> FileAttr {
        let time = mtime.map_or(UNIX_EPOCH, time);
        FileAttr {
            ino: self.ino(node),
            size: 0,
            blocks: 0,
            atime: time,
            mtime: time,
            ctime: time,
            crtime: time,
            kind,
            perm: (mode & 0o7777) as u16,
            nlink: 1,
            uid: self.owner.0,
            gid: self.owner.1,
            rdev: 0,
            blksize: 128 << 10,
            flags: 0,
        }
    }

    /// The kind of a node, for directory listings.
    pub(crate) fn kind(&self, node: Node) -> FileType {
        match node {
            Node::Dir(_) => FileType::Directory,
            Node::File(file) if self.manifest.file(file).is_some_and(FileRef::is_symlink) => {
                FileType::Symlink
            }
            Node::File(_) => FileType::RegularFile,
        }
    }

    /// Extended attributes: names and values.
    pub(crate) fn xattrs(&self, node: Node) -> Vec<(&[u8], &[u8])> {
        match node {
            Node::Dir(dir) => self.manifest.dir(dir).map(|d| d.xattrs().collect()),
            Node::File(file) => self.manifest.file(file).map(|f| f.xattrs().collect()),
        }
        .unwrap_or_default()
    }

    /// Whether anything in the tree has extended attributes.
    pub(crate) fn has_xattrs(&self) -> bool {
        let dirs = self.manifest.dirs().any(|d| d.xattrs().next().is_some());
        dirs || self.manifest.files().any(|f| f.xattrs().next().is_some())
    }

    /// The path of a file below the root, for people and lists.
    pub(crate) fn path(&self, file: u32) -> Vec<u8> {
        let Some(of) = self.manifest.file(file) else { return Vec::new() };
        if self.manifest.is_single_file() { of.path().name().to_vec() } else { of.path().inner().join(&b'/') }
    }
}

/// As paths are followed for the closure of programs: directories by their inode numbers.
impl walk::Tree for Tree {
    fn child(&self, dir: u64, name: &[u8]) -> Option<walk::Node<'_>> {
        let Node::Dir(dir) = self.at(INodeNo(dir))? else { return None };
        let node = self.lookup(dir, name)?;
        Some(match node {
            Node::Dir(_) => walk::Node::Dir(self.ino(node).0),
            Node::File(file) => match self.manifest.file(file)?.symlink() {
                Some(target) => walk::Node::Symlink(target),
                None => walk::Node::File(file),
            },
        })
    }
}

fn time(mtime: Mtime) -> SystemTime {
    let nanos = Duration::from_nanos(mtime.nanos.into());
    let secs = Duration::from_secs(mtime.secs.unsigned_abs());
    let whole = if mtime.secs < 0 { UNIX_EPOCH.checked_sub(secs) } else { UNIX_EPOCH.checked_add(secs) };
    whole.and_then(|t| t.checked_add(nanos)).unwrap_or(UNIX_EPOCH)
}

#[cfg(test)]
#[path = "tree_tests.rs"]
mod tests;
