//! Which rule a peer broke.

/// The opening cannot go on: close the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// 0, 1, -1, or not below the prime: the secret would be known to any observer.
    #[error("degenerate Diffie-Hellman key")]
    Key,
    /// Neither the plain handshake nor an encrypted one.
    #[error("the first bytes are neither a BitTorrent handshake nor an encrypted one")]
    NoSync,
    /// The info-hash is unknown here.
    #[error("the encrypted handshake is for a swarm that is not served here")]
    UnknownSwarm,
    /// The cipher streams differ.
    #[error("wrong verification constant in the encrypted handshake")]
    Verification,
    /// A pad beyond [`MAX_PAD`](crate::MAX_PAD).
    #[error("a pad of {0} bytes in the encrypted handshake, more than 512")]
    Pad(u16),
    /// A first payload beyond [`MAX_FIRST`](crate::MAX_FIRST).
    #[error("a first payload of {0} bytes in the encrypted handshake, more than 4096")]
    First(u16),
    /// No method that both know was offered, or another one was selected than offered.
    #[error("no common method in the encrypted handshake: {0:#x}")]
    Method(u32),
}
