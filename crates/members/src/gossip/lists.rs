//! Comparing whole lists of members, as memberlist's push-pull does: two members whose digests differ exchange them.

use foca::{Member, State, Timer};
use tidecast_identity::NodeId;

use super::Gossip;
use crate::frame::{FULL, Frame};
use crate::{Keys, Peer};

impl<K: Keys> Gossip<K> {
    /// Handles the digest of another member's list.
    pub(crate) fn compare(&mut self, from: NodeId, digest: u64, now: u64) {
        let now = self.time(now);
        let recent = self.gave_list.get(&from).is_some_and(|at| now < at + self.limits.compare_every / 4);
        if self.left || digest == self.digest || recent || !self.alive.contains_key(&from) {
            return;
        }
        if self.gave_list.len() > self.limits.members {
            self.gave_list.clear();
        }
        self.gave_list.insert(from, now);
        let me = Member::alive(self.me().clone());
        let (mut part, mut len) = (Vec::new(), 0);
        for member in self.foca.iter_membership_state().chain([&me]) {
            len += member.id().bytes().len() + 3;
            part.push(member.clone());
            if len >= FULL {
                self.out.push((from, Frame::Members(std::mem::take(&mut part))));
                len = 0;
            }
        }
        self.out.push((from, Frame::Members(part)));
    }

    /// The list that we requested from `from`, or a part of it; false if it has a member that is not signed.
    pub(crate) fn list(&mut self, from: NodeId, members: Vec<Member<Peer>>, now: u64) -> bool {
        if self.asked_list != Some(from) || self.left {
            return true;
        }
        let now = self.time(now);
        let mut room = self.limits.members.saturating_sub(self.foca.iter_membership_state().len());
        let mut taken = Vec::new();
        for member in members {
            let Some(member) = self.codec.admit_member(member) else { return false };
            let (node, known) = (member.id().node(), self.is_known(member.id().node()));
            // Only deaths of members that count as alive here are news.
            let dead = member.state() == State::Down && !self.alive.contains_key(&node);
            let refused = node == self.me().node() || dead || (!known && room == 0);
            if refused || self.needs_confirmation(from, &member, now) {
                continue;
            }
            room -= usize::from(!known);
            taken.push(member);
        }
        let _ = self.foca.apply_many(taken.into_iter(), false, &mut self.asked);
        self.settle(now);
        true
    }

    /// Forgets dead members, compares lists with one member, and calls a seed that is not a member.
    pub(super) fn compare_lists(&mut self, now: u64) {
        self.compare_at =
            now + self.limits.compare_every / 2 + self.rng.below(self.limits.compare_every.max(1));
        let dead: Vec<_> = self.forget.iter().filter(|(_, (at, _))| *at <= now).map(|(n, _)| *n).collect();
        for node in dead {
            if let Some((_, peer)) = self.forget.remove(&node) {
                let _ = self.foca.handle_timer(Timer::RemoveDown(peer), &mut self.asked);
            }
        }
        self.ask_list();
        let lost: Vec<_> = self.seeds.iter().filter(|s| !self.alive.contains_key(s)).copied().collect();
        let lost = lost.get(self.rng.below(lost.len().max(1) as u64) as usize).copied();
        lost.into_iter().for_each(|seed| self.announce(seed));
        self.settle(now);
    }

    pub(super) fn ask_list(&mut self) {
        self.asked_list = self.anyone();
        self.out.extend(self.asked_list.map(|node| (node, Frame::Compare(self.digest))));
    }

    /// A random live member other than this node.
    pub(super) fn anyone(&mut self) -> Option<NodeId> {
        let me = self.me().node();
        let at = self.rng.below(self.alive.len().saturating_sub(1).max(1) as u64) as usize;
        self.alive.keys().filter(|n| **n != me).nth(at).copied()
    }
}
