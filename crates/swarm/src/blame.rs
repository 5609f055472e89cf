//! Who sent wrong bytes, and how to find out without harm to the honest.
//!
//! * A block that does not match its leaf hashes is proof against its sender: banned at once.
//! * A piece that does not match and came from one peer is proof too.
//! * When several peers contributed, nobody is banned: the piece is fetched again from one peer
//!   alone, one that was not in it if there is one. If it fails again, that peer is the culprit; if
//!   it matches, the driver compares what it kept and names the culprit by `BlockBad`.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::api::{Action, Block, Candidate, PeerId, Reason};
use crate::engine::Engine;
use crate::neighbours::End;
use crate::partial::NOBODY;
use crate::peer::Peer;
use crate::pieces::State;
use crate::planted::{Bug, planted};

/// Pieces under suspicion that are looked at for one request.
pub(crate) const SOLO_SCAN: usize = 32;
/// Suspects remembered for one piece.
const SUSPECTS: usize = 64;
/// Connections that have ended and whose address is remembered, should proof come later.
const DEPARTED: usize = 1024;

/// A piece that must come from one peer.
#[derive(Debug, Default)]
pub(crate) struct Solo {
    /// Who is asked for it now.
    pub(crate) peer: Option<PeerId>,
    /// Who was in it when it failed.
    pub(crate) suspects: BTreeSet<PeerId>,
}

/// See the head of the file.
#[derive(Debug, Default)]
pub(crate) struct Blame {
    solo: BTreeMap<u32, Solo>,
    departed: VecDeque<(PeerId, Candidate)>,
    pub(crate) banned: u64,
}

impl Blame {
    pub(crate) fn is_solo(&self, piece: u32) -> bool {
        !self.solo.is_empty() && self.solo.contains_key(&piece)
    }

    /// Suspicions, and peers remembered.
    pub(crate) fn footprint(&self) -> usize {
        let suspects: usize = self.solo.values().map(|s| 1 + s.suspects.len()).sum();
        suspects + self.departed.len()
    }

    pub(crate) fn solo(&self) -> &BTreeMap<u32, Solo> {
        &self.solo
    }

    /// Whether blocks of `piece` may be asked of `peer`.
    pub(crate) fn allows(&self, piece: u32, peer: PeerId) -> bool {
        self.solo.is_empty() || self.solo.get(&piece).is_none_or(|s| s.peer == Some(peer))
    }

    pub(crate) fn assign(&mut self, piece: u32, peer: PeerId) {
        if let Some(solo) = self.solo.get_mut(&piece) {
            solo.peer = Some(peer);
        }
    }

    /// What `peer` was asked for of `piece` was taken back.
    pub(crate) fn abandoned(&mut self, piece: u32, peer: PeerId) {
        if let Some(solo) = self.solo.get_mut(&piece)
            && solo.peer == Some(peer)
        {
            solo.peer = None;
        }
    }

    pub(crate) fn suspect(&mut self, piece: u32, senders: &[PeerId]) {
        let solo = self.solo.entry(piece).or_default();
        solo.peer = None;
        solo.suspects.extend(senders.iter().take(SUSPECTS));
        while solo.suspects.len() > SUSPECTS {
            solo.suspects.pop_first();
        }
    }

    /// The piece is verified, or not wanted any more.
    pub(crate) fn cleared(&mut self, piece: u32) {
        self.solo.remove(&piece);
    }

    pub(crate) fn departed(&mut self, peer: PeerId, candidate: Option<Candidate>) {
        let Some(candidate) = candidate else { return };
        if self.departed.len() >= DEPARTED {
            self.departed.pop_front();
        }
        self.departed.push_back((peer, candidate));
    }

    fn address_of(&self, peer: PeerId) -> Option<Candidate> {
        self.departed.iter().find(|d| d.0 == peer).map(|d| d.1)
    }
}

impl Engine {
    /// Wrong bytes, proven against this peer.
    pub(crate) fn on_block_bad(&mut self, id: PeerId, block: Block) {
        self.settled(block.len);
        if let Some(peer) = self.peers.get_mut(&id) {
            peer.counts.bad += u64::from(block.len);
        }
        self.totals.bad += u64::from(block.len);
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
                self.changed();
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
    pub(crate) fn nothing_awaited(&mut self, piece: u32, partial: &crate::partial::Partial) {
        let mut asked: BTreeMap<PeerId, Vec<u32>> = BTreeMap::new();
        for (peer, cell) in partial.requests() {
            asked.entry(peer).or_default().push(cell);
        }
        for (peer, mut cells) in asked {
            cells.sort_unstable();
            self.not_awaited(peer, piece, &cells, true);
            self.hungry.push(peer);
        }
    }

    /// Closes the connection and refuses this peer for good.
    pub(crate) fn ban(&mut self, id: PeerId, reason: Reason) {
        let Some(peer) = self.peers.get(&id) else {
            if let Some(candidate) = self.blame.address_of(id) {
                let end = (self.now, End::Banned);
                self.neighbours.down(self.now, candidate, id, end, &mut self.rng);
            }
            return;
        };
        let (candidate, closing) = (peer.candidate, peer.closing);
        if let Some(candidate) = candidate {
            let end = (self.now, End::Banned);
            self.neighbours.down(self.now, candidate, id, end, &mut self.rng);
        }
        if !closing {
            self.blame.banned += 1;
            self.retire(id);
            self.out.push_back(Action::Ban { peer: id, reason });
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
        open.find(|(piece, solo)| match solo.peer {
            Some(chosen) if chosen == id => true,
            Some(chosen) if self.may_deliver(chosen, **piece) => false,
            _ => {
                let clean = |p: &&Peer| !solo.suspects.contains(&p.id);
                let mut able = self.peers.values().filter(|p| self.may_deliver(p.id, **piece));
                !solo.suspects.contains(&id) || !able.any(|p| clean(&p))
            }
        })
        .map(|(&piece, _)| piece)
    }

    /// Whether this peer can be expected to deliver `piece`. Who was silent or rejected the last time is not
    /// waited for: clean as it is, it may never deliver anything.
    fn may_deliver(&self, id: PeerId, piece: u32) -> bool {
        self.peers
            .get(&id)
            .is_some_and(|p| !p.closing && p.have.has(piece) && !p.chokes_us && !p.patience.doubtful())
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
        // Two have delivered it and one of them lied; a third rejects whatever it is asked for.
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
