//! The share of the uplink for peers that ask for pieces and are not children in the plan.
//!
//! Promise: while a block is on its way to a child, one asking peer is served at a time, a turn each. A member whose stripe
//! is late asks the peers that have the pieces, which are the first relays of that stripe. If these served all of them
//! at once, their children would get the stripe later still, and ask as well.

use std::collections::VecDeque;

use crate::api::PeerId;

/// The weight of a peer while blocks are in flight to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Child,
    Requester,
}

/// See the head of the file.
#[derive(Debug, Default)]
pub(crate) struct Requesters {
    /// There is a plan that brings all pieces to all members.
    on: bool,
    /// Waiting peers.
    ring: VecDeque<PeerId>,
    /// The first of them waits until another has been served.
    waits: bool,
    /// Peers with blocks on their way.
    children: usize,
    requesters: usize,
}

impl Requesters {
    /// Whether children come first, from now on. Where they no longer do, waiting ones have their turns among
    /// all.
    pub(crate) fn follow(&mut self, on: bool) -> VecDeque<PeerId> {
        (self.on, self.waits) = (on, false);
        if on { VecDeque::new() } else { std::mem::take(&mut self.ring) }
    }

    /// The ring in which a peer has its turns, if it is this one.
    pub(crate) fn ring(&mut self, child: bool) -> Option<&mut VecDeque<PeerId>> {
        (self.on && !child).then_some(&mut self.ring)
    }

    /// The peer that has its turn.
    pub(crate) fn next(&mut self) -> Option<PeerId> {
        if self.waits { None } else { self.ring.pop_front() }
    }

    /// Lets the peer wait, if another is served and our children need the rest.
    pub(crate) fn hold(&mut self, id: PeerId) -> bool {
        let hold = self.on && self.children > 0 && self.requesters > 0;
        if hold {
            self.ring.push_front(id);
            self.waits = true;
        }
        hold
    }

    /// Takes a peer out.
    pub(crate) fn remove(&mut self, id: PeerId) -> bool {
        let before = self.ring.len();
        self.ring.retain(|&p| p != id);
        self.waits &= !self.ring.is_empty();
        self.ring.len() < before
    }

    /// Blocks are on their way to a peer that had none.
    pub(crate) fn begin(&mut self, kind: Kind) {
        *self.count(kind) += 1;
    }

    /// All have left.
    pub(crate) fn end(&mut self, kind: Kind) {
        let count = self.count(kind);
        *count = count.saturating_sub(1);
        self.waits = false;
    }

    fn count(&mut self, kind: Kind) -> &mut usize {
        match kind {
            Kind::Child => &mut self.children,
            Kind::Requester => &mut self.requesters,
        }
    }
}
