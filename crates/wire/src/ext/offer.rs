//! The offer that each side makes in its extension handshake, and the session that results. Both sides
//! compute the same session from the same two offers, so nothing needs to be confirmed; without an offer they
//! are stock peers.

use tidecast_metainfo::bencode::{Value, Writer};

use super::MAX_BLOCK;
use crate::STOCK_BLOCK;
use crate::bencode::int;

/// The capabilities of a node, as a set of bits. Unknown bits are kept and mean nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Caps(pub u32);

impl Caps {
    /// Takes pushed blocks, against the credit it gives.
    pub const PUSH: Self = Self(1);
    /// Wants leaf hashes ahead of the data of each piece.
    pub const LEAVES: Self = Self(2);
    /// Answers `ManifestRequest`.
    pub const MANIFEST: Self = Self(4);
    /// Answers `Enrol`: it is the authority of its swarms.
    pub const AUTHORITY: Self = Self(8);
    /// Takes `Attach`.
    pub const CHANNELS: Self = Self(16);
    /// Takes `Offer`: pieces that come as a plan has it.
    pub const PLAN: Self = Self(32);
    /// Takes `Roots` and `Seal`: its manifest is a draft.
    pub const ROOTS: Self = Self(64);
    /// Supports `Gather`: it makes a plan for members that join, or joins one.
    pub const GATHER: Self = Self(128);
    /// Answers `FingerprintsRequest`.
    pub const FINGERPRINTS: Self = Self(256);
    /// Reads keys and peer ids within `Gather` as strings of hexadecimal digits, too.
    pub const GATHER_HEX: Self = Self(512);

    /// Whether all bits of `other` are here.
    #[must_use]
    pub fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// The bits of both.
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// One side's offer, the dictionary `tidecast` of the extension handshake.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Offer {
    /// Lowest version spoken.
    pub min_version: u32,
    /// Highest version spoken.
    pub max_version: u32,
    /// The longest block sent or taken, a power of two from 16 KiB to [`MAX_BLOCK`].
    pub block: u32,
    /// The capabilities of this node.
    pub caps: Caps,
}

/// The agreed session of two sides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Session {
    /// The version: the highest that both speak.
    pub version: u32,
    /// The longest block, in bytes: the smaller offer. `RequestPieces` is answered in blocks of this size.
    pub max_block: u32,
    /// The capabilities of the peer.
    pub peer: Caps,
}

impl Default for Offer {
    fn default() -> Self {
        let all = [Caps::PUSH, Caps::LEAVES, Caps::MANIFEST, Caps::CHANNELS, Caps::PLAN];
        let caps = all.into_iter().fold(Caps(0), Caps::with);
        Self { min_version: 1, max_version: 1, block: 256 * 1024, caps }
    }
}

impl Offer {
    /// The session of this node and a peer, or `None`: no common version, so both go on as stock peers.
    #[must_use]
    pub fn agree(&self, peer: &Self) -> Option<Session> {
        let version = self.max_version.min(peer.max_version);
        let spoken = version >= self.min_version.max(peer.min_version);
        spoken.then_some(Session { version, max_block: self.block.min(peer.block), peer: peer.caps })
    }

    /// `None` when a value is missing or makes no sense: the peer is then taken as a stock client.
    pub(crate) fn decode(dict: &Value<'_>) -> Option<Self> {
        let offer = Self {
            min_version: int(dict, "min")?,
            max_version: int(dict, "max")?,
            block: int(dict, "block")?,
            caps: Caps(int(dict, "caps").unwrap_or_default()),
        };
        let sane = offer.min_version >= 1
            && offer.min_version <= offer.max_version
            && offer.block.is_power_of_two()
            && (STOCK_BLOCK..=MAX_BLOCK).contains(&offer.block);
        sane.then_some(offer)
    }

    pub(crate) fn write(&self, w: &mut Writer) {
        w.dict(|d| {
            d.key(b"block").int(self.block.into());
            d.key(b"caps").int(self.caps.0.into());
            d.key(b"max").int(self.max_version.into());
            d.key(b"min").int(self.min_version.into());
        });
    }
}
