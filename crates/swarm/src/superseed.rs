//! Super-seeding (BEP 16), a switch for comparison: a seeder claims to have nothing, offers each peer
//! one piece, and the next only when it has seen the last at another peer.
//!
//! This is the "peer distribution selection" of BitLib section V: whoever asks for what the first
//! peer was given waits for that peer.

use crate::api::{Action, PeerId};
use crate::engine::Engine;

/// Pieces looked at to find one to offer.
const SCAN: u32 = 4096;

/// What one peer has been offered.
#[derive(Debug, Default)]
pub(crate) struct Offer {
    on: bool,
    piece: Option<u32>,
}

impl Offer {
    /// This peer is told of pieces by offers alone.
    pub(crate) fn active(&self) -> bool {
        self.on
    }

    pub(crate) fn start(&mut self) {
        self.on = true;
    }
}

impl Engine {
    /// Offers `id` a piece that it lacks: one that nobody has or was offered if there is one.
    pub(crate) fn offer(&mut self, id: PeerId) {
        let count = self.pieces.count();
        let Some(peer) = self.peers.get(&id).filter(|p| p.offer.on && !p.closing) else { return };
        let offered: Vec<u32> = self.peers.values().filter_map(|p| p.offer.piece).collect();
        let from = self.rng.below(count);
        let turn = (from..count).chain(0..from).take(SCAN as usize);
        let lacks = turn.filter(|&p| self.pieces.verified(p) && !peer.have.has(p));
        let best = lacks.min_by_key(|&p| (offered.contains(&p), self.availability.copies(p)));
        let Some(peer) = self.peers.get_mut(&id) else { return };
        peer.offer.piece = best;
        if let Some(piece) = best {
            self.out.push_back(Action::Announce { peer: id, pieces: vec![piece..piece + 1] });
        }
    }

    /// A peer has shown that it has `piece`: those who were offered it have passed it on.
    pub(crate) fn seen_at(&mut self, holder: PeerId, piece: u32) {
        if !self.policy.distribution {
            return;
        }
        let leechers = self.peers.values().filter(|p| !p.closing && !p.have.is_all()).count();
        let passed = |p: &&crate::peer::Peer| {
            let offered = p.offer.on && p.offer.piece == Some(piece);
            // With nobody to pass it on to, having it is enough.
            offered && (p.id != holder || leechers < 2)
        };
        let ids: Vec<PeerId> = self.peers.values().filter(passed).map(|p| p.id).collect();
        for id in ids {
            self.offer(id);
        }
    }

    /// A leecher has gone: offers that waited for it to show something are renewed.
    pub(crate) fn offers_after_departure(&mut self) {
        if !self.policy.distribution {
            return;
        }
        let leechers = self.peers.values().filter(|p| !p.closing && !p.have.is_all()).count();
        let stuck = |p: &&crate::peer::Peer| {
            p.offer.on && (p.offer.piece.is_none_or(|piece| p.have.has(piece)) && leechers < 2)
        };
        let ids: Vec<PeerId> = self.peers.values().filter(stuck).map(|p| p.id).collect();
        for id in ids {
            self.offer(id);
        }
    }
}
