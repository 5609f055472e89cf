//! Bytes to messages of the extension. The length of a message is judged by its kind before the rest of it is
//! waited for ([`limits`]), and each field by its bound.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use bytes::Bytes;

use super::{
    Availability, AvailabilityBits, BlockRange, LeafRange, ManifestRange, Message, Mode, PieceRange, Reason,
};
use super::{FINGERPRINT, MAX_FINGERPRINTS};
use super::{
    MAX_BITS, MAX_BLOCK, MAX_CHUNK, MAX_GATHER, MAX_LEAVES, MAX_MANIFEST, MAX_PEERS, MAX_PIECES, MAX_RANGES,
};
use super::{MAX_CREDENTIAL, MAX_REVOKED, MAX_ROOTS, MAX_STRIPES, MAX_TEXT, kind};
use crate::Error;
use crate::pex::connectable;
use crate::reader::Reader;

const RULE: &str = "Tidecast extension";

/// The name of a kind, and the shortest and longest it may be, in bytes after the kind. `None` if it is not
/// known. Blocks are not here: the codec treats them apart.
pub(crate) fn limits(kind: u8) -> Option<(&'static str, usize, usize)> {
    Some(match kind {
        kind::REQUEST_BLOCK => ("RequestBlock", 14, 14),
        kind::REQUEST_PIECES => ("RequestPieces", 10, 10),
        kind::CANCEL_BLOCK => ("CancelBlock", 14, 14),
        kind::CANCEL_PIECES => ("CancelPieces", 10, 10),
        kind::REJECT_BLOCK => ("RejectBlock", 14, 14),
        kind::REJECT_PIECES => ("RejectPieces", 10, 10),
        kind::AVAILABILITY => ("Availability", 7, 7 + 8 * MAX_RANGES),
        kind::AVAILABILITY_BITS => ("AvailabilityBits", 8, 7 + MAX_BITS),
        kind::CREDIT => ("Credit", 6, 6),
        kind::OFFER => ("Offer", 8, 8),
        kind::OFFER_BELOW => ("OfferBelow", 6, 6),
        kind::WISH => ("Wish", 13, 13),
        kind::GATHER => ("Gather", 3, 2 + MAX_GATHER),
        kind::LEAVES => ("Leaves", 42, 10 + 32 * MAX_LEAVES),
        kind::LEAVES_REQUEST => ("LeavesRequest", 14, 14),
        kind::LEAVES_REJECT => ("LeavesReject", 14, 14),
        kind::FINGERPRINTS_REQUEST => ("FingerprintsRequest", 10, 10),
        kind::FINGERPRINTS => ("Fingerprints", 6 + FINGERPRINT, 6 + FINGERPRINT * MAX_FINGERPRINTS),
        kind::FINGERPRINTS_REJECT => ("FingerprintsReject", 10, 10),
        kind::ROOTS => ("Roots", 74 + 32, 74 + 32 * MAX_ROOTS),
        kind::SEAL => ("Seal", 102, 102),
        kind::MANIFEST_REQUEST => ("ManifestRequest", 10, 10),
        kind::MANIFEST_DATA => ("ManifestData", 11, 10 + MAX_CHUNK),
        kind::MANIFEST_REJECT => ("ManifestReject", 10, 10),
        kind::ATTACH => ("Attach", 34, 34),
        kind::ATTACH_OK => ("AttachOk", 2, 2),
        kind::DETACH => ("Detach", 4, 4),
        kind::ENROL => ("Enrol", 2, 2 + MAX_CREDENTIAL),
        kind::CREDENTIAL => ("Credential", 2, 2 + MAX_CREDENTIAL),
        kind::DENIED => ("Denied", 4, 4 + MAX_TEXT),
        kind::REVOKED => ("Revoked", 2, 2 + MAX_REVOKED),
        kind::PEERS => ("Peers", 2, 2 + 19 * MAX_PEERS),
        kind::GOODBYE => ("Goodbye", 4, 4 + MAX_TEXT),
        _ => return None,
    })
}

/// The message of a known kind; `None` for the kinds without [`limits`].
pub(crate) fn decode(kind: u8, body: &[u8]) -> Result<Option<Message>, Error> {
    let Some((name, ..)) = limits(kind) else { return Ok(None) };
    let mut r = Reader::new(name, body);
    let channel = r.u16()?;
    let message = match kind {
        kind::REQUEST_BLOCK => Message::RequestBlock(block(name, MAX_BLOCK, channel, &mut r)?),
        kind::REQUEST_PIECES => Message::RequestPieces(pieces(name, channel, &mut r)?),
        kind::CANCEL_BLOCK => Message::CancelBlock(block(name, u32::MAX, channel, &mut r)?),
        kind::CANCEL_PIECES => Message::CancelPieces(pieces(name, channel, &mut r)?),
        kind::REJECT_BLOCK => Message::RejectBlock(block(name, u32::MAX, channel, &mut r)?),
        kind::REJECT_PIECES => Message::RejectPieces(pieces(name, channel, &mut r)?),
        kind::AVAILABILITY => Message::Availability(availability(name, channel, &mut r)?),
        kind::AVAILABILITY_BITS => Message::AvailabilityBits(bits(name, channel, &mut r)?),
        kind::CREDIT => Message::Credit { channel, bytes: r.u32()? },
        kind::OFFER => offer(name, channel, &mut r)?,
        kind::OFFER_BELOW => Message::OfferBelow { channel, below: r.u32()? },
        kind::WISH => wish(name, channel, &mut r)?,
        kind::GATHER => Message::Gather { channel, bytes: Bytes::copy_from_slice(r.rest()) },
        kind::LEAVES => Message::Leaves { channel, piece: r.u32()?, first: r.u32()?, hashes: r.digests()? },
        kind::LEAVES_REQUEST => Message::LeavesRequest(leaves(name, channel, &mut r)?),
        kind::LEAVES_REJECT => Message::LeavesReject(leaves(name, channel, &mut r)?),
        kind::FINGERPRINTS_REQUEST => Message::FingerprintsRequest(pieces(name, channel, &mut r)?),
        kind::FINGERPRINTS_REJECT => Message::FingerprintsReject(pieces(name, channel, &mut r)?),
        kind::FINGERPRINTS => fingerprints(name, channel, &mut r)?,
        kind::ROOTS => roots(name, channel, &mut r)?,
        kind::SEAL => {
            let (number, signature) = (r.u32()?, r.array()?);
            Message::Seal { channel, number, signature, info_hash: r.array()? }
        }
        kind::MANIFEST_REQUEST => Message::ManifestRequest(manifest(name, channel, &mut r)?),
        kind::MANIFEST_DATA => manifest_data(name, channel, &mut r)?,
        kind::MANIFEST_REJECT => Message::ManifestReject(manifest(name, channel, &mut r)?),
        kind::ATTACH => Message::Attach { channel: attachable(name, channel)?, swarm: r.array()? },
        kind::ATTACH_OK => Message::AttachOk { channel: attachable(name, channel)? },
        kind::DETACH => Message::Detach { channel, reason: Reason(r.u16()?) },
        kind::ENROL => Message::Enrol { channel, request: opaque(&mut r) },
        kind::CREDENTIAL => Message::Credential { channel, credential: opaque(&mut r) },
        kind::DENIED => Message::Denied { channel, reason: Reason(r.u16()?), text: text(&mut r) },
        kind::REVOKED => Message::Revoked { channel, list: opaque(&mut r) },
        kind::PEERS => Message::Peers { channel, addrs: peers(name, &mut r)? },
        kind::GOODBYE => Message::Goodbye { reason: Reason(r.u16()?), text: text(&mut r) },
        _ => return Ok(None),
    };
    r.end()?;
    Ok(Some(message))
}

/// `value` if it lies in `1..=max`.
fn count(message: &'static str, field: &'static str, value: u32, max: u32) -> Result<u32, Error> {
    let ok = (1..=max).contains(&value);
    if ok { Ok(value) } else { Err(Error::Value { message, field, value: u64::from(value), rule: RULE }) }
}

/// The sum `first + count` must be a 32-bit number: indices are.
fn run(message: &'static str, first: u32, count: u32) -> Result<(), Error> {
    let end = first.checked_add(count).map(|_| ());
    end.ok_or(Error::Value { message, field: "first", value: u64::from(first), rule: RULE })
}

fn attachable(message: &'static str, channel: u16) -> Result<u16, Error> {
    count(message, "channel", u32::from(channel), u32::from(u16::MAX)).map(|_| channel)
}

fn block(message: &'static str, max: u32, channel: u16, r: &mut Reader<'_>) -> Result<BlockRange, Error> {
    let (piece, begin) = (r.u32()?, r.u32()?);
    let len = count(message, "len", r.u32()?, max)?;
    run(message, begin, len)?;
    Ok(BlockRange { channel, piece, begin, len })
}

fn pieces(message: &'static str, channel: u16, r: &mut Reader<'_>) -> Result<PieceRange, Error> {
    let first = r.u32()?;
    let count = count(message, "count", r.u32()?, MAX_PIECES)?;
    run(message, first, count)?;
    Ok(PieceRange { channel, first, count })
}

fn offer(message: &'static str, channel: u16, r: &mut Reader<'_>) -> Result<Message, Error> {
    let (stripe, piece) = (r.u16()?, r.u32()?);
    if stripe >= MAX_STRIPES {
        return Err(Error::Value { message, field: "stripe", value: u64::from(stripe), rule: RULE });
    }
    Ok(Message::Offer { channel, stripe, piece })
}

fn wish(message: &'static str, channel: u16, r: &mut Reader<'_>) -> Result<Message, Error> {
    let (urgent, stripe) = (r.u8()?, r.u16()?);
    if stripe >= MAX_STRIPES || urgent > 1 {
        let (field, value) = if urgent > 1 { ("urgent", urgent.into()) } else { ("stripe", stripe) };
        return Err(Error::Value { message, field, value: u64::from(value), rule: RULE });
    }
    Ok(Message::Wish { stripe, urgent: urgent == 1, pieces: pieces(message, channel, r)? })
}

fn roots(message: &'static str, channel: u16, r: &mut Reader<'_>) -> Result<Message, Error> {
    let (number, first) = (r.u32()?, r.u32()?);
    let (signature, roots) = (r.array()?, r.digests()?);
    run(message, first, roots.len() as u32)?;
    Ok(Message::Roots { channel, number, first, signature, roots })
}

fn fingerprints(message: &'static str, channel: u16, r: &mut Reader<'_>) -> Result<Message, Error> {
    let (first, bytes) = (r.u32()?, opaque(r));
    if bytes.len() % FINGERPRINT != 0 {
        let rule = "fingerprints are 16 bytes each";
        return Err(Error::Length { message, len: bytes.len() as u64, rule });
    }
    Ok(Message::Fingerprints { channel, first, bytes })
}

fn leaves(message: &'static str, channel: u16, r: &mut Reader<'_>) -> Result<LeafRange, Error> {
    let (piece, first) = (r.u32()?, r.u32()?);
    let count = count(message, "count", r.u32()?, MAX_LEAVES as u32)?;
    run(message, first, count)?;
    Ok(LeafRange { channel, piece, first, count })
}

fn manifest(message: &'static str, channel: u16, r: &mut Reader<'_>) -> Result<ManifestRange, Error> {
    let offset = r.u32()?;
    let len = count(message, "len", r.u32()?, MAX_CHUNK as u32)?;
    run(message, offset, len)?;
    Ok(ManifestRange { channel, offset, len })
}

fn manifest_data(message: &'static str, channel: u16, r: &mut Reader<'_>) -> Result<Message, Error> {
    let offset = r.u32()?;
    let total = count(message, "total", r.u32()?, MAX_MANIFEST)?;
    let bytes = opaque(r);
    if u64::from(offset) + bytes.len() as u64 > u64::from(total) {
        return Err(Error::Value { message, field: "offset", value: u64::from(offset), rule: RULE });
    }
    Ok(Message::ManifestData { channel, offset, total, bytes })
}

fn mode(message: &'static str, r: &mut Reader<'_>) -> Result<Mode, Error> {
    match r.u8()? {
        0 => Ok(Mode::Reset),
        1 => Ok(Mode::Add),
        2 => Ok(Mode::Remove),
        value => Err(Error::Value { message, field: "mode", value: u64::from(value), rule: RULE }),
    }
}

fn availability(message: &'static str, channel: u16, r: &mut Reader<'_>) -> Result<Availability, Error> {
    let (mode, watermark) = (mode(message, r)?, r.u32()?);
    let mut exceptions = Vec::with_capacity(r.left() / 8);
    let mut free = 0;
    while r.left() > 0 {
        let first = r.u32()?;
        let count = count(message, "count", r.u32()?, u32::MAX)?;
        run(message, first, count)?;
        let end = first + count;
        let across = first < watermark && end > watermark;
        // Between ranges lies a piece, or the watermark.
        let apart = first >= free || (first == watermark && first + 1 == free);
        if across || !apart {
            return Err(Error::Value { message, field: "first", value: u64::from(first), rule: RULE });
        }
        exceptions.push(first..end);
        free = end.saturating_add(1);
    }
    Ok(Availability { channel, mode, watermark, exceptions })
}

fn bits(message: &'static str, channel: u16, r: &mut Reader<'_>) -> Result<AvailabilityBits, Error> {
    let (mode, first) = (mode(message, r)?, r.u32()?);
    let bits = opaque(r);
    if first % 8 != 0 || first.checked_add((bits.len() * 8) as u32).is_none() {
        return Err(Error::Value { message, field: "first", value: u64::from(first), rule: RULE });
    }
    Ok(AvailabilityBits { channel, mode, first, bits })
}

fn opaque(r: &mut Reader<'_>) -> Bytes {
    Bytes::copy_from_slice(r.rest())
}

/// For people, on a terminal: without control characters.
fn text(r: &mut Reader<'_>) -> String {
    let mut text: String = String::from_utf8_lossy(r.rest()).chars().filter(|c| !c.is_control()).collect();
    // A replaced byte grows to three: keep the text short enough to be forwarded.
    text.truncate(text.floor_char_boundary(MAX_TEXT));
    text
}

fn peers(message: &'static str, r: &mut Reader<'_>) -> Result<Vec<SocketAddr>, Error> {
    let mut addrs = Vec::new();
    while r.left() > 0 {
        let addr: SocketAddr = match r.u8()? {
            4 => (Ipv4Addr::from(r.array::<4>()?), r.u16()?).into(),
            6 => (Ipv6Addr::from(r.array::<16>()?), r.u16()?).into(),
            value => {
                return Err(Error::Value { message, field: "family", value: u64::from(value), rule: RULE });
            }
        };
        if addrs.len() == MAX_PEERS {
            return Err(Error::Value {
                message,
                field: "addresses",
                value: MAX_PEERS as u64 + 1,
                rule: RULE,
            });
        }
        addrs.push(addr);
    }
    addrs.retain(connectable);
    Ok(addrs)
}
