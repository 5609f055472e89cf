//! Checks done a few times a second: slow peers, parents, web seeds, and peers that need nothing of one
//! another.

use std::time::Duration;

use crate::api::Reason;
use crate::engine::Engine;
use crate::state::addresses::End;
use crate::state::peer::Peer;

/// A Tidecast peer that has had nothing for us for this long is told that we are not interested: a forwarding
/// peer has new pieces all the time.
const BORED: Duration = Duration::from_secs(1);
/// Two that need nothing of each other part after this long.
const USELESS: Duration = Duration::from_secs(2);

impl Engine {
    pub(crate) fn upkeep_due(&mut self) {
        if !self.upkeep.begins(self.env.now()) {
            return;
        }
        self.look_for_slow();
        self.check_parents();
        self.check_web_seeds();
        let (now, complete) = (self.env.now(), self.pieces.is_complete());
        let (mut bored, mut useless) = (Vec::new(), Vec::new());
        for peer in self.peers.values().filter(|p| !p.is_closing()) {
            let lacking = self.lacking(peer);
            if lacking == 0 && peer.interest.we_want() {
                // A stock client may hold a slot for us.
                if complete || peer.is_stock() || now.since(peer.interest.useful()) >= BORED {
                    bored.push(peer.id);
                } else {
                    // Looked at again, though nothing may be requested.
                    self.upkeep.arm_if(self.downloads.outstanding() == 0);
                }
            } else if self.is_useless(peer) && peer.queue.len() == 0 {
                if now.since(peer.since) >= USELESS && now.since(peer.silence.last()) >= USELESS {
                    useless.push(peer.id);
                } else {
                    self.upkeep.arm();
                }
            }
            self.upkeep.arm_if(peer.silence.resting(now));
        }
        let left = self.pieces.left();
        for peer in self.peers.values_mut().filter(|p| !p.is_closing() && p.room(now) > 0) {
            if peer.have.lacking(left) > 0 {
                // A request that was overlooked when the peer was found dry is found now.
                peer.next_request.look_again();
                self.request_checks.add(peer.id);
                self.upkeep.arm();
            }
        }
        for id in bored {
            self.send_interested(id, false);
            self.upkeep.arm();
        }
        for id in useless {
            self.flush_announcements();
            self.disconnect(id, Reason::Useless);
        }
    }

    /// Sets the time of the next upkeep, if there is anything to keep up.
    pub(crate) fn plan_upkeep(&mut self) {
        self.upkeep.plan(self.env.now(), self.downloads.outstanding() > 0);
    }

    /// Neither side will have anything more for the other.
    pub(crate) fn is_useless(&self, peer: &Peer) -> bool {
        let sated = peer.have.is_all() || peer.interest.is_upload_only() && !peer.interest.wants_ours();
        self.pieces.is_complete() && sated && peer.end() == End::Lost && !self.on_demand()
    }
}
