//! The writing task: messages and blocks out, in the order in which they were decided.
//!
//! Large blocks on a plain socket go from the page cache to the network inside the kernel; those that
//! TLS must encrypt are read part by part, so that each part is still in the core's own cache when it is encrypted. Small ones (stock clients)
//! are read into one buffer together with their headers, so that a system call moves many of them.
//!
//! Keeping the last 2 to 24 blocks of a relay in memory, and encrypting from there, did not reduce CPU time: the
//! larger buffers missed the cache as often as reads from the store.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::{BufMut, BytesMut};
use tidecast_paths::PageBuffer;
use tidecast_swarm::{Block, Event, Protocol};
use tidecast_wire::ext;
use tidecast_wire::{BlockHeader, ExtIds, Extension, Message};
use tokio::sync::mpsc;

use super::link::Link;
use crate::cpu::Stage;
use crate::error::ConnError;
use crate::input::{Input, Out};
use crate::settle::Held;
use crate::shared::Shared;
use crate::transport::{Writer, send_file, send_more};

/// Things taken from the queue in one go.
const BATCH: usize = 64;
/// Bytes gathered before they are written.
const GATHER: usize = 256 << 10;
/// A block that could not be read is offered again after this time.
const AGAIN: Duration = Duration::from_secs(5);
/// A block of at least this size is sent alone, by sendfile where possible.
const LARGE: u32 = 64 << 10;
/// Bytes that are read, encrypted and sent at a time.
const PART: usize = 128 << 10;
/// Pieces of which it is remembered that their leaf hashes were sent: more than go to one peer side by
/// side, one of each stripe and some that wait for their last blocks.
const LEAVES_SENT: usize = 256;
/// Silence is broken after this (BEP 3: two minutes at most).
const KEEP_ALIVE: Duration = Duration::from_secs(90);

struct Writing {
    link: Link,
    writer: Writer,
    out: BytesMut,
    /// A part of the payload of a large block; its memory is cleared once, not for each.
    payload: PageBuffer,
    tidecast: bool,
    served: Vec<Block>,
    /// Pieces whose leaf hashes were sent recently, the latest first.
    leaves_of: VecDeque<u32>,
    /// Messages of roots sent.
    roots_sent: u32,
}

/// Writes until it is told to close or the connection ends.
pub(super) async fn run(
    link: Link,
    writer: Writer,
    mut queue: mpsc::Receiver<Out>,
    protocol: Protocol,
) -> Result<(), ConnError> {
    let tidecast = matches!(protocol, Protocol::Tidecast { .. });
    let out = BytesMut::with_capacity(GATHER + (GATHER >> 2));
    let (served, leaves_of) = (Vec::new(), VecDeque::new());
    let payload = PageBuffer::default();
    let mut writing = Writing { link, writer, out, payload, tidecast, served, leaves_of, roots_sent: 0 };
    let mut batch = Vec::with_capacity(BATCH);
    loop {
        match tokio::time::timeout(KEEP_ALIVE, queue.recv_many(&mut batch, BATCH)).await {
            Ok(0) => return Ok(()),
            Ok(_) => {}
            Err(_) => batch.push(Out::Message(Message::KeepAlive)),
        }
        if !writing.batch(&mut batch).await? {
            let _ = tokio::time::timeout(Duration::from_secs(2), writing.writer.shutdown()).await;
            return Ok(());
        }
    }
}

impl Writing {
    /// Sends a batch; false when its last entry closes the connection.
    async fn batch(&mut self, batch: &mut Vec<Out>) -> Result<bool, ConnError> {
        let mut open = true;
        for item in batch.drain(..) {
            self.roots().await?;
            match item {
                Out::Roots => {}
                Out::Message(message) => self.message(&message)?,
                Out::Serve(block) => self.serve(block).await?,
                Out::ServePadded(block) => {
                    self.meter(block.len).await?;
                    self.copy(block, Held::Whole)?;
                }
                Out::Offer { piece, stripe } => self.offer(piece, stripe)?,
                Out::Close => open = false,
            }
            if self.out.len() >= GATHER {
                self.write().await?;
            }
            if !open {
                break;
            }
        }
        self.write().await?;
        Ok(open)
    }

    fn ids(&self) -> ExtIds {
        *self.link.ids.lock()
    }

    fn message(&mut self, message: &Message) -> Result<(), ConnError> {
        match message.encode(self.ids(), &mut self.out) {
            // A stock client without the extension: it does without the message too.
            Err(tidecast_wire::EncodeError::NotSpoken(_)) => Ok(()),
            other => Ok(other?),
        }
    }

    /// Known roots of a draft are sent before everything else, as later messages may depend on them.
    async fn roots(&mut self) -> Result<(), ConnError> {
        let Some(roots) = self.link.shared.roots.clone() else { return Ok(()) };
        self.roots_sent = self.roots_sent.max(self.link.roots_heard.load(Ordering::Acquire));
        while let Some(message) = roots.get(self.roots_sent) {
            self.message(&Message::Tidecast((*message).clone()))?;
            self.roots_sent += 1;
            if self.out.len() >= GATHER {
                self.write().await?;
            }
        }
        Ok(())
    }

    /// Writes the buffer, and reports its blocks as sent.
    async fn write(&mut self) -> Result<(), ConnError> {
        self.write_with(0).await
    }

    /// The same, and behind it this much of the payload.
    async fn write_with(&mut self, payload: usize) -> Result<(), ConnError> {
        if !self.out.is_empty() || payload > 0 {
            self.writer.write_both(&self.out, &self.payload[..payload]).await?;
            self.writer.flush().await?;
            self.out.clear();
        }
        for block in std::mem::take(&mut self.served) {
            self.report(block).await?;
        }
        Ok(())
    }

    /// Writes the buffer so that the kernel sends it together with the payload that follows.
    async fn write_ahead(&mut self) -> Result<(), ConnError> {
        if let (Some(socket), true) = (self.writer.plain(), self.served.is_empty()) {
            let sent = send_more(socket, &self.out);
            let _ = self.out.split_to(sent);
        }
        self.write().await
    }

    async fn report(&self, block: Block) -> Result<(), ConnError> {
        let event = Event::Sent { peer: self.link.peer, block };
        self.link.shared.inbox.send(Input::Event(event)).await.map_err(|_| ConnError::Stopping)
    }

    /// Waits until a block may go, if this node is limited. Keep-alives go to the peer meanwhile.
    async fn meter(&mut self, len: u32) -> Result<(), ConnError> {
        let Some(throttle) = self.link.shared.throttle.clone() else { return Ok(()) };
        if throttle.may_send(u64::from(len)) {
            return Ok(());
        }
        self.write().await?;
        let mut turn = std::pin::pin!(throttle.send(u64::from(len)));
        while tokio::time::timeout(KEEP_ALIVE, &mut turn).await.is_err() {
            self.message(&Message::KeepAlive)?;
            self.write().await?;
        }
        Ok(())
    }

    async fn serve(&mut self, block: Block) -> Result<(), ConnError> {
        let held = self.link.shared.settler.held(block);
        if held == Held::No {
            // Its piece has failed since the engine's order, and starts again.
            self.reject(block)?;
            return self.report(block).await;
        }
        self.meter(block.len).await?;
        if self.tidecast && !self.leaves(block.piece)? {
            // There are no leaf hashes, nor will there be for its next block.
            self.leaves_sent(block.piece);
        }
        let sent = match self.writer.plain() {
            _ if block.len < LARGE => self.copy(block, held).map(|()| self.served.push(block)),
            Some(_) => self.send_file(block, held).await,
            None => self.send(block, held).await,
        };
        match sent {
            Ok(()) => Ok(()),
            Err(ConnError::Source(error)) => self.lost(block, error).await,
            Err(other) => Err(other),
        }
    }

    /// Announces that the blocks of a piece follow without a request; their proof goes first. If the leaf hashes
    /// are not known here yet, they are sent before the first block.
    fn offer(&mut self, piece: u32, stripe: u16) -> Result<(), ConnError> {
        self.leaves(piece)?;
        self.message(&Message::Tidecast(ext::Message::Offer { channel: 0, stripe, piece }))
    }

    /// Sends the leaf hashes of a piece before its data, so that each leaf can be verified alone, and passed on.
    /// False if this node has none.
    fn leaves(&mut self, piece: u32) -> Result<bool, ConnError> {
        if self.leaves_of.contains(&piece) {
            return Ok(true);
        }
        let leaves = self.link.shared.settler.leaves(piece);
        let Some(hashes) = leaves.filter(|h| h.len() > 1 && h.len() <= ext::MAX_LEAVES) else {
            return Ok(false);
        };
        self.leaves_sent(piece);
        self.message(&Message::Tidecast(ext::Message::Leaves { channel: 0, piece, first: 0, hashes }))?;
        Ok(true)
    }

    fn leaves_sent(&mut self, piece: u32) {
        self.leaves_of.truncate(LEAVES_SENT - 1);
        self.leaves_of.push_front(piece);
    }

    fn header(&mut self, block: Block) -> Result<(), ConnError> {
        let Block { piece, begin, len } = block;
        let header = BlockHeader { channel: 0, piece, begin, len, pushed: false };
        if self.tidecast {
            self.out.extend_from_slice(&ext::block_header(self.ids(), &header)?);
        } else {
            self.out.extend_from_slice(&header.to_piece());
        }
        Ok(())
    }

    /// From the page cache to the socket within the kernel.
    async fn send_file(&mut self, block: Block, held: Held) -> Result<(), ConnError> {
        let shared = self.link.shared.clone();
        let Block { piece, begin, len } = block;
        let spans = match held {
            Held::Proven => shared.store.send_spans_unverified(piece, begin, len)?,
            _ => shared.store.send_spans(piece, begin, len)?,
        };
        self.header(block)?;
        self.write_ahead().await?;
        for span in spans {
            match (&span.file, self.writer.plain()) {
                (Some(file), Some(socket)) => {
                    send_file(
                        socket,
                        file,
                        span.offset,
                        span.len as usize,
                        (&shared.cpu, self.writer.last_payload()),
                    )
                    .await?;
                }
                _ => self.writer.write_all(&vec![0; span.len as usize]).await?,
            }
        }
        self.report(block).await
    }

    /// Through a buffer of its own, behind its header, part by part.
    async fn send(&mut self, block: Block, held: Held) -> Result<(), ConnError> {
        if self.payload.is_empty() {
            self.payload = PageBuffer::new(PART);
        }
        let before = self.out.len();
        self.header(block)?;
        // Records are full if the parts of this writing are.
        let (mut sent, mut most) = (0, PART - self.out.len() % PART);
        while sent < block.len {
            let len = (block.len - sent).min(most as u32);
            let part = Block { begin: block.begin + sent, len, ..block };
            match read(&self.link.shared, part, held, &mut self.payload[..len as usize]) {
                Err(ConnError::Source(error)) if sent > 0 => {
                    self.withdraw(block.piece, error).await;
                    return Err(ConnError::Closed);
                }
                Err(error) => {
                    self.out.truncate(before);
                    return Err(error);
                }
                Ok(()) => {}
            }
            (sent, most) = (sent + len, PART);
            if sent == block.len {
                self.served.push(block);
            }
            self.write_with(len as usize).await?;
        }
        Ok(())
    }

    /// Through the buffer of all that is small, behind its header.
    fn copy(&mut self, block: Block, held: Held) -> Result<(), ConnError> {
        let before = self.out.len();
        self.header(block)?;
        let start = self.out.len();
        self.out.put_bytes(0, block.len as usize);
        let shared = &self.link.shared;
        // A v1 peer of a hybrid asks for the padding behind a file too: it is zeros, as put above.
        let real = shared.manifest.piece_len(block.piece).saturating_sub(block.begin).min(block.len);
        let read = read(shared, block, held, &mut self.out[start..start + real as usize]);
        if read.is_err() {
            self.out.truncate(before);
        }
        read
    }

    /// This node cannot read its own data: reject the request, and withdraw the piece.
    async fn lost(&mut self, block: Block, error: tidecast_store::Error) -> Result<(), ConnError> {
        self.withdraw(block.piece, error).await;
        self.reject(block)?;
        self.report(block).await
    }

    /// If the file is still the verified one (too many open files, a disk that does not respond), the piece is offered again
    /// later.
    async fn withdraw(&self, piece: u32, error: tidecast_store::Error) {
        let inbox = &self.link.shared.inbox;
        let same = !error.is_source_changed() && self.link.shared.store.has(piece);
        let _ = inbox.send(Input::StoreFailed(error)).await;
        let _ = inbox.send(Input::Event(Event::PieceLost { piece })).await;
        if same {
            let inbox = inbox.clone();
            tokio::spawn(async move {
                tokio::time::sleep(AGAIN).await;
                // The swarm may have ended.
                let _ = inbox.send(Input::Event(Event::PieceVerified { piece })).await;
            });
        }
    }

    fn reject(&mut self, block: Block) -> Result<(), ConnError> {
        let Block { piece, begin, len } = block;
        if self.ids().get(Extension::Tidecast).is_some() && self.tidecast {
            let range = ext::BlockRange { channel: 0, piece, begin, len };
            self.message(&Message::Tidecast(ext::Message::RejectBlock(range)))
        } else {
            self.message(&Message::Reject(tidecast_wire::BlockRange { piece, begin, len }))
        }
    }
}

/// Reads the beginning of a block.
fn read(shared: &Shared, block: Block, held: Held, bytes: &mut [u8]) -> Result<(), ConnError> {
    shared.cpu.measure(Stage::Disk, || match held {
        Held::Proven => shared.store.read_unverified(block.piece, block.begin, bytes),
        _ => shared.store.read(block.piece, block.begin, bytes),
    })?;
    Ok(())
}
