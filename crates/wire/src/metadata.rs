//! `ut_metadata` (BEP 9): the info dictionary, 16 KiB at a time. A piece of data is accepted only with
//! exactly the length that its place in the total size demands.

use bytes::{Bytes, BytesMut};

use tidecast_metainfo::bencode::{Value, Writer};

use crate::Error;
use crate::bencode::{dict, int};

/// Bytes of one piece of metadata; the last may be shorter.
pub const METADATA_PIECE: u32 = 16 * 1024;
/// The dictionary before the data of a piece never comes near this.
pub(crate) const MAX_HEAD: u32 = 1024;

const NAME: &str = "ut_metadata";

/// A message of `ut_metadata`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Metadata {
    /// Send me this piece of the info dictionary.
    Request {
        /// Its index.
        piece: u32,
    },
    /// Here it is.
    Data {
        /// Its index.
        piece: u32,
        /// Bytes of the whole info dictionary.
        total: u32,
        /// The bytes of this piece.
        bytes: Bytes,
    },
    /// I have not got it, or you ask too much.
    Reject {
        /// Its index.
        piece: u32,
    },
}

impl Metadata {
    /// `None` for a message type that is unknown and therefore ignored, as BEP 9 demands.
    pub(crate) fn decode(body: &[u8]) -> Result<Option<Self>, Error> {
        let (dict, end) = dict(NAME, body)?;
        let piece = || number(&dict, "piece");
        let rest = body.get(end..).unwrap_or_default();
        Ok(match int(&dict, "msg_type") {
            Some(0) => Some(Self::Request { piece: piece()? }),
            Some(1) => Some(data(piece()?, number(&dict, "total_size")?, rest)?),
            Some(2) => Some(Self::Reject { piece: piece()? }),
            _ => None,
        })
    }

    pub(crate) fn encode(&self, out: &mut BytesMut) {
        let (kind, piece) = match self {
            Self::Request { piece } => (0, piece),
            Self::Data { piece, .. } => (1, piece),
            Self::Reject { piece } => (2, piece),
        };
        let mut writer = Writer::new();
        writer.dict(|d| {
            d.key(b"msg_type").int(kind);
            d.key(b"piece").int((*piece).into());
            if let Self::Data { total, .. } = self {
                d.key(b"total_size").int((*total).into());
            }
        });
        out.extend_from_slice(&writer.into_bytes());
        if let Self::Data { bytes, .. } = self {
            out.extend_from_slice(bytes);
        }
    }
}

fn number(dict: &Value<'_>, field: &'static str) -> Result<u32, Error> {
    let rule = "BEP 9: required, as a number";
    int(dict, field).ok_or(Error::Missing { message: NAME, field, rule })
}

fn data(piece: u32, total: u32, bytes: &[u8]) -> Result<Metadata, Error> {
    let left = u64::from(total).saturating_sub(u64::from(piece) * u64::from(METADATA_PIECE));
    let want = left.min(u64::from(METADATA_PIECE));
    if want == 0 {
        let rule = "BEP 9: a piece begins before total_size";
        return Err(Error::Value { message: NAME, field: "piece", value: u64::from(piece), rule });
    }
    if bytes.len() as u64 != want {
        let rule = "BEP 9: 16 KiB of data, less in the last piece only";
        return Err(Error::Length { message: NAME, len: bytes.len() as u64, rule });
    }
    Ok(Metadata::Data { piece, total, bytes: Bytes::copy_from_slice(bytes) })
}
