//! The source's sending budget in a plan, and the requests that wait for other peers to serve them.

use std::collections::VecDeque;
use std::time::Duration;

use crate::api::{Block, PeerId, Time};
use crate::ranges::without;

/// See the head of the file.
#[derive(Debug)]
pub(crate) struct Budget {
    /// Bytes that all sources together send before others must help.
    bytes: u64,
    /// Members that have left with everything.
    finished: u32,
    /// By when they have waited long enough.
    waiting: VecDeque<(Time, PeerId, Block)>,
}

impl Budget {
    /// A budget of this many percent of `size` bytes; 0: none.
    pub(crate) fn new(size: u64, percent: u32) -> Self {
        let bytes = match percent {
            0 => u64::MAX,
            percent => (size / 100).saturating_mul(u64::from(percent)),
        };
        Budget { bytes, finished: 0, waiting: VecDeque::new() }
    }

    /// Whether a source with this many of the `shares` of the data has sent its budget.
    pub(crate) fn spent(&self, served: u64, ours: u64, shares: u64) -> bool {
        served >= self.bytes / shares.max(1) * ours
    }

    /// A member has left with everything.
    pub(crate) fn member_finished(&mut self) {
        self.finished += 1;
    }

    /// A member that has everything may serve it, though it is not connected.
    pub(crate) fn any_finished(&self) -> bool {
        self.finished > 0
    }

    /// Requests that wait.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// A request waits until `at`. Later ones wait no less long.
    pub(crate) fn wait(&mut self, at: Time, id: PeerId, block: Block) {
        debug_assert!(self.waiting.back().is_none_or(|last| last.0 <= at), "requests wait out of order");
        self.waiting.push_back((at, id, block));
    }

    /// When the first has waited long enough.
    pub(crate) fn due(&self) -> Option<Time> {
        self.waiting.front().map(|entry| entry.0)
    }

    /// The first that has waited long enough.
    pub(crate) fn next_due(&mut self, now: Time) -> Option<(PeerId, Block)> {
        let (_, id, block) = self.waiting.pop_front_if(|entry| entry.0 <= now)?;
        Some((id, block))
    }

    /// A peer has cancelled its requests within this block.
    pub(crate) fn cancel(&mut self, id: PeerId, block: Block) {
        let gone = block.begin..block.begin.saturating_add(block.len);
        let touches = |(_, peer, own): &(Time, PeerId, Block)| (*peer, own.piece) == (id, block.piece);
        if !self.waiting.iter().any(touches) {
            return;
        }
        for entry in std::mem::take(&mut self.waiting) {
            let (at, peer, own) = entry;
            if !touches(&entry) {
                self.waiting.push_back(entry);
                continue;
            }
            let whole = own.begin..own.begin.saturating_add(own.len);
            let rest = without(whole, std::slice::from_ref(&gone)).into_iter();
            self.waiting
                .extend(rest.map(|r| (at, peer, Block { begin: r.start, len: r.end - r.start, ..own })));
        }
    }

    /// A peer has disconnected.
    pub(crate) fn forget(&mut self, id: PeerId) {
        self.waiting.retain(|(_, peer, _)| *peer != id);
    }
}

/// Of one connection: whether the peer is served at once, whichever pieces others have.
#[derive(Debug)]
pub(crate) struct Need {
    grew: Time,
    until: Time,
}

impl Need {
    pub(crate) fn new(now: Time) -> Self {
        Need { grew: now, until: Time(0) }
    }

    /// The peer has a piece more.
    pub(crate) fn grew(&mut self, now: Time) {
        self.grew = now;
    }

    /// It has waited for pieces of others without success: if it got nothing for this long, it is served at
    /// once for a time.
    pub(crate) fn waited(&mut self, now: Time, wait: Duration, served: Duration) {
        if now.since(self.grew) >= wait {
            self.until = now.after(served);
        }
    }

    pub(crate) fn is_pressing(&self, now: Time) -> bool {
        self.until > now
    }
}
