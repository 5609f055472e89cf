//! Hash requests of BEP 52 answered from a manifest and the leaves of single pieces.
//!
//! The manifest knows the tree of a file from the pieces up; a proof also needs the leaves of a piece, which
//! every holder of the data has. Promise: answers are consistent, because leaves that do not hash to their
//! piece are not used.

use crate::{FileRef, Manifest, merkle};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use tidecast_hash::{Digest, LEAF};

impl Manifest {
    /// The level of the root in a file's Merkle tree, for hash requests; `None` for empty files
    /// and in v1.
    pub fn tree_top(&self, file: u32) -> Option<u32> {
        let len = self.layout.file_len(file);
        if len == 0 || !self.version.has_v2() {
            return None;
        }
        let leaves = len.div_ceil(LEAF as u64);
        Some(leaves.next_power_of_two().trailing_zeros())
    }

    /// The upper part of a file's Merkle tree: from its pieces to its root. `None` while the
    /// layer is missing, for empty files, and in v1. Costs two hashes' memory and one hash's time
    /// a piece: keep it while a file is being asked about.
    pub fn layer_tree(&self, file: u32) -> Option<merkle::Tree> {
        let top = self.tree_top(file)?;
        let file = FileRef::new(self, file);
        if file.pieces().len() == 1 {
            return Some(merkle::Tree::new(&[file.pieces_root()?], top, top));
        }
        let base = merkle::piece_level(self.piece_length());
        Some(merkle::Tree::new(file.layer()?, base, top))
    }

    /// The answer to a hash request for a file: the requested nodes, then their uncles. `upper` is its
    /// [`Manifest::layer_tree`]; `leaves` returns the leaf digests of a piece if they are available. `None`
    /// if the request is invalid or cannot be answered: reject it.
    pub fn answer_hashes(
        &self,
        file: u32,
        range: &merkle::Range,
        upper: &merkle::Tree,
        mut leaves: impl FnMut(u32) -> Option<Vec<Digest>>,
    ) -> Option<Vec<Digest>> {
        let top = self.tree_top(file)?;
        let pieces = self.file_pieces(file);
        let piece_level = merkle::piece_level(self.piece_length()).min(top);
        let mut lower: BTreeMap<u64, merkle::Tree> = BTreeMap::new();
        merkle::answer(range, top, |level, index| {
            if level >= piece_level {
                return upper.node(level, index);
            }
            let above = piece_level - level;
            let in_file = index >> above;
            let piece = pieces.start.checked_add(u32::try_from(in_file).ok()?)?;
            if piece >= pieces.end {
                return Some(merkle::pad(level));
            }
            let tree = match lower.entry(in_file) {
                Entry::Occupied(known) => known.into_mut(),
                Entry::Vacant(empty) => {
                    let digests = leaves(piece)?;
                    if self.check_leaves(piece, &digests) != Some(true) {
                        return None;
                    }
                    empty.insert(merkle::Tree::new(&digests, 0, piece_level))
                }
            };
            let inside = index & ((1 << above) - 1);
            tree.node(level, inside)
        })
    }
}
