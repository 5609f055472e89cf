//! Messages of the extension to bytes: the kind, then the fields in the order of the specification.

use std::net::IpAddr;

use bytes::{BufMut, BytesMut};

use super::{BlockRange, LeafRange, ManifestRange, Message, Mode, PieceRange};
use super::{FINGERPRINT, MAX_FINGERPRINTS};
use super::{MAX_BITS, MAX_BLOCK, MAX_CHUNK, MAX_CREDENTIAL, MAX_GATHER, MAX_LEAVES};
use super::{MAX_PEERS, MAX_PIECES, MAX_RANGES, MAX_REVOKED, MAX_ROOTS, MAX_STRIPES, MAX_TEXT};
use crate::{BlockHeader, EncodeError, ExtIds, Extension};

/// The kinds, as they stand on the wire.
pub(crate) mod kind {
    pub(crate) const BLOCK: u8 = 1;
    pub(crate) const REQUEST_BLOCK: u8 = 2;
    pub(crate) const REQUEST_PIECES: u8 = 3;
    pub(crate) const CANCEL_BLOCK: u8 = 4;
    pub(crate) const CANCEL_PIECES: u8 = 5;
    pub(crate) const REJECT_BLOCK: u8 = 6;
    pub(crate) const REJECT_PIECES: u8 = 7;
    pub(crate) const AVAILABILITY: u8 = 8;
    pub(crate) const AVAILABILITY_BITS: u8 = 9;
    pub(crate) const CREDIT: u8 = 10;
    pub(crate) const OFFER: u8 = 11;
    pub(crate) const OFFER_BELOW: u8 = 12;
    pub(crate) const WISH: u8 = 13;
    pub(crate) const GATHER: u8 = 14;
    pub(crate) const LEAVES: u8 = 16;
    pub(crate) const LEAVES_REQUEST: u8 = 17;
    pub(crate) const LEAVES_REJECT: u8 = 18;
    pub(crate) const ROOTS: u8 = 19;
    pub(crate) const SEAL: u8 = 20;
    pub(crate) const FINGERPRINTS_REQUEST: u8 = 21;
    pub(crate) const FINGERPRINTS: u8 = 22;
    pub(crate) const FINGERPRINTS_REJECT: u8 = 23;
    pub(crate) const MANIFEST_REQUEST: u8 = 24;
    pub(crate) const MANIFEST_DATA: u8 = 25;
    pub(crate) const MANIFEST_REJECT: u8 = 26;
    pub(crate) const ATTACH: u8 = 32;
    pub(crate) const ATTACH_OK: u8 = 33;
    pub(crate) const DETACH: u8 = 34;
    pub(crate) const ENROL: u8 = 40;
    pub(crate) const CREDENTIAL: u8 = 41;
    pub(crate) const DENIED: u8 = 42;
    pub(crate) const REVOKED: u8 = 43;
    pub(crate) const PEERS: u8 = 48;
    pub(crate) const GOODBYE: u8 = 49;
}

/// Bytes of the header of a Tidecast block, length prefix included; its payload follows.
pub const BLOCK_HEADER_LEN: usize = 18;

/// The header of a Tidecast block for a peer, whose payload the driver sends after it.
///
/// # Errors
/// [`EncodeError::NotSpoken`] if the peer does not take the extension.
pub fn block_header(peer: ExtIds, block: &BlockHeader) -> Result<[u8; BLOCK_HEADER_LEN], EncodeError> {
    let id = peer.get(Extension::Tidecast).ok_or(EncodeError::NotSpoken("tidecast"))?;
    let mut out = [0; BLOCK_HEADER_LEN];
    let mut fields = &mut out[..];
    fields.put_u32((BLOCK_HEADER_LEN as u32 - 4).saturating_add(block.len));
    fields.put_slice(&[crate::encode::EXTENDED, id, kind::BLOCK]);
    fields.put_u16(block.channel);
    fields.put_u8(u8::from(block.pushed));
    fields.put_u32(block.piece);
    fields.put_u32(block.begin);
    Ok(out)
}

fn fit(message: &'static str, field: &'static str, len: usize, max: usize) -> Result<(), EncodeError> {
    if len <= max { Ok(()) } else { Err(EncodeError::TooLarge { message, field, len, max }) }
}

/// Rejects messages that the receiver would reject for their size.
fn check(message: &Message) -> Result<(), EncodeError> {
    use Message as M;
    match message {
        M::RequestBlock(r) => fit("RequestBlock", "len", r.len as usize, MAX_BLOCK as usize),
        M::RequestPieces(r) | M::CancelPieces(r) | M::RejectPieces(r) => {
            fit("pieces request", "count", r.count as usize, MAX_PIECES as usize)
        }
        M::Availability(m) => fit("Availability", "exceptions", m.exceptions.len(), MAX_RANGES),
        M::AvailabilityBits(m) => fit("AvailabilityBits", "bits", m.bits.len(), MAX_BITS),
        M::Leaves { hashes, .. } => fit("Leaves", "hashes", hashes.len(), MAX_LEAVES),
        M::Roots { roots, .. } => fit("Roots", "roots", roots.len(), MAX_ROOTS),
        M::LeavesRequest(r) | M::LeavesReject(r) => {
            fit("LeavesRequest", "count", r.count as usize, MAX_LEAVES)
        }
        M::FingerprintsRequest(r) | M::FingerprintsReject(r) => {
            fit("FingerprintsRequest", "count", r.count as usize, MAX_PIECES as usize)
        }
        M::Fingerprints { bytes, .. } => {
            fit("Fingerprints", "bytes", bytes.len(), FINGERPRINT * MAX_FINGERPRINTS)
        }
        M::ManifestRequest(r) | M::ManifestReject(r) => {
            fit("ManifestRequest", "len", r.len as usize, MAX_CHUNK)
        }
        M::ManifestData { bytes, .. } => fit("ManifestData", "bytes", bytes.len(), MAX_CHUNK),
        M::Enrol { request, .. } => fit("Enrol", "request", request.len(), MAX_CREDENTIAL),
        M::Credential { credential, .. } => fit("Credential", "credential", credential.len(), MAX_CREDENTIAL),
        M::Denied { text, .. } => fit("Denied", "text", text.len(), MAX_TEXT),
        M::Revoked { list, .. } => fit("Revoked", "list", list.len(), MAX_REVOKED),
        M::Peers { addrs, .. } => fit("Peers", "addrs", addrs.len(), MAX_PEERS),
        M::Goodbye { text, .. } => fit("Goodbye", "text", text.len(), MAX_TEXT),
        M::Offer { stripe, .. } => fit("Offer", "stripe", usize::from(*stripe), usize::from(MAX_STRIPES - 1)),
        M::Gather { bytes, .. } => fit("Gather", "bytes", bytes.len(), MAX_GATHER),
        M::Wish { stripe, pieces, .. } => {
            fit("Wish", "stripe", usize::from(*stripe), usize::from(MAX_STRIPES - 1))?;
            fit("Wish", "count", pieces.count as usize, MAX_PIECES as usize)
        }
        M::CancelBlock(_) | M::RejectBlock(_) | M::OfferBelow { .. } | M::Credit { .. } => Ok(()),
        M::Attach { .. } | M::AttachOk { .. } | M::Detach { .. } | M::Seal { .. } => Ok(()),
    }
}

/// Appends kind and fields; the caller writes the bytes before them.
pub(crate) fn encode(message: &Message, out: &mut BytesMut) -> Result<(), EncodeError> {
    check(message)?;
    match message {
        Message::RequestBlock(range) => block(out, kind::REQUEST_BLOCK, range),
        Message::RequestPieces(range) => pieces(out, kind::REQUEST_PIECES, range),
        Message::CancelBlock(range) => block(out, kind::CANCEL_BLOCK, range),
        Message::CancelPieces(range) => pieces(out, kind::CANCEL_PIECES, range),
        Message::RejectBlock(range) => block(out, kind::REJECT_BLOCK, range),
        Message::RejectPieces(range) => pieces(out, kind::REJECT_PIECES, range),
        Message::Availability(m) => {
            set(out, kind::AVAILABILITY, m.channel, m.mode, m.watermark);
            for range in &m.exceptions {
                out.put_u32(range.start);
                out.put_u32(range.end.saturating_sub(range.start));
            }
        }
        Message::AvailabilityBits(m) => {
            set(out, kind::AVAILABILITY_BITS, m.channel, m.mode, m.first);
            out.put_slice(&m.bits);
        }
        Message::OfferBelow { channel, below } => {
            head(out, kind::OFFER_BELOW, *channel);
            out.put_u32(*below);
        }
        Message::Wish { stripe, urgent, pieces } => {
            head(out, kind::WISH, pieces.channel);
            out.put_u8(u8::from(*urgent));
            out.put_u16(*stripe);
            out.put_u32(pieces.first);
            out.put_u32(pieces.count);
        }
        Message::Gather { channel, bytes } => {
            head(out, kind::GATHER, *channel);
            out.put_slice(bytes);
        }
        Message::Credit { channel, bytes } => {
            head(out, kind::CREDIT, *channel);
            out.put_u32(*bytes);
        }
        Message::Offer { channel, stripe, piece } => {
            head(out, kind::OFFER, *channel);
            out.put_u16(*stripe);
            out.put_u32(*piece);
        }
        Message::Leaves { channel, piece, first, hashes } => {
            head(out, kind::LEAVES, *channel);
            out.put_u32(*piece);
            out.put_u32(*first);
            out.put_slice(hashes.as_flattened());
        }
        Message::Roots { channel, number, first, signature, roots } => {
            head(out, kind::ROOTS, *channel);
            out.put_u32(*number);
            out.put_u32(*first);
            out.put_slice(signature);
            out.put_slice(roots.as_flattened());
        }
        Message::Seal { channel, number, signature, info_hash } => {
            head(out, kind::SEAL, *channel);
            out.put_u32(*number);
            out.put_slice(signature);
            out.put_slice(info_hash);
        }
        Message::LeavesRequest(range) => leaves(out, kind::LEAVES_REQUEST, range),
        Message::LeavesReject(range) => leaves(out, kind::LEAVES_REJECT, range),
        Message::FingerprintsRequest(range) => pieces(out, kind::FINGERPRINTS_REQUEST, range),
        Message::FingerprintsReject(range) => pieces(out, kind::FINGERPRINTS_REJECT, range),
        Message::Fingerprints { channel, first, bytes } => {
            head(out, kind::FINGERPRINTS, *channel);
            out.put_u32(*first);
            out.put_slice(bytes);
        }
        Message::ManifestRequest(range) => manifest(out, kind::MANIFEST_REQUEST, range),
        Message::ManifestData { channel, offset, total, bytes } => {
            head(out, kind::MANIFEST_DATA, *channel);
            out.put_u32(*offset);
            out.put_u32(*total);
            out.put_slice(bytes);
        }
        Message::ManifestReject(range) => manifest(out, kind::MANIFEST_REJECT, range),
        _ => connection(message, out),
    }
    Ok(())
}

/// The messages about channels, rights and the connection itself.
fn connection(message: &Message, out: &mut BytesMut) {
    match message {
        Message::Attach { channel, swarm } => {
            head(out, kind::ATTACH, *channel);
            out.put_slice(swarm);
        }
        Message::AttachOk { channel } => head(out, kind::ATTACH_OK, *channel),
        Message::Detach { channel, reason } => {
            head(out, kind::DETACH, *channel);
            out.put_u16(reason.0);
        }
        Message::Enrol { channel, request } => opaque(out, kind::ENROL, *channel, request),
        Message::Credential { channel, credential } => opaque(out, kind::CREDENTIAL, *channel, credential),
        Message::Denied { channel, reason, text } => {
            head(out, kind::DENIED, *channel);
            out.put_u16(reason.0);
            out.put_slice(text.as_bytes());
        }
        Message::Revoked { channel, list } => opaque(out, kind::REVOKED, *channel, list),
        Message::Peers { channel, addrs } => {
            head(out, kind::PEERS, *channel);
            for addr in addrs {
                match addr.ip() {
                    IpAddr::V4(ip) => {
                        out.put_u8(4);
                        out.put_slice(&ip.octets());
                    }
                    IpAddr::V6(ip) => {
                        out.put_u8(6);
                        out.put_slice(&ip.octets());
                    }
                }
                out.put_u16(addr.port());
            }
        }
        Message::Goodbye { reason, text } => {
            head(out, kind::GOODBYE, 0);
            out.put_u16(reason.0);
            out.put_slice(text.as_bytes());
        }
        _ => debug_assert!(false, "not a message about the connection: {message:?}"),
    }
}

fn head(out: &mut BytesMut, kind: u8, channel: u16) {
    out.put_u8(kind);
    out.put_u16(channel);
}

fn opaque(out: &mut BytesMut, kind: u8, channel: u16, bytes: &[u8]) {
    head(out, kind, channel);
    out.put_slice(bytes);
}

fn set(out: &mut BytesMut, kind: u8, channel: u16, mode: Mode, first: u32) {
    head(out, kind, channel);
    out.put_u8(match mode {
        Mode::Reset => 0,
        Mode::Add => 1,
        Mode::Remove => 2,
    });
    out.put_u32(first);
}

fn block(out: &mut BytesMut, kind: u8, range: &BlockRange) {
    head(out, kind, range.channel);
    [range.piece, range.begin, range.len].into_iter().for_each(|v| out.put_u32(v));
}

fn pieces(out: &mut BytesMut, kind: u8, range: &PieceRange) {
    head(out, kind, range.channel);
    [range.first, range.count].into_iter().for_each(|v| out.put_u32(v));
}

fn leaves(out: &mut BytesMut, kind: u8, range: &LeafRange) {
    head(out, kind, range.channel);
    [range.piece, range.first, range.count].into_iter().for_each(|v| out.put_u32(v));
}

fn manifest(out: &mut BytesMut, kind: u8, range: &ManifestRange) {
    head(out, kind, range.channel);
    [range.offset, range.len].into_iter().for_each(|v| out.put_u32(v));
}
