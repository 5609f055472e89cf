//! Finds the sender of wrong bytes, without harm to honest peers.
//!
//! * A block that does not match its leaf hashes is proof against its sender: banned at once.
//! * A piece that does not match and came from one peer is proof too.
//! * When several peers contributed, none is banned: the piece is fetched again from one peer alone, if
//!   possible one that did not contribute. If it fails again, that peer is the culprit; if it matches, the
//!   driver compares the bytes that it kept and names the culprit by `BlockBad`.

use std::collections::BTreeMap;

use crate::api::{Action, Block, PeerId, Reason};
use crate::engine::Engine;
use crate::planted::{Bug, planted};
use crate::state::addresses::End;
use crate::state::counts::Fate;
use crate::state::partial::{NOBODY, Partial};
use crate::state::peer::Peer;
use crate::state::pieces::State;

/// Pieces under suspicion that are looked at for one request.
pub(crate) const SOLO_SCAN: usize = 32;
impl Engine {
    /// Wrong bytes, proven against this peer.
    pub(crate) fn on_block_bad(&mut self, id: PeerId, block: Block) {
        self.settled(block.len);
        self.count(id, Fate::Bad, u64::from(block.len));
        if self.pieces.sound(block) {
            let cells = self.pieces.cells(block);
            self.with_piece(block.piece, |p| p.spoil(id, block.piece, cells));
        }
        if planted(Bug::LoseVerified) {
            self.forget_piece(block.piece);
        }
        self.ban(id, Reason::CorruptData);
    }

    /// The piece was complete and does not match.
    pub(crate) fn on_piece_failed(&mut self, piece: u32) {
        if piece >= self.pieces.count() || self.pieces.verified(piece) {
            return;
        }
        if planted(Bug::AcceptBadPiece) {
            return self.on_piece_verified(piece);
        }
        let senders = self.pieces.partial(piece).map(|p| p.senders()).unwrap_or_default();
        self.forget_piece(piece);
        match senders.as_slice() {
            [] => {}
            &[one] if one != NOBODY => self.ban(one, Reason::CorruptData),
            &[first, ..] if planted(Bug::BanWrongPeer) => self.ban(first, Reason::CorruptData),
            many => {
                // Out of the picker first: from now on one peer alone is asked.
                self.with_place(piece, |e| e.blame.suspect(piece, many));
                self.request_checks.changed();
            }
        }
    }

    /// Drops all that we had of a piece; nothing of it is awaited any more.
    pub(crate) fn forget_piece(&mut self, piece: u32) {
        if let Some(partial) = self.with_piece(piece, |p| p.reset(piece)) {
            self.nothing_awaited(piece, &partial);
        }
    }

    /// Cancels every request of a piece that is settled one way or the other.
    pub(crate) fn nothing_awaited(&mut self, piece: u32, partial: &Partial) {
        let mut asked: BTreeMap<PeerId, Vec<u32>> = BTreeMap::new();
        for (peer, cell) in partial.requests() {
            asked.entry(peer).or_default().push(cell);
        }
        for (peer, mut cells) in asked {
            cells.sort_unstable();
            self.not_awaited(peer, piece, &cells, true);
            self.request_checks.add(peer);
        }
    }

    /// Closes the connection and refuses this peer permanently.
    pub(crate) fn ban(&mut self, id: PeerId, reason: Reason) {
        let Some(peer) = self.peers.get(&id) else {
            if let Some(candidate) = self.blame.address_of(id) {
                let end = (self.env.now(), End::Banned);
                self.addresses.down(self.env.now(), candidate, id, end, &mut self.rng);
            }
            return;
        };
        let (candidate, closing) = (peer.candidate, peer.is_closing());
        if let Some(candidate) = candidate {
            let end = (self.env.now(), End::Banned);
            self.addresses.down(self.env.now(), candidate, id, end, &mut self.rng);
        }
        if !closing {
            self.blame.ban();
            self.retire(id);
            self.outbox.push(Action::Ban { peer: id, reason });
        }
    }

    /// The piece under suspicion that `id` may be asked for now, if there is one.
    pub(crate) fn solo_for(&self, id: PeerId) -> Option<u32> {
        let peer = self.peers.get(&id)?;
        let free = |piece: u32| match self.pieces.state(piece) {
            State::Missing => true,
            State::InFlight => self.pieces.lacks(piece) && self.pieces.open().contains(&piece),
            _ => false,
        };
        let open = self.blame.solo().iter().take(SOLO_SCAN);
        let mut open = open.filter(|(piece, _)| free(**piece) && peer.have.has(**piece));
        open.find(|(piece, solo)| match solo.chosen() {
            Some(chosen) if chosen == id => true,
            Some(chosen) if self.may_deliver(chosen, **piece) => false,
            _ => {
                let clean = |p: &&Peer| !solo.suspects(p.id);
                let mut able = self.peers.values().filter(|p| self.may_deliver(p.id, **piece));
                !solo.suspects(id) || !able.any(|p| clean(&p))
            }
        })
        .map(|(&piece, _)| piece)
    }

    /// Whether this peer can be expected to deliver `piece`. A peer that was silent or rejected the last time
    /// is not waited for: though not suspect, it may never deliver anything.
    fn may_deliver(&self, id: PeerId, piece: u32) -> bool {
        self.peers.get(&id).is_some_and(|p| {
            !p.is_closing() && p.have.has(piece) && !p.interest.chokes_us() && !p.silence.is_suspect()
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::single_range_in_vec_init)]
    use crate::api::{Action, Block, Event, Limits, PeerId, Policy, Protocol, Setup, Time};
    use crate::engine::Engine;

    #[test]
    fn whoever_rejects_is_not_waited_for_though_it_is_no_suspect() {
        let (lengths, limits) = (vec![64 << 10].into(), Limits::default());
        let setup =
            Setup { lengths, have: vec![], want: vec![0..1], policy: Policy::TIDECAST, limits, seed: 1 };
        let mut engine = Engine::new(setup, Time(0)).unwrap();
        let mut give = |at: u64, event: Event| {
            engine.handle(Time(at), event);
            engine.check().unwrap();
            std::iter::from_fn(|| engine.poll()).collect::<Vec<_>>()
        };
        let up = |id: u32| {
            let peer = PeerId(id);
            let protocol = Protocol::Tidecast { max_block: 1 << 20 };
            [Event::PeerUp { peer, protocol, candidate: None }, Event::HasAll { peer }]
        };
        let half = |id: u32, begin: u32| {
            let (peer, block) = (PeerId(id), Block { piece: 0, begin, len: 32 << 10 });
            [Event::Received { peer, block }, Event::Stored { peer, block, proven: false }]
        };
        // Two have delivered it and one of them lied; a third rejects every request.
        let before = up(1).into_iter().chain(up(2)).chain(up(3)).chain(half(1, 0)).chain(half(2, 32 << 10));
        before.for_each(|event| drop(give(0, event)));
        let mut actions = give(0, Event::PieceFailed { piece: 0 });
        let mut asked = Vec::new();
        for at in (1..100).map(|n| n * 100_000_000) {
            for action in std::mem::replace(&mut actions, give(at, Event::Tick)) {
                let (peer, block) = match action {
                    Action::Request { peer, block } => (peer, block),
                    Action::RequestPieces { peer, .. } => (peer, Block { piece: 0, begin: 0, len: 64 << 10 }),
                    _ => continue,
                };
                asked.push(peer);
                if peer == PeerId(3) {
                    actions.extend(give(at, Event::Rejected { peer, block }));
                }
            }
        }
        assert!(asked.first() == Some(&PeerId(3)) && asked.iter().any(|p| *p != PeerId(3)), "{asked:?}");
    }
}
