//! The 68 bytes that open a connection (BEP 3), and the reserved bits that offer extensions (BEP 4 lists
//! their owners). Decoding rejects the first wrong byte, so that a connection of another protocol does not
//! wait for 68 bytes.

use bytes::BytesMut;

use crate::Error;

const PROTOCOL: &[u8; 20] = b"\x13BitTorrent protocol";

/// The opening of a connection (BEP 3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Handshake {
    /// The features that the sender offers.
    pub reserved: Reserved,
    /// The swarm: the SHA-1 info hash of a v1 manifest, or the truncated SHA-256 one of a v2 manifest (BEP
    /// 52).
    pub info_hash: [u8; 20],
    /// The sender's self-chosen id (BEP 20).
    pub peer_id: [u8; 20],
}

impl Handshake {
    /// Bytes on the wire.
    pub const LEN: usize = 68;

    /// The bytes to send.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; Self::LEN] {
        let mut out = [0; Self::LEN];
        out[..20].copy_from_slice(PROTOCOL);
        out[20..28].copy_from_slice(&self.reserved.0);
        out[28..48].copy_from_slice(&self.info_hash);
        out[48..].copy_from_slice(&self.peer_id);
        out
    }

    /// Appends the bytes to send.
    pub fn encode(&self, out: &mut BytesMut) {
        out.extend_from_slice(&self.to_bytes());
    }

    /// Reads a handshake from the start of a stream: `None` until [`Handshake::LEN`] bytes are there.
    ///
    /// # Errors
    /// [`Error::Protocol`] as soon as one byte shows that this is another protocol (TLS, encrypted BitTorrent, HTTP).
    pub fn decode(buf: &[u8]) -> Result<Option<Self>, Error> {
        if let Some((at, (&found, _))) = buf.iter().zip(PROTOCOL).enumerate().find(|(_, (a, b))| a != b) {
            return Err(Error::Protocol { at, found });
        }
        let Some(whole) = buf.first_chunk::<{ Self::LEN }>() else {
            return Ok(None);
        };
        let mut handshake = Self { reserved: Reserved::default(), info_hash: [0; 20], peer_id: [0; 20] };
        handshake.reserved.0.copy_from_slice(&whole[20..28]);
        handshake.info_hash.copy_from_slice(&whole[28..48]);
        handshake.peer_id.copy_from_slice(&whole[48..]);
        Ok(Some(handshake))
    }
}

/// The eight reserved bytes of the handshake. Unknown bits are kept and mean nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Reserved(pub [u8; 8]);

impl Reserved {
    /// The features that a Tidecast node offers: fast, extensions, and v2 where the swarm is hybrid; never
    /// the DHT by itself.
    #[must_use]
    pub fn ours(v2: bool) -> Self {
        Self([0, 0, 0, 0, 0, 0x10, 0, 0x04 | if v2 { 0x10 } else { 0 }])
    }

    /// With the DHT bit (BEP 5), which promises `port` messages.
    #[must_use]
    pub fn with_dht(mut self) -> Self {
        self.0[7] |= 0x01;
        self
    }

    /// BEP 6: have all, have none, suggest, reject, allowed fast. On when both sides set it.
    #[must_use]
    pub fn fast(self) -> bool {
        self.0[7] & 0x04 != 0
    }

    /// BEP 10: the extension protocol. On when both sides set it.
    #[must_use]
    pub fn extensions(self) -> bool {
        self.0[5] & 0x10 != 0
    }

    /// BEP 52: the sender of a v1 info hash has the v2 form too, and may be answered with the v2 hash.
    #[must_use]
    pub fn v2(self) -> bool {
        self.0[7] & 0x10 != 0
    }

    /// BEP 5: the sender has a DHT node.
    #[must_use]
    pub fn dht(self) -> bool {
        self.0[7] & 0x01 != 0
    }

    /// The features that both sides offer.
    #[must_use]
    pub fn both(self, other: Self) -> Self {
        let mut bits = self.0;
        bits.iter_mut().zip(other.0).for_each(|(a, b)| *a &= b);
        Self(bits)
    }
}
