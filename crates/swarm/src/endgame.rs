//! Textbook endgame, a switch for comparison: when every block has been asked for, each is asked of
//! every peer that has it, and cancelled elsewhere when it comes.
//!
//! Off, a block goes to a second peer only when the first is late (`slow.rs`).

use crate::api::{Action, PeerId};
use crate::engine::Engine;
use crate::pieces::CELL;

impl Engine {
    /// Asks `id` for blocks that others were asked for; false when there are none.
    pub(crate) fn endgame(&mut self, id: PeerId, room: u64) -> bool {
        let over = self.picker.count() == 0 && self.pieces.open().is_empty();
        if !self.policy.endgame || !over {
            return false;
        }
        let most = (room / u64::from(CELL)).max(1) as usize;
        let mut cells = Vec::new();
        for (piece, partial) in self.pieces.in_flight() {
            if cells.len() >= most {
                break;
            }
            if self.may_ask(id, piece) {
                cells.extend(partial.asked().map(|cell| (piece, cell)).take(most));
            }
        }
        let now = self.now;
        let mut any = false;
        for (piece, cell) in cells {
            if !self.with_piece(piece, |p| p.ask_too(id, piece, cell)) {
                continue;
            }
            any = true;
            let block = self.pieces.block(piece, cell..cell + 1);
            self.count_asked(u64::from(block.len));
            if let Some(peer) = self.peers.get_mut(&id) {
                peer.note_asked(piece, block.len, now);
            }
            self.out.push_back(Action::Request { peer: id, block });
        }
        any
    }
}
