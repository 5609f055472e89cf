//! Drafts: manifests of data that is not hashed yet.
//!
//! Names, sizes and modes are known, so is the position of every piece; the roots are not. A draft is a v2
//! info dictionary in which every `pieces root` is 32 zero bytes, which no content hashes to. The roots
//! become known piece by piece ([`Manifest::learn_root`]), each once; with the last of them the draft is
//! *sealed*: it becomes the manifest that the same tree has when it is hashed first. The same tree gives the
//! same draft, so an interrupted transfer of a draft can be resumed.

use std::sync::{Arc, OnceLock};

use tidecast_hash::{Digest, sha256};

use crate::builder::Builder;
use crate::files::FileRef;
use crate::manifest::Manifest;
use crate::{Error, Version, merkle};

/// The placeholder of an unknown root in a draft.
pub(crate) const UNKNOWN: Digest = [0; 32];

/// The roots of a draft's pieces, as far as they are known: each is set once, and read without a lock.
#[derive(Debug)]
pub(crate) struct Roots(Box<[OnceLock<Digest>]>);

impl Roots {
    pub(crate) fn new(pieces: u32) -> Arc<Self> {
        Arc::new(Roots((0..pieces).map(|_| OnceLock::new()).collect()))
    }

    pub(crate) fn get(&self, piece: u32) -> Option<Digest> {
        self.0.get(piece as usize)?.get().copied()
    }
}

impl Builder {
    /// The draft of the manifest that this would build, without the hashes; v2 only. Of a tree without
    /// content it is the manifest itself.
    ///
    /// # Errors
    /// As [`Builder::build`]; [`Error::Draft`] for a version with v1 in it, whose hashes cannot come later.
    pub fn draft(mut self) -> Result<Manifest, Error> {
        if self.version != Version::V2 {
            return Err(Error::Draft("only a v2 manifest can be a draft"));
        }
        for (index, slot) in (0..).zip(&mut self.hashes) {
            let pieces = self.layout.file_pieces(index).len();
            *slot = (pieces > 0).then(|| (UNKNOWN, Vec::new()));
        }
        self.write()
    }
}

impl Manifest {
    /// Reads a metainfo file that may be a draft.
    ///
    /// # Errors
    /// As [`Manifest::parse`], but for drafts.
    pub fn parse_draft(torrent: &[u8]) -> Result<Self, Error> {
        Self::read(torrent, true)
    }

    /// Whether roots of pieces may not be known yet. Its [`Manifest::hash_v2`] then names the draft.
    pub fn is_draft(&self) -> bool {
        self.roots.is_some()
    }

    /// Sets the root of a draft's piece, in all copies of this manifest. False if there is no such piece, if
    /// another root is known for it, or if this is not a draft.
    pub fn learn_root(&self, piece: u32, root: Digest) -> bool {
        let slot = self.roots.as_ref().and_then(|roots| roots.0.get(piece as usize));
        slot.is_some_and(|slot| *slot.get_or_init(|| root) == root)
    }

    /// The root over a piece's leaf digests. None if they are not as many as the piece has leaves, and in v1.
    pub fn root_of_leaves(&self, piece: u32, leaves: &[Digest]) -> Option<Digest> {
        let (width, len) = (self.piece_width(piece), self.piece_len(piece));
        let right = width > 0 && leaves.len() == (len as usize).div_ceil(tidecast_hash::LEAF);
        right.then(|| merkle::root(leaves, width as usize))
    }

    /// Whether two files have the same content, as far as their hashes are known.
    pub fn same_content(&self, a: u32, b: u32) -> bool {
        let (Some(a), Some(b)) = (self.file(a), self.file(b)) else { return false };
        let same = || match &self.roots {
            Some(roots) => a
                .pieces()
                .zip(b.pieces())
                .all(|(a, b)| roots.get(a).is_some() && roots.get(a) == roots.get(b)),
            None => a.pieces_root().is_some() && a.pieces_root() == b.pieces_root(),
        };
        a.len() == b.len() && (a.is_empty() || same())
    }

    /// The v2 info-hash of the manifest that [`Manifest::seal`] makes. None while a root is unknown, and if
    /// this is not a draft.
    pub fn sealed_hash(&self) -> Option<Digest> {
        self.roots.as_ref()?;
        self.sealed_info().map(|info| sha256(&info))
    }

    /// The manifest that this draft has become.
    ///
    /// # Errors
    /// [`Error::Draft`] while a root is unknown, or if this is not a draft.
    pub fn seal(&self) -> Result<Manifest, Error> {
        let roots = self.roots.as_ref().ok_or(Error::Draft("it is not a draft"))?;
        let info = self.sealed_info().ok_or(Error::Draft("some of its data is not hashed yet"))?;
        let mut sealed = Manifest::from_info(&info, Vec::new())?;
        sealed.outer = self.outer.clone();
        for file in 0..sealed.file_count() {
            let known = FileRef::new(&sealed, file).layer().is_some();
            let pieces = sealed.file_pieces(file);
            if pieces.len() > 1 && !known {
                let layer: Vec<Digest> = pieces.filter_map(|p| roots.get(p)).collect();
                sealed.add_layer(file, &layer)?;
            }
        }
        Ok(sealed)
    }

    /// The info dictionary with all roots in their places.
    fn sealed_info(&self) -> Option<Vec<u8>> {
        let roots = self.roots.as_ref()?;
        let mut info = self.info_bytes().to_vec();
        for file in 0..self.file_count() {
            let Some(at) = self.tree.root_at(file) else { continue };
            let layer: Option<Vec<Digest>> = self.file_pieces(file).map(|p| roots.get(p)).collect();
            let root = match layer?.as_slice() {
                [root] => *root,
                layer => merkle::root_of_layer(layer, self.piece_length()),
            };
            info.get_mut(at..at + root.len())?.copy_from_slice(&root);
        }
        Some(info)
    }
}
