//! The engine's state of one live connection. All of it is dropped with the connection.
//!
//! Each mechanism has a part of its own, private to the part's file; private here are the requests to the
//! peer, and the state of the connection.

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use crate::api::{Candidate, Limits, PeerId, Protocol, Time};
use crate::state::addresses::End;
use crate::state::budget::Need;
use crate::state::choker::Choking;
use crate::state::counts::Counts;
use crate::state::interest::Interest;
use crate::state::membership::Place;
use crate::state::next_request::NextRequest;
use crate::state::peer_pieces::PeerPieces;
use crate::state::pieces::CELL;
use crate::state::silence::Silence;
use crate::state::upload::{Queue, Share, block_size};
use crate::state::window::Window;

/// Outstanding requests at a stock client that has not announced the length of its queue.
const STOCK_QUEUE: u32 = 250;
/// ... and at most, whatever it announces.
const STOCK_QUEUE_MOST: u32 = 2000;
/// Pieces outstanding at a Tidecast peer, half of the default `Limits::queued_requests`.
const PIECES_MOST: u32 = 2048;
/// Largest block a stock client may ask for; most clients draw the line here.
pub(crate) const STOCK_BLOCK_MOST: u32 = 128 << 10;

/// Part of a piece that was asked for and has not come.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    pub(crate) piece: u32,
    /// Bytes still to come.
    pub(crate) bytes: u32,
    /// When it was asked for.
    pub(crate) at: Time,
    /// Nothing of it has come yet.
    pub(crate) fresh: bool,
    /// Nothing else was outstanding when it was asked for.
    pub(crate) idle: bool,
}

/// See the head of the file.
#[derive(Debug)]
pub(crate) struct Peer {
    pub(crate) id: PeerId,
    pub(crate) protocol: Protocol,
    pub(crate) candidate: Option<Candidate>,
    told: bool,
    pub(crate) since: Time,
    /// When anything last came from it, and the usual pause between two such times.
    heard: Time,
    pause: Duration,
    /// We have closed it; only `PeerDown` is awaited.
    closing: bool,
    /// The use of its address after it has disconnected.
    end: End,

    pub(crate) have: PeerPieces,
    pub(crate) interest: Interest,
    pub(crate) choking: Choking,
    pub(crate) place: Place,
    pub(crate) need: Need,

    /// Its outstanding requests, oldest first.
    asked: VecDeque<Asked>,
    outstanding: u64,
    /// In cells, the last of a piece being short.
    cells: u32,
    /// Bytes taken back that may come all the same.
    stray: u64,
    queue_limit: u32,
    pub(crate) window: Window,
    pub(crate) next_request: NextRequest,
    pub(crate) silence: Silence,

    pub(crate) queue: Queue,
    /// Requests refused since it was last served.
    refused: usize,
    pub(crate) counts: Counts,
}

impl Peer {
    pub(crate) fn new(
        id: PeerId,
        protocol: Protocol,
        candidate: Option<Candidate>,
        limits: &Limits,
        now: Time,
    ) -> Self {
        let stock = matches!(protocol, Protocol::Stock { .. });
        Peer {
            id,
            protocol,
            candidate,
            told: false,
            since: now,
            heard: now,
            pause: Duration::ZERO,
            closing: false,
            end: End::Lost,
            have: PeerPieces::default(),
            interest: Interest::new(stock, now),
            choking: Choking::new(stock),
            place: Place::default(),
            need: Need::new(now),
            asked: VecDeque::new(),
            outstanding: 0,
            cells: 0,
            stray: 0,
            queue_limit: if stock { STOCK_QUEUE } else { PIECES_MOST },
            window: Window::new(limits.window),
            next_request: NextRequest::default(),
            silence: Silence::new(now),
            queue: Queue::default(),
            refused: 0,
            counts: Counts::default(),
        }
    }

    /// Its address was told by the user, not found.
    pub(crate) fn was_told(&mut self) {
        self.told = true;
    }

    pub(crate) fn is_told(&self) -> bool {
        self.told
    }

    /// Nothing is asked of it, sent to it or expected any more.
    pub(crate) fn close(&mut self) {
        self.closing = true;
    }

    /// We have closed it; only `PeerDown` is awaited.
    pub(crate) fn is_closing(&self) -> bool {
        self.closing
    }

    /// The use of its address after it has disconnected.
    pub(crate) fn ends(&mut self, end: End) {
        self.end = end;
    }

    pub(crate) fn end(&self) -> End {
        self.end
    }

    /// When anything last came from it.
    pub(crate) fn heard(&self) -> Time {
        self.heard
    }

    /// The usual pause between two such times.
    pub(crate) fn pause(&self) -> Duration {
        self.pause
    }

    /// A request of it is refused; how many were since it was last served.
    pub(crate) fn refuse(&mut self) -> usize {
        self.refused += 1;
        self.refused
    }

    /// It was served.
    pub(crate) fn served(&mut self) {
        self.refused = 0;
    }

    /// Something has come from it.
    pub(crate) fn note_heard(&mut self, now: Time) {
        self.pause = (self.pause * 7 + now.since(self.heard)) / 8;
        self.heard = now;
    }

    pub(crate) fn is_stock(&self) -> bool {
        matches!(self.protocol, Protocol::Stock { .. })
    }

    pub(crate) fn is_web(&self) -> bool {
        matches!(self.protocol, Protocol::Web { .. })
    }

    /// It serves in order only.
    pub(crate) fn in_order(&self) -> bool {
        matches!(self.protocol, Protocol::Web { in_order: true, .. })
    }

    /// It answers a request that it will not serve with a reject.
    pub(crate) fn rejects(&self) -> bool {
        !matches!(self.protocol, Protocol::Stock { fast: false })
    }

    /// Most bytes of one request to it.
    pub(crate) fn request_size(&self) -> u32 {
        match self.protocol {
            Protocol::Tidecast { max_block } | Protocol::Web { max_block, .. } => {
                max_block.clamp(CELL, 1 << 20)
            }
            Protocol::Stock { .. } => CELL,
        }
    }

    /// The bytes that it delivers at once, as far as can be told.
    pub(crate) fn block_size(&self) -> u64 {
        block_size(self.window.rate()).min(u64::from(self.request_size()))
    }

    /// How its queue is served.
    pub(crate) fn share(&self, limits: &Limits) -> Share {
        let max_block = match self.protocol {
            Protocol::Tidecast { max_block } | Protocol::Web { max_block, .. } => max_block.max(CELL),
            Protocol::Stock { .. } => STOCK_BLOCK_MOST,
        };
        Share { serving: u64::from(limits.serving), max_block: u64::from(max_block), whole: self.is_stock() }
    }

    /// Requests outstanding in the unit of its protocol, rather too many than too few.
    fn requests(&self) -> u32 {
        match self.protocol {
            Protocol::Tidecast { .. } | Protocol::Web { .. } => {
                self.asked.len() as u32 + (self.outstanding / u64::from(self.request_size())) as u32
            }
            Protocol::Stock { .. } => self.cells,
        }
    }

    /// The length of its request queue. A Tidecast peer is sent half as many: cancelling the middle of a
    /// request makes two of it.
    pub(crate) fn limit_queue(&mut self, requests: u32) {
        let most = if self.is_stock() { requests } else { requests / 2 };
        self.queue_limit = most.clamp(1, STOCK_QUEUE_MOST);
    }

    /// Requests that it may be sent beyond those outstanding.
    pub(crate) fn spare_requests(&self) -> u32 {
        self.queue_limit.saturating_sub(self.requests())
    }

    /// Bytes that may be asked of it now; 0 until a quarter of its window is free, so that requests
    /// do not go out one block at a time.
    pub(crate) fn room(&self, now: Time) -> u64 {
        let window = match self.silence.stalled() {
            true => self.block_size(),
            false => self.window.size(),
        };
        let busy = self.outstanding > window / 4 * 3 && self.outstanding > 0;
        if self.closing || busy || self.silence.resting(now) || self.spare_requests() == 0 {
            return 0;
        }
        let room = window.saturating_sub(self.outstanding);
        match self.is_stock() {
            true => room.min(u64::from(self.spare_requests()) * u64::from(CELL)),
            false => room,
        }
    }

    /// The outstanding requests, oldest first.
    pub(crate) fn asked(&self) -> &VecDeque<Asked> {
        &self.asked
    }

    /// Bytes asked of it and not yet here.
    pub(crate) fn outstanding(&self) -> u64 {
        self.outstanding
    }

    /// Likewise in cells, the last of a piece being short.
    pub(crate) fn cells(&self) -> u32 {
        self.cells
    }

    /// These bytes were taken back and may come all the same.
    pub(crate) fn allow_unrequested(&mut self, bytes: u64) {
        self.stray += bytes;
    }

    /// This many bytes came without a request; false when they are more than allowed, and `beyond`.
    pub(crate) fn is_allowed_unrequested(&mut self, bytes: u64, beyond: u64) -> bool {
        let may = bytes <= self.stray + beyond;
        if may {
            self.stray = self.stray.saturating_sub(bytes);
        }
        may
    }

    /// Notes that `bytes` of `piece` were asked for.
    pub(crate) fn note_asked(&mut self, piece: u32, bytes: u32, now: Time) {
        let idle = self.outstanding == 0;
        if idle {
            self.window.wake(now);
            self.silence.wake(now);
        }
        self.outstanding += u64::from(bytes);
        self.cells += bytes.div_ceil(CELL);
        match self.asked.back_mut() {
            Some(last) if last.piece == piece && last.at == now => last.bytes += bytes,
            _ => self.asked.push_back(Asked { piece, bytes, at: now, fresh: true, idle }),
        }
    }

    /// The time of the first outstanding request for `piece`.
    pub(crate) fn asked_at(&self, piece: u32) -> Option<Time> {
        self.asked.iter().find(|a| a.piece == piece).map(|a| a.at)
    }

    /// Notes that `bytes` of `piece` that were asked for are not awaited any more; the first entry
    /// they belonged to, as it was.
    pub(crate) fn note_gone(&mut self, piece: u32, bytes: u32) -> Option<Asked> {
        let mut left = bytes;
        let mut first = None;
        let mut at = 0;
        while left > 0
            && let Some(entry) = self.asked.get_mut(at)
        {
            if entry.piece != piece {
                at += 1;
                continue;
            }
            if first.is_none() {
                first = Some(entry.clone());
                entry.fresh = false;
            }
            let part = entry.bytes.min(left);
            entry.bytes -= part;
            left -= part;
            if entry.bytes == 0 {
                self.asked.remove(at);
            } else {
                at += 1;
            }
        }
        debug_assert_eq!(left, 0, "more of piece {piece} is gone than was asked for");
        self.outstanding = self.outstanding.saturating_sub(u64::from(bytes));
        self.cells = self.cells.saturating_sub(bytes.div_ceil(CELL));
        first
    }

    /// The distinct pieces that something is asked of.
    pub(crate) fn asked_pieces(&self) -> BTreeSet<u32> {
        self.asked.iter().map(|a| a.piece).collect()
    }
}
