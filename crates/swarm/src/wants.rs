//! The wanted pieces: priorities and deadlines, and whether all of them are here.

use std::ops::Range;

use crate::api::{Action, Time};
use crate::engine::Engine;

impl Engine {
    pub(crate) fn on_priority(&mut self, pieces: Range<u32>, priority: u8) {
        for piece in pieces.start..pieces.end.min(self.pieces.count()) {
            let idle = self.pieces.partial(piece).is_some_and(|p| !p.has_data());
            self.with_piece(piece, |p| p.set_priority(piece, priority));
            if priority == 0 && idle {
                self.forget_piece(piece);
            }
            self.wish(piece, priority > 1, None);
        }
        self.wanting_again();
    }

    pub(crate) fn on_deadline(&mut self, pieces: Range<u32>, at: Time) {
        for piece in pieces.start..pieces.end.min(self.pieces.count()) {
            if !self.pieces.verified(piece) {
                self.with_place(piece, |e| e.selection.set_deadline(piece, at));
            }
            self.wish(piece, true, None);
        }
    }

    /// Reports when nothing is left, once each time.
    pub(crate) fn check_complete(&mut self) {
        if self.pieces.note_complete() {
            self.announce_complete();
            self.outbox.push(Action::Complete);
            self.upkeep.arm();
        }
    }

    /// Something is left to fetch that was not before.
    pub(crate) fn wanting_again(&mut self) {
        let was = self.pieces.is_complete();
        self.check_complete();
        if !self.pieces.is_complete() {
            self.request_checks.add_all(self.peers.keys().copied());
        }
        if was && !self.pieces.is_complete() {
            self.addresses.retry_refused(self.env.now());
        }
    }
}
