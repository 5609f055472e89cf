//! A store just opened: existing data counts after it was checked, by the caller's hashes, or when the caller
//! checks it.

use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU64, Ordering};

use tidecast_hash::Digest;

use crate::bits::ranges;
use crate::error::{Context, Error};
use crate::store::Store;

/// A store just opened, and the state of its pieces. All ranges are sorted and disjoint.
pub struct Opened {
    /// The store.
    pub store: Store,
    /// Pieces that count at once: journalled, or remembered and unchanged.
    pub have: Vec<Range<u32>>,
    /// Pieces that may be there: [`Store::check`] decides.
    pub to_check: Vec<Range<u32>>,
    /// In a draft, of `to_check`: pieces that [`Opened::check`] has hashed, with their roots.
    pub hashed: Vec<(u32, Digest)>,
    /// Pieces that make up the selection; all of them without one.
    pub wanted: Vec<Range<u32>>,
}

impl Opened {
    /// Accepts the hashes of a caller that has just read all of it: `leaves` holds the SHA-256 of every leaf, 32
    /// bytes each, in the order of [`tidecast_metainfo::Manifest::leaf_range`]. They must lead to the manifest's
    /// own hashes; if they do not, or it has none (v1), all is left to be checked, and the answer is false.
    ///
    /// # Errors
    /// `leaves` is too short, or its digests cannot be kept.
    pub fn accept_hashes(&mut self, leaves: &File) -> Result<bool, Error> {
        let manifest = self.store.manifest().clone();
        if !manifest.version().has_v2() {
            return Ok(false);
        }
        let mut bytes = Vec::new();
        for piece in self.to_check.clone().into_iter().flatten() {
            let range = manifest.leaf_range(piece);
            // A piece is at most 1 GiB.
            bytes.resize((range.end - range.start) as usize * 32, 0);
            leaves
                .read_exact_at(&mut bytes, range.start * 32)
                .at("read the hashes of", &self.store.path())?;
            let (digests, _) = bytes.as_chunks::<32>();
            if manifest.check_leaves(piece, digests) != Some(true) {
                return Ok(false);
            }
            self.store.set_leaves(piece, digests)?;
            self.store.piece_done(piece)?;
        }
        self.have = std::iter::once(0..manifest.piece_count()).filter(|r| !r.is_empty()).collect();
        self.to_check.clear();
        Ok(true)
    }

    /// Checks existing data now, on all cores, so that it counts from the start. In a draft it is only hashed, as
    /// there are no hashes to compare with yet. `checked` counts its bytes meanwhile.
    ///
    /// # Errors
    /// Existing data cannot be read, or not recorded.
    pub fn check(&mut self, checked: &AtomicU64) -> Result<(), Error> {
        let pieces: Vec<u32> = self.to_check.iter().cloned().flatten().collect();
        let store = &self.store;
        let count = |piece| checked.fetch_add(u64::from(store.manifest.piece_len(piece)), Ordering::Relaxed);
        if store.manifest.is_draft() {
            let hash = |piece| {
                let root = store.hash_piece(piece)?;
                count(piece);
                Ok(root.map(|root| (piece, root)))
            };
            self.hashed = on_all_cores(&pieces, hash)?;
            return Ok(());
        }
        let right = on_all_cores(&pieces, |piece| {
            let is_right = store.check(piece)?;
            count(piece);
            Ok(is_right.then_some(piece))
        });
        let right = right.inspect_err(|_| store.abandon())?;
        let mut have: Vec<u32> = self.have.iter().cloned().flatten().chain(right).collect();
        have.sort_unstable();
        self.have = ranges(have);
        self.to_check.clear();
        Ok(())
    }
}

/// The results of `pieces`, in their order.
fn on_all_cores<T: Send>(
    pieces: &[u32],
    one: impl Fn(u32) -> Result<Option<T>, Error> + Sync,
) -> Result<Vec<T>, Error> {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let some =
        |part: &[u32]| part.iter().filter_map(|p| one(*p).transpose()).collect::<Result<Vec<T>, Error>>();
    let done: Vec<Result<Vec<T>, Error>> = std::thread::scope(|scope| {
        let parts = pieces.chunks(pieces.len().div_ceil(cores).max(1));
        let threads: Vec<_> = parts.map(|part| scope.spawn(|| some(part))).collect();
        threads.into_iter().filter_map(|thread| thread.join().ok()).collect()
    });
    let mut all = Vec::new();
    for part in done {
        all.extend(part?);
    }
    Ok(all)
}
