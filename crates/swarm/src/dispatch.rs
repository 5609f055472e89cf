//! Entry and exit of the engine: an event goes to the mechanism responsible for it, then each mechanism does
//! its due work.

use crate::api::{Action, Event, PeerId, Time};
use crate::engine::Engine;

impl Engine {
    /// Something has happened at `now`.
    pub fn handle(&mut self, now: Time, event: Event) {
        self.env.advance(now);
        self.dispatch(event);
        self.announce_due();
        self.rechoke_due();
        self.held_due();
        self.upkeep_due();
        self.rotate_due();
        self.give_out();
        self.send_wishes();
        self.spared_due();
        self.serve();
        self.refill();
        self.dial();
        self.plan_upkeep();
    }

    /// The next action; None when there is none.
    pub fn poll(&mut self) -> Option<Action> {
        self.outbox.pop()
    }

    /// When to send `Event::Tick` if nothing else happens before.
    #[must_use]
    pub fn wakeup(&self) -> Option<Time> {
        let room = self.env.limits().peers > self.peers.len() + self.addresses.dialing();
        let dial = self.addresses.wakeup().filter(|_| room);
        let own = [
            self.announce_at(),
            self.choker.due(),
            self.superseed_pieces.due(),
            self.turns.due(),
            self.budget.due(),
        ];
        let balance = self.plan.state().and_then(|plan| plan.balance().due());
        let rest = [self.upkeep.at(), self.rotate_at(), dial, self.request_checks.held_until(), balance];
        let timers = own.into_iter().chain(rest);
        timers.flatten().min().map(|at| at.max(self.env.now()))
    }

    fn dispatch(&mut self, event: Event) {
        match event {
            Event::Tick => {}
            Event::Candidate { candidate, told } => self.on_candidate(candidate, told),
            Event::DialFailed { candidate } => {
                self.addresses.failed(self.env.now(), candidate, false, &mut self.rng);
            }
            Event::DialRefused { candidate } => {
                self.addresses.failed(self.env.now(), candidate, true, &mut self.rng);
            }
            Event::Retry { candidate } => self.addresses.retry(self.env.now(), candidate),
            Event::Admitted => self.addresses.admitted(self.env.now()),
            Event::PeerUp { peer, protocol, candidate } => self.on_peer_up(peer, protocol, candidate),
            Event::PeerDown { peer } => self.on_peer_down(peer),
            Event::Stored { peer, block, proven } => self.on_stored(peer, block, proven),
            Event::BlockBad { peer, block } => self.on_block_bad(peer, block),
            Event::Duplicate { peer, block } => self.on_duplicate(peer, block),
            Event::Received { peer, block } => self.on_received(peer, block),
            Event::PieceVerified { piece } => self.on_piece_verified(piece),
            Event::PieceFailed { piece } => self.on_piece_failed(piece),
            Event::PieceDropped { piece } => self.on_piece_dropped(piece),
            Event::PieceLost { piece } => self.on_piece_lost(piece),
            Event::Judged { below } => self.on_judged(below),
            Event::Priority { pieces, priority } => self.on_priority(pieces, priority),
            Event::Deadline { pieces, at } => self.on_deadline(pieces, at),
            Event::PlanExpected { until } => {
                self.request_checks.hold(Some(until).filter(|_| self.plan.state().is_none()));
            }
            Event::Plan(role) => self.on_plan(role),
            other => self.dispatch_peer(other),
        }
    }

    /// Events of one live peer; those of a peer that we have closed mean nothing any more.
    fn dispatch_peer(&mut self, event: Event) {
        let Some(id) = peer_of(&event) else { return };
        let now = self.env.now();
        let Some(peer) = self.peers.get_mut(&id).filter(|p| !p.is_closing()) else { return };
        // An event of the driver about a peer does not count as a message of the peer.
        if !matches!(
            event,
            Event::Sent { .. } | Event::Member { .. } | Event::Key { .. } | Event::QueueLimit { .. }
        ) {
            peer.note_heard(now);
        }
        match event {
            Event::Key { peer, key } => self.on_key(peer, key),
            Event::HasAll { peer } => self.on_has_all(peer),
            Event::HasNone { peer } => {
                self.has_none(peer);
                self.introduced(peer);
            }
            Event::HasExactly { peer, pieces } => self.on_has_exactly(peer, pieces),
            Event::Has { peer, pieces } => self.on_has(peer, &[pieces]),
            Event::HasMore { peer, pieces } => self.on_has(peer, &pieces),
            Event::HasNot { peer, piece } => self.on_has_not(peer, piece),
            Event::Choked { peer } => self.on_choked(peer),
            Event::Unchoked { peer } => self.on_unchoked(peer),
            Event::Interested { peer } => self.on_interested(peer, true),
            Event::NotInterested { peer } => self.on_interested(peer, false),
            Event::UploadOnly { peer } => self.on_upload_only(peer),
            Event::Requested { peer, block } => self.on_requested(peer, block),
            Event::RequestedPieces { peer, pieces } => self.on_requested_pieces(peer, pieces),
            Event::Canceled { peer, block } => self.on_canceled(peer, block),
            Event::Rejected { peer, block } => self.on_rejected(peer, block),
            Event::AllowedFast { peer, piece } => self.on_allowed_fast(peer, piece),
            Event::Sent { peer, block } => self.on_sent(peer, block),
            Event::Member { peer, member, distance } => self.on_member(peer, member, distance),
            Event::Offered { peer, piece, stripe } => self.on_offered(peer, piece, stripe),
            Event::OfferBelow { peer, below } => self.on_offer_below(peer, below),
            Event::Wished { peer, pieces, stripe, urgent } => self.on_wished(peer, pieces, stripe, urgent),
            Event::Coming { peer } => self.on_coming(peer),
            Event::QueueLimit { peer, requests } => {
                if let Some(peer) = self.peers.get_mut(&peer) {
                    peer.limit_queue(requests);
                }
            }
            _ => {}
        }
    }
}

/// The peer that an event is about.
fn peer_of(event: &Event) -> Option<PeerId> {
    match event {
        Event::HasAll { peer }
        | Event::Key { peer, .. }
        | Event::HasNone { peer }
        | Event::HasExactly { peer, .. }
        | Event::Has { peer, .. }
        | Event::HasMore { peer, .. }
        | Event::HasNot { peer, .. }
        | Event::Choked { peer }
        | Event::Unchoked { peer }
        | Event::Interested { peer }
        | Event::NotInterested { peer }
        | Event::UploadOnly { peer }
        | Event::Requested { peer, .. }
        | Event::RequestedPieces { peer, .. }
        | Event::Canceled { peer, .. }
        | Event::Rejected { peer, .. }
        | Event::AllowedFast { peer, .. }
        | Event::QueueLimit { peer, .. }
        | Event::Member { peer, .. }
        | Event::Offered { peer, .. }
        | Event::OfferBelow { peer, .. }
        | Event::Wished { peer, .. }
        | Event::Coming { peer }
        | Event::Sent { peer, .. } => Some(*peer),
        _ => None,
    }
}
