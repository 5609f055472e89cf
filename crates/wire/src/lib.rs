//! The BitTorrent peer protocol and Tidecast's extension of it, as a codec: bytes in, messages out, and back.
//!
//! It does no I/O and holds no payload: of a block it reads and writes the header only, and the driver moves
//! the bytes between socket and its own buffers. The memory that a hostile peer can make us buffer is bounded
//! by [`Codec::max_buffer`], because every length prefix is checked against its kind of message before the
//! rest is awaited. Decoding never panics; an [`Error`] names the rule that was broken, and means: close the
//! connection.
//!
//! Supported: BEP 3 and 4 (core messages), 5 (`port`), 6 (fast), 9 (metadata), 10 (extensions), 11 (peer
//! exchange), 21 (upload only), 52 (hashes of v2), 54 (don't have). BEP 16 (super-seeding) needs no message
//! of its own: such a seeder sends `bitfield` or `have none`, then single `have`s (or `suggest`). The
//! Tidecast extension is the module [`ext`]; `docs/wire-extension.md` specifies it.
//!
//! ```
//! use tidecast_wire::{Codec, Decoded, ExtIds, Frame, Message, Reserved, ext::Offer};
//! let mut codec = Codec::new(Reserved::ours(true), ExtIds::LOCAL, Offer::default());
//! let mut out = bytes::BytesMut::new();
//! Message::Have(7).encode(ExtIds::LOCAL, &mut out)?;
//! assert_eq!(codec.decode(&out)?, Decoded::Frame { frame: Frame::Message(Message::Have(7)), consumed: 9 });
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod bencode;
mod decode;
mod encode;
mod error;
pub mod ext;
mod extensions;
mod handshake;
mod message;
mod metadata;
mod pex;
mod reader;

pub use decode::{Codec, Decoded, Frame};
pub use error::{EncodeError, Error};
pub use extensions::{ExtHandshake, ExtIds, Extension};
pub use handshake::{Handshake, Reserved};
pub use message::{BlockHeader, BlockRange, HashRange, Hashes, Message};
pub use metadata::{METADATA_PIECE, Metadata};
pub use pex::{MAX_PEX, Pex, PexPeer};

/// The block of stock clients: the size of requests to them, and the most that a `piece` message of theirs
/// may carry.
pub const STOCK_BLOCK: u32 = 16 * 1024;
/// The longest core `request` taken; BEP 3 lets a client close the connection above 16 KiB, old ones sent 128
/// KiB.
pub const MAX_STOCK_REQUEST: u32 = 128 * 1024;
/// The longest bitfield taken while the number of pieces is unknown: 4,194,304 pieces.
pub const MAX_BITFIELD: u32 = 512 * 1024;
/// The longest message of an unknown kind that is skipped.
pub const MAX_UNKNOWN: u32 = 64 * 1024;
/// The most hashes in one `hash request` of ours (BEP 52: should not be more than 512).
pub const MAX_HASHES: u32 = 512;
