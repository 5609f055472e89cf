//! Suspect pieces, each of which must come from one peer alone, and the addresses of peers that have left.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::api::{Candidate, PeerId};

/// Suspects remembered for one piece.
const SUSPECTS: usize = 64;
/// Connections that have ended and whose address is remembered, should proof come later.
const DEPARTED: usize = 1024;

/// A piece that must come from one peer.
#[derive(Debug, Default)]
pub(crate) struct Solo {
    /// The peer that is asked for it now.
    peer: Option<PeerId>,
    /// The contributors when it failed.
    suspects: BTreeSet<PeerId>,
}

/// See the head of the file.
#[derive(Debug, Default)]
pub(crate) struct Blame {
    solo: BTreeMap<u32, Solo>,
    departed: VecDeque<(PeerId, Candidate)>,
    banned: u64,
}

impl Solo {
    /// The peer that is asked for it now.
    pub(crate) fn chosen(&self) -> Option<PeerId> {
        self.peer
    }

    /// Whether this peer was in it when it failed.
    pub(crate) fn suspects(&self, peer: PeerId) -> bool {
        self.suspects.contains(&peer)
    }
}

impl Blame {
    /// Peers banned.
    pub(crate) fn banned(&self) -> u64 {
        self.banned
    }

    /// One more is.
    pub(crate) fn ban(&mut self) {
        self.banned += 1;
    }

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

    /// The requests to `peer` for `piece` were cancelled.
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

    pub(crate) fn address_of(&self, peer: PeerId) -> Option<Candidate> {
        self.departed.iter().find(|d| d.0 == peer).map(|d| d.1)
    }
}
