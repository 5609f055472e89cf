//! A stream that has something to send: its queue, and how far its first message is.

use std::collections::VecDeque;

use super::shares::UNCAPPED;

/// No stream.
pub(super) const NONE: u32 = u32::MAX;

/// Never.
pub(super) const NEVER: u64 = u64::MAX;

/// Progress is counted in bytes / 10^9: a rate times nanoseconds is exact.
const NANO: u128 = 1_000_000_000;

/// A message in the queue.
#[derive(Debug)]
pub(super) struct Item<M> {
    /// Bytes of it on the wire.
    pub(super) wire: u64,
    pub(super) message: M,
    /// Not a control message: its sender is notified when it has left.
    pub(super) bulk: bool,
}

#[derive(Debug)]
pub(super) struct Active<M> {
    pub(super) stream: u32,
    /// Its rate, bytes per second, since when.
    pub(super) rate: u64,
    pub(super) since: u64,
    /// The rest of the first message and its riders, in bytes / 10^9.
    pub(super) left: u128,
    /// Bytes of the first message and its riders.
    pub(super) head: u64,
    /// Control messages after the first message that leave with it.
    pub(super) riders: u32,
    pub(super) queue: VecDeque<Item<M>>,
    /// The congestion window, wire bytes; the resulting cap.
    pub(super) window: u64,
    pub(super) cap: u64,
    /// Round trip while it is active; includes the queues at its start.
    pub(super) rtt: u64,
    pub(super) lag: u64,
    /// When the window changes.
    pub(super) due: u64,
    /// Since when nothing moves.
    pub(super) stalled: u64,
}

impl<M> Active<M> {
    /// An unused slot.
    pub(super) fn vacant() -> Self {
        Active {
            stream: NONE,
            rate: 0,
            since: 0,
            left: 0,
            head: 0,
            riders: 0,
            queue: VecDeque::new(),
            window: 0,
            cap: UNCAPPED,
            rtt: 0,
            lag: 0,
            due: NEVER,
            stalled: NEVER,
        }
    }

    /// The first of the queue begins, if there is one.
    pub(super) fn begin(&mut self, now: u64) {
        self.head = self.queue.front().map_or(0, |item| item.wire);
        self.left = u128::from(self.head) * NANO;
        self.riders = 0;
        self.since = now;
    }

    /// A control message: it leaves with the first message.
    pub(super) fn ride(&mut self, item: Item<M>) {
        self.head += item.wire;
        self.left += u128::from(item.wire) * NANO;
        self.riders += 1;
        self.queue.insert(self.riders as usize, item);
    }

    /// Moves the first message to where it is at `now`.
    pub(super) fn advance(&mut self, now: u64) {
        let moved = u128::from(self.rate) * u128::from(now - self.since);
        self.left = self.left.saturating_sub(moved);
        self.since = now;
    }

    /// Whether the first message has left, as of the last [`Active::advance`].
    pub(super) fn done(&self) -> bool {
        self.left == 0 && !self.queue.is_empty()
    }

    /// When the first message will have left, or its window changes, at this rate.
    pub(super) fn wake(&self) -> u64 {
        if self.queue.is_empty() {
            return NEVER;
        }
        if self.left == 0 {
            return self.since;
        }
        if self.rate == 0 {
            return self.due;
        }
        let takes = self.left.div_ceil(u128::from(self.rate));
        u64::try_from(takes).unwrap_or(NEVER).saturating_add(self.since).min(self.due)
    }

    /// Bytes of the first message that have left by `now`.
    pub(super) fn moved(&self, now: u64) -> u64 {
        let moved = u128::from(self.rate) * u128::from(now.saturating_sub(self.since));
        self.head - self.left.saturating_sub(moved).div_ceil(NANO) as u64
    }

    /// Bytes in the queue that have not left by `now`.
    pub(super) fn backlog(&self, now: u64) -> u64 {
        let queued: u64 = self.queue.iter().map(|item| item.wire).sum();
        queued - self.moved(now)
    }
}
