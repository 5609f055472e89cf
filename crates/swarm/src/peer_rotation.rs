//! Escape from islands: connections are few, and all of them may be with nodes that have nothing more for us,
//! nor we for them. Then one of these is replaced by an incoming connection or an untried address.
//!
//! Promises: only idle peers are disconnected, and those that have used up our patience (where all have been
//! silent, one that was; for one that was told, any other); never one that was told; at most one in `PAUSE`,
//! so that neither a stranger nor an unlucky node makes connections churn. Its address is tried again after
//! the others.

use std::time::Duration;

use crate::api::{PeerId, Reason, Time};
use crate::engine::Engine;
use crate::state::addresses::End;
use crate::state::peer::Peer;

/// Time between two disconnections; a new peer has as long to show its pieces.
const PAUSE: Duration = Duration::from_secs(2);

impl Engine {
    /// The time of the next check: while pieces are wanted, no dial is pending, and there is an address to
    /// try.
    pub(crate) fn rotate_at(&self) -> Option<Time> {
        let idle = !self.pieces.is_complete() && self.addresses.dialing() == 0;
        let barred = self.addresses.barred(self.env.limits().peers > self.peers.len()).filter(|_| idle)?;
        Some(barred.max(self.downloads.last().after(PAUSE)).max(self.addresses.rotated().after(PAUSE)))
    }

    /// No peer has anything for us: disconnects one, so that the next can be dialled.
    pub(crate) fn rotate_due(&mut self) {
        if self.rotate_at().is_none_or(|at| at > self.env.now()) {
            return;
        }
        let hope = |p: &Peer| !p.is_closing() && self.lacking(p) > 0 && !p.silence.is_suspect();
        let hopeless = !self.peers.values().any(hope);
        let dialled = self.addresses.random_full();
        self.addresses.rotate(self.env.now());
        if let Some(id) = self.idlest(dialled, true).filter(|_| hopeless) {
            self.part(id);
        }
    }

    /// Whether a peer could be replaced by `newcomer`, for which there is no slot: an idle one, and for a
    /// newcomer that was `told` any that was not.
    pub(crate) fn make_room(&mut self, newcomer: PeerId, told: bool) -> bool {
        let may = told || self.env.now() >= self.addresses.rotated().after(PAUSE);
        let untold =
            self.peers.values().filter(|p| told && !p.is_told() && !p.is_closing() && p.id != newcomer);
        let least = untold.min_by_key(|p| p.counts.received() + p.counts.served()).map(|p| p.id);
        let Some(id) = self.idlest(false, false).filter(|_| may).or(least) else { return false };
        self.addresses.rotate(self.env.now());
        self.part(id);
        true
    }

    /// Of the replaceable peers, the one that has moved the least, the oldest of these. `dialled`: by us.
    /// `silent`: include those that have been silent once.
    fn idlest(&self, dialled: bool, silent: bool) -> Option<PeerId> {
        let may_go = |p: &&Peer| self.may_go(p, silent) && (p.candidate.is_some() || !dialled);
        let idle = self.peers.values().filter(may_go);
        idle.min_by_key(|p| (p.counts.stored() + p.counts.served(), p.since)).map(|p| p.id)
    }

    fn may_go(&self, peer: &Peer, silent: bool) -> bool {
        let idle = peer.outstanding() == 0 && peer.queue.len() == 0 && !peer.interest.wants_ours();
        let nothing = idle && self.lacking(peer) == 0;
        let settled = self.env.now() >= peer.since.after(PAUSE);
        let spent = peer.silence.is_exceeded() || silent && peer.silence.stalled();
        !peer.is_closing() && !peer.is_told() && settled && (nothing || spent)
    }

    fn part(&mut self, id: PeerId) {
        if let Some(peer) = self.peers.get_mut(&id) {
            peer.ends(End::Poor);
        }
        self.disconnect(id, Reason::TooMany);
    }
}
