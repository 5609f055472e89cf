//! Views of a manifest's files and directories, and their paths.
//!
//! Promise: views borrow and cost nothing; names keep their bytes exactly; `Display` is lossy and
//! safe to print.

use crate::bencode::Cursor;
use crate::error::printable;
use crate::extra::Mtime;
use crate::tree::{self, NO_DIR};
use crate::{Manifest, symlink};
use std::borrow::Cow;
use std::ffi::OsStr;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use tidecast_hash::Digest;

/// A file (or symbolic link) of a manifest.
#[derive(Debug, Clone, Copy)]
pub struct FileRef<'a> {
    manifest: &'a Manifest,
    index: u32,
}

impl<'a> FileRef<'a> {
    pub(crate) fn new(manifest: &'a Manifest, index: u32) -> Self {
        FileRef { manifest, index }
    }

    /// Its place in the manifest's order, from 0.
    pub fn index(self) -> u32 {
        self.index
    }

    /// Its path.
    pub fn path(self) -> TreePath<'a> {
        let manifest = self.manifest;
        let (dir, name) = manifest.tree.file_place(&manifest.info, self.index);
        TreePath { manifest, dir, name }
    }

    /// The directory that holds it, by its place among [`Manifest::dirs`]; `None` for a file published alone.
    pub fn dir(self) -> Option<u32> {
        let (dir, _) = self.manifest.tree.file_place(&self.manifest.info, self.index);
        (dir != NO_DIR).then_some(dir)
    }

    /// Length in bytes; 0 for a symbolic link.
    pub fn len(self) -> u64 {
        self.manifest.layout.file_len(self.index)
    }

    /// True for an empty file, and for a symbolic link.
    pub fn is_empty(self) -> bool {
        self.len() == 0
    }

    /// BEP 47 `x`.
    pub fn is_executable(self) -> bool {
        self.flag(tree::EXECUTABLE)
    }

    /// BEP 47 `h`.
    pub fn is_hidden(self) -> bool {
        self.flag(tree::HIDDEN)
    }

    /// BEP 47 `l`.
    pub fn is_symlink(self) -> bool {
        self.flag(tree::SYMLINK)
    }

    fn flag(self, flag: u8) -> bool {
        self.manifest.tree.flags(self.index) & flag != 0
    }

    /// The text of a symbolic link, to be given to `symlink(2)`. It may lead out of the tree: never go by way of it.
    pub fn symlink(self) -> Option<Cow<'a, [u8]>> {
        let m = self.manifest;
        let at = m.tree.symlink_at(self.index)?;
        if let Some(exact) = m.extra.symlink_text(self.index) {
            return m.info.get(exact).map(Cow::Borrowed);
        }
        let target = symlink::read_path(&m.info, at).ok()?;
        Some(Cow::Owned(symlink::relative(self.path().inner(), &target)))
    }

    /// The pieces that hold its bytes; in v1 the outer ones may be shared.
    pub fn pieces(self) -> Range<u32> {
        self.manifest.layout.file_pieces(self.index)
    }

    /// The first of [`FileRef::pieces`]; for an empty file, that of the next one.
    pub fn first_piece(self) -> u32 {
        self.pieces().start
    }

    /// Root of its Merkle tree: the identity of its content. `None` in v1 and for empty files.
    pub fn pieces_root(self) -> Option<Digest> {
        self.manifest.tree.pieces_root(&self.manifest.info, self.index)
    }

    /// Its piece layer; `None` while missing, in v1, and for a file of one piece.
    pub fn layer(self) -> Option<&'a [Digest]> {
        let m = self.manifest;
        m.tree.layer(self.index, &m.layers, self.pieces().len())
    }

    /// The first file of the manifest with the same content (v2: same root and length), itself if there is
    /// none before. Only that one needs to be fetched.
    pub fn same_as(self) -> u32 {
        self.manifest.tree.same_as(self.index)
    }

    /// The earlier file to which this one is a hard link, if the publisher recorded it. Its content is in the
    /// manifest all the same, so that stock clients get a complete file.
    pub fn hard_link(self) -> Option<u32> {
        self.manifest.extra.hard_link(self.index)
    }

    /// Permission bits (at most 07777), if recorded.
    pub fn mode(self) -> Option<u32> {
        self.manifest.extra.mode(self.index)
    }

    /// Modification time, if recorded.
    pub fn mtime(self) -> Option<Mtime> {
        self.manifest.extra.mtime(self.index)
    }

    /// Extended attributes: names and values.
    pub fn xattrs(self) -> impl Iterator<Item = (&'a [u8], &'a [u8])> {
        Xattrs::new(self.manifest, self.index)
    }

    /// Holes of a sparse file, ascending: ranges that read as zeros and held no disk blocks. A hint: the
    /// hashes decide about the content.
    pub fn holes(self) -> &'a [Range<u64>] {
        self.manifest.extra.holes(self.index)
    }
}

/// A directory of a manifest.
#[derive(Debug, Clone, Copy)]
pub struct DirRef<'a> {
    manifest: &'a Manifest,
    index: u32,
}

impl<'a> DirRef<'a> {
    pub(crate) fn new(manifest: &'a Manifest, index: u32) -> Self {
        DirRef { manifest, index }
    }

    /// Its place among [`Manifest::dirs`], from 0 for the published directory itself.
    pub fn index(self) -> u32 {
        self.index
    }

    /// Its path.
    pub fn path(self) -> TreePath<'a> {
        let manifest = self.manifest;
        let (dir, name) = manifest.tree.dir_place(&manifest.info, self.index);
        TreePath { manifest, dir, name }
    }

    /// The directory that holds it; `None` for the published directory itself.
    pub fn parent(self) -> Option<u32> {
        let (dir, _) = self.manifest.tree.dir_place(&self.manifest.info, self.index);
        (dir != NO_DIR).then_some(dir)
    }

    fn entry(self) -> u32 {
        self.manifest.file_count() + self.index
    }

    /// Permission bits (at most 07777), if recorded.
    pub fn mode(self) -> Option<u32> {
        self.manifest.extra.mode(self.entry())
    }

    /// Modification time, if recorded.
    pub fn mtime(self) -> Option<Mtime> {
        self.manifest.extra.mtime(self.entry())
    }

    /// Extended attributes: names and values.
    pub fn xattrs(self) -> impl Iterator<Item = (&'a [u8], &'a [u8])> {
        Xattrs::new(self.manifest, self.entry())
    }
}

/// Walks one bencoded dictionary of attributes.
struct Xattrs<'a>(Option<Cursor<'a>>);

impl<'a> Xattrs<'a> {
    fn new(manifest: &'a Manifest, entry: u32) -> Self {
        let mut cursor = manifest.extra.xattrs_at(entry).map(|at| Cursor::at(&manifest.info, at));
        if let Some(c) = &mut cursor {
            // Checked when the manifest was read.
            let entered = c.enter_dict();
            debug_assert!(entered.is_ok());
        }
        Xattrs(cursor)
    }
}

impl<'a> Iterator for Xattrs<'a> {
    type Item = (&'a [u8], &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let cursor = self.0.as_mut()?;
        let key = cursor.next_key().ok()?;
        match key.and_then(|k| Some((k, cursor.bytes().ok()?))) {
            Some(pair) => Some(pair),
            None => {
                self.0 = None;
                None
            }
        }
    }
}

/// The path of a file or directory, starting with the manifest's name.
#[derive(Clone, Copy)]
pub struct TreePath<'a> {
    manifest: &'a Manifest,
    dir: u32,
    name: &'a [u8],
}

impl<'a> TreePath<'a> {
    /// The last component.
    pub fn name(self) -> &'a [u8] {
        self.name
    }

    /// All components, the manifest's name first: `DIR` joined with them is where `get` puts it.
    pub fn components(self) -> Vec<&'a [u8]> {
        let tree = &self.manifest.tree;
        let mut parts = Vec::with_capacity(tree.depth(self.dir) + 2);
        parts.push(self.name);
        let mut at = self.dir;
        while at != NO_DIR {
            let (parent, name) = tree.dir_place(&self.manifest.info, at);
            parts.push(name);
            at = parent;
        }
        parts.reverse();
        parts
    }

    /// The components below the published file or directory itself: none for that one.
    pub fn inner(self) -> Vec<&'a [u8]> {
        let mut parts = self.components();
        parts.remove(0);
        parts
    }

    /// All components joined by `/`.
    pub fn to_bytes(self) -> Vec<u8> {
        self.components().join(&b'/')
    }

    /// `dir/NAME/…`: where the file goes when the manifest is unpacked into `dir`.
    pub fn under(self, dir: &Path) -> PathBuf {
        join(dir, self.components())
    }

    /// The place of the file when `root` is the published file or directory itself.
    pub fn below(self, root: &Path) -> PathBuf {
        join(root, self.inner())
    }
}

fn join(base: &Path, parts: Vec<&[u8]>) -> PathBuf {
    let mut path = base.to_path_buf();
    path.extend(parts.into_iter().map(OsStr::from_bytes));
    path
}

impl std::fmt::Display for TreePath<'_> {
    /// Lossy: invalid UTF-8 and control characters are replaced.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (i, part) in self.components().into_iter().enumerate() {
            if i > 0 {
                f.write_str("/")?;
            }
            f.write_str(&printable(part))?;
        }
        Ok(())
    }
}

impl std::fmt::Debug for TreePath<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?}", self.to_string())
    }
}
