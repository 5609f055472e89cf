//! Super-seeding-like distribution, a switch for comparison: a seeder gives each piece to one peer,
//! and to the next only when it has seen it at the first (or has waited 30 s for that).
//!
//! This is the "peer distribution selection" of BitLib section V: of two peers that ask for the same piece,
//! the first is served and the second disregarded. It differs from BEP 16 in that the seeder announces its
//! pieces: a peer that wants certain pieces only would otherwise never learn of them.

use crate::api::PeerId;
use crate::engine::Engine;

impl Engine {
    /// Whether `piece` is kept for another than `id` for now; if not, it is given to `id`.
    pub(crate) fn held_back(&mut self, id: PeerId, piece: u32) -> bool {
        let on = self.env.policy().distribution && self.pieces.is_complete();
        on && self.selection.holders(piece) == 0 && self.superseed_pieces.held_back(id, piece, self.env.now())
    }

    /// A peer has shown that it has `piece`: others may be served it.
    pub(crate) fn seen(&mut self, piece: u32) {
        if self.superseed_pieces.seen(piece) {
            self.resume_held();
        }
    }

    /// A peer has disconnected, with the pieces that it was given.
    pub(crate) fn given_to_departed(&mut self, id: PeerId) {
        if self.superseed_pieces.departed(id) {
            self.resume_held();
        }
    }

    pub(crate) fn held_due(&mut self) {
        if self.superseed_pieces.due().is_some_and(|at| at <= self.env.now()) {
            self.resume_held();
        }
    }

    fn resume_held(&mut self) {
        self.superseed_pieces.checked();
        for peer in self.peers.values_mut().filter(|p| !p.is_closing()) {
            self.turns.enter(peer.id, &mut peer.queue);
        }
    }
}
