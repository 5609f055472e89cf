//! What peers have asked of us: one queue a peer, served in turn.
//!
//! Promises: a peer's requests are served in its own order; peers that wait get equal bytes (deficit
//! round robin); no peer has more than its share handed to its connection; a queue is bounded, and so
//! is what a cancellation can make of it.

use std::collections::VecDeque;
use std::ops::Range;

use crate::api::{Block, PeerId, Time};
use crate::window::Meter;

/// Bytes that a waiting peer gains at each turn.
const QUANTUM: u64 = 256 << 10;
/// Blocks served are between these, about a 32nd of a second at the rate of the peer: what is handed
/// out can be neither cancelled nor overtaken.
const BLOCK_LEAST: u64 = 64 << 10;
const BLOCK_MOST: u64 = 1 << 20;
const BLOCK_FIRST: u64 = 256 << 10;

/// One request, or what is left of it.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Job {
    /// Bytes `begin..end` of a piece.
    Part { piece: u32, begin: u32, end: u32 },
    /// Whole pieces; of the first one, bytes before `begin` are done.
    Run { pieces: Range<u32>, begin: u32 },
}

impl Job {
    fn weight(&self) -> usize {
        match self {
            Job::Part { .. } => 1,
            Job::Run { pieces, .. } => pieces.len(),
        }
    }
}

/// The requests of one peer.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    jobs: VecDeque<Job>,
    weight: usize,
    in_flight: u64,
    deficit: u64,
    in_ring: bool,
    meter: Meter,
}

impl Queue {
    /// Requests waiting: blocks, and pieces of runs.
    pub(crate) fn len(&self) -> usize {
        self.weight
    }

    /// Bytes handed to the connection and not yet sent.
    pub(crate) fn in_flight(&self) -> u64 {
        self.in_flight
    }

    /// Bytes per second that the peer takes; 0 when not known.
    pub(crate) fn rate(&self) -> u64 {
        self.meter.rate()
    }

    /// The piece that is served next.
    pub(crate) fn front(&self) -> Option<u32> {
        self.jobs.front().map(|job| match job {
            Job::Part { piece, .. } => *piece,
            Job::Run { pieces, .. } => pieces.start,
        })
    }

    /// Its turn is over until it enters again.
    pub(crate) fn leave_ring(&mut self) {
        self.in_ring = false;
    }

    pub(crate) fn push_block(&mut self, block: Block) {
        let end = block.begin.saturating_add(block.len);
        self.push(Job::Part { piece: block.piece, begin: block.begin, end });
    }

    pub(crate) fn push_pieces(&mut self, pieces: Range<u32>) {
        self.push(Job::Run { pieces, begin: 0 });
    }

    fn push(&mut self, job: Job) {
        self.weight += job.weight();
        self.jobs.push_back(job);
    }

    /// Empties the queue; what was waiting, at most one block a piece.
    pub(crate) fn drain(&mut self, length: impl Fn(u32) -> u32) -> Vec<Block> {
        self.weight = 0;
        let mut out = Vec::new();
        for job in self.jobs.drain(..) {
            match job {
                Job::Part { piece, begin, end } => {
                    out.push(Block { piece, begin, len: end.saturating_sub(begin) });
                }
                Job::Run { pieces, begin } => {
                    let first = pieces.start;
                    out.extend(pieces.map(|piece| {
                        let begin = if piece == first { begin } else { 0 };
                        Block { piece, begin, len: length(piece).saturating_sub(begin) }
                    }));
                }
            }
        }
        out
    }

    /// Takes out what lies within `block`; the blocks taken out.
    pub(crate) fn cancel(&mut self, block: Block, length: impl Fn(u32) -> u32) -> Vec<Block> {
        let (from, to) = (block.begin, block.begin.saturating_add(block.len));
        let mut gone = Vec::new();
        let mut kept = VecDeque::with_capacity(self.jobs.len());
        for job in self.jobs.drain(..) {
            let (piece, begin, end) = match job {
                Job::Part { piece, begin, end } if piece == block.piece => (piece, begin, end),
                Job::Run { pieces, begin } if pieces.contains(&block.piece) => {
                    let piece = block.piece;
                    let at_first = piece == pieces.start;
                    if !at_first {
                        kept.push_back(Job::Run { pieces: pieces.start..piece, begin });
                    }
                    let rest = piece + 1..pieces.end;
                    let mut whole = vec![(piece, if at_first { begin } else { 0 }, length(piece))];
                    cut(&mut whole, from, to, &mut gone);
                    kept.extend(whole.into_iter().map(|(piece, begin, end)| Job::Part { piece, begin, end }));
                    if rest.start < rest.end {
                        kept.push_back(Job::Run { pieces: rest, begin: 0 });
                    }
                    continue;
                }
                other => {
                    kept.push_back(other);
                    continue;
                }
            };
            let mut parts = vec![(piece, begin, end)];
            cut(&mut parts, from, to, &mut gone);
            kept.extend(parts.into_iter().map(|(piece, begin, end)| Job::Part { piece, begin, end }));
        }
        self.weight = kept.iter().map(Job::weight).sum();
        self.jobs = kept;
        gone
    }

    /// The next block to serve, without taking it.
    fn peek(&self, most: u64, length: &impl Fn(u32) -> u32) -> Option<Block> {
        let (piece, begin, end) = match self.jobs.front()? {
            Job::Part { piece, begin, end } => (*piece, *begin, *end),
            Job::Run { pieces, begin } => (pieces.start, *begin, length(pieces.start)),
        };
        let len = u64::from(end.saturating_sub(begin)).min(most) as u32;
        Some(Block { piece, begin, len })
    }

    /// Takes the front `block`, which `peek` has shown.
    fn take(&mut self, block: Block, length: &impl Fn(u32) -> u32) {
        let upto = block.begin.saturating_add(block.len);
        let done = match self.jobs.front_mut() {
            Some(Job::Part { begin, end, .. }) => {
                *begin = upto;
                *begin >= *end
            }
            Some(Job::Run { pieces, begin }) => {
                *begin = upto;
                if *begin >= length(pieces.start) {
                    pieces.start += 1;
                    *begin = 0;
                    self.weight -= 1;
                }
                pieces.start >= pieces.end
            }
            None => false,
        };
        if done && let Some(job) = self.jobs.pop_front() {
            self.weight -= job.weight();
        }
    }

    /// The largest block to serve now to a peer that takes up to `max`.
    fn block_size(&self, max: u64) -> u64 {
        block_size(self.meter.rate()).min(max)
    }

    /// Bytes to have in flight, within the peer's share.
    fn in_flight_most(&self, share: Share) -> u64 {
        let block = self.block_size(share.max_block);
        (2 * block).max(self.meter.rate() / 32).min(share.serving)
    }
}

/// The block that suits a peer of this rate (0: not known).
pub(crate) fn block_size(rate: u64) -> u64 {
    let block = match rate / 32 {
        0 => BLOCK_FIRST,
        bytes => 1u64 << bytes.ilog2(),
    };
    block.clamp(BLOCK_LEAST, BLOCK_MOST)
}

/// Cuts `from..to` out of the parts; what is cut goes to `gone`.
fn cut(parts: &mut Vec<(u32, u32, u32)>, from: u32, to: u32, gone: &mut Vec<Block>) {
    let mut out = Vec::new();
    for &(piece, begin, end) in parts.iter() {
        let (a, b) = (begin.max(from), end.min(to));
        if a >= b {
            out.push((piece, begin, end));
            continue;
        }
        gone.push(Block { piece, begin: a, len: b - a });
        if begin < a {
            out.push((piece, begin, a));
        }
        if b < end {
            out.push((piece, b, end));
        }
    }
    *parts = out;
}

/// What a peer's queue may do.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Share {
    /// Bytes in flight to the peer.
    pub(crate) serving: u64,
    /// Largest block; for stock clients the request itself.
    pub(crate) max_block: u64,
    /// Stock clients get what they asked for, not more or less at once.
    pub(crate) whole: bool,
}

/// Whose turn it is.
#[derive(Debug)]
pub(crate) struct Turns {
    ring: VecDeque<PeerId>,
    in_flight: u64,
    most: u64,
}

/// What `Turns::step` has come to.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Serve this block.
    Serve(Block),
    /// Not this time.
    Wait,
    /// This peer has nothing to be served, or may not now: it has left the ring.
    Leave,
}

impl Turns {
    /// At most `most` bytes are handed out and not yet sent, over all peers.
    pub(crate) fn new(most: u64) -> Self {
        Turns { ring: VecDeque::new(), in_flight: 0, most }
    }

    pub(crate) fn in_flight(&self) -> u64 {
        self.in_flight
    }

    /// The peer may have something to be served: it gets its turns.
    pub(crate) fn enter(&mut self, id: PeerId, queue: &mut Queue) {
        if !queue.in_ring && queue.weight > 0 {
            queue.in_ring = true;
            self.ring.push_back(id);
        }
    }

    /// Whose turn it is, if anything may be served at all.
    pub(crate) fn next(&mut self) -> Option<PeerId> {
        if self.in_flight >= self.most {
            return None;
        }
        self.ring.pop_front()
    }

    /// One turn of the peer that `next` has named.
    pub(crate) fn step(
        &mut self,
        now: Time,
        id: PeerId,
        queue: &mut Queue,
        share: Share,
        length: impl Fn(u32) -> u32,
    ) -> Step {
        let most = if share.whole { share.max_block } else { queue.block_size(share.max_block) };
        let Some(block) = queue.peek(most, &length) else {
            queue.deficit = 0;
            queue.in_ring = false;
            return Step::Leave;
        };
        let len = u64::from(block.len);
        if queue.in_flight > 0 && queue.in_flight + len > queue.in_flight_most(share) {
            queue.in_ring = false;
            return Step::Leave;
        }
        if queue.deficit < len {
            queue.deficit += QUANTUM;
        }
        if queue.deficit < len {
            self.ring.push_back(id);
            return Step::Wait;
        }
        queue.deficit -= len;
        debug_assert!(queue.deficit < QUANTUM, "a turn is worth one quantum");
        queue.take(block, &length);
        if queue.in_flight == 0 {
            queue.meter.restart(now);
        }
        queue.in_flight += len;
        self.in_flight += len;
        match queue.peek(most, &length) {
            Some(next) if queue.deficit >= u64::from(next.len) => self.ring.push_front(id),
            _ => self.ring.push_back(id),
        }
        Step::Serve(block)
    }

    /// A block has left for the socket.
    pub(crate) fn sent(&mut self, now: Time, id: PeerId, queue: &mut Queue, len: u32) {
        let gone = u64::from(len).min(queue.in_flight);
        queue.in_flight -= gone;
        self.in_flight -= gone;
        queue.meter.add(now, len, std::time::Duration::from_millis(50));
        self.enter(id, queue);
    }

    /// The peer is gone, with all that it was to be served.
    pub(crate) fn forget(&mut self, id: PeerId, queue: &mut Queue) {
        self.in_flight -= queue.in_flight;
        if queue.in_ring {
            self.ring.retain(|&p| p != id);
        }
        *queue = Queue::default();
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const K: u32 = 1 << 10;
    const PIECE: u32 = 1024 * K;
    const SHARE: Share = Share { serving: 4 << 20, max_block: 1 << 20, whole: false };

    fn serve(turns: &mut Turns, queues: &mut [Queue], now: u64, most: usize) -> Vec<(u32, u32)> {
        let mut out = Vec::new();
        while out.len() < most
            && let Some(id) = turns.next()
        {
            let q = &mut queues[id.0 as usize];
            if let Step::Serve(b) = turns.step(Time(now), id, q, SHARE, |_| PIECE) {
                out.push((id.0, b.len));
            }
        }
        out
    }

    /// Serves block by block, each sent a millisecond later.
    fn run(turns: &mut Turns, queues: &mut [Queue], blocks: u64) -> Vec<(u32, u32)> {
        let (mut all, mut sending) = (Vec::new(), VecDeque::new());
        for at in 0..blocks {
            sending.extend(serve(turns, queues, at * 1_000_000, usize::MAX));
            if let Some((peer, len)) = sending.pop_front() {
                let now = Time((at + 1) * 1_000_000);
                turns.sent(now, PeerId(peer), &mut queues[peer as usize], len);
                all.push((peer, len));
            }
        }
        all
    }

    #[test]
    fn peers_get_equal_bytes_whatever_they_ask() {
        let mut queues = [Queue::default(), Queue::default()];
        let mut turns = Turns::new(16 << 20);
        queues[0].push_pieces(0..100);
        for i in 0..4000 {
            queues[1].push_block(Block { piece: i % 100, begin: 0, len: 16 * K });
        }
        for i in 0..2 {
            turns.enter(PeerId(i), &mut queues[i as usize]);
        }
        let served = run(&mut turns, &mut queues, 400);
        let bytes = |p| served.iter().filter(|s| s.0 == p).map(|s| u64::from(s.1)).sum::<u64>();
        let got = (bytes(0), bytes(1));
        assert!(got.0 > 4 << 20 && got.0.abs_diff(got.1) <= 1 << 20, "{got:?}");
    }

    #[test]
    fn stays_within_its_share_and_goes_on_when_sent() {
        let mut queues = [Queue::default()];
        let mut turns = Turns::new(64 << 20);
        queues[0].push_pieces(0..1000);
        turns.enter(PeerId(0), &mut queues[0]);
        let first = serve(&mut turns, &mut queues, 0, usize::MAX);
        assert_eq!(first, vec![(0, 256 * K), (0, 256 * K)]);
        turns.sent(Time(1), PeerId(0), &mut queues[0], 256 * K);
        assert_eq!(serve(&mut turns, &mut queues, 1, usize::MAX).len(), 1);
        // A fast peer has more in flight, up to its share.
        turns.sent(Time(2), PeerId(0), &mut queues[0], 256 * K);
        turns.sent(Time(3), PeerId(0), &mut queues[0], 256 * K);
        run(&mut turns, &mut queues, 300);
        serve(&mut turns, &mut queues, 300_000_000, usize::MAX);
        assert!((3 << 20..=4 << 20).contains(&queues[0].in_flight()), "{}", queues[0].in_flight());
        turns.forget(PeerId(0), &mut queues[0]);
        assert_eq!((turns.in_flight(), queues[0].len()), (0, 0));
    }

    #[test]
    fn cancel_takes_out_exactly_what_it_names() {
        let mut q = Queue::default();
        q.push_pieces(3..6);
        q.push_block(Block { piece: 4, begin: 16 * K, len: 16 * K });
        let gone = q.cancel(Block { piece: 4, begin: 0, len: 24 * K }, |_| PIECE);
        let block = |begin: u32, len: u32| Block { piece: 4, begin, len };
        assert_eq!(gone, vec![block(0, 24 * K), block(16 * K, 8 * K)]);
        assert_eq!(q.len(), 4);
        let left = q.drain(|_| PIECE);
        let bytes = left.iter().map(|b| b.len).sum::<u32>();
        assert_eq!(bytes, 3 * PIECE - 24 * K + 8 * K);
        assert_eq!(left.iter().map(|b| b.piece).collect::<Vec<_>>(), vec![3, 4, 5, 4]);
    }

    #[test]
    fn weight_follows_the_queue_to_zero() {
        let mut queues = [Queue::default()];
        let mut turns = Turns::new(1 << 40);
        queues[0].push_pieces(0..7);
        queues[0].push_block(Block { piece: 9, begin: 0, len: 5 });
        assert_eq!(queues[0].len(), 8);
        turns.enter(PeerId(0), &mut queues[0]);
        let served = run(&mut turns, &mut queues, 1000);
        assert_eq!(served.iter().map(|s| u64::from(s.1)).sum::<u64>(), 7 * u64::from(PIECE) + 5);
        assert_eq!(queues[0].len(), 0);
        assert!(turns.next().is_none());
    }
}
