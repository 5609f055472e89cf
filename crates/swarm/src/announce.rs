//! Announces our pieces to peers.
//!
//! Stock peers are told of each piece at once. Tidecast peers are told of the first piece after a pause at
//! once, and then of batches: after 20 ms, or when 64 pieces have gathered. Pieces that several peers have
//! already are not urgent, and a message costs a packet and its acknowledgement for each peer: they are
//! announced with others, or after half a second. Tidecast peers are not told of pieces that they are known
//! to have, until we are complete: then they are told of all pieces, in a range or two, so that two complete
//! peers know it of each other. If a piece is lost again, every peer that was told of it is told at once.
//!
//! Batches may cost a 512th of the incoming payload, so that with requests and leaf hashes (32 bytes for 16
//! KiB, another 512th) control traffic stays below half a percent. Small pieces and many peers would cost
//! more at a fixed interval; then a batch waits until payload has paid for those before it, and is shorter
//! for it: gathered pieces make longer ranges, or bits, and some of them the peers have got elsewhere.

use std::time::Duration;

use crate::api::{Action, PeerId, Time};
use crate::bitset::to_ranges;
use crate::engine::Engine;
use crate::state::peer::Peer;

/// Pause between batches.
const BATCH: Duration = Duration::from_millis(20);
/// Pieces that make a batch without a pause.
const BATCH_MOST: usize = 64;
/// Pieces that this many connected peers have wait longer.
const COMMON: u16 = 4;
const COMMON_BATCH: Duration = Duration::from_millis(500);
/// Batches may cost this part of the payload received, and this many bytes before there is any.
const SHARE: (u64, u64) = (512, 64 << 10);
/// In a plan no member waits for a batch to know what to request, but children must know that this node is
/// alive: fewer batches, but regular ones.
const PLANNED_BATCH: Duration = Duration::from_millis(200);
const PLANNED_SHARE: u64 = 256;
/// A batch that is not paid for waits at most this long, and less when no payload has come for this long: our
/// pieces may be those that all others wait for.
const UNPAID: Duration = Duration::from_secs(10);
const QUIET: Duration = Duration::from_secs(1);

impl Engine {
    /// A piece has become ours.
    pub(crate) fn announce_piece(&mut self, piece: u32) {
        self.announcer.add(piece, self.selection.copies(piece) < COMMON);
        for peer in self.peers.values() {
            let tell = peer.is_stock() && !peer.is_closing();
            if tell {
                let pieces = vec![piece..piece + 1];
                self.outbox.push(Action::Announce { peer: peer.id, pieces });
            }
        }
        if self.announcer.waiting() >= BATCH_MOST && self.announcements_paid() {
            self.flush_announcements();
        }
    }

    /// Payload has paid for the batches so far.
    fn announcements_paid(&self) -> bool {
        let part = if self.planned() { PLANNED_SHARE } else { SHARE.0 };
        self.announcer.spent() <= self.totals.received() / part + SHARE.1
    }

    /// A piece is lost. Peers that were told of it would continue to request it, and take us for a peer that
    /// claims pieces that it does not have. If the announcement is still pending, only stock peers were told:
    /// a new peer is told of all pieces, but then nothing is pending.
    pub(crate) fn announce_lost(&mut self, piece: u32) {
        let batched = self.announcer.withdraw(piece);
        for peer in self.peers.values().filter(|p| !p.is_closing() && (batched || p.is_stock())) {
            self.outbox.push(Action::AnnounceLost { peer: peer.id, piece });
        }
    }

    /// A peer has lost a piece that we have. While it had it, it was not told.
    pub(crate) fn announce_again(&mut self, id: PeerId, piece: u32) {
        let tell = self.peers.get(&id).is_some_and(|p| !p.is_stock() && !p.is_closing());
        if tell && self.pieces.verified(piece) {
            self.outbox.push(Action::Announce { peer: id, pieces: vec![piece..piece + 1] });
        }
    }

    /// When the next batch is due.
    pub(crate) fn announce_at(&self) -> Option<Time> {
        if self.announcer.waiting() == 0 {
            return None;
        }
        let Some(last) = self.announcer.last() else { return Some(Time(0)) };
        let soonest = last.after(match (self.planned(), self.announcer.is_rare()) {
            (true, _) => PLANNED_BATCH,
            (false, true) => BATCH,
            (false, false) => COMMON_BATCH,
        });
        if self.announcements_paid() {
            return Some(soonest);
        }
        Some(last.after(UNPAID).min(self.downloads.last().after(QUIET)).max(soonest))
    }

    /// Announces the gathered pieces to Tidecast peers, if it is time.
    pub(crate) fn announce_due(&mut self) {
        if self.announce_at().is_some_and(|at| at <= self.env.now()) {
            self.flush_announcements();
        }
    }

    /// Announces the gathered pieces to Tidecast peers.
    pub(crate) fn flush_announcements(&mut self) {
        let mut news = self.announcer.take(self.env.now());
        if news.is_empty() {
            return;
        }
        news.retain(|&piece| self.pieces.verified(piece));
        for peer in self.peers.values() {
            if peer.is_stock() || peer.is_closing() {
                continue;
            }
            // The source is told too, though it is complete: it sends again the pieces that were lost with a
            // relay. And so are peers that may take our silence for a failure, and those that wait to learn
            // which pieces they need not offer us.
            let told = self.is_source(peer) || self.feeds(peer) || self.judging();
            // A parent would push a piece that we have fetched, when it comes by the plan at last.
            let parent = self.is_fed_by(peer);
            let fetched = |piece: u32| parent && !self.by_plan(piece);
            let news = news.iter().copied();
            let pieces = to_ranges(news.filter(|&p| told || !peer.have.has(p) || fetched(p)));
            if !pieces.is_empty() {
                self.announcer.pay(&pieces);
                self.outbox.push(Action::Announce { peer: peer.id, pieces });
            }
        }
    }

    /// The peer is our parent in some stripe.
    fn is_fed_by(&self, peer: &Peer) -> bool {
        self.plan.state().is_some_and(|c| peer.place.member().is_some_and(|member| c.is_parent(member)))
    }

    /// The piece was offered to us.
    fn by_plan(&self, piece: u32) -> bool {
        self.plan.state().is_some_and(|c| c.stripe_of(piece).is_some())
    }

    /// Some data of an earlier run is not verified yet.
    fn judging(&self) -> bool {
        self.announcer.judged() < self.pieces.count()
    }

    /// More data of an earlier run is verified: valid pieces are announced before the others may be offered.
    pub(crate) fn on_judged(&mut self, below: u32) {
        self.flush_announcements();
        self.announcer.judge(below);
        for peer in self.peers.values().filter(|p| !p.is_stock() && !p.is_closing()) {
            self.outbox.push(Action::OfferBelow { peer: peer.id, below });
        }
    }

    /// Tells Tidecast peers of everything, since nothing more will come.
    pub(crate) fn announce_complete(&mut self) {
        self.flush_announcements();
        let all = self.pieces.verified_ranges();
        for peer in self.peers.values() {
            let tell = !peer.is_stock() && !peer.is_closing();
            if tell && !all.is_empty() {
                self.outbox.push(Action::Announce { peer: peer.id, pieces: all.clone() });
            }
        }
    }

    /// Announces all our pieces to these peers, including those that they have.
    pub(crate) fn announce_anew(&mut self, peers: &[PeerId]) {
        let pieces = self.pieces.verified_ranges();
        if peers.is_empty() || pieces.is_empty() {
            return;
        }
        self.flush_announcements();
        for &peer in peers {
            self.announcer.pay(&pieces);
            self.outbox.push(Action::Announce { peer, pieces: pieces.clone() });
        }
    }

    /// The first message to a new peer.
    pub(crate) fn announce_all(&mut self, id: PeerId) {
        // Present peers are told first, so that no peer is told of a piece twice.
        self.flush_announcements();
        if self.judging() && self.peers.get(&id).is_some_and(|p| !p.is_stock()) {
            self.outbox.push(Action::OfferBelow { peer: id, below: self.announcer.judged() });
        }
        let have = self.pieces.verified_ranges();
        self.outbox.push(Action::AnnounceAll { peer: id, have });
    }
}
