//! Which members are heard from, and which are asked outright whether they live.
//!
//! SWIM probes one member a second. That finds one death soon, and the last of many late: a coupon collector's wait. So
//! whenever there is a hint (a channel ended; a probe failed, so others may be gone too; somebody says that a member is
//! dead whom nobody had suspected), the members that it is about are asked at once. A hint alone condemns nobody: a
//! daemon that was restarted, or lives after all, answers. Any frame of a member is an answer.

use std::collections::BTreeMap;

use foca::Member;
use tidecast_identity::NodeId;

use crate::Peer;

/// Members that are being asked at once at most.
const MOST: usize = 4_096;

/// A member that was asked.
struct Question {
    at: u64,
    /// Others were asked to ask it too.
    helped: bool,
    /// What somebody says of it, which holds if it does not answer; else it is a suspect then.
    said: Option<Member<Peer>>,
}

#[derive(Default)]
pub(crate) struct Watch {
    heard: BTreeMap<NodeId, u64>,
    asked: BTreeMap<NodeId, Question>,
    /// When anybody was heard, and when the silent ones were asked last.
    anybody: u64,
    swept: u64,
    /// How long an answer may take.
    patience: u64,
}

impl Watch {
    pub(crate) fn new(patience: u64, now: u64) -> Self {
        Self { anybody: now, patience, ..Self::default() }
    }

    /// A member has sent something.
    pub(crate) fn hear(&mut self, node: NodeId, now: u64) {
        self.heard.insert(node, now);
        self.asked.remove(&node);
        self.anybody = now;
    }

    /// It is no member any more.
    pub(crate) fn forget(&mut self, node: NodeId) {
        self.heard.remove(&node);
        self.asked.remove(&node);
    }

    /// Whether it was heard at `since` or after.
    pub(crate) fn was_heard(&self, node: NodeId, since: u64) -> bool {
        self.heard.get(&node).is_some_and(|at| *at >= since)
    }

    /// For how long nobody was heard.
    pub(crate) fn silence(&self, now: u64) -> u64 {
        now.saturating_sub(self.anybody)
    }

    /// Whether it is to be asked now: it was not yet.
    pub(crate) fn ask(&mut self, node: NodeId, said: Option<Member<Peer>>, now: u64) -> bool {
        if let Some(question) = self.asked.get_mut(&node) {
            question.said = question.said.take().or(said);
            return false;
        }
        let room = self.asked.len() < MOST;
        if room {
            self.asked.insert(node, Question { at: now, helped: false, said });
        }
        room
    }

    /// Whether it is time to ask whoever is silent, which was not done for `every`.
    pub(crate) fn may_sweep(&mut self, every: u64, now: u64) -> bool {
        let may = now >= self.swept.saturating_add(every);
        if may {
            self.swept = now;
        }
        may
    }

    /// Members that have not answered in half the time: others may reach them. None if they are many, for then it is
    /// no single link that fails.
    pub(crate) fn unhelped(&mut self, most: usize, now: u64) -> Vec<NodeId> {
        let half = self.patience / 2;
        let late = |q: &Question| q.at.saturating_add(half) <= now;
        let many = self.asked.values().filter(|q| late(q)).count() > most;
        let late = self.asked.iter_mut().filter(|(_, q)| !q.helped && late(q));
        let nodes: Vec<_> = late.map(|(node, question)| (question.helped = true, *node).1).collect();
        if many { Vec::new() } else { nodes }
    }

    /// Members that have not answered, with what somebody says of them.
    pub(crate) fn overdue(&mut self, now: u64) -> Vec<(NodeId, Option<Member<Peer>>)> {
        let late = self.asked.iter().filter(|(_, q)| q.at.saturating_add(self.patience) <= now);
        let late: Vec<_> = late.map(|(node, _)| *node).collect();
        late.into_iter().filter_map(|node| Some((node, self.asked.remove(&node)?.said))).collect()
    }

    /// When one of them is due.
    pub(crate) fn next(&self) -> u64 {
        let due = |q: &Question| q.at + if q.helped { self.patience } else { self.patience / 2 };
        self.asked.values().map(due).min().unwrap_or(u64::MAX)
    }
}
