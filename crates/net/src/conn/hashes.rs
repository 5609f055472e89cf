//! Answers to BEP 52 hash requests: piece layers from the manifest, leaves from the store.

use std::sync::Arc;

use parking_lot::Mutex;
use tidecast_hash::Digest;
use tidecast_metainfo::{Manifest, merkle};
use tidecast_store::Store;
use tidecast_wire::HashRange;

/// The tree above one file's piece layer, kept because the requests for it come in a row.
#[derive(Default)]
pub(crate) struct LayerCache {
    last: Mutex<Option<(u32, Arc<merkle::Tree>)>>,
}

/// The hashes and uncles asked for; None if they are not known here or make no sense.
pub(crate) fn answer(
    manifest: &Manifest,
    store: &Store,
    cache: &LayerCache,
    range: &HashRange,
) -> Option<Vec<Digest>> {
    let file = manifest.file_of_root(&range.pieces_root)?;
    let top = manifest.tree_top(file)?;
    let piece_level = merkle::piece_level(manifest.piece_length());
    let first = manifest.file_pieces(file).start;
    let asked = merkle::Range {
        base: range.base_layer,
        index: range.index,
        length: range.length,
        proof_layers: range.proof_layers,
    };
    let upper = (top >= piece_level).then(|| cache.tree(manifest, file, piece_level, top)).flatten();
    let mut lower: Option<(u32, merkle::Tree)> = None;
    let mut node = |level: u32, index: u64| -> Option<Digest> {
        if level >= piece_level
            && let Some(tree) = &upper
        {
            return tree.node(level, index);
        }
        let height = piece_level.min(top);
        let nth = u32::try_from(index >> (height.checked_sub(level)?)).ok()?;
        if first + nth >= manifest.file_pieces(file).end {
            return Some(merkle::pad(level));
        }
        if lower.as_ref().is_none_or(|(p, _)| *p != nth) {
            let leaves = store.leaves(first + nth).ok().flatten()?;
            lower = Some((nth, merkle::Tree::new(&leaves, 0, height)));
        }
        let within = index & ((1_u64 << (height - level)) - 1);
        lower.as_ref()?.1.node(level, within)
    };
    merkle::answer(&asked, top, &mut node)
}

impl LayerCache {
    fn tree(&self, manifest: &Manifest, file: u32, base: u32, top: u32) -> Option<Arc<merkle::Tree>> {
        let mut last = self.last.lock();
        if let Some((of, tree)) = last.as_ref()
            && *of == file
        {
            return Some(tree.clone());
        }
        let layer = manifest.file(file)?.layer()?;
        let tree = Arc::new(merkle::Tree::new(layer, base, top));
        *last = Some((file, tree.clone()));
        Some(tree)
    }
}
