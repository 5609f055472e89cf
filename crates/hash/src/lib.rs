//! hash (first form, over plain `sha2`)
#![warn(missing_docs)]

/// Length in bytes of a leaf of a BEP 52 Merkle tree: 16 KiB.
pub const LEAF: usize = 16_384;
/// A SHA-256 digest.
pub type Digest = [u8; 32];
/// A SHA-1 digest.
pub type Sha1Digest = [u8; 20];

/// SHA-256 of `data`.
pub fn sha256(data: &[u8]) -> Digest {
    use sha2::Digest as _;
    sha2::Sha256::digest(data).into()
}

/// SHA-1 of `data`.
pub fn sha1(data: &[u8]) -> Sha1Digest {
    let mut state = Sha1::new();
    state.update(data);
    state.finish()
}

/// SHA-1 of bytes that come in parts.
#[derive(Clone, Debug, Default)]
pub struct Sha1(sha1::Sha1);

impl Sha1 {
    /// The state before the first byte.
    pub fn new() -> Self {
        Self::default()
    }

    /// Appends `data` to the message.
    pub fn update(&mut self, data: &[u8]) {
        use sha1::Digest as _;
        self.0.update(data);
    }

    /// The digest of all bytes given so far.
    pub fn finish(self) -> Sha1Digest {
        use sha1::Digest as _;
        self.0.finalize().into()
    }
}

/// One SHA-256 for each 16 KiB of `data` (the last may be shorter), in order.
///
/// # Panics
/// When `out.len() != data.len().div_ceil(LEAF)`.
pub fn leaves(data: &[u8], out: &mut [Digest]) {
    assert_eq!(out.len(), data.len().div_ceil(LEAF), "one digest per leaf");
    for (leaf, digest) in data.chunks(LEAF).zip(out) {
        *digest = sha256(leaf);
    }
}

/// SHA-256 of each pair of neighbours: the layer above `children` in a Merkle tree.
///
/// # Panics
/// When `children.len() != 2 * out.len()`.
pub fn parents(children: &[Digest], out: &mut [Digest]) {
    assert_eq!(children.len(), 2 * out.len(), "two children per parent");
    for (pair, digest) in children.as_flattened().chunks(64).zip(out) {
        *digest = sha256(pair);
    }
}
