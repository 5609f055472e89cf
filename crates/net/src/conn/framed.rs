//! The input of a connection: bytes from the stream, cut into frames by the codec, with a bound on
//! every wait and on every byte that waits.

use std::time::Duration;

use bytes::{Buf, BytesMut};
use tidecast_wire::{Codec, Decoded, Frame, Message};
use tokio::io::AsyncReadExt;
use tokio::time::timeout;

use crate::error::ConnError;
use crate::transport::Reader;

/// Between messages a peer may be silent for so long (BEP 3: a keep-alive every two minutes).
const IDLE: Duration = Duration::from_secs(150);
/// Within a message or block, bytes must keep coming: this long for the start ...
const STALL: Duration = Duration::from_secs(20);
/// ... plus this for every 16 KiB, which no useful link is slower than.
const STALL_PER_LEAF: Duration = Duration::from_secs(2);

/// What the bytes so far amount to.
pub(crate) enum Ready {
    Frame(Frame),
    /// Nothing yet: so many bytes must be there.
    Need(usize),
}

/// A connection's input.
pub(crate) struct Input {
    reader: Reader,
    buf: BytesMut,
    /// Bytes asked of the stream at once.
    chunk: usize,
    pub(crate) codec: Codec,
}

impl Input {
    pub(crate) fn new(reader: Reader, buf: BytesMut, codec: Codec, chunk: usize) -> Input {
        Input { reader, buf, chunk, codec }
    }

    /// Sets how many bytes are asked of the stream at once: few where blocks are large and go past
    /// this buffer, many where they are small and all go through it.
    pub(crate) fn set_chunk(&mut self, chunk: usize) {
        self.chunk = chunk;
    }

    /// The next frame, if the bytes for it are here already.
    pub(crate) fn ready(&mut self) -> Result<Ready, ConnError> {
        match self.codec.decode(&self.buf)? {
            Decoded::Frame { frame, consumed } => {
                self.buf.advance(consumed);
                Ok(Ready::Frame(frame))
            }
            Decoded::Need(bytes) => Ok(Ready::Need(bytes)),
        }
    }

    /// Waits for more bytes of a frame of which `need` must be there.
    pub(crate) async fn more(&mut self, need: usize) -> Result<(), ConnError> {
        let started = !self.buf.is_empty();
        let limit = if started { STALL } else { IDLE };
        self.buf.reserve(need.max(self.chunk).saturating_sub(self.buf.len()));
        let n = timeout(limit, self.reader.read_buf(&mut self.buf)).await;
        match n {
            Err(_) => Err(ConnError::Late { what: "send a message", seconds: limit.as_secs() }),
            Ok(Ok(0)) => Err(ConnError::Closed),
            Ok(Ok(_)) => Ok(()),
            Ok(Err(e)) => Err(e.into()),
        }
    }

    /// The next message; a block is not expected here.
    pub(crate) async fn message(&mut self) -> Result<Message, ConnError> {
        loop {
            match self.ready()? {
                Ready::Frame(Frame::Message(message)) => return Ok(message),
                Ready::Frame(Frame::Block(_)) => {
                    return Err(ConnError::Protocol("a block before it was asked for"));
                }
                Ready::Need(bytes) => self.more(bytes).await?,
            }
        }
    }

    /// Fills `out` with payload: first what has been read already, then straight from the stream.
    pub(crate) async fn payload(&mut self, out: &mut [u8]) -> Result<(), ConnError> {
        let here = self.buf.len().min(out.len());
        out[..here].copy_from_slice(&self.buf[..here]);
        self.buf.advance(here);
        if here == out.len() {
            return Ok(());
        }
        let leaves = u32::try_from(out.len().div_ceil(tidecast_hash::LEAF)).unwrap_or(u32::MAX);
        let limit = STALL + STALL_PER_LEAF * leaves;
        match timeout(limit, self.reader.read_exact(&mut out[here..])).await {
            Err(_) => Err(ConnError::Late { what: "send a block", seconds: limit.as_secs() }),
            Ok(Err(e)) if e.kind() == std::io::ErrorKind::UnexpectedEof => Err(ConnError::Closed),
            Ok(r) => Ok(r.map(|_| ())?),
        }
    }
}
