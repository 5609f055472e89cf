//! This node as a member of a plan: the state of the plan under way, and which connections lead to which members.
//!
//! Promise: an epoch is followed by later ones only; a member has one connection at most, the newest.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::api::{PeerId, Time};
use crate::plan::Role;
use crate::state::plan_state::PlanState;

/// See the head of the file.
#[derive(Debug, Default)]
pub(crate) struct Membership {
    state: Option<PlanState>,
    /// The members that are connected.
    members: BTreeMap<u32, PeerId>,
}

impl Membership {
    /// The plan under way, if there is one.
    pub(crate) fn state(&self) -> Option<&PlanState> {
        self.state.as_ref()
    }

    pub(crate) fn state_mut(&mut self) -> Option<&mut PlanState> {
        self.state.as_mut()
    }

    /// Begins an epoch; false if it is not the next one. `busy`: members have other work.
    pub(crate) fn begin(&mut self, role: Arc<Role>, pieces: u32, busy: bool, now: Time) -> bool {
        match &mut self.state {
            Some(plan) if plan.role().epoch >= role.epoch => return false,
            Some(plan) if plan.role().stripes.len() == role.stripes.len() => plan.renew(role, now),
            old => {
                let mut plan = PlanState::new(role, pieces, busy, now);
                plan.take_open(old.take());
                *old = Some(plan);
            }
        }
        true
    }

    /// A connection turns out to be this member's.
    pub(crate) fn join(&mut self, member: u32, id: PeerId) {
        self.members.insert(member, id);
    }

    /// A connection has ended, with the pieces that were to go over it; `member`: its member.
    pub(crate) fn leave(&mut self, id: PeerId, member: Option<u32>) {
        if let Some(member) = member.filter(|member| self.members.get(member) == Some(&id)) {
            self.members.remove(&member);
        }
        if let Some(plan) = &mut self.state {
            plan.forget(id);
            if let Some(member) = member {
                plan.wishes_mut().lost(member);
            }
        }
    }

    /// The connection of a member.
    pub(crate) fn peer_of(&self, member: u32) -> Option<PeerId> {
        self.members.get(&member).copied()
    }

    /// The members that are connected, ascending.
    pub(crate) fn members(&self) -> Vec<(u32, PeerId)> {
        self.members.iter().map(|(&member, &id)| (member, id)).collect()
    }

    /// Passes wishes up (`Wishes::send`). `there`: the connection can be used.
    pub(crate) fn send_wishes(
        &mut self,
        now: Time,
        there: impl Fn(PeerId) -> bool,
        tell: impl FnMut(u32, PeerId, u16, bool),
    ) {
        let Membership { state: Some(plan), members } = self else { return };
        if !plan.wishes_mut().take_stirred() {
            return;
        }
        let role = plan.role().clone();
        let parent = |stripe: usize| {
            let member = role.stripes.get(stripe)?.parent?;
            let id = *members.get(&member)?;
            there(id).then_some((member, id))
        };
        plan.wishes_mut().send(now, role.stripes.len(), parent, tell);
    }
}

/// Of one connection: the member number of the peer, and the pieces that may be pushed to it.
#[derive(Debug)]
pub(crate) struct Place {
    member: Option<u32>,
    /// How far away it is in the topology.
    distance: u8,
    introduced: bool,
    offer_below: u32,
}

impl Default for Place {
    fn default() -> Self {
        Place { member: None, distance: 0, introduced: false, offer_below: u32::MAX }
    }
}

impl Place {
    pub(crate) fn is_of(&mut self, member: u32, distance: u8) {
        (self.member, self.distance) = (Some(member), distance);
    }

    /// It is a member at our own place in the topology.
    pub(crate) fn is_near(&self) -> bool {
        self.member.is_some() && self.distance == 0
    }

    pub(crate) fn member(&self) -> Option<u32> {
        self.member
    }

    /// It has announced its pieces: nothing is pushed before. True the first time.
    pub(crate) fn introduce(&mut self) -> bool {
        !std::mem::replace(&mut self.introduced, true)
    }

    pub(crate) fn is_introduced(&self) -> bool {
        self.introduced
    }

    pub(crate) fn offer_only_below(&mut self, below: u32) {
        self.offer_below = below;
    }

    /// Pieces below it may be offered to the peer.
    pub(crate) fn offer_below(&self) -> u32 {
        self.offer_below
    }
}
