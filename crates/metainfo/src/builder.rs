//! Making a manifest from a scanned and hashed tree.
//!
//! The publisher passes the entries; the builder sorts them, tells by its [`Layout`] which bytes make which
//! piece, takes the hashes, and writes the manifest. Promise: the same entries and settings give the same
//! bytes, and the result has passed the same checks as any manifest that is read.

use crate::error::printable;
use crate::extra::Mtime;
use crate::{Error, Excluded, Layout, Manifest, Version, encode};
use std::cmp::Ordering;
use std::ops::Range;
use tidecast_hash::{Digest, LEAF, Sha1Digest};

/// The kind of an entry of the published tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Content {
    /// A directory; only needed for empty ones and for those whose metadata is to be kept.
    Directory,
    /// A symbolic link and its text, which may lead anywhere.
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
    /// The kind.
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
    /// The excluded names; no hash covers them.
    pub left_out: Excluded,
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
    pub fn new(name: &[u8], version: Version, piece_length: u32, entries: Vec<Entry>) -> Result<Self, Error> {
        if !piece_length.is_power_of_two() || (piece_length as usize) < LEAF {
            return Err(Error::PieceLength {
                value: piece_length.into(),
                why: "it must be a power of two of at least 16384",
            });
        }
        let is_dir = |e: &Entry| e.content == Content::Directory;
        let (mut dirs, mut files): (Vec<_>, Vec<_>) = entries.into_iter().partition(is_dir);
        dirs.sort_by(|a, b| path_order(&a.path, &b.path));
        files.sort_by(|a, b| path_order(&a.path, &b.path));
        let single = files.iter().any(|f| f.path.is_empty());
        if single && files.len() + dirs.len() > 1 {
            let why = "the entry with the empty path is a file, but there are other entries";
            return Err(Error::Build(why.into()));
        }
        dirs.iter().chain(&files).try_for_each(check_entry)?;
        if let Some(pair) = dirs.windows(2).find(|w| w[0].path == w[1].path) {
            return Err(Error::Duplicate(printable(&pair[0].path)));
        }
        for pair in files.windows(2) {
            let (a, b) = (&pair[0].path, &pair[1].path);
            if a == b {
                return Err(Error::Duplicate(printable(a)));
            }
            if b.strip_prefix(&**a).is_some_and(|rest| rest.first() == Some(&b'/')) {
                return Err(Error::FileAndDirectory(printable(a)));
            }
        }
        let lens = files.iter().map(Entry::len);
        let layout = if version.has_v2() {
            Layout::aligned(piece_length, lens)?
        } else {
            Layout::packed(piece_length, lens.map(|len| (len, false)))?
        };
        Ok(Builder {
            trackers: Vec::new(),
            private: false,
            ssl_cert: None,
            comment: None,
            created_by: None,
            creation_date: None,
            prefix: None,
            left_out: Excluded::default(),
            name: name.to_vec(),
            version,
            layout,
            hashes: vec![None; files.len()],
            files,
            dirs,
            v1: Vec::new(),
        })
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
    pub fn build(mut self) -> Result<Manifest, Error> {
        let links = self.hard_links()?;
        for (link, target) in &links {
            let of_target = self.hashes.get(*target as usize).cloned().flatten();
            if let Some(slot) = self.hashes.get_mut(*link as usize) {
                *slot = of_target;
            }
        }
        self.check_hashes()?;
        self.write()
    }

    /// Writes it as it is, and reads it back; without hashes it is a draft.
    pub(crate) fn write(mut self) -> Result<Manifest, Error> {
        let info = encode::info(&self, self.hard_links()?)?;
        let mut manifest = Manifest::from_info_of(&info, std::mem::take(&mut self.trackers), true)?;
        manifest.outer.comment = self.comment;
        manifest.outer.left_out = self.left_out;
        manifest.outer.created_by = self.created_by;
        manifest.outer.creation_date = self.creation_date;
        if self.version.has_v2() {
            for (file, hashes) in (0..).zip(&self.hashes) {
                let known = manifest.file(file).is_none_or(|f| f.layer().is_some());
                if let Some((_, layer)) = hashes.as_ref().filter(|h| !known && !h.1.is_empty()) {
                    manifest.add_layer(file, layer)?;
                }
            }
        }
        Ok(manifest)
    }

    /// (link, target) by index, ascending.
    fn hard_links(&self) -> Result<Vec<(u32, u32)>, Error> {
        let mut links = Vec::new();
        for (index, entry) in (0..).zip(&self.files) {
            let Content::File { hard_link: Some(target), .. } = &entry.content else {
                continue;
            };
            let find = |e: &Entry| path_order(&e.path, target);
            let Ok(at) = self.files.binary_search_by(find) else {
                let (path, target) = (printable(&entry.path), printable(target));
                let why = format!("`{path}` is a hard link to `{target}`, which does not exist");
                return Err(Error::Build(why));
            };
            links.push((index, at as u32));
        }
        Ok(links)
    }

    fn check_hashes(&self) -> Result<(), Error> {
        if self.version.has_v1() && self.v1.len() != self.layout.piece_count() as usize {
            return Err(Error::PieceCount {
                expected: self.layout.piece_count().into(),
                found: self.v1.len() as u64,
            });
        }
        if !self.version.has_v2() {
            return Ok(());
        }
        for (index, (entry, hashes)) in (0..).zip(self.files.iter().zip(&self.hashes)) {
            let pieces = self.layout.file_pieces(index).len();
            let layer = if pieces > 1 { pieces } else { 0 };
            let found = hashes.as_ref().map(|(_, layer)| layer.len());
            if pieces > 0 && found != Some(layer) {
                let path = printable(&entry.path);
                return Err(Error::Build(format!("`{path}` has not been hashed")));
            }
        }
        Ok(())
    }
}

impl Entry {
    /// Length in bytes; 0 for all but files.
    pub fn len(&self) -> u64 {
        match self.content {
            Content::File { len, .. } => len,
            _ => 0,
        }
    }

    /// True for empty files and for entries other than files.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// The order of a manifest: by components, each compared as bytes. Comparing whole paths would
/// put `a.b` before `a/c`. No name has a NUL, so `/` may stand for one.
pub(crate) fn path_order(a: &[u8], b: &[u8]) -> Ordering {
    let key = |b: &u8| if *b == b'/' { 0 } else { *b };
    a.iter().map(key).cmp(b.iter().map(key))
}

/// Checks that reading cannot do, because writing would hide the defect.
fn check_entry(entry: &Entry) -> Result<(), Error> {
    let path = || printable(&entry.path);
    let fail = |why: &str| Err(Error::Build(format!("`{}`: {why}", path())));
    let root = entry.path.is_empty();
    if let Some(part) = entry.path.split(|b| *b == b'/').find(|part| {
        let fault = crate::tree::name_fault(part);
        fault.is_some() && !root
    }) {
        return Err(Error::Name {
            name: printable(part),
            path: path(),
            why: crate::tree::name_fault(part).unwrap_or_default(),
        });
    }
    if entry.mode.is_some_and(|m| m > 0o7777) {
        return fail("mode has bits beyond the twelve permission bits");
    }
    if entry.mtime.is_some_and(|t| t.nanos >= 1_000_000_000) {
        return fail("modification time has 10^9 nanoseconds or more");
    }
    let mut names: Vec<&[u8]> = entry.xattrs.iter().map(|(name, _)| &**name).collect();
    names.sort_unstable();
    if names.windows(2).any(|w| w[0] == w[1]) {
        return fail("duplicate extended attribute");
    }
    let (len, holes) = match &entry.content {
        Content::File { len, holes, .. } => (len, holes),
        Content::Symlink(_) if root => {
            return fail("a symbolic link cannot be published alone; publish its target");
        }
        _ => return Ok(()),
    };
    let mut end = 0;
    for (i, hole) in holes.iter().enumerate() {
        let apart = hole.start > end || (i == 0 && hole.start == 0);
        if !apart || hole.end <= hole.start || hole.end > *len {
            return fail("holes are not in order, or extend beyond the end of the file");
        }
        end = hole.end;
    }
    Ok(())
}
