//! Messages to bytes. Extension messages carry the ids that the peer has announced; a message that it does
//! not take, or would refuse for its size, is refused here and appends nothing.

use bytes::{BufMut, BytesMut};

use crate::{BlockHeader, BlockRange, EncodeError, ExtIds, Extension, HashRange, Message, ext};

/// BEP 10: the id of all extension messages.
pub(crate) const EXTENDED: u8 = 20;

/// The ids of the core messages.
pub(crate) mod id {
    pub(crate) const CHOKE: u8 = 0;
    pub(crate) const UNCHOKE: u8 = 1;
    pub(crate) const INTERESTED: u8 = 2;
    pub(crate) const NOT_INTERESTED: u8 = 3;
    pub(crate) const HAVE: u8 = 4;
    pub(crate) const BITFIELD: u8 = 5;
    pub(crate) const REQUEST: u8 = 6;
    pub(crate) const PIECE: u8 = 7;
    pub(crate) const CANCEL: u8 = 8;
    pub(crate) const PORT: u8 = 9;
    pub(crate) const SUGGEST: u8 = 13;
    pub(crate) const HAVE_ALL: u8 = 14;
    pub(crate) const HAVE_NONE: u8 = 15;
    pub(crate) const REJECT: u8 = 16;
    pub(crate) const ALLOWED_FAST: u8 = 17;
    pub(crate) const HASH_REQUEST: u8 = 21;
    pub(crate) const HASHES: u8 = 22;
    pub(crate) const HASH_REJECT: u8 = 23;
}

impl BlockHeader {
    /// Bytes of the header of a core `piece` message, length prefix included.
    pub const LEN: usize = 13;

    /// The header of a core `piece` message (BEP 3), whose payload the driver sends after it. Channel and
    /// `pushed` do not exist there.
    #[must_use]
    pub fn to_piece(&self) -> [u8; Self::LEN] {
        debug_assert!(
            self.channel == 0 && !self.pushed,
            "a stock peer has one channel and takes no pushes: {self:?}"
        );
        let mut out = [0; Self::LEN];
        let mut fields = &mut out[..];
        fields.put_u32(self.len.saturating_add(9));
        fields.put_u8(id::PIECE);
        fields.put_u32(self.piece);
        fields.put_u32(self.begin);
        out
    }
}

impl Message {
    /// Appends the message, for a peer that takes extensions under these ids (see
    /// [`crate::Codec::peer_ids`]).
    ///
    /// # Errors
    /// When the peer takes no such message, or would refuse it for its size. Nothing is appended then.
    pub fn encode(&self, peer: ExtIds, out: &mut BytesMut) -> Result<(), EncodeError> {
        let start = out.len();
        out.put_u32(0);
        let done = self.put(peer, out);
        if done.is_err() {
            out.truncate(start);
            return done;
        }
        let len = u32::try_from(out.len() - start - 4).unwrap_or(u32::MAX);
        if let Some(prefix) = out.get_mut(start..start + 4) {
            prefix.copy_from_slice(&len.to_be_bytes());
        }
        Ok(())
    }

    fn put(&self, peer: ExtIds, out: &mut BytesMut) -> Result<(), EncodeError> {
        match self {
            Self::KeepAlive => {}
            Self::Choke => out.put_u8(id::CHOKE),
            Self::Unchoke => out.put_u8(id::UNCHOKE),
            Self::Interested => out.put_u8(id::INTERESTED),
            Self::NotInterested => out.put_u8(id::NOT_INTERESTED),
            Self::Have(piece) => put_piece(out, id::HAVE, *piece),
            Self::Bitfield(bits) => {
                out.put_u8(id::BITFIELD);
                out.put_slice(bits);
            }
            Self::Request(range) => put_block(out, id::REQUEST, range),
            Self::Cancel(range) => put_block(out, id::CANCEL, range),
            Self::Port(port) => {
                out.put_u8(id::PORT);
                out.put_u16(*port);
            }
            Self::Suggest(piece) => put_piece(out, id::SUGGEST, *piece),
            Self::HaveAll => out.put_u8(id::HAVE_ALL),
            Self::HaveNone => out.put_u8(id::HAVE_NONE),
            Self::Reject(range) => put_block(out, id::REJECT, range),
            Self::AllowedFast(piece) => put_piece(out, id::ALLOWED_FAST, *piece),
            Self::HashRequest(range) => put_hashes(out, id::HASH_REQUEST, range),
            Self::Hashes(hashes) => {
                put_hashes(out, id::HASHES, &hashes.range);
                out.put_slice(hashes.hashes.as_flattened());
            }
            Self::HashReject(range) => put_hashes(out, id::HASH_REJECT, range),
            Self::ExtHandshake(shake) => {
                out.put_slice(&[EXTENDED, 0]);
                shake.encode(out);
            }
            Self::Metadata(metadata) => {
                put_extended(out, peer, Extension::Metadata)?;
                metadata.encode(out);
            }
            Self::Pex(pex) => {
                put_extended(out, peer, Extension::Pex)?;
                pex.encode(out);
            }
            Self::DontHave(piece) => {
                put_extended(out, peer, Extension::DontHave)?;
                out.put_u32(*piece);
            }
            Self::Tidecast(message) => {
                put_extended(out, peer, Extension::Tidecast)?;
                ext::encode(message, out)?;
            }
            Self::Unknown { .. } => return Err(EncodeError::Unknown),
        }
        Ok(())
    }
}

fn put_extended(out: &mut BytesMut, peer: ExtIds, extension: Extension) -> Result<(), EncodeError> {
    let id = peer.get(extension).ok_or(EncodeError::NotSpoken(extension.name()))?;
    out.put_slice(&[EXTENDED, id]);
    Ok(())
}

fn put_piece(out: &mut BytesMut, id: u8, piece: u32) {
    out.put_u8(id);
    out.put_u32(piece);
}

fn put_block(out: &mut BytesMut, id: u8, range: &BlockRange) {
    out.put_u8(id);
    [range.piece, range.begin, range.len].into_iter().for_each(|v| out.put_u32(v));
}

fn put_hashes(out: &mut BytesMut, id: u8, range: &HashRange) {
    out.put_u8(id);
    out.put_slice(&range.pieces_root);
    [range.base_layer, range.index, range.length, range.proof_layers]
        .into_iter()
        .for_each(|v| out.put_u32(v));
}
