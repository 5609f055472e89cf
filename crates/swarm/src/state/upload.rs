//! The requests of peers: one queue a peer, served in turn.
//!
//! Promises: waiting peers get equal bytes (deficit round robin), or one block each in turn while the
//! handed-out data is at its limit: else a few slow peers would delay all others; no peer has more than its
//! share handed to its connection; a queue is bounded, and so is the effect of a cancellation on it.
//!
//! A turn is about a piece (`turn`), and no more peers have one at a time than the uplink needs (`upload_slots`): so
//! pieces are complete at some peer, and forwarded, as soon as possible. In a plan our children come first
//! (`requesters`).
//!
//! A complete peer first gives pieces that it has given to no peer: a request for a piece that another peer
//! has got waits, since that peer may serve it, as long as there are new pieces to give; but every 16th block
//! goes to those requests.
//!
//! A Tidecast peer's queue is served piece by piece, of the next few the one first that fewest others
//! have: of eight peers that ask us for the same four pieces, each gets one that the others want, and
//! they help one another with the rest. Stock peers are served in their own order.

use std::collections::VecDeque;
use std::time::Duration;

use crate::api::{Block, PeerId, Time};
use crate::planted::{Bug, planted};
use crate::state::meter::Meter;
use crate::state::requesters::{Kind, Requesters};
use crate::state::upload_slots::UploadSlots;

/// Bytes that a waiting peer gains at each turn: as long as the longest piece, but between these. While a
/// swarm begins, a peer without pieces can help no other: no peer gets a second one before.
const TURN_LEAST: u64 = 64 << 10;
const TURN_MOST: u64 = 1 << 20;
/// Blocks served are between these, about a 64th of a second at the rate of the peer: a block that is handed
/// out can be neither cancelled nor overtaken.
const BLOCK_LEAST: u64 = 32 << 10;
const BLOCK_MOST: u64 = 1 << 20;
const BLOCK_FIRST: u64 = 64 << 10;
/// Blocks to a child in the plan are between these: one leaf, and as many as are hashed at once.
const FED_LEAST: u64 = 16 << 10;
const FED_MOST: u64 = 256 << 10;

/// A peer's rate is measured over this long; at first over less where this many bytes have moved: data in
/// bursts with pauses between them would never be measured, and be sent in the smallest blocks.
const SAMPLE: Duration = Duration::from_millis(50);
const FIRST_SAMPLE: (Duration, u64) = (Duration::from_millis(2), 1 << 20);

/// Blocks handed to a connection at a time, however small they are: it queues messages, not bytes.
const BLOCKS_MOST: u32 = 1024;

/// New blocks for one of those that others were given.
const NEW: u32 = 15;

/// Requests of which the rarest piece is served first.
const LOOK: usize = 16;

/// One request, or the rest of it: bytes `begin..end` of a piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Job {
    piece: u32,
    begin: u32,
    end: u32,
}

impl Job {
    fn block(self) -> Block {
        let Job { piece, begin, end } = self;
        Block { piece, begin, len: end.saturating_sub(begin) }
    }
}

/// The requests of one peer.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    jobs: VecDeque<Job>,
    /// The piece that is being served.
    current: Option<u32>,
    in_flight: u64,
    /// Blocks in flight.
    blocks: u32,
    deficit: u64,
    in_ring: bool,
    /// It takes up a slot.
    in_lane: bool,
    /// Its weight while data is in flight.
    kind: Option<Kind>,
    /// Our child in the plan: served before all others.
    fed: bool,
    /// It waits for pieces that others were given.
    held: bool,
    /// Bytes that have left, in all.
    moved: u64,
    meter: Meter,
}

impl Queue {
    /// Requests waiting.
    pub(crate) fn len(&self) -> usize {
        self.jobs.len()
    }

    /// Bytes handed to the connection and not yet sent.
    pub(crate) fn in_flight(&self) -> u64 {
        self.in_flight
    }

    /// Bytes per second that the peer takes; 0 when not known.
    pub(crate) fn rate(&self) -> u64 {
        self.meter.rate()
    }

    /// Whether it is our child in the plan.
    pub(crate) fn is_fed(&self) -> bool {
        self.fed
    }

    /// Bytes asked for and not yet handed to the connection.
    pub(crate) fn waiting(&self) -> u64 {
        self.jobs.iter().map(|j| u64::from(j.end.saturating_sub(j.begin))).sum()
    }

    /// Its turn is over until it enters again.
    pub(crate) fn leave_ring(&mut self) {
        self.in_ring = false;
    }

    /// Ends a wait for pieces that others were given; whether there was one.
    pub(crate) fn release(&mut self) -> bool {
        std::mem::replace(&mut self.held, false)
    }

    /// Its turn is not over.
    fn has_turn(&self, uplink: u64) -> bool {
        self.deficit >= self.block_size(BLOCK_MOST, uplink)
    }

    /// A request of `len` bytes at most to the piece's end.
    pub(crate) fn push(&mut self, block: Block) {
        let end = block.begin.saturating_add(block.len);
        self.jobs.push_back(Job { piece: block.piece, begin: block.begin, end });
    }

    /// Adds a request; merged with the last one if it continues it.
    pub(crate) fn push_on(&mut self, block: Block) {
        match self.jobs.back_mut() {
            Some(last) if last.piece == block.piece && last.end == block.begin => {
                last.end = block.begin.saturating_add(block.len);
            }
            _ => self.push(block),
        }
    }

    /// Empties the queue; returns the waiting requests.
    pub(crate) fn drain(&mut self) -> Vec<Block> {
        self.current = None;
        self.jobs.drain(..).map(Job::block).collect()
    }

    /// Takes out requests within `block`; the blocks taken out.
    pub(crate) fn cancel(&mut self, block: Block) -> Vec<Block> {
        let (from, to) = (block.begin, block.begin.saturating_add(block.len));
        let mut gone = Vec::new();
        let touches = |j: &Job| j.piece == block.piece && j.begin < to && from < j.end;
        for i in (0..self.jobs.len()).rev() {
            let Some(&job) = self.jobs.get(i).filter(|j| touches(j)) else { continue };
            let cut = Job { begin: job.begin.max(from), end: job.end.min(to), ..job };
            gone.push(cut.block());
            self.jobs.remove(i);
            let rest = [Job { end: cut.begin, ..job }, Job { begin: cut.end, ..job }];
            for part in rest.into_iter().rev().filter(|p| p.begin < p.end) {
                self.jobs.insert(i, part);
            }
        }
        gone.reverse();
        gone
    }

    /// The place of the request that is served next: the piece in progress, else the rarest of the next few,
    /// by `rank`. A child in the plan is served in order.
    fn next(&self, rank: &impl Fn(u32) -> u32) -> usize {
        if self.fed {
            return 0;
        }
        let few = || self.jobs.iter().take(LOOK).enumerate();
        let under_way = few().find(|(_, j)| Some(j.piece) == self.current);
        let rarest = || few().min_by_key(|(_, j)| rank(j.piece));
        under_way.or_else(rarest).map_or(0, |(i, _)| i)
    }

    /// The next block to serve and where it is queued, without taking it.
    fn peek(&self, most: u64, whole: bool, rank: &impl Fn(u32) -> u32) -> Option<(usize, Block)> {
        let at = if whole { 0 } else { self.next(rank) };
        let block = self.jobs.get(at)?.block();
        Some((at, Block { len: u64::from(block.len).min(most) as u32, ..block }))
    }

    /// Takes the request that `peek` has shown; true when a piece begins with it.
    fn take(&mut self, at: usize, block: Block) -> bool {
        if let Some(job) = self.jobs.get_mut(at) {
            job.begin = block.begin.saturating_add(block.len);
            if job.begin >= job.end {
                self.jobs.remove(at);
            }
        }
        self.current.replace(block.piece) != Some(block.piece)
    }

    /// The largest block to serve now to a peer that takes up to `max`, where all peers together take `uplink` bytes
    /// per second.
    fn block_size(&self, max: u64, uplink: u64) -> u64 {
        let rate = self.meter.rate();
        match self.fed {
            true => fed_block_size(rate, uplink, self.moved).min(max),
            false => block_size(rate).min(max),
        }
    }

    /// Bytes to have in flight, within the peer's share.
    fn in_flight_most(&self, share: Share, uplink: u64) -> u64 {
        let block = self.block_size(share.max_block, uplink);
        (2 * block).max(self.meter.rate() / 32).min(share.serving)
    }
}

/// The block that suits a peer of this rate (0: not known).
pub(crate) fn block_size(rate: u64) -> u64 {
    let block = match rate / 64 {
        0 => BLOCK_FIRST,
        bytes => 1u64 << bytes.ilog2(),
    };
    block.clamp(BLOCK_LEAST, BLOCK_MOST)
}

/// The block size for a child of this rate (0: not known) that has been sent `moved` bytes: a 128th of a
/// second of the whole uplink, as a relay forwards whole blocks.
///
/// A block measured by the child's rate alone gets smaller with each child more, and on a busy processor,
/// which makes all rates lower; small blocks cost more per byte, and make it busier. A larger one than that
/// takes a 32nd of a second at most, and a 256th of the time that the child has been fed: short data cannot
/// wait this long at each hop.
fn fed_block_size(rate: u64, uplink: u64, moved: u64) -> u64 {
    let block = (uplink / 128).min(rate / 32).min(moved / 256).max(rate / 128);
    (1u64 << block.max(1).ilog2()).clamp(FED_LEAST, FED_MOST)
}

/// Permissions of a peer's queue.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Share {
    /// Bytes in flight to the peer.
    pub(crate) serving: u64,
    /// Largest block; for stock clients the request itself.
    pub(crate) max_block: u64,
    /// Stock clients get exactly the requested blocks.
    pub(crate) whole: bool,
}

/// The peer that has its turn.
#[derive(Debug)]
pub(crate) struct Turns {
    ring: VecDeque<PeerId>,
    /// Peers that are not our children in a plan.
    requesters: Requesters,
    /// Peers that wait for pieces that others were given; some may be in the ring again.
    held: VecDeque<PeerId>,
    /// The first of the ring waits for a slot: until one is free, only peers before it are served.
    stuck: bool,
    /// New blocks since one of them was served.
    new: u32,
    slots: UploadSlots,
    /// There is a plan: it determines the order, and slots are not used.
    planned: bool,
    in_flight: u64,
    /// The data sent to all peers together.
    uplink: Meter,
    most: u64,
    /// Bytes of one turn.
    turn: u64,
    /// How many peers each piece was served to, up to 255.
    given: Vec<u8>,
}

/// The result of `Turns::step`.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Serve this block.
    Serve(Block),
    /// Not this time.
    Wait,
    /// All slots are taken: only peers that are being served are served.
    Full,
    /// This peer has nothing to be served, or may not now: it has left the ring.
    Leave,
}

impl Turns {
    /// At most `most` bytes are handed out and not yet sent, over all peers; `longest`: the longest of the pieces.
    pub(crate) fn new(most: u64, pieces: u32, longest: u32) -> Self {
        let given = vec![0; pieces as usize];
        let turn = u64::from(longest).clamp(TURN_LEAST, TURN_MOST);
        let (ring, held) = (VecDeque::new(), VecDeque::new());
        Turns {
            ring,
            requesters: Requesters::default(),
            held,
            stuck: false,
            new: 0,
            slots: UploadSlots::new(),
            planned: false,
            in_flight: 0,
            uplink: Meter::default(),
            most,
            turn,
            given,
        }
    }

    /// How common a piece is that `copies` peers are known to have.
    fn rank(&self, piece: u32, copies: u16) -> u32 {
        u32::from(copies).max(u32::from(self.given.get(piece as usize).copied().unwrap_or(0)))
    }

    /// The piece that `queue` is served next.
    pub(crate) fn next_piece(&self, queue: &Queue, copies: impl Fn(u32) -> u16) -> Option<u32> {
        let rank = |piece| self.rank(piece, copies(piece));
        queue.jobs.get(queue.next(&rank)).map(|j| j.piece)
    }

    pub(crate) fn in_flight(&self) -> u64 {
        self.in_flight
    }

    /// All that may be handed out is.
    fn full(&self) -> bool {
        self.in_flight >= self.most
    }

    /// There is a plan, or no longer; whether it has our children come first.
    pub(crate) fn follow_plan(&mut self, planned: bool, children_first: bool) {
        self.planned = planned;
        self.ring.extend(self.requesters.follow(planned && children_first));
    }

    /// The peer is our child in the plan, or no longer.
    pub(crate) fn feed(&mut self, id: PeerId, queue: &mut Queue, fed: bool) {
        queue.fed = fed;
        if fed && self.requesters.remove(id) {
            self.ring.push_back(id);
        }
    }

    /// The ring in which a peer has its turns.
    fn ring_of(&mut self, queue: &Queue) -> &mut VecDeque<PeerId> {
        self.requesters.ring(queue.fed).unwrap_or(&mut self.ring)
    }

    /// When to serve again, if nothing is sent before.
    pub(crate) fn due(&self) -> Option<Time> {
        self.slots.due()
    }

    /// Looks whether as many are served as should be.
    pub(crate) fn regulate(&mut self, now: Time) {
        self.slots.regulate(now);
    }

    /// The peer may have something to be served: it gets its turns.
    pub(crate) fn enter(&mut self, id: PeerId, queue: &mut Queue) {
        self.enter_ring(id, queue, queue.has_turn(self.uplink.rate()));
    }

    /// Likewise; the `first` peer continues its turn.
    fn enter_ring(&mut self, id: PeerId, queue: &mut Queue, first: bool) {
        if (queue.in_ring && !queue.held) || queue.jobs.is_empty() {
            return;
        }
        (queue.in_ring, queue.held) = (true, false);
        if first {
            self.stuck = false;
            self.ring_of(queue).push_front(id);
        } else {
            self.ring_of(queue).push_back(id);
        }
    }

    /// The peer that has its turn, if anything may be served at all, and whether it has waited for pieces
    /// that others were given.
    pub(crate) fn next(&mut self) -> Option<(PeerId, bool)> {
        self.stuck &= self.slots.full();
        if self.stuck || self.full() {
            return None;
        }
        let turn = self.new >= NEW && !self.held.is_empty() && !self.slots.full();
        if !turn && let Some(id) = self.ring.pop_front().or_else(|| self.requesters.next()) {
            return Some((id, false));
        }
        if turn || (!self.held.is_empty() && !self.slots.half_full()) {
            self.new = 0;
            return self.held.pop_front().map(|id| (id, true));
        }
        None
    }

    /// Delays the peer if the piece that it is served next was given to another.
    pub(crate) fn hold(&mut self, id: PeerId, queue: &mut Queue, copies: impl Fn(u32) -> u16) -> bool {
        let rank = |piece| self.rank(piece, copies(piece));
        let next = queue.jobs.get(queue.next(&rank)).map(|j| j.piece);
        let hold = next.is_some_and(|piece| Some(piece) != queue.current && rank(piece) > 0);
        if hold {
            queue.held = true;
            self.held.push_back(id);
        }
        hold
    }

    /// One turn of the peer that `next` has named.
    pub(crate) fn step(
        &mut self,
        now: Time,
        id: PeerId,
        queue: &mut Queue,
        share: Share,
        copies: impl Fn(u32) -> u16,
    ) -> Step {
        let uplink = self.uplink.rate();
        let most = if share.whole { share.max_block } else { queue.block_size(share.max_block, uplink) };
        let rank = |piece| self.rank(piece, copies(piece));
        let Some((at, block)) = queue.peek(most, share.whole, &rank) else {
            queue.deficit = 0;
            queue.in_ring = false;
            return Step::Leave;
        };
        let len = u64::from(block.len);
        let is_full =
            queue.in_flight + len > queue.in_flight_most(share, uplink) || queue.blocks >= BLOCKS_MOST;
        if queue.in_flight > 0 && is_full {
            queue.in_ring = false;
            return Step::Leave;
        }
        if queue.in_flight == 0 && !self.planned && self.slots.full() {
            self.ring.push_front(id);
            self.stuck = true;
            return Step::Full;
        }
        if queue.in_flight == 0 && !queue.fed && self.requesters.hold(id) {
            return Step::Wait;
        }
        if queue.deficit < len {
            queue.deficit += self.turn;
        }
        if queue.deficit < len {
            self.ring_of(queue).push_back(id);
            return Step::Wait;
        }
        queue.deficit -= len;
        debug_assert!(queue.deficit < self.turn, "a turn is worth one quantum");
        if queue.take(at, block)
            && let Some(given) = self.given.get_mut(block.piece as usize)
        {
            *given = given.saturating_add(1);
        }
        if queue.in_flight == 0 {
            queue.meter.resume(now);
            let kind = if queue.fed { Kind::Child } else { Kind::Requester };
            queue.kind = Some(kind);
            self.requesters.begin(kind);
            queue.in_lane = !self.planned;
            if queue.in_lane {
                self.slots.enter();
            }
        }
        if self.in_flight == 0 {
            self.uplink.resume(now);
        }
        self.new = self.new.saturating_add(1);
        queue.in_flight += len;
        queue.blocks += 1;
        self.in_flight += len;
        let next = queue.peek(most, share.whole, &|piece| self.rank(piece, copies(piece)));
        match next {
            Some((_, next)) if queue.deficit >= u64::from(next.len) && !self.full() => {
                self.ring_of(queue).push_front(id);
            }
            _ => self.ring_of(queue).push_back(id),
        }
        Step::Serve(block)
    }

    /// A block has left for the socket.
    pub(crate) fn sent(&mut self, now: Time, id: PeerId, queue: &mut Queue, len: u32) {
        let gone = u64::from(len).min(queue.in_flight);
        let full = self.full();
        queue.in_flight -= gone;
        queue.blocks = queue.blocks.saturating_sub(1);
        queue.moved += gone;
        self.in_flight -= gone;
        self.slots.sent(gone);
        if gone > 0 && queue.in_flight == 0 && std::mem::take(&mut queue.in_lane) {
            self.slots.leave();
        }
        if queue.in_flight == 0
            && let Some(kind) = queue.kind.take()
        {
            self.requesters.end(kind);
        }
        for meter in [&mut queue.meter, &mut self.uplink] {
            let first = meter.rate() == 0 && meter.moved() >= FIRST_SAMPLE.1;
            meter.add(now, len, if first { FIRST_SAMPLE.0 } else { SAMPLE });
        }
        self.enter_ring(id, queue, queue.has_turn(self.uplink.rate()) && !full);
    }

    /// The peer has disconnected, with all its requests.
    pub(crate) fn forget(&mut self, id: PeerId, queue: &mut Queue) {
        self.in_flight -= if planted(Bug::LeakQueue) { 0 } else { queue.in_flight };
        if queue.in_lane {
            self.slots.leave();
        }
        if let Some(kind) = queue.kind {
            self.requesters.end(kind);
        }
        self.requesters.remove(id);
        if queue.in_ring {
            self.ring.retain(|&p| p != id);
            self.held.retain(|&p| p != id);
            self.stuck = false;
        }
        *queue = Queue::default();
    }
}

#[cfg(test)]
mod tests;
