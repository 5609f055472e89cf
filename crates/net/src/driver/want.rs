//! The pieces to fetch: all selected ones, or requested ones.

use std::ops::Range;

use tidecast_swarm::Event;

use super::Driver;
use crate::input::Urgency;
use crate::report::Notice;

impl Driver {
    pub(super) fn want(&mut self, pieces: Range<u32>, urgency: Urgency) {
        let pieces = pieces.start..pieces.end.min(self.manifest.piece_count());
        pieces.clone().for_each(|piece| self.mark(piece, urgency != Urgency::Never));
        if self.unchecked.is_empty() {
            return self.ask(pieces, urgency);
        }
        // Pieces that may be on disk are checked first, and fetched if they are not.
        for piece in pieces {
            if !self.unchecked.contains(&piece) {
                self.ask(piece..piece + 1, urgency);
            }
        }
    }

    fn ask(&mut self, pieces: Range<u32>, urgency: Urgency) {
        if urgency == Urgency::Now {
            // First, so that the wish for them goes out once, and as urgent.
            self.engine_event(Event::Deadline { pieces: pieces.clone(), at: self.now() });
        }
        self.engine_event(Event::Priority { pieces, priority: urgency.priority() });
    }

    /// Notes that a piece is wanted, or is not, and counts its bytes.
    fn mark(&mut self, piece: u32, now: bool) {
        let Some(wanted) = self.wanted.get_mut(piece as usize) else { return };
        let before = std::mem::replace(wanted, now);
        let len = u64::from(self.manifest.piece_len(piece));
        let had = if self.engine.have(piece) { len } else { 0 };
        match (before, now) {
            (false, true) => {
                self.wanted_bytes += len;
                self.verified_bytes += had;
            }
            (true, false) => {
                self.wanted_bytes -= len;
                self.verified_bytes -= had;
            }
            _ => {}
        }
    }

    pub(super) fn is_wanted(&self, piece: u32) -> bool {
        self.wanted.get(piece as usize).copied().unwrap_or(false)
    }

    /// A piece was hashed that might have been there: wanted now, if it was not.
    /// Where it could not be read, nothing is known of it.
    pub(super) fn checked(&mut self, piece: u32, read: bool) {
        self.unchecked.remove(&piece);
        if self.engine.have(piece) {
            return;
        }
        if self.shared.seed_only {
            if !read {
                return;
            }
            self.notify(Notice::Damaged { piece });
        } else if self.is_wanted(piece) {
            self.engine_event(Event::Priority { pieces: piece..piece + 1, priority: 1 });
        }
    }
}
