//! The engine's report: its pieces, statistics, and a check of its invariants.

use std::ops::Range;

use crate::api::PeerId;
use crate::engine::Engine;
use crate::state::peer::Peer;
use crate::stats::{PeerStats, Stats};

impl Engine {
    /// Whether the piece is verified.
    #[must_use]
    pub fn have(&self, piece: u32) -> bool {
        self.pieces.verified(piece)
    }

    /// The verified pieces, as sorted, disjoint, non-touching ranges. O(pieces).
    #[must_use]
    pub fn have_ranges(&self) -> Vec<Range<u32>> {
        self.pieces.verified_ranges()
    }

    /// Every wanted piece is verified.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.pieces.left() == 0
    }

    /// The peer has all pieces.
    #[must_use]
    pub fn has_all(&self, peer: PeerId) -> bool {
        self.peers.get(&peer).is_some_and(|p| p.have.is_all())
    }

    /// As the source of a plan, this node has given every piece to a stripe: nothing new will go by it.
    #[must_use]
    pub fn has_given_all(&self) -> bool {
        let plan = self.plan.state().filter(|c| c.is_source());
        plan.is_some_and(|c| c.has_given_all(self.pieces.count()))
    }

    /// Wanted pieces that are missing here and that no connected peer has. O(pieces).
    #[must_use]
    pub fn missing_at_all(&self) -> u32 {
        let missing = |piece: &u32| self.pieces.lacks(*piece) && self.selection.holders(*piece) == 0;
        (0..self.pieces.count()).filter(missing).count() as u32
    }

    /// Totals and the state of now. O(peers).
    #[must_use]
    pub fn stats(&self) -> Stats {
        let live = || self.peers.values().filter(|p| !p.is_closing());
        Stats {
            received: self.totals.received(),
            stored: self.totals.stored(),
            duplicate: self.totals.duplicate(),
            bad: self.totals.bad(),
            served: self.totals.served(),
            outstanding: self.downloads.outstanding(),
            unsettled: self.downloads.unsettled(),
            serving: self.turns.in_flight(),
            peers: live().count(),
            seeds: live().filter(|p| p.have.is_all()).count(),
            candidates: self.addresses.len(),
            pieces: self.pieces.count(),
            verified: self.pieces.verified_count(),
            wanted_left: self.pieces.left(),
            wanted_left_bytes: self.pieces.left_bytes(),
            in_flight: self.pieces.in_flight_count(),
            banned: self.blame.banned(),
        }
    }

    /// Numbers of every live connection, by `PeerId`.
    #[must_use]
    pub fn peer_stats(&self) -> Vec<PeerStats> {
        let stats = |p: &Peer| PeerStats {
            peer: p.id,
            received: p.counts.received(),
            stored: p.counts.stored(),
            duplicate: p.counts.duplicate(),
            served: p.counts.served(),
            outstanding: p.outstanding(),
            window: p.window.size(),
            rate: p.window.rate(),
            upload_rate: p.queue.rate(),
            queued: p.queue.len(),
            pieces: p.have.count(self.pieces.count()),
            chokes_us: p.interest.chokes_us(),
            choked: p.choking.is_choked(),
            stalled: p.silence.stalled(),
        };
        self.peers.values().filter(|p| !p.is_closing()).map(stats).collect()
    }

    /// Entries in all tables and queues that grow and shrink, to see that their sum is bounded. O(peers
    /// and pieces in flight).
    #[must_use]
    pub fn footprint(&self) -> usize {
        let of_peer = |p: &Peer| 1 + p.asked().len() + p.queue.len() + p.interest.fast().len();
        let peers: usize = self.peers.values().map(of_peer).sum();
        let cells: usize = self.pieces.in_flight().map(|(_, partial)| partial.footprint()).sum();
        let waiting = self.outbox.len()
            + self.request_checks.len()
            + self.announcer.waiting()
            + self.selection.deadlines();
        let plan = self.plan.state().map_or(0, |c| c.footprint());
        let waiting = waiting + self.budget.waiting();
        peers
            + cells
            + waiting
            + plan
            + self.addresses.len()
            + self.blame.footprint()
            + self.superseed_pieces.len()
    }

    /// Whether every invariant holds; else the first thing that is wrong. For tests and simulation:
    /// O(pieces x peers).
    ///
    /// # Errors
    /// A sentence that describes the violation.
    pub fn check(&self) -> Result<(), String> {
        self.pieces.check()?;
        self.addresses.check()?;
        self.check_picker()?;
        let mut outstanding = 0;
        let mut serving = 0;
        for peer in self.peers.values() {
            self.check_peer(peer)?;
            outstanding += peer.outstanding();
            serving += peer.queue.in_flight();
        }
        for (piece, partial) in self.pieces.in_flight() {
            for (peer, _) in partial.requests() {
                let live = self.peers.get(&peer).is_some_and(|p| !p.is_closing());
                if !live {
                    return Err(format!("piece {piece} is requested from {peer:?}, which has left"));
                }
            }
        }
        if (outstanding, serving) != (self.downloads.outstanding(), self.turns.in_flight()) {
            return Err("totals over the peers are wrong".into());
        }
        Ok(())
    }

    fn check_picker(&self) -> Result<(), String> {
        let (mut missing, mut due) = (0, 0);
        for piece in 0..self.pieces.count() {
            let place = self.place(piece);
            self.selection.check(piece, self.pieces.priority(piece), place)?;
            missing += u32::from(place.is_some());
            due += usize::from(place.is_some() && self.selection.has_deadline(piece));
            let holders = self.peers.values().filter(|p| p.have.has(piece)).count();
            if holders != self.selection.holders(piece) as usize {
                return Err(format!("piece {piece} has {holders} holders, counted otherwise"));
            }
        }
        match (missing, due) == (self.selection.count(), self.selection.due()) {
            true => Ok(()),
            false => Err("the picker holds pieces that are not missing".into()),
        }
    }

    fn check_peer(&self, peer: &Peer) -> Result<(), String> {
        let id = peer.id;
        let asked: u64 = peer.asked().iter().map(|a| u64::from(a.bytes)).sum();
        let (mut cells, mut bytes) = (0, 0);
        for (piece, partial) in self.pieces.in_flight() {
            for cell in partial.asked_of(id) {
                cells += 1;
                bytes += u64::from(self.pieces.block(piece, cell..cell + 1).len);
            }
        }
        if (asked, cells) != (peer.outstanding(), peer.cells()) || bytes != asked {
            let (outstanding, counted) = (peer.outstanding(), peer.cells());
            return Err(format!(
                "{id:?} has {asked}, {outstanding} or {bytes} requested bytes, {counted} or {cells} cells"
            ));
        }
        let lacking =
            (0..self.pieces.count()).filter(|&p| peer.have.has(p) && self.pieces.lacks(p)).count() as u32;
        if lacking != self.lacking(peer) {
            return Err(format!("{id:?} has {lacking} pieces that we lack, counted otherwise"));
        }
        if peer.queue.len() > self.env.limits().queued_requests {
            return Err(format!("{id:?} has more requests queued than allowed"));
        }
        if peer.is_closing() && (asked > 0 || peer.queue.len() > 0 || peer.have.count(1) > 0) {
            return Err(format!("{id:?} is closed but still has requests or pieces"));
        }
        Ok(())
    }

    /// The live connections.
    #[must_use]
    pub fn peers(&self) -> Vec<PeerId> {
        self.peers.values().filter(|p| !p.is_closing()).map(|p| p.id).collect()
    }
}
