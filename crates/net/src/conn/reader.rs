//! The reading task: frames in; payload to the settling threads, everything else to the engine.

use std::ops::Range;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tidecast_swarm::{Block, Event, Protocol};
use tidecast_wire::ext::{self, Mode};
use tidecast_wire::{BlockHeader, BlockRange, ExtIds, Frame, Message};
use tokio::time::timeout;

use super::link::Link;
use crate::error::ConnError;
use crate::framed::{COMING, Input as Framed, Ready};
use crate::input::{Input, Out};
use crate::pool::Buffer;
use crate::security::Security;
use crate::settle::Desk;

/// Ranges taken from one bitfield; a peer with more holes than that is odd, not useful.
const MAX_RANGES: usize = 1 << 20;

/// Blocks of a stock client that follow one another, gathered into one buffer.
struct Run {
    block: Block,
    data: Buffer,
}

struct Reading {
    link: Link,
    run: Option<Run>,
    /// Blocks come one by one at full size: nothing to gather.
    large: bool,
    /// Where blocks are settled that are settled here.
    desk: Desk,
}

/// Reads until the connection ends or the peer breaks a rule.
pub(super) async fn run(link: Link, mut input: Framed, protocol: Protocol) -> Result<(), ConnError> {
    let large = matches!(protocol, Protocol::Tidecast { .. });
    let mut reading = Reading { link, run: None, large, desk: Desk::default() };
    loop {
        match input.ready()? {
            Ready::Frame(Frame::Message(message)) => {
                let ids = input.codec.peer_ids();
                reading.message(message, ids).await?;
            }
            Ready::Frame(Frame::Block(header)) => reading.block(header, &mut input).await?,
            Ready::Need(bytes) => {
                reading.hand_over(input.has_waited()).await?;
                input.more(bytes).await?;
            }
        }
    }
}

impl Reading {
    /// Takes the payload of one block into a buffer.
    async fn block(&mut self, header: BlockHeader, input: &mut Framed) -> Result<(), ConnError> {
        let block = self.check(header)?;
        let len = block.len as usize;
        if self.run.as_ref().is_some_and(|run| !run.is_followed_by(block)) {
            self.hand_over(input.has_waited()).await?;
        }
        self.meter(block, input).await?;
        let run = match &mut self.run {
            Some(run) => run,
            none => {
                let data = self.link.shared.pool.get().await.ok_or(ConnError::Stopping)?;
                none.insert(Run { block: Block { len: 0, ..block }, data })
            }
        };
        let from = run.block.len as usize;
        let (peer, inbox) = (self.link.peer, &self.link.shared.inbox);
        // If the engine is behind, it is notified the next time.
        let coming = || drop(inbox.try_send(Input::Event(Event::Coming { peer })));
        self.link.last_payload.came();
        input.payload(&mut run.data[from..from + len], coming, &self.link.last_payload).await?;
        run.block.len += block.len;
        if self.large || run.data.len() - (from + len) < len {
            self.hand_over(input.has_waited()).await?;
        }
        Ok(())
    }

    /// Waits until a block may come, if this node is limited. Meanwhile nothing is held that others wait for, and the engine
    /// is notified that the peer is not to blame.
    async fn meter(&mut self, block: Block, input: &mut Framed) -> Result<(), ConnError> {
        let Some(throttle) = self.link.shared.throttle.clone() else { return Ok(()) };
        let mut turn = std::pin::pin!(throttle.receive(u64::from(block.len)));
        if timeout(Duration::ZERO, &mut turn).await.is_ok() {
            return Ok(());
        }
        self.hand_over(input.has_waited()).await?;
        let peer = self.link.peer;
        while timeout(COMING, &mut turn).await.is_err() {
            // If the engine is behind, it is notified the next time.
            let _ = self.link.shared.inbox.try_send(Input::Event(Event::Coming { peer }));
        }
        Ok(())
    }

    /// Only whole leaves within a piece are taken (the last of a piece may be short).
    fn check(&self, header: BlockHeader) -> Result<Block, ConnError> {
        let BlockHeader { channel, piece, begin, len, .. } = header;
        let shared = &self.link.shared;
        if channel != 0 || piece >= shared.manifest.piece_count() {
            return Err(ConnError::Protocol("block of a nonexistent piece"));
        }
        let size = shared.manifest.piece_len(piece);
        let leaf = tidecast_hash::LEAF as u32;
        self.proven(piece..piece.saturating_add(1))?;
        let end = begin.checked_add(len).filter(|end| *end <= size);
        let whole = begin % leaf == 0 && end.is_some_and(|end| end % leaf == 0 || end == size);
        if !whole || len == 0 || len as usize > shared.pool.buffer_size() {
            return Err(ConnError::Protocol("block with an invalid length or offset"));
        }
        Ok(Block { piece, begin, len })
    }

    /// Passes received blocks to the settling threads, or settles them here. `waited`: reading had to wait for the network.
    async fn hand_over(&mut self, waited: bool) -> Result<(), ConnError> {
        let Some(run) = &self.run else { return Ok(()) };
        if self.link.shared.settler.is_for_reader(run.block, waited) {
            return self.settle().await;
        }
        let settler = &self.link.shared.settler;
        let slot = settler.slot().await.ok_or(ConnError::Stopping)?;
        let Some(Run { block, data }) = self.run.take() else { return Ok(()) };
        let peer = self.link.peer;
        self.tell(Event::Received { peer, block }).await?;
        // No wait from here on: the engine knows of the block, so it must get its verdict.
        settler.block(slot, peer, block, data);
        Ok(())
    }

    /// Settles the received blocks.
    async fn settle(&mut self) -> Result<(), ConnError> {
        let Reading { link, desk, .. } = self;
        let (peer, inbox) = (link.peer, &link.shared.inbox);
        let received = inbox.reserve().await.map_err(|_| ConnError::Stopping)?;
        let Some(Run { block, data }) = self.run.take() else { return Ok(()) };
        link.shared.settler.settle(peer, block, &data, desk);
        // Sent after the work, together with its results: the engine is woken once.
        received.send(Input::Event(Event::Received { peer, block }));
        while let Ok(places) = inbox.try_reserve_many(desk.heard.len()) {
            places.zip(desk.heard.drain(..)).for_each(|(place, input)| place.send(input));
            if !link.shared.settler.said(desk) {
                return Ok(());
            }
        }
        // A task of its own, so that no verdict is lost if this connection ends while the engine is behind.
        let (inbox, settler, mut desk) = (inbox.clone(), link.shared.settler.clone(), std::mem::take(desk));
        let sending = tokio::spawn(async move {
            loop {
                for input in desk.heard.drain(..) {
                    let _ = inbox.send(input).await;
                }
                if !settler.said(&mut desk) {
                    return;
                }
            }
        });
        sending.await.map_err(|_| ConnError::Stopping)
    }

    async fn tell(&self, event: Event) -> Result<(), ConnError> {
        self.link.shared.inbox.send(Input::Event(event)).await.map_err(|_| ConnError::Stopping)
    }

    async fn message(&mut self, message: Message, ids: ExtIds) -> Result<(), ConnError> {
        let peer = self.link.peer;
        let event = match message {
            Message::Choke => Event::Choked { peer },
            Message::Unchoke => Event::Unchoked { peer },
            Message::Interested => Event::Interested { peer },
            Message::NotInterested => Event::NotInterested { peer },
            Message::Have(piece) => Event::Has { peer, pieces: self.proven(piece..piece.saturating_add(1))? },
            Message::Bitfield(bits) => Event::HasExactly { peer, pieces: self.ranges(&bits)? },
            Message::HaveAll => {
                self.covered(self.link.shared.manifest.piece_count())?;
                Event::HasAll { peer }
            }
            Message::HaveNone => Event::HasNone { peer },
            Message::DontHave(piece) => {
                self.pieces(piece..piece.saturating_add(1))?;
                Event::HasNot { peer, piece }
            }
            Message::Request(r) => return self.requested(r).await,
            Message::Cancel(r) => Event::Canceled { peer, block: self.asked(r.piece, r.begin, r.len)? },
            Message::Reject(r) => Event::Rejected { peer, block: self.asked(r.piece, r.begin, r.len)? },
            Message::AllowedFast(piece) => {
                self.pieces(piece..piece.saturating_add(1))?;
                Event::AllowedFast { peer, piece }
            }
            Message::ExtHandshake(hello) => {
                *self.link.ids.lock() = ids;
                let (client, port, upload_only) = (hello.client, hello.port, hello.upload_only);
                let input = Input::Hello { peer, client, port, upload_only };
                self.link.shared.inbox.send(input).await.map_err(|_| ConnError::Stopping)?;
                match hello.reqq {
                    Some(requests) => Event::QueueLimit { peer, requests },
                    None => return Ok(()),
                }
            }
            Message::Tidecast(message) => return self.tidecast(message).await,
            Message::HashRequest(range) => return self.link.answer_hashes(range).await,
            Message::Metadata(message) => return self.link.answer_metadata(&message).await,
            Message::Pex(pex) => {
                return self.link.found(pex.added.into_iter().map(|p| p.addr)).await;
            }
            Message::KeepAlive
            | Message::Port(_)
            | Message::Suggest(_)
            | Message::Hashes(_)
            | Message::HashReject(_)
            | Message::Unknown { .. } => return Ok(()),
        };
        self.tell(event).await
    }

    /// A request of a stock client. In a hybrid torrent it may reach into the padding after a file, which the
    /// engine does not know; such a block is answered without it, one at a time.
    async fn requested(&self, r: BlockRange) -> Result<(), ConnError> {
        let peer = self.link.peer;
        let shared = &self.link.shared;
        self.pieces(r.piece..r.piece.saturating_add(1))?;
        let end = u64::from(r.begin) + u64::from(r.len);
        let padded = end > u64::from(shared.manifest.piece_len(r.piece))
            && end <= u64::from(shared.manifest.wire_len(r.piece));
        if !padded {
            let block = self.asked(r.piece, r.begin, r.len)?;
            return self.tell(Event::Requested { peer, block }).await;
        }
        let block = Block { piece: r.piece, begin: r.begin, len: r.len };
        let out = match shared.settler.is_verified(r.piece) {
            true => Out::ServePadded(block),
            false => Out::Message(Message::Reject(r)),
        };
        self.link.outbox.send(out).await.map_err(|_| ConnError::Closed)
    }

    async fn tidecast(&mut self, message: ext::Message) -> Result<(), ConnError> {
        use ext::Message as M;
        let peer = self.link.peer;
        let event = match message {
            M::RequestBlock(r) => Event::Requested { peer, block: self.asked(r.piece, r.begin, r.len)? },
            M::CancelBlock(r) => Event::Canceled { peer, block: self.asked(r.piece, r.begin, r.len)? },
            M::RejectBlock(r) => Event::Rejected { peer, block: self.asked(r.piece, r.begin, r.len)? },
            M::RequestPieces(r) => Event::RequestedPieces { peer, pieces: self.pieces(r.pieces())? },
            M::CancelPieces(r) => {
                for block in self.whole(r.pieces())? {
                    self.tell(Event::Canceled { peer, block }).await?;
                }
                return Ok(());
            }
            M::RejectPieces(r) => {
                for block in self.whole(r.pieces())? {
                    self.tell(Event::Rejected { peer, block }).await?;
                }
                return Ok(());
            }
            M::Availability(a) => return self.has(a.mode, a.pieces().collect()).await,
            M::AvailabilityBits(a) => return self.has(a.mode, a.pieces().collect()).await,
            M::Leaves { piece, first: 0, hashes, .. } => {
                self.proven(piece..piece.saturating_add(1))?;
                if self.link.shared.settler.learn(piece, hashes) {
                    return Ok(());
                }
                Event::BlockBad { peer, block: Block { piece, begin: 0, len: 0 } }
            }
            M::Roots { .. } | M::Seal { .. } => return self.roots(message).await,
            M::Offer { stripe, piece, .. } => {
                self.proven(piece..piece.saturating_add(1))?;
                Event::Offered { peer, piece, stripe }
            }
            M::OfferBelow { below, .. } => Event::OfferBelow { peer, below },
            M::Wish { stripe, urgent, pieces } => {
                Event::Wished { peer, pieces: self.pieces(pieces.pieces())?, stripe, urgent }
            }
            M::Gather { bytes, .. } => {
                let said = self.link.shared.inbox.send(Input::PlanMessage { peer, bytes }).await;
                return said.map_err(|_| ConnError::Stopping);
            }
            M::Revoked { list, .. } => return self.revoked(&list).await,
            M::Peers { addrs, .. } => return self.link.found(addrs.into_iter()).await,
            M::Denied { text, .. } => return Err(ConnError::Denied(text)),
            M::Goodbye { .. } => return Err(ConnError::Closed),
            other => return self.link.answer(other).await,
        };
        self.tell(event).await
    }

    async fn has(&self, mode: Mode, pieces: Vec<Range<u32>>) -> Result<(), ConnError> {
        let peer = self.link.peer;
        if let Some(last) = pieces.last() {
            self.proven(last.clone())?;
        }
        match mode {
            Mode::Reset => self.tell(Event::HasExactly { peer, pieces }).await,
            Mode::Add => self.tell(Event::HasMore { peer, pieces }).await,
            Mode::Remove => {
                for piece in pieces.into_iter().flatten() {
                    self.tell(Event::HasNot { peer, piece }).await?;
                }
                Ok(())
            }
        }
    }

    /// A message of a draft's owner about its pieces.
    async fn roots(&self, message: ext::Message) -> Result<(), ConnError> {
        let Some(roots) = &self.link.shared.roots else { return Ok(()) };
        let (ext::Message::Roots { number, .. } | ext::Message::Seal { number, .. }) = message else {
            return Ok(());
        };
        let news = roots.hear(message).map_err(ConnError::Protocol)?;
        self.link.roots_heard.fetch_max(number.saturating_add(1), Ordering::AcqRel);
        let Some(pieces) = news else { return Ok(()) };
        // Pieces already on disk are announced before the peer can offer them. This runs even if the connection
        // ends meanwhile: no other task would do it.
        let shared = self.link.shared.clone();
        let told = self.link.shared.runtime.spawn(async move {
            for input in shared.settler.weigh(pieces).into_iter().chain([Input::Roots]) {
                let _ = shared.inbox.send(input).await;
            }
        });
        told.await.map_err(|_| ConnError::Stopping)
    }

    async fn revoked(&self, list: &[u8]) -> Result<(), ConnError> {
        let Security::Private(membership) = &self.link.shared.security else { return Ok(()) };
        if membership.learn_revocations(list).map_err(|_| ConnError::Protocol("forged revocation list"))? {
            let _ = self.link.shared.inbox.send(Input::Recheck).await;
        }
        Ok(())
    }

    fn pieces(&self, pieces: Range<u32>) -> Result<Range<u32>, ConnError> {
        if pieces.is_empty() || pieces.end > self.link.shared.manifest.piece_count() {
            return Err(ConnError::Protocol("nonexistent piece"));
        }
        Ok(pieces)
    }

    /// Pieces that the peer may announce: in a draft it must send their roots first.
    fn proven(&self, pieces: Range<u32>) -> Result<Range<u32>, ConnError> {
        self.covered(pieces.end)?;
        self.pieces(pieces)
    }

    fn covered(&self, end: u32) -> Result<(), ConnError> {
        let ahead = self.link.shared.roots.as_ref().is_some_and(|roots| end > roots.covered());
        if ahead { Err(ConnError::Protocol("piece announced before its root")) } else { Ok(()) }
    }

    fn asked(&self, piece: u32, begin: u32, len: u32) -> Result<Block, ConnError> {
        self.pieces(piece..piece.saturating_add(1))?;
        let size = self.link.shared.manifest.piece_len(piece);
        if len == 0 || begin.checked_add(len).is_none_or(|end| end > size) {
            return Err(ConnError::Protocol("range outside the piece"));
        }
        Ok(Block { piece, begin, len })
    }

    fn whole(&self, pieces: Range<u32>) -> Result<impl Iterator<Item = Block>, ConnError> {
        let manifest = self.link.shared.manifest.clone();
        let block = move |piece| Block { piece, begin: 0, len: manifest.piece_len(piece) };
        Ok(self.pieces(pieces)?.map(block))
    }

    /// A bitfield as ranges; its length was checked by the codec, spare bits must be zero (BEP 3).
    fn ranges(&self, bits: &[u8]) -> Result<Vec<Range<u32>>, ConnError> {
        let mut ranges: Vec<Range<u32>> = Vec::new();
        for (at, byte) in (0_u32..).step_by(8).zip(bits).filter(|(_, b)| **b != 0) {
            for piece in (0..8).filter(|i| byte << i & 0x80 != 0).map(|i| at + i) {
                if let Some(last) = ranges.last_mut().filter(|last| last.end == piece) {
                    last.end += 1;
                } else if ranges.len() < MAX_RANGES {
                    ranges.push(piece..piece + 1);
                } else {
                    return Err(ConnError::Protocol("bitfield with too many gaps"));
                }
            }
        }
        if let Some(last) = ranges.last() {
            self.proven(last.clone())?;
        }
        Ok(ranges)
    }
}

impl Run {
    fn is_followed_by(&self, block: Block) -> bool {
        let end = self.block.begin + self.block.len;
        let room = self.data.len() - self.block.len as usize;
        self.block.piece == block.piece && end == block.begin && block.len as usize <= room
    }
}
