//! Connections: dialled, up, let go, gone. `retire` is the only way to let a peer go.

use std::time::Duration;

use crate::api::{Action, Candidate, PeerId, Protocol, Reason};
use crate::engine::Engine;
use crate::state::addresses::End;
use crate::state::peer::Peer;

/// With a plan, members other than our parents are dialled after this long, or up to twice that.
const SPARE: Duration = Duration::from_secs(1);
/// Addresses other than those named are dialled within this time.
const MINGLE: Duration = Duration::from_millis(25);

impl Engine {
    pub(crate) fn on_peer_up(&mut self, id: PeerId, protocol: Protocol, candidate: Option<Candidate>) {
        if self.peers.contains_key(&id) {
            debug_assert!(false, "peer {id:?} is up twice");
            return;
        }
        let mut peer = Peer::new(id, protocol, candidate, self.env.limits(), self.env.now());
        if candidate.is_some_and(|c| self.addresses.told(c)) {
            peer.was_told();
        }
        if let Some(candidate) = candidate {
            self.addresses.up(candidate, id);
        }
        let told = peer.is_told();
        self.peers.insert(id, peer);
        self.web_up(id);
        if self.peers.len() > self.env.limits().peers && !self.make_room(id, told) {
            return self.disconnect(id, Reason::TooMany);
        }
        self.announce_all(id);
        self.choke_new(id);
        self.upkeep.arm();
    }

    pub(crate) fn on_peer_down(&mut self, id: PeerId) {
        let Some(peer) = self.peers.get(&id) else { return };
        // Whichever of the two lets go first, neither calls the other again.
        let end = if self.is_useless(peer) { End::Useless } else { peer.end() };
        if peer.place.member().is_some() && peer.have.is_all() {
            self.budget.member_finished();
        }
        self.retire(id);
        self.web_down(id);
        if let Some(peer) = self.peers.remove(&id) {
            self.blame.departed(id, peer.candidate);
            if let Some(candidate) = peer.candidate {
                self.addresses.down(self.env.now(), candidate, id, (peer.since, end), &mut self.rng);
            }
        }
        self.given_to_departed(id);
        self.fill_slots();
    }

    /// Closes a connection.
    pub(crate) fn disconnect(&mut self, id: PeerId, reason: Reason) {
        let Some(peer) = self.peers.get_mut(&id).filter(|p| !p.is_closing()) else { return };
        if reason == Reason::Useless {
            peer.ends(End::Useless);
        }
        self.retire(id);
        self.outbox.push(Action::Disconnect { peer: id, reason });
    }

    /// Frees all that a peer holds and is asked for. It stays in the table until `PeerDown`.
    pub(crate) fn retire(&mut self, id: PeerId) {
        self.left_plan(id);
        let Some(peer) = self.peers.get_mut(&id) else { return };
        peer.close();
        self.turns.forget(id, &mut peer.queue);
        self.budget.forget(id);
        for piece in peer.asked_pieces() {
            self.take_back(id, piece, 0..u32::MAX, false);
        }
        self.has_none(id);
        if let Some(peer) = self.peers.get_mut(&id) {
            debug_assert_eq!((peer.outstanding(), peer.asked().len()), (0, 0));
            peer.interest.over();
        }
    }

    /// All nodes may learn of the same others, in the same order and at the same instant. If each dialled the
    /// first ones at once, all would dial the same few, and these alone would forward everything: the order
    /// is random.
    ///
    /// In a plan every member begins with the parents that it names. The other peers are for the case that
    /// the plan fails: a handshake with each would delay the data, or take longer than it, and an incoming
    /// connection saves a dial.
    pub(crate) fn on_candidate(&mut self, candidate: Candidate, told: bool) {
        let wait = match (told, self.plan.state().is_some()) {
            (true, _) => Duration::ZERO,
            (false, true) => SPARE + SPARE * self.rng.below(256) / 256,
            (false, false) => MINGLE * self.rng.below(256) / 256,
        };
        self.addresses.add(self.env.now().after(wait), candidate, told);
    }

    pub(crate) fn dial(&mut self) {
        let room = self.env.limits().peers.saturating_sub(self.peers.len());
        for candidate in self.addresses.dial(self.env.now(), room, &mut self.rng) {
            self.outbox.push(Action::Dial { candidate });
        }
    }
}
