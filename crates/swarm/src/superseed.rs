//! Super-seeding-like distribution, a switch for comparison: a seeder gives each piece to one peer,
//! and to the next only when it has seen it at the first (or has waited 30 s for that).
//!
//! This is the "peer distribution selection" of BitLib section V: of two who ask for the same piece,
//! the first is served and the second disregarded. It differs from BEP 16 in that the seeder says
//! what it has: one who wants certain pieces only would otherwise never learn of them.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::api::{PeerId, Time};
use crate::engine::Engine;

/// How long a piece is kept for the peer that it was given to.
const KEPT: Duration = Duration::from_secs(30);

/// Pieces given to one peer and not yet seen there.
#[derive(Debug, Default)]
pub(crate) struct Given {
    to: BTreeMap<u32, (PeerId, Time)>,
    /// When somebody who waits may be served after all.
    recheck: Option<Time>,
}

impl Given {
    pub(crate) fn len(&self) -> usize {
        self.to.len()
    }

    pub(crate) fn due(&self) -> Option<Time> {
        self.recheck
    }
}

impl Engine {
    /// Whether `piece` is kept for another than `id` for now; if not, it is given to `id`.
    pub(crate) fn held_back(&mut self, id: PeerId, piece: u32) -> bool {
        let on = self.policy.distribution && self.complete;
        if !on || self.availability.holders(piece) > 0 {
            return false;
        }
        let now = self.now;
        let (first, at) = *self.given.to.entry(piece).or_insert((id, now));
        let until = at.after(KEPT);
        let held = first != id && now < until;
        if held {
            self.given.recheck = Some(self.given.recheck.map_or(until, |old| old.min(until)));
        } else if first != id {
            self.given.to.insert(piece, (id, now));
        }
        held
    }

    /// A peer has shown that it has `piece`: others may be served it.
    pub(crate) fn seen(&mut self, piece: u32) {
        if self.given.to.remove(&piece).is_some() {
            self.resume_held();
        }
    }

    /// A peer is gone, with what it was given.
    pub(crate) fn given_to_departed(&mut self, id: PeerId) {
        let before = self.given.to.len();
        self.given.to.retain(|_, (peer, _)| *peer != id);
        if self.given.to.len() != before {
            self.resume_held();
        }
    }

    pub(crate) fn held_due(&mut self) {
        if self.given.recheck.is_some_and(|at| at <= self.now) {
            self.resume_held();
        }
    }

    fn resume_held(&mut self) {
        self.given.recheck = None;
        for peer in self.peers.values_mut().filter(|p| !p.closing) {
            self.turns.enter(peer.id, &mut peer.queue);
        }
    }
}
