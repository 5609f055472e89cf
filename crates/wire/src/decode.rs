//! Bytes to messages. The length prefix of each message is judged by its kind, its extended id or its
//! Tidecast kind before the rest is waited for, so a peer cannot make the caller buffer more than
//! [`Codec::max_buffer`].

use bytes::Bytes;

use crate::encode::{EXTENDED, id};
use crate::ext::{self, BLOCK_HEADER_LEN, Caps, MAX_CHUNK, Offer, Session};
use crate::metadata::MAX_HEAD;
use crate::reader::Reader;
use crate::{
    BlockHeader, BlockRange, Error, ExtHandshake, ExtIds, Extension, HashRange, Hashes, MAX_BITFIELD,
    MAX_HASHES, MAX_STOCK_REQUEST, MAX_UNKNOWN, METADATA_PIECE, Message, Metadata, Pex, Reserved,
    STOCK_BLOCK,
};

/// The longest extension handshake and the longest `ut_pex` message accepted: many times the usual size.
const MAX_DICT: u32 = 32 * 1024;
/// No tree of hashes is higher.
const MAX_LAYERS: u32 = 64;
/// The most hashes that a request of the peer may name; more than [`MAX_HASHES`] is its to ask and ours to
/// reject.
const MAX_ASKED: u32 = 8192;

/// The protocol state of one connection: the agreed extensions, and so the possible next bytes.
#[derive(Debug, Clone)]
pub struct Codec {
    agreed: Reserved,
    local: ExtIds,
    offer: Offer,
    peer: ExtIds,
    session: Option<Session>,
    pieces: Option<u32>,
}

/// The result of decoding the bytes so far.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decoded {
    /// Nothing yet: call again when at least this many bytes are there, counted from the start of the buffer.
    Need(usize),
    /// A frame, in the first `consumed` bytes.
    Frame {
        /// The frame.
        frame: Frame,
        /// Bytes to take off the buffer; the payload of a block begins after them.
        consumed: usize,
    },
}

/// A message, or the head of a block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Frame {
    /// A whole message.
    Message(Message),
    /// The header of a block; the next `len` bytes of the stream are its payload, and not for the codec.
    Block(BlockHeader),
}

/// The length that a message may have, in bytes after its id.
struct Limits {
    message: &'static str,
    min: u32,
    max: u32,
    rule: &'static str,
}

impl Codec {
    /// The state after the handshakes.
    ///
    /// `agreed` are the features that both reserved fields offer ([`Reserved::both`]), `local` the ids that
    /// our extension handshake announces, and `offer` its offer of the Tidecast extension (unless `local`
    /// leaves that out).
    #[must_use]
    pub fn new(agreed: Reserved, local: ExtIds, offer: Offer) -> Self {
        Self { agreed, local, offer, peer: ExtIds::default(), session: None, pieces: None }
    }

    /// Sets the number of pieces of the swarm of the handshake as soon as it is known. From then on a
    /// bitfield must have the right length, and core messages must name pieces that exist.
    pub fn set_pieces(&mut self, pieces: u32) {
        self.pieces = Some(pieces);
    }

    /// Our extension handshake as this codec expects it to be sent; the caller may add further fields.
    #[must_use]
    pub fn ext_handshake(&self) -> ExtHandshake {
        let tidecast = self.local.get(Extension::Tidecast).map(|_| self.offer);
        ExtHandshake { m: self.local.to_m(), tidecast, ..ExtHandshake::default() }
    }

    /// The ids under which the peer takes extension messages, for [`Message::encode`]; Tidecast's only in a
    /// session.
    #[must_use]
    pub fn peer_ids(&self) -> ExtIds {
        if self.session.is_some() { self.peer } else { self.peer.with(Extension::Tidecast, 0) }
    }

    /// The agreed session of the Tidecast extension; `None` with a stock peer, and before its extension
    /// handshake.
    #[must_use]
    pub fn session(&self) -> Option<Session> {
        self.session
    }

    /// The most bytes that [`Decoded::Need`] ever asks for in this state.
    #[must_use]
    pub fn max_buffer(&self) -> usize {
        let bitfield = self.pieces.map_or(MAX_BITFIELD, |n| n.div_ceil(8));
        // The longest messages apart from it: ManifestData behind prefix, id, extended id, kind and fields.
        5 + (bitfield as usize).max(MAX_CHUNK + 12)
    }

    /// Reads one frame from `buf`, the unread bytes of the stream after the handshake.
    ///
    /// # Errors
    /// When the peer broke the protocol. The connection is then useless.
    pub fn decode(&mut self, buf: &[u8]) -> Result<Decoded, Error> {
        let mut r = Reader::new("any", buf);
        let Ok(len) = r.u32() else { return Ok(Decoded::Need(4)) };
        if len == 0 {
            return Ok(message(Message::KeepAlive, 4));
        }
        let Ok(id) = r.u8() else { return Ok(Decoded::Need(5)) };
        match id {
            id::PIECE => self.piece(len, buf),
            EXTENDED if self.agreed.extensions() => self.extended(len, buf),
            _ => {
                let limits = self.limits(id)?;
                limits.check(len - 1)?;
                let Some(body) = body(buf, 5, len) else { return Ok(need(len)) };
                let known = self.core(limits.message, id, body)?;
                Ok(message(known.unwrap_or(Message::Unknown { id, len }), total(len)))
            }
        }
    }

    fn limits(&self, id: u8) -> Result<Limits, Error> {
        let of = |message, min, max, rule| Limits { message, min, max, rule };
        let limits = match id {
            id::CHOKE => of("choke", 0, 0, "BEP 3: 1 byte"),
            id::UNCHOKE => of("unchoke", 0, 0, "BEP 3: 1 byte"),
            id::INTERESTED => of("interested", 0, 0, "BEP 3: 1 byte"),
            id::NOT_INTERESTED => of("not interested", 0, 0, "BEP 3: 1 byte"),
            id::HAVE => of("have", 4, 4, "BEP 3: 5 bytes"),
            id::BITFIELD => match self.pieces.map(|n| n.div_ceil(8)) {
                Some(exact) => of("bitfield", exact, exact, "BEP 3: one bit a piece"),
                None => {
                    of("bitfield", 0, MAX_BITFIELD, "at most 512 KiB before the number of pieces is known")
                }
            },
            id::REQUEST => of("request", 12, 12, "BEP 3: 13 bytes"),
            id::CANCEL => of("cancel", 12, 12, "BEP 3: 13 bytes"),
            id::PORT => of("port", 2, 2, "BEP 5: 3 bytes"),
            id::SUGGEST => of("suggest", 4, 4, "BEP 6: 5 bytes"),
            id::HAVE_ALL => of("have all", 0, 0, "BEP 6: 1 byte"),
            id::HAVE_NONE => of("have none", 0, 0, "BEP 6: 1 byte"),
            id::REJECT => of("reject", 12, 12, "BEP 6: 13 bytes"),
            id::ALLOWED_FAST => of("allowed fast", 4, 4, "BEP 6: 5 bytes"),
            id::HASH_REQUEST => of("hash request", 48, 48, "BEP 52: 49 bytes"),
            id::HASHES => {
                of("hashes", 80, 48 + 32 * (MAX_HASHES + MAX_LAYERS), "BEP 52: 1 to 512 hashes and a proof")
            }
            id::HASH_REJECT => of("hash reject", 48, 48, "BEP 52: 49 bytes"),
            _ => of("unknown", 0, MAX_UNKNOWN, "at most 64 KiB are skipped"),
        };
        let fast = (id::SUGGEST..=id::ALLOWED_FAST).contains(&id);
        if fast && !self.agreed.fast() {
            let rule = "BEP 6: only if both sides set its reserved bit";
            return Err(Error::NotAgreed { message: limits.message, rule });
        }
        Ok(limits)
    }

    /// A core message; `None` if its id is unknown.
    fn core(&self, name: &'static str, id: u8, body: &[u8]) -> Result<Option<Message>, Error> {
        let mut r = Reader::new(name, body);
        let message = match id {
            id::CHOKE => Message::Choke,
            id::UNCHOKE => Message::Unchoke,
            id::INTERESTED => Message::Interested,
            id::NOT_INTERESTED => Message::NotInterested,
            id::HAVE => Message::Have(self.index(name, &mut r)?),
            id::BITFIELD => Message::Bitfield(self.bitfield(r.rest())?),
            id::REQUEST => Message::Request(self.range(name, &mut r)?),
            id::CANCEL => Message::Cancel(self.range(name, &mut r)?),
            id::PORT => Message::Port(r.u16()?),
            id::SUGGEST => Message::Suggest(self.index(name, &mut r)?),
            id::HAVE_ALL => Message::HaveAll,
            id::HAVE_NONE => Message::HaveNone,
            id::REJECT => Message::Reject(self.range(name, &mut r)?),
            id::ALLOWED_FAST => Message::AllowedFast(self.index(name, &mut r)?),
            id::HASH_REQUEST => Message::HashRequest(hash_range(name, &mut r)?),
            id::HASHES => Message::Hashes(hashes(name, &mut r)?),
            id::HASH_REJECT => Message::HashReject(hash_range(name, &mut r)?),
            _ => return Ok(None),
        };
        r.end()?;
        Ok(Some(message))
    }

    fn index(&self, message: &'static str, r: &mut Reader<'_>) -> Result<u32, Error> {
        let piece = r.u32()?;
        if self.pieces.is_some_and(|n| piece >= n) {
            let rule = "BEP 3: the index of a piece of the manifest";
            return Err(Error::Value { message, field: "piece", value: u64::from(piece), rule });
        }
        Ok(piece)
    }

    fn range(&self, message: &'static str, r: &mut Reader<'_>) -> Result<BlockRange, Error> {
        let (piece, begin, len) = (self.index(message, r)?, r.u32()?, r.u32()?);
        place(message, begin, len, MAX_STOCK_REQUEST)?;
        Ok(BlockRange { piece, begin, len })
    }

    fn bitfield(&self, bits: &[u8]) -> Result<Bytes, Error> {
        let used = self.pieces.map_or(0, |n| n % 8);
        let last = bits.last().copied().unwrap_or_default();
        if used != 0 && last & (0xff >> used) != 0 {
            let rule = "BEP 3: spare bits at the end are zero";
            return Err(Error::Value {
                message: "bitfield",
                field: "last byte",
                value: u64::from(last),
                rule,
            });
        }
        Ok(Bytes::copy_from_slice(bits))
    }

    /// The head of a core `piece` message.
    fn piece(&self, len: u32, buf: &[u8]) -> Result<Decoded, Error> {
        Limits { message: "piece", min: 9, max: 8 + STOCK_BLOCK, rule: "BEP 3: a block of 1 byte to 16 KiB" }
            .check(len - 1)?;
        let Some(head) = buf.get(5..BlockHeader::LEN) else { return Ok(Decoded::Need(BlockHeader::LEN)) };
        let mut r = Reader::new("piece", head);
        let (piece, begin, len) = (self.index("piece", &mut r)?, r.u32()?, len - 9);
        place("piece", begin, len, STOCK_BLOCK)?;
        let block = BlockHeader { channel: 0, piece, begin, len, pushed: false };
        Ok(Decoded::Frame { frame: Frame::Block(block), consumed: BlockHeader::LEN })
    }

    /// A message of BEP 10.
    fn extended(&mut self, len: u32, buf: &[u8]) -> Result<Decoded, Error> {
        let of = |message, min, max, rule| Limits { message, min, max, rule };
        of("extended", 1, u32::MAX, "BEP 10: it has an extended id").check(len - 1)?;
        let Some(&id) = buf.get(5) else { return Ok(Decoded::Need(6)) };
        let extension = if id == 0 { None } else { self.local.find(id) };
        let limits = match extension {
            None if id == 0 => {
                of("extension handshake", 2, MAX_DICT, "BEP 10: a dictionary, here of at most 32 KiB")
            }
            None => of("unknown extended", 0, MAX_UNKNOWN, "at most 64 KiB are skipped"),
            Some(Extension::Metadata) => {
                of("ut_metadata", 2, METADATA_PIECE + MAX_HEAD, "BEP 9: 16 KiB of data")
            }
            Some(Extension::Pex) => {
                of("ut_pex", 2, MAX_DICT, "BEP 11: some 50 addresses, here at most 32 KiB")
            }
            Some(Extension::DontHave) => of("lt_donthave", 4, 4, "BEP 54: 6 bytes"),
            Some(Extension::Tidecast) => return self.tidecast(len, buf),
        };
        limits.check(len - 2)?;
        let Some(body) = body(buf, 6, len) else { return Ok(need(len)) };
        let known = match extension {
            None if id == 0 => Some(self.ext_handshake_from(body)?),
            None => None,
            Some(Extension::Metadata) => Metadata::decode(body)?.map(Message::Metadata),
            Some(Extension::Pex) => Some(Message::Pex(Pex::decode(body)?)),
            _ => Some(Message::DontHave(self.index(limits.message, &mut Reader::new(limits.message, body))?)),
        };
        Ok(message(known.unwrap_or(Message::Unknown { id, len }), total(len)))
    }

    /// The ids are changed by every extension handshake; of offers the first counts.
    fn ext_handshake_from(&mut self, body: &[u8]) -> Result<Message, Error> {
        let shake = ExtHandshake::decode(body)?;
        self.peer = self.peer.changed_by(&shake.m);
        let both = self.local.get(Extension::Tidecast).and(self.peer.get(Extension::Tidecast));
        if let (None, Some(_), Some(theirs)) = (self.session, both, &shake.tidecast) {
            self.session = self.offer.agree(theirs);
        }
        Ok(Message::ExtHandshake(Box::new(shake)))
    }

    /// A message of the Tidecast extension.
    fn tidecast(&self, len: u32, buf: &[u8]) -> Result<Decoded, Error> {
        let Some(session) = self.session else {
            let rule = "Tidecast extension: after both offers, and with a common version";
            return Err(Error::NotAgreed { message: "tidecast", rule });
        };
        let of = |message, min, max, rule| Limits { message, min, max, rule };
        of("tidecast", 2, u32::MAX, "Tidecast extension: it has a kind").check(len - 1)?;
        let Some(&kind) = buf.get(6) else { return Ok(Decoded::Need(7)) };
        if kind == ext::kind::BLOCK {
            return self.block(session, len, buf);
        }
        let (name, min, max) = ext::limits(kind).unwrap_or(("unknown tidecast", 0, MAX_UNKNOWN as usize));
        of(name, min as u32, max as u32, "Tidecast extension: the bounds of its kind").check(len - 3)?;
        let needed = match kind {
            ext::kind::OFFER | ext::kind::WISH => Caps::PLAN,
            ext::kind::ROOTS | ext::kind::SEAL => Caps::ROOTS,
            ext::kind::GATHER => Caps::GATHER,
            _ => Caps::default(),
        };
        if !self.offer.caps.has(needed) {
            let rule = "Tidecast extension: only to a peer that offered to accept them";
            return Err(Error::NotAgreed { message: name, rule });
        }
        let Some(body) = body(buf, 7, len) else { return Ok(need(len)) };
        let known = ext::decode(kind, body)?.map(Message::Tidecast);
        Ok(message(known.unwrap_or(Message::Unknown { id: kind, len }), total(len)))
    }

    /// The head of a Tidecast block.
    fn block(&self, session: Session, len: u32, buf: &[u8]) -> Result<Decoded, Error> {
        const HEAD: u32 = BLOCK_HEADER_LEN as u32 - 4;
        let rule = "Tidecast extension: a block of at least 1 byte and at most the agreed length";
        Limits { message: "Block", min: HEAD + 1, max: HEAD.saturating_add(session.max_block), rule }
            .check(len)?;
        let Some(head) = buf.get(7..BLOCK_HEADER_LEN) else { return Ok(Decoded::Need(BLOCK_HEADER_LEN)) };
        let mut r = Reader::new("Block", head);
        let (channel, flags, piece, begin) = (r.u16()?, r.u8()?, r.u32()?, r.u32()?);
        let block = BlockHeader { channel, piece, begin, len: len - HEAD, pushed: flags & 1 != 0 };
        place("Block", begin, block.len, session.max_block)?;
        if block.pushed && !self.offer.caps.has(Caps::PUSH) {
            let rule = "Tidecast extension: only to a peer that offered to accept pushes";
            return Err(Error::NotAgreed { message: "pushed Block", rule });
        }
        Ok(Decoded::Frame { frame: Frame::Block(block), consumed: BLOCK_HEADER_LEN })
    }
}

impl Limits {
    fn check(&self, len: u32) -> Result<(), Error> {
        if (self.min..=self.max).contains(&len) {
            return Ok(());
        }
        Err(Error::Length { message: self.message, len: u64::from(len), rule: self.rule })
    }
}

fn total(len: u32) -> usize {
    4 + len as usize
}

fn need(len: u32) -> Decoded {
    Decoded::Need(total(len))
}

fn body(buf: &[u8], from: usize, len: u32) -> Option<&[u8]> {
    buf.get(from..total(len))
}

fn message(message: Message, consumed: usize) -> Decoded {
    Decoded::Frame { frame: Frame::Message(message), consumed }
}

/// A block lies within 32-bit offsets and has 1 to `max` bytes.
fn place(message: &'static str, begin: u32, len: u32, max: u32) -> Result<(), Error> {
    if len == 0 || len > max {
        let rule = "BEP 3: not empty, and no longer than is usual";
        return Err(Error::Value { message, field: "length", value: u64::from(len), rule });
    }
    if begin.checked_add(len).is_none() {
        let rule = "BEP 3: an offset within the piece";
        return Err(Error::Value { message, field: "begin", value: u64::from(begin), rule });
    }
    Ok(())
}

fn hash_range(message: &'static str, r: &mut Reader<'_>) -> Result<HashRange, Error> {
    let pieces_root = r.array()?;
    let (base_layer, index, length, proof_layers) = (r.u32()?, r.u32()?, r.u32()?, r.u32()?);
    let bad = |field, value: u32, rule| Err(Error::Value { message, field, value: u64::from(value), rule });
    if length == 0 || length > MAX_ASKED {
        return bad("length", length, "BEP 52: at least 2, should be at most 512; here at most 8192");
    }
    if length.is_power_of_two() && index % length != 0 {
        return bad("index", index, "BEP 52: a multiple of length");
    }
    if base_layer > MAX_LAYERS || proof_layers > MAX_LAYERS {
        return bad("layer", base_layer.max(proof_layers), "BEP 52: a layer of the tree");
    }
    Ok(HashRange { pieces_root, base_layer, index, length, proof_layers })
}

fn hashes(message: &'static str, r: &mut Reader<'_>) -> Result<Hashes, Error> {
    let range = hash_range(message, r)?;
    let hashes = r.digests()?;
    if hashes.len() > (range.length + range.proof_layers) as usize {
        let rule = "BEP 52: length hashes and at most one of each proof layer";
        return Err(Error::Value { message, field: "hashes", value: hashes.len() as u64, rule });
    }
    Ok(Hashes { range, hashes })
}
