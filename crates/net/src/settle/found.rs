//! What a draft has on disk before anybody can say whether it is right.

use std::collections::BTreeMap;

use tidecast_hash::Digest;

/// Pieces that were found on disk and whose roots nobody has said yet.
#[derive(Default)]
pub(super) struct Found {
    /// What they hash to; None for those of which a part is missing.
    pub(super) pieces: BTreeMap<u32, Option<Digest>>,
}
