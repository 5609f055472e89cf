//! The Tidecast extension (BEP 10 name `tidecast`): features that a cluster needs and the peer protocol
//! lacks. Large blocks, ranges of pieces in one request, availability as a watermark with exceptions, leaf
//! hashes ahead of data, pushed blocks, whole manifests, several swarms on one connection, enrolment.
//! `docs/wire-extension.md` specifies it; this module has its messages, their bounds, and the offer that the
//! two sides compare.

mod availability;
mod decode;
mod encode;
mod offer;

use std::net::SocketAddr;
use std::ops::Range;

use bytes::Bytes;

pub use availability::{Availability, AvailabilityBits, Mode, describe};
pub(crate) use decode::{decode, limits};
pub use encode::{BLOCK_HEADER_LEN, block_header};
pub(crate) use encode::{encode, kind};
pub use offer::{Caps, Offer, Session};

/// The longest block, in bytes.
pub const MAX_BLOCK: u32 = 1024 * 1024;
/// The most pieces in one request.
pub const MAX_PIECES: u32 = 4096;
/// The most exception ranges in one availability message.
pub const MAX_RANGES: usize = 4096;
/// The most bytes of availability bits in one message: 524,288 pieces.
pub const MAX_BITS: usize = 64 * 1024;
/// The most leaf hashes in one message: 32 MiB of data.
pub const MAX_LEAVES: usize = 2048;
/// The most fingerprints of leaves in one message: 64 MiB of data.
pub const MAX_FINGERPRINTS: usize = 4096;
/// Bytes of a fingerprint.
pub const FINGERPRINT: usize = 16;
/// The most roots of pieces in one message.
pub const MAX_ROOTS: usize = 1024;
/// The most bytes of manifest in one message.
pub const MAX_CHUNK: usize = 256 * 1024;
/// The most bytes of a manifest.
pub const MAX_MANIFEST: u32 = 512 * 1024 * 1024;
/// The most bytes of a request to enrol or of a credential.
pub const MAX_CREDENTIAL: usize = 4096;
/// The most bytes of a signed revocation list.
pub const MAX_REVOKED: usize = 160 * 1024;
/// The most bytes of a text for people.
pub const MAX_TEXT: usize = 512;
/// The most bytes of a message about a group's plan.
pub const MAX_GATHER: usize = 64 * 1024;
/// The most stripes of a plan.
pub const MAX_STRIPES: u16 = 64;
/// The most addresses in one message.
pub const MAX_PEERS: usize = 128;

/// A message of the extension, blocks excepted (see [`crate::BlockHeader`]). Every one names its channel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Message {
    /// Send me this block, at most [`Session::max_block`] bytes.
    RequestBlock(BlockRange),
    /// Send me all blocks of these pieces, lowest first.
    RequestPieces(PieceRange),
    /// Cancels requests within these bytes; they may be a whole piece.
    CancelBlock(BlockRange),
    /// Cancels the rest of these pieces.
    CancelPieces(PieceRange),
    /// The answer to requests within these bytes, in place of their blocks; they may be a whole piece.
    RejectBlock(BlockRange),
    /// The answer to a request of pieces, in place of all blocks of them that were not sent.
    RejectPieces(PieceRange),
    /// Which pieces the sender has, as ranges.
    Availability(Availability),
    /// Which pieces the sender has, as bits.
    AvailabilityBits(AvailabilityBits),
    /// Leaf hashes of a piece, ahead of its data.
    Leaves {
        /// The swarm.
        channel: u16,
        /// The piece.
        piece: u32,
        /// Index of the first hash within the piece.
        first: u32,
        /// SHA-256 of 16 KiB each, at most [`MAX_LEAVES`].
        hashes: Vec<[u8; 32]>,
    },
    /// Send me leaf hashes.
    LeavesRequest(LeafRange),
    /// They will not be sent.
    LeavesReject(LeafRange),
    /// Requests the fingerprints of the leaves of these pieces.
    FingerprintsRequest(PieceRange),
    /// Fingerprints of leaves, of whole pieces.
    Fingerprints {
        /// The swarm.
        channel: u16,
        /// The first piece.
        first: u32,
        /// [`FINGERPRINT`] bytes a leaf, at most [`MAX_FINGERPRINTS`] leaves.
        bytes: Bytes,
    },
    /// They will not be sent.
    FingerprintsReject(PieceRange),
    /// Roots of pieces of a draft: data that is sent while it is being hashed.
    Roots {
        /// The swarm.
        channel: u16,
        /// The place of this message among those that the swarm's owner signs for the draft, from 0.
        number: u32,
        /// The first piece; the others follow it.
        first: u32,
        /// The owner's Ed25519 signature.
        signature: [u8; 64],
        /// One a piece, 1 to [`MAX_ROOTS`].
        roots: Vec<[u8; 32]>,
    },
    /// All of a draft is hashed.
    Seal {
        /// The swarm.
        channel: u16,
        /// Its place among the owner's messages, the last.
        number: u32,
        /// The owner's Ed25519 signature.
        signature: [u8; 64],
        /// The v2 info-hash of the manifest that the draft has become.
        info_hash: [u8; 32],
    },
    /// Send me this part of the manifest.
    ManifestRequest(ManifestRange),
    /// A part of the manifest, which is a whole metainfo file with its piece layers.
    ManifestData {
        /// The swarm.
        channel: u16,
        /// Offset of the part.
        offset: u32,
        /// Bytes of the whole.
        total: u32,
        /// The part, at most [`MAX_CHUNK`] bytes.
        bytes: Bytes,
    },
    /// It will not be sent.
    ManifestReject(ManifestRange),
    /// Open a channel for a further swarm.
    Attach {
        /// Its number: odd if the sender opened the connection, else even and not 0.
        channel: u16,
        /// The v2 info hash; of a v1 manifest its hash and twelve zero bytes.
        swarm: [u8; 32],
    },
    /// The channel is open.
    AttachOk {
        /// Its number.
        channel: u16,
    },
    /// The channel is closed, or was not opened.
    Detach {
        /// Its number.
        channel: u16,
        /// Why.
        reason: Reason,
    },
    /// Let my key into the swarm.
    Enrol {
        /// The swarm.
        channel: u16,
        /// The proof that the sender holds a ticket.
        request: Bytes,
    },
    /// Your, or my, right to be in the swarm.
    Credential {
        /// The swarm.
        channel: u16,
        /// Signed by the swarm's authority.
        credential: Bytes,
    },
    /// No.
    Denied {
        /// The swarm.
        channel: u16,
        /// Why.
        reason: Reason,
        /// Why, for people.
        text: String,
    },
    /// Members that are no longer in the swarm.
    Revoked {
        /// The swarm.
        channel: u16,
        /// Signed by the swarm's authority.
        list: Bytes,
    },
    /// Neighbours that can be connected to.
    Peers {
        /// The swarm.
        channel: u16,
        /// Their listening addresses, at most [`MAX_PEERS`].
        addrs: Vec<SocketAddr>,
    },
    /// All blocks of this piece follow, as if you had requested it: the plan has it so.
    Offer {
        /// The swarm.
        channel: u16,
        /// The stripe that the piece belongs to, below [`MAX_STRIPES`].
        stripe: u16,
        /// The piece.
        piece: u32,
    },
    /// Offer me pieces below this one only: of the others I may turn out to have some.
    OfferBelow {
        /// The swarm.
        channel: u16,
        /// The first piece that is not to be offered.
        below: u32,
    },
    /// A wish for these pieces by the plan, which is on demand: I lack them, and I or a member below me wants
    /// them.
    Wish {
        /// The stripe whose tree it goes up, below [`MAX_STRIPES`].
        stripe: u16,
        /// A reader waits for them.
        urgent: bool,
        /// The pieces.
        pieces: PieceRange,
    },
    /// Between a member of a group and its planner: joins, parts, complaints.
    Gather {
        /// The swarm.
        channel: u16,
        /// The message, 1 to [`MAX_GATHER`] bytes.
        bytes: Bytes,
    },
    /// You may push this many bytes more.
    Credit {
        /// The swarm.
        channel: u16,
        /// Payload bytes, added to the rest.
        bytes: u32,
    },
    /// The sender closes the connection after this.
    Goodbye {
        /// Why.
        reason: Reason,
        /// Why, for people.
        text: String,
    },
}

/// A block of a piece.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct BlockRange {
    /// The swarm.
    pub channel: u16,
    /// Index of the piece.
    pub piece: u32,
    /// Offset in the piece, in bytes.
    pub begin: u32,
    /// Length in bytes, never 0; in a request at most [`MAX_BLOCK`].
    pub len: u32,
}

/// A run of pieces.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct PieceRange {
    /// The swarm.
    pub channel: u16,
    /// Index of the first piece.
    pub first: u32,
    /// Number of pieces, 1 to [`MAX_PIECES`].
    pub count: u32,
}

impl PieceRange {
    /// The pieces.
    #[must_use]
    pub fn pieces(&self) -> Range<u32> {
        self.first..self.first.saturating_add(self.count)
    }
}

/// A run of leaf hashes of a piece.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct LeafRange {
    /// The swarm.
    pub channel: u16,
    /// The piece.
    pub piece: u32,
    /// Index of the first hash within the piece.
    pub first: u32,
    /// Number of hashes, 1 to [`MAX_LEAVES`].
    pub count: u32,
}

/// A part of a manifest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ManifestRange {
    /// The swarm.
    pub channel: u16,
    /// Offset of the part, in bytes.
    pub offset: u32,
    /// Length, 1 to [`MAX_CHUNK`]; where the manifest ends earlier, so does the answer.
    pub len: u32,
}

/// Why something ends or is not done. Numbers unknown here are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Reason(pub u16);

impl Reason {
    /// Nothing is wrong: no longer needed, done.
    pub const DONE: Self = Self(0);
    /// The swarm is not served here.
    pub const UNKNOWN_SWARM: Self = Self(1);
    /// No, or no valid, token or credential.
    pub const UNAUTHORISED: Self = Self(2);
    /// The right was withdrawn.
    pub const REVOKED: Self = Self(3);
    /// The right has expired.
    pub const EXPIRED: Self = Self(4);
    /// Too many channels, peers or requests; later perhaps.
    pub const BUSY: Self = Self(5);
    /// The receiver broke the protocol, or sent wrong bytes.
    pub const MISBEHAVED: Self = Self(6);
    /// The sender is shutting down.
    pub const SHUTDOWN: Self = Self(7);
    /// The sender's disk, memory or data fails.
    pub const FAILED: Self = Self(8);
}
