//! Frames on a connection: a header, a table, a payload. Blocks are frames; so are the few messages, whose table is JSON.
//!
//! ```text
//! kind u8, 3 bytes 0, length of the table u32, of the payload u32, number of the block u64 (little-endian): 20 bytes
//! the table; SHA-256 of it, if there is one; the payload
//! ```

use std::io::{self, IoSlice, Read, Write};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tidecast_hash::sha256;

use super::meter::Tick;
use crate::block::Block;
use crate::digest;
use crate::error::Error;
use crate::job::{Walked, Want, Written};
use crate::part::{BLOCK, Part, Parts};

/// Longest table: attributes of a few entries may make it longer than a source would like.
pub(crate) const MAX_TABLE: usize = 128 << 20;
/// Longest message.
pub(crate) const MAX_MESSAGE: usize = 64 << 20;
/// Longest message of an unauthenticated peer.
pub(crate) const MAX_UNPROVEN: usize = 4 << 10;
const HEADER: usize = 20;

/// The kind of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FrameKind {
    /// A block.
    Block,
    /// A message, JSON, in the table.
    Message,
}

/// The first bytes of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) kind: FrameKind,
    pub(crate) table: usize,
    pub(crate) payload: usize,
    pub(crate) number: u64,
}

impl Header {
    fn encode(&self) -> [u8; HEADER] {
        let mut bytes = [0; HEADER];
        bytes[0] = match self.kind {
            FrameKind::Block => 1,
            FrameKind::Message => 2,
        };
        // Both fit: they are checked where they are made.
        bytes[4..8].copy_from_slice(&(self.table as u32).to_le_bytes());
        bytes[8..12].copy_from_slice(&(self.payload as u32).to_le_bytes());
        bytes[12..].copy_from_slice(&self.number.to_le_bytes());
        bytes
    }

    fn decode(bytes: [u8; HEADER]) -> Result<Self, Error> {
        let [kind, _, _, _, t0, t1, t2, t3, p0, p1, p2, p3, number @ ..] = bytes;
        let table = u32::from_le_bytes([t0, t1, t2, t3]) as usize;
        let payload = u32::from_le_bytes([p0, p1, p2, p3]) as usize;
        let number = u64::from_le_bytes(number);
        let (kind, most) = match kind {
            1 => (FrameKind::Block, MAX_TABLE),
            2 => (FrameKind::Message, MAX_MESSAGE),
            _ => return Err(damaged("unknown kind of frame")),
        };
        if table > most || payload > BLOCK || (kind == FrameKind::Message && payload > 0) {
            return Err(damaged("frame too long"));
        }
        Ok(Self { kind, table, payload, number })
    }

    /// The next header.
    ///
    /// # Errors
    /// Errors of the connection; [`Error::Damaged`].
    pub(crate) fn read(from: &mut impl Read) -> Result<Self, Error> {
        let mut bytes = [0; HEADER];
        from.read_exact(&mut bytes).map_err(lost)?;
        Self::decode(bytes)
    }
}

/// Reads the rest of a block's frame.
///
/// # Errors
/// As [`Header::read`].
pub(crate) fn read_block(from: &mut impl Read, header: &Header, block: &mut Block) -> Result<(), Error> {
    block.number = header.number;
    let mut table = std::mem::take(&mut block.table);
    read_table(from, header.table, &mut table)?;
    let room = &mut block.room()[..header.payload];
    // Hashing while the data is in the core's cache saves fetching it from memory again.
    block.digest = if is_one_part(&table, header.payload) {
        Some(digest::read(room, |step, _| from.read_exact(step).map_err(lost))?)
    } else {
        from.read_exact(room).map_err(lost)?;
        None
    };
    block.table = table;
    block.len = header.payload;
    Ok(())
}

/// Whether the first part of a table has all of the payload. One that is damaged is for the sink to find.
fn is_one_part(table: &[u8], payload: usize) -> bool {
    let mut part = Part::default();
    let found = payload > 0 && Parts::new(table, payload).next(&mut part).unwrap_or(false);
    found && part.data.payload() == payload
}

/// Reads and forgets the rest of a block's frame.
///
/// # Errors
/// As [`Header::read`].
pub(crate) fn skip_block(from: &mut impl Read, header: &Header) -> Result<(), Error> {
    let rest = (header.table + 32 + header.payload) as u64;
    let gone = io::copy(&mut from.take(rest), &mut io::sink()).map_err(lost)?;
    if gone == rest { Ok(()) } else { Err(lost(io::ErrorKind::UnexpectedEof.into())) }
}

fn read_table(from: &mut impl Read, len: usize, table: &mut Vec<u8>) -> Result<(), Error> {
    table.clear();
    // As it comes, so that a header that lies costs no memory.
    from.take(len as u64).read_to_end(table).map_err(lost)?;
    let mut digest = [0; 32];
    from.read_exact(&mut digest).map_err(lost)?;
    if table.len() == len && sha256(table) == digest {
        Ok(())
    } else {
        Err(damaged("digest mismatch in a table of parts"))
    }
}

/// Sends a block.
///
/// # Errors
/// Errors of the connection.
pub(crate) fn write_block(to: &mut impl Write, block: &Block) -> io::Result<()> {
    let header =
        Header { kind: FrameKind::Block, table: block.table.len(), payload: block.len, number: block.number };
    let digest = sha256(&block.table);
    write_all(to, [&header.encode(), &block.table, &digest, block.payload()])
}

/// Sends a message.
///
/// # Errors
/// Errors of the connection.
pub(crate) fn write_message(to: &mut impl Write, message: &impl Serialize) -> io::Result<()> {
    let json = serde_json::to_vec(message)?;
    let header = Header { kind: FrameKind::Message, table: json.len(), payload: 0, number: 0 };
    write_all(to, [&header.encode(), &json, &sha256(&json), &[]])?;
    to.flush()
}

fn write_all(to: &mut impl Write, parts: [&[u8]; 4]) -> io::Result<()> {
    let mut slices = parts.map(IoSlice::new);
    let mut rest = slices.as_mut_slice();
    IoSlice::advance_slices(&mut rest, 0);
    while !rest.is_empty() {
        match to.write_vectored(rest) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(n) => IoSlice::advance_slices(&mut rest, n),
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

/// The message that a header announces.
///
/// # Errors
/// As [`Header::read`], also when it is not a message of this kind.
pub(crate) fn read_message<T: DeserializeOwned>(from: &mut impl Read, header: &Header) -> Result<T, Error> {
    let mut json = Vec::new();
    read_table(from, header.table, &mut json)?;
    serde_json::from_slice(&json).map_err(|e| Error::Damaged(format!("cannot parse a message: {e}")))
}

/// The next frame, which must be a message.
///
/// # Errors
/// As [`read_message`].
pub(crate) fn expect_message<T: DeserializeOwned>(from: &mut impl Read) -> Result<T, Error> {
    expect_message_within(from, MAX_MESSAGE)
}

/// The same, of at most this many bytes.
///
/// # Errors
/// As [`read_message`].
pub(crate) fn expect_message_within<T: DeserializeOwned>(
    from: &mut impl Read,
    most: usize,
) -> Result<T, Error> {
    let header = Header::read(from)?;
    if header.kind != FrameKind::Message {
        return Err(damaged("expected a message, received a block"));
    }
    if header.table > most {
        return Err(damaged("message too long"));
    }
    read_message(from, &header)
}

fn damaged(what: &str) -> Error {
    Error::Damaged(what.into())
}

fn lost(error: io::Error) -> Error {
    Error::Network { doing: "connection lost".into(), error }
}

/// The sender's messages on its streams, beside blocks.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Forward {
    /// It is there.
    Alive,
    /// All blocks are written; these are the results of the walk. Repeated until it is answered.
    End(Walked),
    /// The results of the walk, and the number of all blocks without questions: when they are written it is
    /// the end. Sent once, while blocks are in flight, to receivers that support it.
    Last(Walked, u64),
    /// Precedes a block that is sent again after [`Forward::Last`] and revokes it, because data that is read
    /// again may differ.
    NotLast,
    /// The sender knows that everything is finished, and has done the work after it; these are the final
    /// results.
    Bye(Walked),
    /// It gives up.
    Failed(String),
    /// It would like this many streams.
    Streams(usize),
    /// Of a later version.
    #[serde(other)]
    Unknown,
}

/// The receiver's messages on the return connection.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Return {
    /// First on every return connection: the blocks that are done, as messages of an earlier connection may
    /// be lost.
    Ready {
        /// Nothing is there yet.
        fresh: bool,
        /// Blocks below this number are done.
        below: u64,
        /// Further ones.
        above: Vec<u64>,
        /// It knows of [`Forward::Last`].
        #[serde(default)]
        last: bool,
    },
    /// These blocks are written.
    Done(Vec<u64>),
    /// The answer to a block that asks.
    Want(u64, Want),
    /// How it goes; twice a second.
    Tick(Tick),
    /// All is finished.
    Finished(Written),
    /// It gives up.
    Failed(String),
    /// Of a later version.
    #[serde(other)]
    Unknown,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block::Pool;

    #[test]
    fn a_block_comes_as_it_went_and_damage_is_seen() {
        let pool = Pool::new(2);
        let (mut out, mut back) = (pool.take().unwrap(), pool.take().unwrap());
        out.number = 7;
        out.table = vec![1, 2, 3];
        out.room()[..5].copy_from_slice(b"hello");
        out.len = 5;
        let mut wire = Vec::new();
        write_block(&mut wire, &out).unwrap();
        let mut from = wire.as_slice();
        let header = Header::read(&mut from).unwrap();
        read_block(&mut from, &header, &mut back).unwrap();
        assert_eq!((back.number, back.table.as_slice(), back.payload()), (7, &[1, 2, 3][..], &b"hello"[..]));
        assert!(from.is_empty());
        wire[HEADER] ^= 1;
        let mut from = &wire[..];
        let header = Header::read(&mut from).unwrap();
        assert!(read_block(&mut from, &header, &mut back).is_err());
        let mut from = &wire[..];
        let header = Header::read(&mut from).unwrap();
        skip_block(&mut from, &header).unwrap();
        assert!(from.is_empty());
    }

    #[test]
    fn messages_come_as_they_went_and_later_ones_are_passed_over() {
        let mut wire = Vec::new();
        write_message(&mut wire, &Return::Done(vec![1, 5])).unwrap();
        write_message(&mut wire, &"news").unwrap();
        let mut from = wire.as_slice();
        assert!(matches!(expect_message::<Return>(&mut from).unwrap(), Return::Done(d) if d == [1, 5]));
        assert!(matches!(expect_message::<Return>(&mut from).unwrap(), Return::Unknown));
        assert!(expect_message::<Return>(&mut from).is_err());
        let mut long = wire.as_slice();
        assert!(expect_message_within::<Return>(&mut long, 3).is_err());
    }

    #[test]
    fn headers_that_promise_too_much_are_refused() {
        let header = Header { kind: FrameKind::Block, table: 1, payload: BLOCK + 1, number: 0 };
        assert!(Header::decode(header.encode()).is_err());
        assert!(Header::decode([9; HEADER]).is_err());
    }
}
