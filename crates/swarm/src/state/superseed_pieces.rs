//! Pieces that a source of textbook BitTorrent has given to one peer and not yet seen there.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::api::{PeerId, Time};

/// How long a piece is kept for the peer that it was given to.
const KEPT: Duration = Duration::from_secs(30);

/// See the head of the file.
#[derive(Debug, Default)]
pub(crate) struct SuperseedPieces {
    to: BTreeMap<u32, (PeerId, Time)>,
    /// The time at which a waiting peer may be served after all.
    recheck: Option<Time>,
}

impl SuperseedPieces {
    pub(crate) fn len(&self) -> usize {
        self.to.len()
    }

    /// The time at which a waiting peer may be served after all.
    pub(crate) fn due(&self) -> Option<Time> {
        self.recheck
    }

    /// Whether `piece` is kept for another than `id` for now; if not, it is given to `id`.
    pub(crate) fn held_back(&mut self, id: PeerId, piece: u32, now: Time) -> bool {
        let (first, at) = *self.to.entry(piece).or_insert((id, now));
        let until = at.after(KEPT);
        let held = first != id && now < until;
        if held {
            self.recheck = Some(self.recheck.map_or(until, |old| old.min(until)));
        } else if first != id {
            self.to.insert(piece, (id, now));
        }
        held
    }

    /// The piece was announced by a peer; whether another peer was waiting for that.
    pub(crate) fn seen(&mut self, piece: u32) -> bool {
        self.to.remove(&piece).is_some()
    }

    /// A peer has disconnected, with the pieces that it was given; whether there were any.
    pub(crate) fn departed(&mut self, id: PeerId) -> bool {
        let before = self.to.len();
        self.to.retain(|_, (peer, _)| *peer != id);
        self.to.len() != before
    }

    /// All waiting peers are checked now.
    pub(crate) fn checked(&mut self) {
        self.recheck = None;
    }
}
