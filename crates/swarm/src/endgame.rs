//! Textbook endgame, a switch for comparison: when every block has been asked for, each is asked of
//! every peer that has it, and cancelled elsewhere when it comes.
//!
//! Off, a block goes to a second peer only when the first is late (`reassign.rs`).

use std::collections::BTreeMap;

use crate::api::{Action, PeerId};
use crate::bitset::to_ranges;
use crate::engine::Engine;
use crate::ranges::chunks;
use crate::state::pieces::CELL;

impl Engine {
    /// Asks `id` for blocks that others were asked for; false when there are none.
    pub(crate) fn endgame(&mut self, id: PeerId, room: u64) -> bool {
        let over = self.selection.count() == 0 && self.pieces.open().is_empty();
        if !self.env.policy().endgame || !over {
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
        let mut taken: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        for (piece, cell) in cells {
            if self.with_piece(piece, |p| p.ask_too(id, piece, cell)) {
                taken.entry(piece).or_default().push(cell);
            }
        }
        let now = self.env.now();
        for (&piece, cells) in &taken {
            for run in to_ranges(cells.iter().copied()) {
                let block = self.pieces.block(piece, run);
                self.downloads.asked(now, u64::from(block.len));
                let Some(peer) = self.peers.get_mut(&id) else { continue };
                peer.note_asked(piece, block.len, now);
                let requests = chunks(block, peer.request_size());
                self.outbox.extend(requests.map(|block| Action::Request { peer: id, block }));
            }
        }
        !taken.is_empty()
    }
}
