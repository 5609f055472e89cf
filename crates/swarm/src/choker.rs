//! Textbook choking, a switch for comparison: every 10 s the three interested peers that gave us most (or,
//! when we seed, took most) are unchoked, and every 30 s one more at random. A downloader unchokes a peer
//! that has given it nothing only at random (BitLib section V: "peers choke peers based on their
//! upload/download ratio"). A peer that has sent nothing for 60 s while we waited for it is snubbed: it is
//! unchoked only at random (anti-snub). Until the first 10 s are over, slots go to the first peers that come.
//!
//! Off, every peer is unchoked.

use std::cmp::Reverse;
use std::time::Duration;

use crate::api::{Action, PeerId, Time};
use crate::engine::Engine;
use crate::state::peer::Peer;

/// Between two rechokes.
const RECHOKE: Duration = Duration::from_secs(10);
/// Rechokes between two optimistic choices.
const OPTIMISTIC: u32 = 3;
/// Silence that makes a peer snubbed.
const SNUB: Duration = Duration::from_secs(60);

fn wants(peer: &Peer) -> bool {
    peer.interest.wants_ours() && !peer.is_closing()
}

impl Engine {
    /// A new peer is choked or not, as the policy has it.
    pub(crate) fn choke_new(&mut self, id: PeerId) {
        let choke = self.env.policy().choking;
        let Some(peer) = self.peers.get_mut(&id) else { return };
        if peer.choking.is_choked() != choke {
            peer.choking.set(choke);
            self.outbox.push(Action::Choke { peer: id, choke });
        }
        if choke {
            self.choker.begin(self.env.now().after(RECHOKE));
        }
    }

    /// A free slot goes to the first peer that wants it.
    pub(crate) fn fill_slots(&mut self) {
        if !self.env.policy().choking {
            return;
        }
        let used = self.peers.values().filter(|p| wants(p) && !p.choking.is_choked()).count();
        let waiting = self.peers.values().filter(|p| wants(p) && p.choking.is_choked());
        let free = (self.env.limits().upload_slots + 1).saturating_sub(used);
        let ids: Vec<PeerId> = waiting.map(|p| p.id).take(free).collect();
        for id in ids {
            self.set_choke(id, false);
        }
    }

    /// Reassigns the slots, if it is time.
    pub(crate) fn rechoke_due(&mut self) {
        if self.choker.due().is_none_or(|at| at > self.env.now()) {
            return;
        }
        let any = !self.peers.is_empty();
        self.choker.schedule(any.then(|| self.env.now().after(RECHOKE)));
        self.rechoke();
    }

    fn rechoke(&mut self) {
        let (now, seeding) = (self.env.now(), self.pieces.left() == 0);
        let snubbed = |p: &Peer| p.outstanding() > 0 && now.since(p.silence.last()) >= SNUB;
        let gain = |p: &Peer| match seeding {
            true => p.choking.served_since(&p.counts),
            false => p.choking.received_since(&p.counts),
        };
        let mut regular: Vec<(Reverse<u64>, Time, PeerId)> = self
            .peers
            .values()
            .filter(|p| wants(p) && (seeding || (!snubbed(p) && gain(p) > 0)))
            .map(|p| (Reverse(gain(p)), p.since, p.id))
            .collect();
        regular.sort_unstable();
        let mut open: Vec<PeerId> =
            regular.iter().take(self.env.limits().upload_slots).map(|r| r.2).collect();
        self.choose_optimistic(&open);
        open.extend(self.choker.optimistic());
        for peer in self.peers.values_mut() {
            peer.choking.count_from(&peer.counts);
        }
        let ids: Vec<PeerId> = self.peers.keys().copied().collect();
        for id in ids {
            self.set_choke(id, !open.contains(&id));
        }
    }

    /// Every third time chance names one more.
    fn choose_optimistic(&mut self, open: &[PeerId]) {
        let turn = self.choker.is_turn(OPTIMISTIC);
        let stays = self
            .choker
            .optimistic()
            .filter(|id| !turn && !open.contains(id) && self.peers.get(id).is_some_and(wants));
        let others = self.peers.values().filter(|p| wants(p) && !open.contains(&p.id));
        let others: Vec<PeerId> = others.map(|p| p.id).collect();
        let pick = self.rng.below(others.len() as u32) as usize;
        self.choker.set_optimistic(stays.or_else(|| others.get(pick).filter(|_| turn).copied()));
    }

    fn set_choke(&mut self, id: PeerId, choke: bool) {
        let Some(peer) = self.peers.get_mut(&id) else { return };
        if peer.choking.is_choked() == choke || peer.is_closing() {
            return;
        }
        peer.choking.set(choke);
        self.outbox.push(Action::Choke { peer: id, choke });
        if choke {
            let dropped = peer.queue.drain();
            if peer.rejects() {
                let reject = |block| Action::Reject { peer: id, block };
                self.outbox.extend(dropped.into_iter().map(reject));
            }
        }
    }
}
