//! Textbook choking, a switch for comparison: every 10 s the three interested peers that gave us most
//! (or, when we seed, took most) are unchoked, and every 30 s one more by chance. A downloader unchokes
//! nobody for nothing: who has given it nothing waits for chance (BitLib section V: "peers choke peers
//! based on their upload/download ratio"). A peer that has sent nothing for 60 s while we waited for it
//! is snubbed: only chance unchokes it (anti-snub). Until the first 10 s are over, slots go to whoever
//! comes first.
//!
//! Off, everyone is unchoked.

use std::cmp::Reverse;
use std::time::Duration;

use crate::api::{Action, PeerId, Time};
use crate::engine::Engine;
use crate::peer::Peer;

/// Between two rechokes.
const RECHOKE: Duration = Duration::from_secs(10);
/// Rechokes between two optimistic choices.
const OPTIMISTIC: u32 = 3;
/// Silence that makes a peer snubbed.
const SNUB: Duration = Duration::from_secs(60);

/// See the head of the file.
#[derive(Debug, Default)]
pub(crate) struct Choker {
    next: Option<Time>,
    round: u32,
    optimistic: Option<PeerId>,
}

impl Choker {
    /// When the next rechoke is due.
    pub(crate) fn due(&self) -> Option<Time> {
        self.next
    }
}

fn wants(peer: &Peer) -> bool {
    peer.wants_ours && !peer.closing
}

impl Engine {
    /// A new peer is choked or not, as the policy has it.
    pub(crate) fn choke_new(&mut self, id: PeerId) {
        let choke = self.policy.choking;
        let Some(peer) = self.peers.get_mut(&id) else { return };
        if peer.we_choke != choke {
            peer.we_choke = choke;
            self.out.push_back(Action::Choke { peer: id, choke });
        }
        if choke && self.choker.next.is_none() {
            self.choker.next = Some(self.now.after(RECHOKE));
        }
    }

    /// A free slot goes to whoever wants it first.
    pub(crate) fn fill_slots(&mut self) {
        if !self.policy.choking {
            return;
        }
        let used = self.peers.values().filter(|p| wants(p) && !p.we_choke).count();
        let waiting = self.peers.values().filter(|p| wants(p) && p.we_choke);
        let free = (self.limits.upload_slots + 1).saturating_sub(used);
        let ids: Vec<PeerId> = waiting.map(|p| p.id).take(free).collect();
        for id in ids {
            self.set_choke(id, false);
        }
    }

    /// Chooses anew, if it is time.
    pub(crate) fn rechoke_due(&mut self) {
        if self.choker.next.is_none_or(|at| at > self.now) {
            return;
        }
        let any = !self.peers.is_empty();
        self.choker.next = any.then(|| self.now.after(RECHOKE));
        self.rechoke();
    }

    fn rechoke(&mut self) {
        let (now, seeding) = (self.now, self.pieces.left() == 0);
        let snubbed = |p: &Peer| p.outstanding > 0 && now.since(p.patience.last()) >= SNUB;
        let gain = |p: &Peer| match seeding {
            true => p.counts.served - p.at_rechoke.1,
            false => p.counts.received - p.at_rechoke.0,
        };
        let mut regular: Vec<(Reverse<u64>, Time, PeerId)> = self
            .peers
            .values()
            .filter(|p| wants(p) && (seeding || (!snubbed(p) && gain(p) > 0)))
            .map(|p| (Reverse(gain(p)), p.since, p.id))
            .collect();
        regular.sort_unstable();
        let mut open: Vec<PeerId> = regular.iter().take(self.limits.upload_slots).map(|r| r.2).collect();
        self.choose_optimistic(&open);
        open.extend(self.choker.optimistic);
        for peer in self.peers.values_mut() {
            peer.at_rechoke = (peer.counts.received, peer.counts.served);
        }
        let ids: Vec<PeerId> = self.peers.keys().copied().collect();
        for id in ids {
            self.set_choke(id, !open.contains(&id));
        }
    }

    /// Every third time chance names one more.
    fn choose_optimistic(&mut self, open: &[PeerId]) {
        self.choker.round = self.choker.round.wrapping_add(1);
        let turn = self.choker.round.is_multiple_of(OPTIMISTIC);
        let stays = self
            .choker
            .optimistic
            .filter(|id| !turn && !open.contains(id) && self.peers.get(id).is_some_and(wants));
        let others = self.peers.values().filter(|p| wants(p) && !open.contains(&p.id));
        let others: Vec<PeerId> = others.map(|p| p.id).collect();
        let pick = self.rng.below(others.len() as u32) as usize;
        self.choker.optimistic = stays.or_else(|| others.get(pick).filter(|_| turn).copied());
    }

    fn set_choke(&mut self, id: PeerId, choke: bool) {
        let Some(peer) = self.peers.get_mut(&id) else { return };
        if peer.we_choke == choke || peer.closing {
            return;
        }
        peer.we_choke = choke;
        self.out.push_back(Action::Choke { peer: id, choke });
        if choke {
            let dropped = peer.queue.drain();
            if peer.rejects() {
                let reject = |block| Action::Reject { peer: id, block };
                self.out.extend(dropped.into_iter().map(reject));
            }
        }
    }
}
