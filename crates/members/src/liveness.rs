//! Tracks the last message of each member, and probes members directly.
//!
//! SWIM probes one member a second. That detects one death soon, but the last of many late (the coupon collector's
//! problem). So whenever there is a hint, the members that it concerns are asked at once: a channel ended; a probe
//! failed, so others may be dead too; or a member is declared dead that was not suspected. A hint alone has no effect:
//! a daemon that was restarted, or is alive after all, answers. Any frame of a member is an answer.

use std::collections::BTreeMap;

use foca::Member;
use tidecast_identity::NodeId;

use crate::Peer;

/// Maximum number of members that are being asked at the same time.
const MAX_ASKED: usize = 4_096;

/// A member that was asked.
struct Request {
    at: u64,
    /// Helpers were asked to probe it too.
    helped: bool,
    /// The state reported by another member, which is adopted if it does not answer; without one it becomes a suspect.
    reported: Option<Member<Peer>>,
}

#[derive(Default)]
pub(crate) struct Liveness {
    heard: BTreeMap<NodeId, u64>,
    asked: BTreeMap<NodeId, Request>,
    /// The time of the last message of any member, and of the last probe of silent members.
    last_heard: u64,
    asked_silent: u64,
    /// Timeout of an answer.
    patience: u64,
}

impl Liveness {
    pub(crate) fn new(patience: u64, now: u64) -> Self {
        Self { last_heard: now, patience, ..Self::default() }
    }

    /// A member has sent something.
    pub(crate) fn received(&mut self, node: NodeId, now: u64) {
        self.heard.insert(node, now);
        self.asked.remove(&node);
        self.last_heard = now;
    }

    /// It is no longer a member.
    pub(crate) fn forget(&mut self, node: NodeId) {
        self.heard.remove(&node);
        self.asked.remove(&node);
    }

    /// Whether a message of it arrived at `since` or later.
    pub(crate) fn was_heard(&self, node: NodeId, since: u64) -> bool {
        self.heard.get(&node).is_some_and(|at| *at >= since)
    }

    /// The time since the last message of any member.
    pub(crate) fn silence(&self, now: u64) -> u64 {
        now.saturating_sub(self.last_heard)
    }

    /// Registers a question to a member; false if it is already being asked.
    pub(crate) fn ask(&mut self, node: NodeId, reported: Option<Member<Peer>>, now: u64) -> bool {
        if let Some(request) = self.asked.get_mut(&node) {
            request.reported = request.reported.take().or(reported);
            return false;
        }
        let room = self.asked.len() < MAX_ASKED;
        if room {
            self.asked.insert(node, Request { at: now, helped: false, reported });
        }
        room
    }

    /// Whether silent members may be asked now: the last time was at least `every` ago.
    pub(crate) fn may_ask_silent(&mut self, every: u64, now: u64) -> bool {
        let may = now >= self.asked_silent.saturating_add(every);
        if may {
            self.asked_silent = now;
        }
        may
    }

    /// Members that have not answered in half the timeout: helpers may reach them. Empty if they are many, because then the
    /// cause is not a single link.
    pub(crate) fn without_helpers(&mut self, most: usize, now: u64) -> Vec<NodeId> {
        let half = self.patience / 2;
        let late = |q: &Request| q.at.saturating_add(half) <= now;
        let many = self.asked.values().filter(|q| late(q)).count() > most;
        let late = self.asked.iter_mut().filter(|(_, q)| !q.helped && late(q));
        let nodes: Vec<_> = late.map(|(node, request)| (request.helped = true, *node).1).collect();
        if many { Vec::new() } else { nodes }
    }

    /// Members that have not answered, with the state that another member reported.
    pub(crate) fn overdue(&mut self, now: u64) -> Vec<(NodeId, Option<Member<Peer>>)> {
        let late = self.asked.iter().filter(|(_, q)| q.at.saturating_add(self.patience) <= now);
        let late: Vec<_> = late.map(|(node, _)| *node).collect();
        late.into_iter().filter_map(|node| Some((node, self.asked.remove(&node)?.reported))).collect()
    }

    /// The next deadline.
    pub(crate) fn next(&self) -> u64 {
        let due = |q: &Request| q.at + if q.helped { self.patience } else { self.patience / 2 };
        self.asked.values().map(due).min().unwrap_or(u64::MAX)
    }
}
