//! Telling peers what we have.
//!
//! Stock peers hear of a piece at once. Tidecast peers hear of the first after a pause at once, and
//! then of batches: after 20 ms, or when 64 pieces have gathered. They do not hear of pieces that they
//! are known to have, until we are complete: then they hear of everything, in a range or two, so that
//! two who are complete know it of each other. Stock peers hear of every piece.

use std::time::Duration;

use crate::api::{Action, PeerId, Time};
use crate::bitset::to_ranges;
use crate::engine::Engine;

/// Pause between batches.
const BATCH: Duration = Duration::from_millis(20);
/// Pieces that make a batch without a pause.
const BATCH_MOST: usize = 64;

/// Pieces that Tidecast peers have not heard of.
#[derive(Debug, Default)]
pub(crate) struct Announcer {
    waiting: Vec<u32>,
    last: Option<Time>,
}

impl Announcer {
    /// When the batch is due.
    pub(crate) fn due(&self) -> Option<Time> {
        let last = self.last.unwrap_or_default();
        (!self.waiting.is_empty()).then(|| match self.last {
            Some(_) => last.after(BATCH),
            None => Time(0),
        })
    }
}

impl Engine {
    /// A piece has become ours.
    pub(crate) fn announce_piece(&mut self, piece: u32) {
        self.announcer.waiting.push(piece);
        for peer in self.peers.values() {
            let tell = peer.is_stock() && !peer.closing;
            if tell {
                let pieces = vec![piece..piece + 1];
                self.out.push_back(Action::Announce { peer: peer.id, pieces });
            }
        }
        if self.announcer.waiting.len() >= BATCH_MOST {
            self.flush_announcements();
        }
    }

    /// Tells Tidecast peers what has gathered, if it is time.
    pub(crate) fn announce_due(&mut self) {
        if self.announcer.due().is_some_and(|at| at <= self.now) {
            self.flush_announcements();
        }
    }

    /// Tells Tidecast peers what has gathered.
    pub(crate) fn flush_announcements(&mut self) {
        let mut news = std::mem::take(&mut self.announcer.waiting);
        if news.is_empty() {
            return;
        }
        self.announcer.last = Some(self.now);
        news.sort_unstable();
        news.dedup();
        news.retain(|&piece| self.pieces.verified(piece));
        for peer in self.peers.values() {
            if peer.is_stock() || peer.closing {
                continue;
            }
            let pieces = to_ranges(news.iter().copied().filter(|&piece| !peer.have.has(piece)));
            if !pieces.is_empty() {
                self.out.push_back(Action::Announce { peer: peer.id, pieces });
            }
        }
    }

    /// Tells Tidecast peers of everything, since nothing more will come.
    pub(crate) fn announce_complete(&mut self) {
        self.flush_announcements();
        let all = self.pieces.verified_ranges();
        for peer in self.peers.values() {
            let tell = !peer.is_stock() && !peer.closing;
            if tell && !all.is_empty() {
                self.out.push_back(Action::Announce { peer: peer.id, pieces: all.clone() });
            }
        }
    }

    /// The first message to a new peer.
    pub(crate) fn announce_all(&mut self, id: PeerId) {
        // Whoever was here before is told first, so that nobody hears of a piece twice.
        self.flush_announcements();
        let have = self.pieces.verified_ranges();
        self.out.push_back(Action::AnnounceAll { peer: id, have });
    }
}
