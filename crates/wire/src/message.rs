//! The messages after the handshake.

use bytes::Bytes;

use crate::{ExtHandshake, Metadata, Pex, ext};

/// One message; payload of blocks excepted, which is a [`BlockHeader`] and bytes outside of the codec.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Message {
    /// Nothing, so that the connection is not closed as idle (BEP 3: every two minutes).
    KeepAlive,
    /// BEP 3: no core requests will be answered.
    Choke,
    /// BEP 3: they will.
    Unchoke,
    /// BEP 3: you have pieces that I want.
    Interested,
    /// BEP 3: I am not interested in your pieces.
    NotInterested,
    /// BEP 3: I have this piece.
    Have(u32),
    /// BEP 3: the pieces that I have, high bit of the first byte first; only as the first message (the driver
    /// checks).
    Bitfield(Bytes),
    /// BEP 3: send me this block.
    Request(BlockRange),
    /// BEP 3: no longer.
    Cancel(BlockRange),
    /// BEP 5: the UDP port of my DHT node.
    Port(u16),
    /// BEP 6: suggests this piece; also sent by a super-seeder (BEP 16).
    Suggest(u32),
    /// BEP 6: I have all pieces; in place of the bitfield.
    HaveAll,
    /// BEP 6: I have none; in place of the bitfield.
    HaveNone,
    /// BEP 6: this request will not be answered with its block.
    Reject(BlockRange),
    /// BEP 6: you may request this piece while choked.
    AllowedFast(u32),
    /// BEP 52: send me hashes of a file's tree.
    HashRequest(HashRange),
    /// BEP 52: the hashes asked for.
    Hashes(Hashes),
    /// BEP 52: they will not be sent.
    HashReject(HashRange),
    /// BEP 10: my extensions.
    ExtHandshake(Box<ExtHandshake>),
    /// BEP 9: the info dictionary in pieces.
    Metadata(Metadata),
    /// BEP 11: peers that I have met.
    Pex(Pex),
    /// BEP 54: I no longer have this piece.
    DontHave(u32),
    /// Tidecast's extension.
    Tidecast(ext::Message),
    /// Of a kind not known here; its bytes are skipped.
    Unknown {
        /// Message id, or of an extension message its extended id.
        id: u8,
        /// Bytes after the length prefix.
        len: u32,
    },
}

/// A block of a piece, in the core messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct BlockRange {
    /// Index of the piece.
    pub piece: u32,
    /// Offset in the piece, in bytes.
    pub begin: u32,
    /// Length in bytes, never 0.
    pub len: u32,
}

/// The header before the payload of a block: `len` bytes follow on the wire, which the driver moves itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct BlockHeader {
    /// The swarm: 0 is that of the handshake, and the only one of a stock client.
    pub channel: u16,
    /// Index of the piece.
    pub piece: u32,
    /// Offset in the piece, in bytes.
    pub begin: u32,
    /// Payload bytes that follow, never 0.
    pub len: u32,
    /// Sent unrequested, against credit (Tidecast only).
    pub pushed: bool,
}

/// A range of hashes of a file's Merkle tree with the proof of it (BEP 52).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct HashRange {
    /// Root of the file's tree.
    pub pieces_root: [u8; 32],
    /// Layer of the hashes: 0 is the leaves.
    pub base_layer: u32,
    /// First hash, a multiple of `length`.
    pub index: u32,
    /// Number of hashes of the base layer, a power of two of at least 2 unless the layer ends.
    pub length: u32,
    /// Layers above the base layer from which an uncle hash is wanted, those that `length` already spans
    /// included.
    pub proof_layers: u32,
}

/// The answer to a `hash request` (BEP 52).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hashes {
    /// The request.
    pub range: HashRange,
    /// The hashes of the base layer, then the uncles from the lowest up.
    pub hashes: Vec<[u8; 32]>,
}
