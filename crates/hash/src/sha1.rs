//! SHA-1, for the pieces of BitTorrent v1, in one go or in parts. The `sha1` crate finds SHA-NI and Arm's
//! instructions by itself.

use crate::Sha1Digest;

/// SHA-1 of one message.
#[must_use]
pub fn sha1(data: &[u8]) -> Sha1Digest {
    let mut state = Sha1::new();
    state.update(data);
    state.finish()
}

/// SHA-1 of a message that comes in parts: a v1 piece may span many files.
#[derive(Clone, Debug, Default)]
pub struct Sha1(sha1::Sha1);

impl Sha1 {
    /// The state before the first byte.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Appends `data` to the message.
    pub fn update(&mut self, data: &[u8]) {
        use sha1::Digest as _;
        self.0.update(data);
    }

    /// The digest of all the bytes given so far.
    #[must_use]
    pub fn finish(self) -> Sha1Digest {
        use sha1::Digest as _;
        self.0.finalize().into()
    }
}
