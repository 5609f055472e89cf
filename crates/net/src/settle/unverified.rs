//! A draft's data on disk before its correct hash is known.

use std::collections::BTreeMap;

use tidecast_hash::Digest;

/// Pieces that were found on disk and whose roots are not known yet.
#[derive(Default)]
pub(super) struct UnverifiedPieces {
    /// Their hashes; None for pieces that are incomplete.
    pub(super) pieces: BTreeMap<u32, Option<Digest>>,
}
