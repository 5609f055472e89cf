//! The input of a connection: bytes from the stream, cut into frames by the codec, with a bound on
//! every wait and on every byte that waits.

use std::time::Duration;

use bytes::{Buf, BytesMut};
use tidecast_admission::MAX_READ;
use tidecast_wire::{Codec, Decoded, Frame, Message};
use tokio::time::error::Elapsed;
use tokio::time::{Instant, timeout, timeout_at};

use crate::error::ConnError;
use crate::last_payload::LastPayload;
use crate::transport::Reader;

/// Between messages a peer may be silent for this long (BEP 3: a keep-alive every two minutes).
const IDLE: Duration = Duration::from_secs(150);
/// Within a message or block, bytes must keep coming: silence lasts no longer than this.
const STALL: Duration = Duration::from_secs(20);
/// ... and a block within ten minutes plus this for every 16 KiB of it; else a peer that sends a byte now and then
/// would never time out. That suffices for a small block when each of 100 connections shares a link of 20 kbit/s,
/// and for a large one at 256 bytes a second. This patience costs one connection and its buffer; the engine asks
/// other peers before.
const BLOCK_MOST: Duration = Duration::from_mins(10);
const TRICKLE_PER_LEAF: Duration = Duration::from_secs(64);
/// While a block arrives slowly, the engine is notified this often.
pub(super) const COMING: Duration = Duration::from_secs(1);

/// A reader sleeps at most this long until much of a block has arrived. Slower data may as well be read segment by
/// segment.
const GATHER: Duration = Duration::from_millis(500);

/// Bytes asked of the stream at once of a peer that has proved nothing yet.
const CHUNK_UNPROVEN: usize = 2 << 10;

/// The meaning of the bytes so far.
pub(crate) enum Ready {
    Frame(Frame),
    /// Nothing yet: this many bytes must be there.
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
        let mut chunk = self.chunk;
        if self.reader.is_limited() {
            if need > MAX_READ {
                return Err(ConnError::Protocol("message too long before authentication"));
            }
            chunk = chunk.min(CHUNK_UNPROVEN);
        }
        self.buf.reserve(need.max(chunk).saturating_sub(self.buf.len()));
        let n = timeout(limit, self.reader.read_buf(&mut self.buf)).await;
        match n {
            Err(_) => Err(ConnError::Late { what: "send a message", seconds: limit.as_secs() }),
            Ok(Ok(0)) => Err(ConnError::Closed),
            Ok(Ok(_)) => Ok(()),
            Ok(Err(e)) => Err(e.into()),
        }
    }

    /// Whether the peer, or the network, let us wait at any time since this was asked last.
    pub(crate) fn has_waited(&self) -> bool {
        self.reader.has_waited()
    }

    /// The next message; a block is not expected here.
    pub(crate) async fn message(&mut self) -> Result<Message, ConnError> {
        loop {
            match self.ready()? {
                Ready::Frame(Frame::Message(message)) => return Ok(message),
                Ready::Frame(Frame::Block(_)) => {
                    return Err(ConnError::Protocol("unrequested block"));
                }
                Ready::Need(bytes) => self.more(bytes).await?,
            }
        }
    }

    /// Fills `out` with payload: first from the buffer, then straight from the stream. `coming` is called now and
    /// then when data has arrived and the rest is awaited.
    pub(crate) async fn payload(
        &mut self,
        out: &mut [u8],
        mut coming: impl FnMut(),
        last_payload: &LastPayload,
    ) -> Result<(), ConnError> {
        let here = self.buf.len().min(out.len());
        out[..here].copy_from_slice(&self.buf[..here]);
        self.buf.advance(here);
        if here == out.len() {
            return Ok(());
        }
        let leaves = u32::try_from(out.len().div_ceil(tidecast_hash::LEAF)).unwrap_or(u32::MAX);
        let most = BLOCK_MOST + TRICKLE_PER_LEAF * leaves;
        let mut told = Instant::now();
        let end = told + most;
        let mut rest = &mut out[here..];
        while !rest.is_empty() {
            let silent = Instant::now() + STALL;
            let limit = if silent < end { STALL } else { most };
            match self.some(rest, silent.min(end)).await {
                Err(_) => {
                    return Err(ConnError::Late { what: "continue a block", seconds: limit.as_secs() });
                }
                Ok(read) => match read? {
                    0 => return Err(ConnError::Closed),
                    n => {
                        last_payload.came();
                        rest = &mut rest[n..];
                    }
                },
            }
            if !rest.is_empty() && told.elapsed() >= COMING {
                told = Instant::now();
                coming();
            }
        }
        Ok(())
    }

    /// Reads some of a block until `end`: at first when there is much of it, then whatever there is.
    async fn some(&mut self, rest: &mut [u8], end: Instant) -> Result<std::io::Result<usize>, Elapsed> {
        let gathered = end.min(Instant::now() + GATHER);
        if let Ok(read) = timeout_at(gathered, self.reader.read(rest, true)).await {
            return Ok(read);
        }
        timeout_at(end, self.reader.read(rest, false)).await
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::intake::Missing;
    use tidecast_wire::ext::Offer;
    use tidecast_wire::{ExtIds, Reserved};
    use tokio::io::{AsyncWriteExt, DuplexStream, duplex};

    /// A block of four leaves.
    const BLOCK: usize = 4 * tidecast_hash::LEAF;

    fn input() -> (Input, DuplexStream) {
        let (ours, theirs) = duplex(BLOCK);
        let codec = Codec::new(Reserved::default(), ExtIds::default(), Offer::default());
        let reader = Reader::new(ours, Missing::default());
        (Input::new(reader, BytesMut::new(), codec, 4096), theirs)
    }

    /// `part` bytes of a block arrive, then nothing for `pause`, repeated `times`. The result of the block, its
    /// time in seconds, and how often `coming` was called.
    async fn block(part: usize, pause: u64, times: usize) -> (Result<(), ConnError>, u64, u32) {
        let (mut input, mut peer) = input();
        tokio::spawn(async move {
            for _ in 0..times {
                if peer.write_all(&vec![7; part]).await.is_err() {
                    return;
                }
                tokio::time::sleep(Duration::from_secs(pause)).await;
            }
            std::future::pending::<()>().await;
        });
        let (start, mut out, mut told) = (Instant::now(), vec![0; BLOCK], 0);
        let end = input.payload(&mut out, || told += 1, &LastPayload::default()).await;
        assert!(end.is_err() || out.iter().all(|b| *b == 7));
        (end, start.elapsed().as_secs(), told)
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_block_of_which_something_keeps_coming_is_waited_for() {
        let (end, took, told) = block(BLOCK / 16, 15, 16).await;
        end.unwrap();
        // With all but the first part, which came at once, and the last, which ends it.
        assert_eq!((took, told), (15 * 15, 14));
    }

    #[tokio::test(start_paused = true)]
    async fn silence_within_a_block_is_not_borne() {
        let (end, took, _) = block(BLOCK / 16, 15, 3).await;
        assert!(matches!(end, Err(ConnError::Late { seconds: 20, .. })), "{end:?}");
        assert_eq!(took, 30 + 20);
    }

    #[tokio::test(start_paused = true)]
    async fn nor_a_byte_now_and_then() {
        let (end, took, _) = block(1, 10, BLOCK).await;
        assert!(matches!(end, Err(ConnError::Late { seconds: 856, .. })), "{end:?}");
        assert_eq!(took, 600 + 4 * 64);
    }
}
