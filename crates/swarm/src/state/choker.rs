//! The times at which slots are reassigned, and the peer with the random slot.

use crate::api::{PeerId, Time};
use crate::state::counts::Counts;

/// See the head of the file.
#[derive(Debug, Default)]
pub(crate) struct Choker {
    next: Option<Time>,
    round: u32,
    optimistic: Option<PeerId>,
}

impl Choker {
    /// When the next rechoke is due.
    pub(crate) fn due(&self) -> Option<Time> {
        self.next
    }

    /// The first peer is here: rechokes begin, unless they have.
    pub(crate) fn begin(&mut self, next: Time) {
        self.next.get_or_insert(next);
    }

    /// A rechoke is no longer due; sets the next one, or none without peers.
    pub(crate) fn schedule(&mut self, next: Option<Time>) {
        self.next = next;
    }

    /// Another round; whether the random slot is reassigned in this one of this many.
    pub(crate) fn is_turn(&mut self, every: u32) -> bool {
        self.round = self.round.wrapping_add(1);
        self.round.is_multiple_of(every)
    }

    /// The randomly unchoked peer.
    pub(crate) fn optimistic(&self) -> Option<PeerId> {
        self.optimistic
    }

    pub(crate) fn set_optimistic(&mut self, peer: Option<PeerId>) {
        self.optimistic = peer;
    }
}

/// Of one connection: whether the peer may send requests, and its data before the last choice.
#[derive(Debug)]
pub(crate) struct Choking {
    choked: bool,
    received: u64,
    served: u64,
}

impl Choking {
    pub(crate) fn new(choked: bool) -> Self {
        Choking { choked, received: 0, served: 0 }
    }

    pub(crate) fn set(&mut self, choked: bool) {
        self.choked = choked;
    }

    pub(crate) fn is_choked(&self) -> bool {
        self.choked
    }

    /// A choice is made: the next one counts data from now on.
    pub(crate) fn count_from(&mut self, counts: &Counts) {
        (self.received, self.served) = (counts.received(), counts.served());
    }

    /// Bytes received since the last choice.
    pub(crate) fn received_since(&self, counts: &Counts) -> u64 {
        counts.received() - self.received
    }

    /// Bytes served since the last choice.
    pub(crate) fn served_since(&self, counts: &Counts) -> u64 {
        counts.served() - self.served
    }
}
