//! Merkle trees of BEP 52: roots, piece layers, and proofs for hash requests.
//!
//! Levels are counted from the bottom: level 0 holds the SHA-256 of each 16 KiB leaf, level `l` has one node
//! for `2^l` leaves. A tree is padded to a power of two; padding leaves have the all-zero digest, and padding
//! above them is the hash of those (see [`pad`]).
//!
//! Promise: no I/O, no allocation beyond the nodes of one level (`root`) or of the tree (`Tree`).

use std::sync::OnceLock;
use tidecast_hash::{Digest, LEAF, parents};

/// Levels of the tallest tree: 2^64 bytes of 2^14.
pub const MAX_LEVEL: u32 = 50;

/// The digest of a node that covers nothing but padding, at `level`.
pub fn pad(level: u32) -> Digest {
    static PADS: OnceLock<Vec<Digest>> = OnceLock::new();
    let pads = PADS.get_or_init(|| {
        let mut pads = vec![[0; 32]];
        for _ in 0..MAX_LEVEL {
            let last = *pads.last().unwrap_or(&[0; 32]);
            let mut up = [[0; 32]];
            parents(&[last, last], &mut up);
            pads.extend(up);
        }
        pads
    });
    // A level that cannot occur gets the top one: it will match nothing.
    *pads.get(level as usize).or(pads.last()).unwrap_or(&[0; 32])
}

/// One level up: the parents of `nodes`, the last one paired with padding if it has no sibling.
fn up(nodes: &mut Vec<Digest>, level: u32) {
    if nodes.len() % 2 == 1 {
        nodes.push(pad(level));
    }
    let mut out = vec![[0; 32]; nodes.len() / 2];
    parents(nodes, &mut out);
    *nodes = out;
}

/// The root over `nodes`, which stand at `level`, padded up to `width` nodes of that level.
/// `width` is a power of two and at least `nodes.len()`; no nodes at all give the root of padding.
pub fn root_at(nodes: &[Digest], level: u32, width: usize) -> Digest {
    debug_assert!(width.is_power_of_two() && nodes.len() <= width);
    let top = level + width.trailing_zeros();
    let mut nodes = nodes.to_vec();
    for l in level..top {
        if nodes.is_empty() {
            break;
        }
        up(&mut nodes, l);
    }
    nodes.first().copied().unwrap_or_else(|| pad(top))
}

/// The root over leaf digests, padded up to `width` leaves (a power of two).
pub fn root(leaves: &[Digest], width: usize) -> Digest {
    root_at(leaves, 0, width)
}

/// The digest of a piece of a file with several pieces: its leaves, padded to a whole piece.
/// `piece_length` in bytes, a power of two of at least 16 KiB.
pub fn piece_root(leaves: &[Digest], piece_length: u32) -> Digest {
    root(leaves, (piece_length as usize / LEAF).max(1))
}

/// `pieces root` and piece layer of a file, from the digests of all its leaves. The layer is empty if the
/// file fits in one piece (its root suffices). An empty file has no root.
pub fn file(leaves: &[Digest], piece_length: u32) -> Option<(Digest, Vec<Digest>)> {
    let per_piece = (piece_length as usize / LEAF).max(1);
    match leaves.len() {
        0 => None,
        n if n <= per_piece => Some((root(leaves, n.next_power_of_two()), Vec::new())),
        _ => {
            let layer: Vec<_> = leaves.chunks(per_piece).map(|piece| root(piece, per_piece)).collect();
            Some((root_of_layer(&layer, piece_length), layer))
        }
    }
}

/// The `pieces root` of a file from its piece layer.
pub fn root_of_layer(layer: &[Digest], piece_length: u32) -> Digest {
    let level = piece_level(piece_length);
    root_at(layer, level, layer.len().next_power_of_two())
}

/// The level on which one node is one piece.
pub fn piece_level(piece_length: u32) -> u32 {
    (piece_length as usize / LEAF).max(1).trailing_zeros()
}

/// A request for hashes of one file (BEP 52, message 21), without the `pieces root`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Range {
    /// Level of the hashes asked for: 0 for leaves.
    pub base: u32,
    /// First node on that level, a multiple of `length`.
    pub index: u32,
    /// Number of nodes, a power of two of at least 2.
    pub length: u32,
    /// Levels above `base` for which uncles are wanted.
    pub proof_layers: u32,
}

impl Range {
    /// The most hashes in one request that is served or sent (libtorrent's limit too).
    pub const MAX_LENGTH: u32 = 8192;

    /// A request that proves `length` nodes at `base` up to the root of a tree of `levels` levels.
    pub fn proven(base: u32, index: u32, length: u32, levels: u32) -> Self {
        Range { base, index, length, proof_layers: levels.saturating_sub(base + 1) }
    }

    /// Whether the request makes sense for a tree whose root is at level `top`.
    pub fn is_valid(&self, top: u32) -> bool {
        self.base <= top
            && top <= MAX_LEVEL
            && self.proof_layers <= MAX_LEVEL
            && self.length.is_power_of_two()
            && (2..=Self::MAX_LENGTH).contains(&self.length)
            && self.index.is_multiple_of(self.length)
            && self.base + self.length.trailing_zeros() <= top
            && u64::from(self.index) + u64::from(self.length) <= 1 << (top - self.base)
            && (self.proof_layers == 0 || self.base + self.proof_layers < top)
    }

    /// How many uncles follow the nodes in the answer: those of the wanted levels that cannot be
    /// computed from the nodes themselves.
    pub fn uncles(&self) -> u32 {
        self.proof_layers.saturating_sub(self.length.trailing_zeros().saturating_sub(1))
    }

    /// Level and index of each uncle, lowest first.
    fn uncle_places(&self) -> impl Iterator<Item = (u32, u64)> {
        let height = self.length.trailing_zeros();
        let (level, index) = (self.base + height, u64::from(self.index) >> height);
        (0..self.uncles()).map(move |i| (level + i, (index >> i) ^ 1))
    }
}

/// A Merkle tree in memory from some level up to its root: twice its lowest level in size.
#[derive(Debug, Clone)]
pub struct Tree {
    base: u32,
    /// The real nodes of each level, from `base` to the root; padding is not stored.
    levels: Vec<Vec<Digest>>,
}

impl Tree {
    /// The tree above `nodes`, which stand at level `base`, with its root at level `top`.
    pub fn new(nodes: &[Digest], base: u32, top: u32) -> Self {
        let mut levels = vec![nodes.to_vec()];
        let mut nodes = nodes.to_vec();
        for level in base..top.min(base + MAX_LEVEL) {
            up(&mut nodes, level);
            levels.push(nodes.clone());
        }
        Tree { base, levels }
    }

    /// The root.
    pub fn root(&self) -> Digest {
        let top = self.base + self.levels.len() as u32 - 1;
        self.node(top, 0).unwrap_or_else(|| pad(top))
    }

    /// The node at a level and index, padding included; `None` below the lowest level held.
    pub fn node(&self, level: u32, index: u64) -> Option<Digest> {
        let held = self.levels.get(level.checked_sub(self.base)? as usize)?;
        let at = usize::try_from(index).ok().and_then(|i| held.get(i));
        Some(at.copied().unwrap_or_else(|| pad(level)))
    }

    /// The answer to a hash request from this tree: nodes, then uncles. `None` if the tree does not have
    /// them.
    pub fn answer(&self, range: &Range) -> Option<Vec<Digest>> {
        let top = self.base + self.levels.len() as u32 - 1;
        answer(range, top, |level, index| self.node(level, index))
    }
}

/// The answer to a hash request, nodes and then uncles, from any source of the nodes of a tree whose root is
/// at level `top`. `None` if the request is invalid or a node is not known.
pub fn answer(
    range: &Range,
    top: u32,
    mut node: impl FnMut(u32, u64) -> Option<Digest>,
) -> Option<Vec<Digest>> {
    if !range.is_valid(top) {
        return None;
    }
    let first = u64::from(range.index);
    let bases = (first..first + u64::from(range.length)).map(|i| (range.base, i));
    bases.chain(range.uncle_places()).map(|(level, index)| node(level, index)).collect()
}

/// Checks an answer to a hash request against the root of the tree at level `top`, and returns
/// the proven nodes. The request must have asked for proof up to the root.
pub fn verify<'h>(root: &Digest, top: u32, range: &Range, hashes: &'h [Digest]) -> Option<&'h [Digest]> {
    let height = range.length.trailing_zeros();
    if !range.is_valid(top)
        || range.base + height + range.uncles() != top
        || hashes.len() != (range.length + range.uncles()) as usize
    {
        return None;
    }
    let (nodes, uncles) = hashes.split_at_checked(range.length as usize)?;
    let mut node = root_at(nodes, range.base, nodes.len());
    for ((_, index), uncle) in range.uncle_places().zip(uncles) {
        // The uncle's index is odd when our node is the left child.
        let pair = if index % 2 == 1 { [node, *uncle] } else { [*uncle, node] };
        let mut out = [[0; 32]];
        parents(&pair, &mut out);
        node = out[0];
    }
    (node == *root).then_some(nodes)
}
