//! Requests of peers: checked, queued, served in turn. Only verified pieces are served.

use std::ops::Range;

use crate::api::{Action, Block, PeerId, Protocol, Reason};
use crate::engine::Engine;
use crate::state::counts::Fate;
use crate::state::peer::STOCK_BLOCK_MOST;
use crate::state::upload::Step;

impl Engine {
    /// A peer asks for a block.
    pub(crate) fn on_requested(&mut self, id: PeerId, block: Block) {
        let Some(peer) = self.peers.get_mut(&id) else { return };
        let most = match peer.protocol {
            Protocol::Tidecast { .. } | Protocol::Web { .. } => u32::MAX,
            Protocol::Stock { .. } => STOCK_BLOCK_MOST,
        };
        let end = block.begin.checked_add(block.len);
        let inside = end.is_some_and(|end| end <= self.pieces.length(block.piece));
        if !inside || block.len == 0 || block.len > most {
            return self.disconnect(id, Reason::Protocol("requested an invalid block"));
        }
        let choked = peer.choking.is_choked();
        if choked || !self.pieces.servable(block.piece) {
            if peer.rejects() {
                self.outbox.push(Action::Reject { peer: id, block });
            }
            return;
        }
        if !self.spare(id, block) {
            self.queue_request(id, block);
        }
    }

    /// A request that may be served waits for its turn.
    pub(crate) fn queue_request(&mut self, id: PeerId, block: Block) {
        let Some(peer) = self.peers.get_mut(&id) else { return };
        if peer.queue.len() >= self.env.limits().queued_requests {
            return self.refuse(id, block);
        }
        peer.queue.push(block);
        self.turns.enter(id, &mut peer.queue);
        // A child that begins to fetch a piece itself is not sent it a second time.
        if let Some(plan) = self.plan.state_mut().filter(|_| block.begin == 0) {
            plan.child_fetches(id, block.piece);
        }
    }

    /// The queue is full: a peer that understands a reject gets one, as long as it does not go on.
    fn refuse(&mut self, id: PeerId, block: Block) {
        let Some(peer) = self.peers.get_mut(&id) else { return };
        let refused = peer.refuse();
        let patient = peer.rejects() && refused <= self.env.limits().queued_requests;
        if patient {
            self.outbox.push(Action::Reject { peer: id, block });
        } else {
            self.disconnect(id, Reason::Flooding);
        }
    }

    /// A Tidecast peer asks for whole pieces.
    pub(crate) fn on_requested_pieces(&mut self, id: PeerId, pieces: Range<u32>) {
        let Some(peer) = self.peers.get_mut(&id) else { return };
        if pieces.is_empty() || pieces.end > self.pieces.count() || peer.is_stock() {
            return self.disconnect(id, Reason::Protocol("requested invalid pieces"));
        }
        if peer.queue.len() + pieces.len() > self.env.limits().queued_requests {
            return self.disconnect(id, Reason::Flooding);
        }
        let choked = peer.choking.is_choked();
        for piece in pieces {
            let block = Block { piece, begin: 0, len: self.pieces.length(piece) };
            if !self.pieces.servable(piece) || choked {
                self.outbox.push(Action::Reject { peer: id, block });
            } else if !self.spare(id, block) {
                self.queue_request(id, block);
            }
        }
    }

    /// A peer has cancelled its requests within this block.
    pub(crate) fn on_canceled(&mut self, id: PeerId, block: Block) {
        let Some(peer) = self.peers.get_mut(&id) else { return };
        let gone = peer.queue.cancel(block);
        self.budget.cancel(id, block);
        self.declined(id, block);
        let Some(peer) = self.peers.get_mut(&id) else { return };
        if peer.is_stock() && peer.rejects() {
            // BEP 6: every request is answered, by its block or by a reject.
            self.outbox.extend(gone.into_iter().map(|block| Action::Reject { peer: id, block }));
        }
        if peer.queue.len() > self.env.limits().queued_requests {
            self.disconnect(id, Reason::Flooding);
        }
    }

    /// Hands out blocks up to the limit.
    pub(crate) fn serve(&mut self) {
        self.turns.regulate(self.env.now());
        let (distribution, complete) = (self.env.policy().distribution, self.pieces.is_complete());
        let new_first = complete && !distribution;
        while let Some((id, waited)) = self.turns.next() {
            let Some(peer) = self.peers.get(&id) else { continue };
            let (share, selection) = (peer.share(self.env.limits()), &self.selection);
            let next = || self.turns.next_piece(&peer.queue, |p| selection.copies(p));
            let next = if distribution && complete { next() } else { None };
            let held = next.is_some_and(|piece| self.held_back(id, piece));
            let Some(peer) = self.peers.get_mut(&id) else { continue };
            if held {
                peer.queue.leave_ring();
                continue;
            }
            let copies = |p| self.selection.copies(p);
            if waited != peer.queue.release() {
                // It was in the ring again, and stays there.
                continue;
            }
            if new_first && !waited && !peer.queue.is_fed() && self.turns.hold(id, &mut peer.queue, copies) {
                continue;
            }
            let step = self.turns.step(self.env.now(), id, &mut peer.queue, share, copies);
            match step {
                Step::Serve(block) => self.serve_block(id, block),
                Step::Full => break,
                Step::Wait | Step::Leave => {}
            }
        }
    }

    fn serve_block(&mut self, id: PeerId, block: Block) {
        let Some(peer) = self.peers.get_mut(&id) else { return };
        // A piece that is not verified is passed on in a plan only, leaf by leaf.
        let passed =
            || self.pieces.passable(block.piece, block.begin) >= block.begin.saturating_add(block.len);
        let here = self.plan.state().is_some() && passed();
        if here || self.pieces.servable(block.piece) {
            self.outbox.push(Action::Serve { peer: id, block });
            return;
        }
        // Lost since it was asked for.
        self.turns.sent(self.env.now(), id, &mut peer.queue, block.len);
        if peer.rejects() {
            self.outbox.push(Action::Reject { peer: id, block });
        }
    }

    /// A block has left for the socket.
    pub(crate) fn on_sent(&mut self, id: PeerId, block: Block) {
        let Some(peer) = self.peers.get_mut(&id) else { return };
        let before = peer.queue.in_flight();
        self.turns.sent(self.env.now(), id, &mut peer.queue, block.len);
        let bytes = before - peer.queue.in_flight();
        peer.served();
        self.count(id, Fate::Served, bytes);
        self.feed(id);
    }
}
