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
    let upper = cache.tree(manifest, file)?;
    let asked = merkle::Range {
        base: range.base_layer,
        index: range.index,
        length: range.length,
        proof_layers: range.proof_layers,
    };
    manifest.answer_hashes(file, &asked, &upper, |piece| store.leaves(piece).ok().flatten())
}

impl LayerCache {
    fn tree(&self, manifest: &Manifest, file: u32) -> Option<Arc<merkle::Tree>> {
        let mut last = self.last.lock();
        if let Some((of, tree)) = last.as_ref()
            && *of == file
        {
            return Some(tree.clone());
        }
        let tree = Arc::new(manifest.layer_tree(file)?);
        *last = Some((file, tree.clone()));
        Some(tree)
    }
}
